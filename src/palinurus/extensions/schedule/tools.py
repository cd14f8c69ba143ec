"""What the model is offered to work with time: the tool cron. The work itself is imported when it is called."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec.structs import replace

from palinurus.domain.events import Plan
from palinurus.domain.keys import SessionKey
from palinurus.domain.tool import UNLISTED, PreparedCall, Tool, ToolOutput, ToolRun, prepared_tool
from palinurus.operations.services import Services

Action = Literal["status", "list", "add", "update", "remove", "run", "runs"]
Kind = Literal["reminder", "event", "turn", ""]
LOOKS = ("status", "list", "runs")
OUTLIVES = "a change of cron jobs, which outlive this turn, in a turn that has read text from outside"
_ABOUT = (
    "Remind the owner, or work, at set times. kind event: text comes to you here; turn: you run in a session of its"
    " own. After add, tell the owner the time."
)


def cron_tools(services: Services) -> tuple[Tool, ...]:
    def fits(key: SessionKey) -> bool:
        return key.is_private

    @prepared_tool("cron", _ABOUT)
    async def cron(
        run: ToolRun,
        action: Action,
        id: str = "",  # noqa: A002  as OpenClaw calls it
        when: Annotated[str, "in 20 minutes, tomorrow at 9, every weekday at 8, cron expression"] = "",
        text: str = "",
        kind: Kind = "",
        enabled: Annotated[bool | None, UNLISTED] = None,
    ) -> PreparedCall:
        from palinurus.extensions.schedule.tool_calls import CronCall, answer_call

        call = CronCall(action, id, when, text, kind, enabled)
        named = {"id": id, "when": when, "text": text, "kind": kind, "enabled": enabled}
        given = {name: value for name, value in named.items() if value not in ("", None)}
        plan = Plan("cron", f"cron {action}", arguments=given)

        async def go() -> ToolOutput:
            return await answer_call(services, run, call)

        return PreparedCall(plan, go, when_untrusted="" if action in LOOKS else OUTLIVES)

    return (replace(cron, fits=fits, owner_only=True),)
