"""A plugin that was written for the first version of the interface. It is never changed: it shows that such plugins
go on working."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from palinurus.plugin import (
    Check,
    JobKind,
    PluginApp,
    Services,
    Struct,
    ToolOutput,
    ToolRun,
    command_of,
    operation,
    tool,
)


class WeatherReport(Struct, frozen=True):
    text: str


@operation("weather.now", scope="read")
async def now(services: Services, place: Annotated[str, "A place."]) -> WeatherReport:
    """How the weather is.  Example: pal weather Oslo"""
    return WeatherReport(f"sun in {place}")


def data_of(services: Services) -> Path:
    folder = services.home.root / "plugins" / "data" / "weather"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


async def answer(services: Services, key: Any, words: str, inbound: Any) -> str:
    return f"sun in {words}"


async def note(services: Services, payload: dict[str, str], job: Any) -> None:
    Path(payload["file"]).write_text(payload["text"])


async def heard(services: Services, event: Any) -> None:
    await services.jobs.add(
        "weather.note", {"file": str(data_of(services) / "heard.txt"), "text": event.context["content"]}, "note"
    )


async def serve(services: Services) -> None:
    (data_of(services) / "served.txt").write_text("served")


def about(config: Any, agent_id: str) -> tuple[str, str]:
    return "Weather", f"{agent_id} knows the weather."


def check(home: Any, loaded: Any) -> list[Check]:
    return [Check("ok", "weather", "the sky is there")]


def register(app: PluginApp) -> None:
    @tool("weather_now", "The weather at a place.")
    async def weather(run: ToolRun, place: Annotated[str, "A place."]) -> ToolOutput:
        (app.data_folder / "asked.txt").write_text(place)
        return ToolOutput(f"20 {app.config['units']} in {place}")

    app.tool(weather)
    app.operation(now)
    app.command("weather", command_of(now, lambda _, report: report.text, name="weather"))
    app.slash_command("weather", "first_weather:answer")
    app.hook("message:received", "first_weather:heard")
    app.job(JobKind("weather.note", dict[str, str], note))
    app.service("first_weather:serve")
    app.prompt_section("first_weather:about")
    app.doctor_check("first_weather:check")
