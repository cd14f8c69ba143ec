"""What the model is offered to work with subagents: sessions_spawn, sessions_yield and subagents.

The work itself is imported when one of them is called.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec.structs import replace

from palinurus.domain.keys import SessionKey
from palinurus.domain.tool import Tool, ToolOutput, ToolRun, tool
from palinurus.extensions.subagents.settings import SubagentSettings
from palinurus.extensions.subagents.spawn_call import SpawnCall
from palinurus.operations.services import Services

_ABOUT_SPAWN = (
    "Start subagents that work in the background with an empty context. Results come to you as messages; tasks"
    " report together."
)


def subagent_tools(services: Services) -> tuple[Tool, ...]:
    def may_spawn(key: SessionKey) -> bool:
        return not key.is_subagent or services.config.section(SubagentSettings, key.agent).max_spawn_depth > 1

    @tool("sessions_spawn", _ABOUT_SPAWN)
    async def sessions_spawn(run: ToolRun, call: SpawnCall) -> ToolOutput:
        from palinurus.extensions.subagents.spawn import spawn

        return await spawn(services, run, call)

    @tool("sessions_yield", "End this run and wait for the results of your subagents.")
    async def sessions_yield(run: ToolRun) -> ToolOutput:
        return ToolOutput("The run ends here; results come as messages.", ends_turn=True)

    @tool("subagents", "Your subagents: list them, stop one (kill), send one a message (steer).")
    async def subagents(
        run: ToolRun,
        action: Literal["list", "kill", "steer"] = "list",
        target: Annotated[str, "label or key; kill: also all"] = "",
        message: str = "",
    ) -> ToolOutput:
        from palinurus.extensions.subagents.operations import manage

        return await manage(services, run, action, target, message)

    return tuple(replace(each, fits=may_spawn) for each in (sessions_spawn, sessions_yield, subagents))
