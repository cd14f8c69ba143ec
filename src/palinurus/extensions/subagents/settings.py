"""Limits of subagents, and which sessions an agent's tools may see."""

from fnmatch import fnmatchcase
from typing import Annotated, Literal

from palinurus.config.agents import ThinkingLevel
from palinurus.config.section import OptionForm, Section, option

Visibility = Literal["self", "tree", "agent", "all"]


class SubagentSettings(Section, frozen=True):
    """Subagents: helpers that an agent starts with the tool sessions_spawn."""

    allow_agents: Annotated[
        tuple[str, ...], option('Agents that it may start besides itself, by id; "*" for every one.')
    ] = ()
    require_agent_id: Annotated[bool, option("Whether each call must name the agent.")] = False
    model: Annotated[str, option("The model of subagents. Unset: that of the session which starts them.")] = ""
    thinking: Annotated[
        str,
        option("How much subagents think. Unset: as their parent.", form=OptionForm(ThinkingLevel, str, str)),
    ] = ""
    max_spawn_depth: Annotated[int, option("How deep subagents may start subagents; 1: they may not.", ge=1, le=5)] = 1
    max_children_per_agent: Annotated[int, option("Running subagents of one session.", ge=1, le=20)] = 5
    max_concurrent: Annotated[int, option("Subagents that run at the same time in the home.", ge=1, le=64)] = 8
    run_timeout_seconds: Annotated[
        float, option("Seconds that a subagent may take unless the call says otherwise; 0 is no limit.", ge=0)
    ] = 0.0
    archive_after_minutes: Annotated[
        float, option("Minutes after its end until its session is archived; 0 is never.", ge=0)
    ] = 60.0
    announce_timeout_ms: Annotated[
        int, option("Milliseconds that one attempt to announce a result may take.", ge=1000)
    ] = 120_000


class SessionToolSettings(Section, frozen=True):
    """Which sessions the tools sessions_list, sessions_history, sessions_search and sessions_send reach."""

    visibility: Annotated[
        Visibility,
        option(
            "self: only the current session; tree: also its subagents; agent: all of its agent; all: also those of"
            " other agents, as agentToAgent allows. Groups and subagents never see more than their tree."
        ),
    ] = "agent"


class AgentToAgentSettings(Section, frozen=True):
    """Whether agents may read and write sessions of other agents."""

    enabled: Annotated[bool, option("Whether they may at all.")] = False
    allow: Annotated[tuple[str, ...], option('Which agents, by id or pattern with "*"; both sides must be in it.')] = (
        "*",
    )
    max_ping_pong_turns: Annotated[int, option("Messages that one run may send to one session.", ge=0, le=20)] = 5


def refuses_agent(seen: SessionToolSettings, between: AgentToAgentSettings, own: str, other: str) -> str:
    """Why an agent may not reach the sessions of another one; empty if it may."""
    if seen.visibility != "all":
        return f"tools.sessions.visibility is {seen.visibility}"
    if not between.enabled:
        return "tools.agentToAgent.enabled is false"
    for agent in (own, other):
        if not any(fnmatchcase(agent, pattern.strip().lower()) for pattern in between.allow):
            return f"tools.agentToAgent.allow does not name {agent}"
    return ""
