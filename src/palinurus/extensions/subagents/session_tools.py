"""What the model is offered to read other sessions, to write to them and to know of other agents.

The work itself is imported when one of them is called. Arguments that are not in the schema are taken too, as OpenClaw
has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec.structs import replace

from palinurus.domain.errors import BadRequest
from palinurus.domain.keys import SessionKey
from palinurus.domain.tool import UNLISTED, PreparedCall, Tool, ToolOutput, ToolRun, prepared_tool, tool
from palinurus.extensions.subagents.settings import (
    AgentToAgentSettings,
    SessionToolSettings,
    SubagentSettings,
    refuses_agent,
)
from palinurus.operations.services import Services

if TYPE_CHECKING:
    from palinurus.extensions.subagents.send import SessionSender

MAX_WAIT = 120


def session_tools(services: Services) -> tuple[Tool, ...]:
    def may_read(key: SessionKey) -> bool:
        """A subagent that can start none has no session to look at."""
        return not key.is_subagent or services.config.section(SubagentSettings, key.agent).max_spawn_depth > 1

    def may_send(key: SessionKey) -> bool:
        return key.is_private and services.config.section(SessionToolSettings).visibility != "self"

    def has_others(key: SessionKey) -> bool:
        section, own = services.config.section, key.agent
        starts = section(SubagentSettings, own).allow_agents
        rules = section(SessionToolSettings), section(AgentToAgentSettings)
        return any(starts or not refuses_agent(*rules, own, each) for each in services.agents.ids if each != own)

    return (
        *(replace(each, fits=may_read) for each in reading_tools(services)),
        replace(send_tool(services), fits=may_send),
        replace(agents_tool(services), fits=has_others),
    )


def reading_tools(services: Services) -> tuple[Tool, ...]:
    @tool("sessions_list", "List your sessions, newest first.")
    async def sessions_list(
        run: ToolRun,
        messageLimit: Annotated[int, "last messages of each"] = 0,  # noqa: N803  # OpenClaw's
        limit: Annotated[int, UNLISTED] = 20,
        kinds: Annotated[tuple[str, ...], UNLISTED] = (),
        activeMinutes: Annotated[float, UNLISTED] = 0,  # noqa: N803
    ) -> ToolOutput:
        from palinurus.extensions.subagents.session_reports import ListedSessions, list_visible

        return await list_visible(services, run, ListedSessions(limit, messageLimit, kinds, activeMinutes))

    @tool("sessions_history", "Read the last messages of a session.")
    async def sessions_history(
        run: ToolRun,
        sessionKey: Annotated[str, "or label; default: this one"] = "",  # noqa: N803
        limit: int = 20,
        includeTools: Annotated[bool, UNLISTED] = False,  # noqa: N803
    ) -> ToolOutput:
        from palinurus.extensions.subagents.session_reports import read_visible

        return await read_visible(services, run, sessionKey, limit, tools=includeTools)

    @tool("sessions_search", "Search what was said in your sessions.")
    async def sessions_search(run: ToolRun, query: str, limit: Annotated[int, UNLISTED] = 10) -> ToolOutput:
        from palinurus.extensions.subagents.session_reports import search_visible

        return await search_visible(services, run, query, limit)

    return sessions_list, sessions_history, sessions_search


def send_tool(services: Services) -> Tool:
    made: list[SessionSender] = []  # one for all runs: it counts what they send

    @prepared_tool("sessions_send", "Send a message to another session; returns its agent's reply.")
    async def sessions_send(
        run: ToolRun,
        message: str,
        sessionKey: Annotated[str, "or label"] = "",  # noqa: N803
        timeoutSeconds: Annotated[int, "0: do not wait"] = 30,  # noqa: N803
        label: Annotated[str, UNLISTED] = "",
    ) -> PreparedCall | ToolOutput:
        from palinurus.extensions.subagents.send import SessionSender

        if bool(sessionKey.strip()) == bool(label.strip()):
            raise BadRequest("sessions_send needs one of sessionKey and label", hint="sessions_list shows both")
        if not made:
            made.append(SessionSender(services))
        return await made[0].prepare(run, sessionKey or label, message, max(0, min(timeoutSeconds, MAX_WAIT)))

    return sessions_send


def agents_tool(services: Services) -> Tool:
    @tool("agents_list", "List the agents that you can start or write to.")
    async def agents_list(run: ToolRun) -> ToolOutput:
        from palinurus.extensions.subagents.session_reports import list_agents

        return list_agents(services, run)

    return agents_list
