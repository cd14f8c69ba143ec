"""Traces for a collector: off unless wanted, sent by the official SDK, and never in the way of a run."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from palinurus.config.home import Home
from palinurus.config.load import LoadedConfig, load_config
from palinurus.domain.errors import ConfigError
from palinurus.domain.messages import Usage
from palinurus.ledger.trace import ModelStep, RunTrace, ToolStep
from palinurus.runtime import telemetry as telemetry_module
from palinurus.runtime.telemetry import VARIABLE, Telemetry, TelemetrySettings, open_telemetry, telemetry_settings

TRACE = RunTrace(
    "run-1",
    "agent:home:telegram:direct:a-person",
    "telegram",
    1_794_744_000_000,
    "error",
    20,
    500,
    "openai/m",
    Usage(100, 10, 50),
    error="what somebody said",
    error_kind="overload",
    steps=(
        ModelStep(25, "openai", "m", 100, 40, Usage(100, 10, 50), "toolUse", notices=("tried again",)),
        ToolStep(130, "exec", 300, "sandbox", is_error=True, approval="denied", approval_ms=250),
        ModelStep(440, "openai", "m", 50, stop_reason="error", error="overload"),
    ),
)


class Collector:
    """A real server at loopback that takes what an OpenTelemetry collector would."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.heard = threading.Event()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.bodies.append(gzip.decompress(body) if self.headers.get("content-encoding") else body)
                collector.headers.append({name.lower(): value for name, value in self.headers.items()})
                self.send_response(collector.status)
                self.send_header("content-length", "0")
                self.end_headers()
                collector.heard.set()

            def log_message(self, *_: Any) -> None: ...

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(60)
        self._server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    pytest.importorskip("opentelemetry.sdk.trace")
    one = Collector()
    yield one
    one.close()


def spans(collector: Collector) -> list[Any]:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    return [
        span
        for body in collector.bodies
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


def loaded(home: Home, **otel: Any) -> LoadedConfig:
    config = json.loads(home.config_path.read_text())
    if otel:
        config["diagnostics"] = {"otel": otel}
    home.config_path.write_text(json.dumps(config))
    return load_config(home, {})


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLOSE_SECONDS", "SEND_SECONDS"):
        monkeypatch.setattr(telemetry_module, name, 60.0)


async def sent(settings: TelemetrySettings, *traces: RunTrace) -> None:
    telemetry = Telemetry(settings)
    telemetry.start()
    for trace in traces:
        telemetry(trace)
    await asyncio.wait_for(telemetry.close(), 60)


async def test_a_run_is_a_span_with_its_models_and_tools_inside(collector: Collector) -> None:
    await sent(TelemetrySettings(collector.url, {"x-key": "abc"}), TRACE)
    root, model, tool, last = sorted(spans(collector), key=lambda span: span.start_time_unix_nano)
    assert [span.name for span in (root, model, tool, last)] == [
        "invoke_agent home",
        "chat m",
        "execute_tool exec",
        "chat m",
    ]
    assert {span.parent_span_id for span in (model, tool, last)} == {root.span_id}
    assert len({span.trace_id for span in (root, model, tool, last)}) == 1
    begin = TRACE.accepted_at * 1_000_000
    assert (root.start_time_unix_nano, root.end_time_unix_nano) == (begin, begin + 500_000_000)
    assert (tool.start_time_unix_nano, tool.end_time_unix_nano) == (begin + 130_000_000, begin + 430_000_000)
    about = attributes(model)
    assert about["gen_ai.provider.name"] == "openai"
    assert (about["gen_ai.usage.input_tokens"], about["gen_ai.usage.output_tokens"]) == (150, 10)
    assert attributes(tool)["palinurus.approval"] == "denied"
    assert (root.status.code, tool.status.code, model.status.code) == (2, 2, 0)
    assert attributes(last)["error.type"] == "overload"
    assert collector.headers[0]["x-key"] == "abc"


async def test_nobody_and_nothing_that_was_said_is_in_a_span(collector: Collector) -> None:
    await sent(TelemetrySettings(collector.url), TRACE)
    for word in (b"a-person", b"what somebody said", b"tried again"):
        assert word not in b"".join(collector.bodies)


async def test_a_collector_that_refuses_is_told_once_and_costs_nobody_time(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.status = 400
    await sent(TelemetrySettings(collector.url), *[TRACE] * 700)  # more than one batch
    assert len(collector.bodies) > 1
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        f"traces are not taken by {collector.url}/v1/traces"
    ]


async def test_traces_that_nobody_takes_in_time_are_dropped_and_counted() -> None:
    telemetry = Telemetry(TelemetrySettings("http://127.0.0.1:9"))  # never started
    for _ in range(telemetry_module.WAITING + 5):
        telemetry(TRACE)
    assert telemetry.dropped == 5


def test_it_is_off_unless_somebody_wants_it(home: Home) -> None:
    plain = loaded(home)
    assert telemetry_settings(plain, {}) is None
    assert open_telemetry(plain, {}) is None


def test_the_config_or_the_usual_variable_switches_it_on(home: Home) -> None:
    pytest.importorskip("opentelemetry.sdk.trace")
    env = {VARIABLE: "http://127.0.0.1:4318"}
    assert telemetry_settings(loaded(home), env) == TelemetrySettings("http://127.0.0.1:4318")
    full = loaded(home, endpoint="http://127.0.0.1:1", headers={"x-key": "abc"}, serviceName="boat", sampleRate=0.5)
    assert telemetry_settings(full, env) == TelemetrySettings("http://127.0.0.1:1", {"x-key": "abc"}, "boat", 0.5)
    assert telemetry_settings(loaded(home, enabled=True), env) == TelemetrySettings("http://127.0.0.1:4318")
    assert telemetry_settings(loaded(home, enabled=False), env) is None
    assert telemetry_settings(loaded(home, traces=False), env) is None


def test_what_is_wanted_and_cannot_be_done_is_told_in_one_line(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError, match="cannot be sent to ''"):
        telemetry_settings(loaded(home, enabled=True), {})
    monkeypatch.setattr(telemetry_module, "PACKAGES", ("opentelemetry_is_not_here",))
    config = loaded(home, endpoint="http://127.0.0.1:4318")
    with pytest.raises(ConfigError, match="not installed"):
        telemetry_settings(config, {})
    assert open_telemetry(config, {}) is None
    assert [record.getMessage() for record in caplog.records] == [
        "traces are not sent: the OpenTelemetry SDK is not installed (the extra: otel)"
    ]


def test_a_header_by_reference_is_sent_and_taken_out_of_what_we_write(home: Home) -> None:
    header = {"source": "env", "id": "COLLECTOR"}
    loaded(home, endpoint="http://127.0.0.1:1", headers={"x-key": header})
    found = load_config(home, {"COLLECTOR": "a-long-secret-value"})
    assert found.warnings == ()
    assert "a-long-secret-value" in found.secrets
    pytest.importorskip("opentelemetry.sdk.trace")
    settings = telemetry_settings(found, {})
    assert settings is not None
    assert settings.headers == {"x-key": "a-long-secret-value"}
