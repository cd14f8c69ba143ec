"""Traces of runs for an OpenTelemetry collector, by OTLP over HTTP. Needs the extra `otel`; off unless configured.

A trace is handed over when its run is over; spans are made and sent by threads of their own, so a turn costs the same
with and without, and a collector that is away costs nobody anything but its traces. Spans hold what the trace holds:
names, times and tokens, and no words of anybody. Names follow OpenTelemetry's conventions for generative AI.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from palinurus import __version__
from palinurus.config.load import LoadedConfig, resolve_secret, secret_providers
from palinurus.domain.errors import ConfigError, PalinurusError
from palinurus.domain.keys import SessionKey
from palinurus.gateway.settings import OtelOptions
from palinurus.ledger.trace import ModelStep, RunTrace, Step

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, Tracer
    from opentelemetry.sdk.trace.export import SpanExporter

log = logging.getLogger(__name__)

VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
PACKAGES = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter")
PATH = "/v1/traces"
WAITING = 1_000  # traces that may wait for their thread
CLOSE_SECONDS = 3.0
SEND_SECONDS = 5.0


class TelemetrySettings(Struct, frozen=True):
    endpoint: str
    headers: dict[str, str] = field(default_factory=dict)
    service_name: str = "palinurus"
    sample_rate: float = 1.0


def telemetry_settings(loaded: LoadedConfig, env: Mapping[str, str]) -> TelemetrySettings | None:
    """None: nothing is sent. Raises ConfigError when it cannot be, though the config wants it."""
    options = loaded.config.section(OtelOptions)
    endpoint = options.endpoint or env.get(VARIABLE, "")
    wanted = options.traces and options.enabled is not False
    if not wanted or not (endpoint or options.enabled):
        return None
    if not endpoint.startswith(("http://", "https://")):
        raise ConfigError(
            f"traces cannot be sent to {endpoint[:80]!r}", hint="diagnostics.otel.endpoint: an http address"
        )
    if not _installed():
        raise ConfigError("traces are not sent: the OpenTelemetry SDK is not installed", hint="the extra: otel")
    known = secret_providers(loaded)
    found = {name: resolve_secret(value, loaded.env, known) for name, value in options.headers.items()}
    headers = {name: value for name, value in found.items() if value is not None}
    return TelemetrySettings(endpoint, headers, options.service_name or "palinurus", options.sample_rate)


def open_telemetry(loaded: LoadedConfig, env: Mapping[str, str]) -> Telemetry | None:
    """Started, or None. Never raises: without telemetry the program runs all the same, and says so."""
    try:
        settings = telemetry_settings(loaded, env)
    except PalinurusError as error:
        log.warning("%s", error)
        return None
    if settings is None:
        return None
    telemetry = Telemetry(settings)
    telemetry.start()
    return telemetry


class Telemetry:
    """Takes finished traces: `tracer.listeners.append(telemetry)`."""

    def __init__(self, settings: TelemetrySettings) -> None:
        self.dropped = 0
        self._settings = settings
        self._queue: queue.Queue[RunTrace | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._work, name="pal-telemetry", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def __call__(self, trace: RunTrace) -> None:
        try:
            self._queue.put_nowait(trace)
        except queue.Full:
            self.dropped += 1

    async def close(self) -> None:
        """Send what waits, within a few seconds; the rest is lost."""
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            return
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join, CLOSE_SECONDS)

    def _work(self) -> None:
        sender = _Sender(self._settings)
        try:
            while (trace := self._queue.get()) is not None:
                sender.send(trace)
        finally:
            sender.close()


class _Sender:
    """On its own thread: the SDK is imported here, when there is somebody to send to."""

    def __init__(self, settings: TelemetrySettings) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)  # it complains each time; we say it once
        address = settings.endpoint.rstrip("/")
        address = address if address.endswith(PATH) else f"{address}{PATH}"
        exporter = OTLPSpanExporter(address, headers=settings.headers or None, timeout=SEND_SECONDS)
        resource = Resource.create({"service.name": settings.service_name, "service.version": __version__})
        self._provider = TracerProvider(
            TraceIdRatioBased(settings.sample_rate), resource=resource, shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(_told(exporter, address)))
        self._tracer: Tracer = self._provider.get_tracer("palinurus", __version__)  # type: ignore[assignment]

    def send(self, trace: RunTrace) -> None:
        from opentelemetry.trace import StatusCode, set_span_in_context

        root = self._tracer.start_span(
            f"invoke_agent {_agent(trace)}", start_time=_ns(trace, 0), attributes=_about_run(trace)
        )
        if trace.status == "error":
            root.set_status(StatusCode.ERROR, trace.error_kind or "error")
        inside = set_span_in_context(root)
        for step in trace.steps:
            name, attributes, failed = _about_step(step)
            span = self._tracer.start_span(name, inside, start_time=_ns(trace, step.at), attributes=attributes)
            if failed:
                span.set_status(StatusCode.ERROR)
            span.end(_ns(trace, step.at + (step.ms or 0)))
        root.end(_ns(trace, trace.ms))

    def close(self) -> None:
        self._provider.shutdown()


def _told(exporter: SpanExporter, address: str) -> SpanExporter:
    """The exporter, saying once when it begins to fail and once when it goes on."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class Told(SpanExporter):
        failing = False

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            result = exporter.export(spans)
            failed = result is not SpanExportResult.SUCCESS
            if failed != self.failing:
                self.failing = failed
                log.warning("traces %s taken by %s", "are not" if failed else "are again", address)
            return result

        def shutdown(self) -> None:
            exporter.shutdown()

    return Told()


def _about_run(trace: RunTrace) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.id": _agent(trace),
        "gen_ai.usage.input_tokens": trace.usage.total - trace.usage.output,
        "gen_ai.usage.output_tokens": trace.usage.output,
        "palinurus.run.id": trace.run_id,
        "palinurus.channel": trace.channel,
        "palinurus.status": trace.status,
        "palinurus.queue_ms": trace.started or 0,
        "palinurus.joined": trace.joined,
    }


def _about_step(step: Step) -> tuple[str, dict[str, Any], bool]:
    """Name, attributes, and whether it failed."""
    if isinstance(step, ModelStep):
        told: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": step.provider,
            "gen_ai.request.model": step.model,
            "gen_ai.usage.input_tokens": step.usage.total - step.usage.output,
            "gen_ai.usage.output_tokens": step.usage.output,
            "gen_ai.response.finish_reasons": (step.stop_reason,),
            "palinurus.retries": len(step.notices),
        }
        if step.first_token is not None:
            told["palinurus.first_token_ms"] = step.first_token
        if step.error:
            told["error.type"] = step.error
        return f"chat {step.model}", told, step.stop_reason in ("error", "aborted")
    told = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": step.name, "palinurus.where": step.where}
    if step.approval:
        told |= {"palinurus.approval": step.approval, "palinurus.approval_ms": step.approval_ms}
    return f"execute_tool {step.name}", told, step.is_error


def _agent(trace: RunTrace) -> str:
    return SessionKey.parse(trace.session_key).agent


def _ns(trace: RunTrace, at: int) -> int:
    return (trace.accepted_at + at) * 1_000_000


def _installed() -> bool:
    try:
        return all(find_spec(name) is not None for name in PACKAGES)
    except ModuleNotFoundError:
        return False
