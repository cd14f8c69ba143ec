"""What a config may say about watching the house from outside."""

from __future__ import annotations

from pydantic import Field

from palinurus.config.section import Secret, Section, names


class OtelOptions(Section):
    """Traces of runs for an OpenTelemetry collector. Needs the extra `otel`."""

    foreign = names("protocol metrics logs captureContent flushIntervalMs")

    enabled: bool | None = Field(
        None, description="Whether traces are sent. Default: when endpoint or OTEL_EXPORTER_OTLP_ENDPOINT is set."
    )
    endpoint: str | None = Field(
        None, description="Address of the collector (OTLP over HTTP). Default OTEL_EXPORTER_OTLP_ENDPOINT."
    )
    headers: dict[str, Secret] = Field({}, description="HTTP headers that are sent with the traces.")
    service_name: str | None = Field(None, description="How the house is called there. Default palinurus.")
    traces: bool = Field(True, description="Whether traces of runs are sent.")
    sample_rate: float | None = Field(None, ge=0, le=1, description="The share of runs that is sent. Default 1.")


class DiagnosticsOptions(Section):
    foreign = names("enabled flags cacheTrace stuckSessionWarnMs stuckSessionAbortMs")

    otel: OtelOptions | None = Field(None, description="Traces of runs for an OpenTelemetry collector.")
