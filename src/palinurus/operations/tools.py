"""Which tools there are, who may use them, and where the commands of a session run."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct
from msgspec.structs import replace

from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import NotFound
from palinurus.domain.keys import SessionKey
from palinurus.domain.tool import Tool
from palinurus.operations.operation import Metavar, operation
from palinurus.operations.services import Services
from palinurus.operations.shapes import made_of
from palinurus.sandbox.environment import AGENT_PLACE, MEMORY_IS_REAL, ExecEnvironment, Runs, where_commands_run
from palinurus.sandbox.folders import scratch_folder
from palinurus.sandbox.probes import ProbeResult, ProbeRun
from palinurus.sandbox.sandbox import SandboxStatus
from palinurus.sandbox.settings import SandboxSettings
from palinurus.tools.policy import Policy, ToolRequest, Verdict, decide, explain
from palinurus.tools.tool_names import BUILT_IN, canonical, group_of, is_known, members

OfAgent = Annotated[str, "Of this agent."]
InSession = Annotated[str, "In this session. Default: the agent's main one."]
WithModel = Annotated[str, Metavar("PROVIDER/MODEL"), "With this model. Default: the session's."]
ForSender = Annotated[str, Metavar("CHANNEL:ID"), "As if this person asked, not the owner."]


class ToolAccess(Struct, frozen=True):
    name: str
    group: str
    allowed: bool
    layer: str  # the one that decided
    why: str
    description: str = ""


class ToolList(Struct, frozen=True, rename="camel"):
    session_key: str
    model: str
    sandboxed: bool
    tools: tuple[ToolAccess, ...]


class Explanation(Struct, frozen=True, rename="camel"):
    name: str
    group: str
    session_key: str
    model: str
    sandboxed: bool
    present: bool  # whether there is such a tool at all
    verdict: Verdict


class _Place(Struct, frozen=True):
    """What a question about tools is asked of."""

    tools: tuple[Tool, ...]
    policy: Policy
    asked: ToolRequest

    def about(self, tool: Tool | None, name: str = "") -> ToolRequest:
        """The question for one tool, or for one that there is not."""
        owner_only = tool is not None and tool.owner_only
        return replace(self.asked, tool=tool.spec.name if tool else name, owner_only=owner_only)

    @property
    def model(self) -> str:
        return f"{self.asked.provider}/{self.asked.model}" if self.asked.provider else ""


@operation("tools.list", scope="read")
async def list_tools(
    services: Services, agent: OfAgent = "", session_key: InSession = "", model: WithModel = "", sender: ForSender = ""
) -> ToolList:
    """List the tools, whether they may be used here, and what decided it.

    Examples:
      pal tools list
      pal tools list --session-key agent:main:telegram:group:-1001 --sender telegram:42
    """
    place = await _place(services, agent, session_key, model, sender)
    key = place.asked.key
    listed = tuple(_listed(tool, _fitting(tool, key, decide(place.policy, place.about(tool)))) for tool in place.tools)
    return ToolList(str(key), place.model, place.asked.sandboxed, listed)


@operation("tools.explain", scope="read")
async def explain_tool(
    services: Services,
    name: str,
    agent: OfAgent = "",
    session_key: InSession = "",
    model: WithModel = "",
    sender: ForSender = "",
) -> Explanation:
    """Show layer by layer why a tool may be used here or not.

    Examples:
      pal tools explain exec
      pal tools explain exec --session-key agent:main:telegram:group:-1001
    """
    place = await _place(services, agent, session_key, model, sender)
    plain = canonical(name)
    tool = next((tool for tool in place.tools if canonical(tool.spec.name) == plain), None)
    if (group := members(plain.removeprefix("group:")) if plain.startswith("group:") else None) is not None:
        raise NotFound(f"{plain} is a group: {', '.join(group)}", hint=_of_group(group))
    if tool is None and (not is_known(plain) or "*" in plain or ":" in plain):
        raise NotFound(f"there is no tool {name!r}", hint="`pal tools list` shows them")
    asked = place.asked
    verdict = _fitting(tool, asked.key, explain(place.policy, place.about(tool, plain)))
    shown = tool.spec.name if tool else plain
    return Explanation(shown, group_of(plain), str(asked.key), place.model, asked.sandboxed, tool is not None, verdict)


def _fitting(tool: Tool | None, key: SessionKey, verdict: Verdict) -> Verdict:
    """The decision, unless the tool would be of no use in the session."""
    if tool is None or tool.fits is None or tool.fits(key) or not verdict.allowed:
        return verdict
    return replace(verdict, allowed=False, layer="session", why="it is not offered: this session cannot use it")


def _of_group(group: tuple[str, ...]) -> str:
    here = [name for name in group if name in BUILT_IN or "*" in name]
    return f"name one of them, such as {here[0]}" if here else "this version has no such tool"


async def _place(services: Services, agent: str, session_key: str, model: str, sender: str) -> _Place:
    key = await services.dispatcher.place(Inbound("", "", session_key=session_key, agent=agent))
    provider, _, name = (model or await _next_model(services, key)).partition("/")
    channel, _, person = sender.partition(":") if sender else ("cli", "", "owner")
    asked = ToolRequest(
        "",
        key,
        owner=not sender,
        channel=channel,
        sender=person or channel,
        provider=provider,
        model=name,
        sandboxed=services.toolsets.environment(key).sandboxed == "required",
        elevated_allowed=services.toolsets.settings(key.agent).elevated.enabled,
    )
    return _Place(tuple(await services.toolsets.tools(key.agent)), services.toolsets.policy(key.agent), asked)


async def _next_model(services: Services, key: SessionKey) -> str:
    """What the next message of the session is sent to, whether or not there was one before."""
    _, route = await services.models.choose(key.agent, (await services.turns.history.view_of(key)).model)
    return f"{route.provider}/{route.model}"


def _listed(tool: Tool, verdict: Verdict) -> ToolAccess:
    name = tool.spec.name
    return ToolAccess(name, group_of(name), verdict.allowed, verdict.layer, verdict.why, tool.spec.description)


_MODES = {
    "auto": "no mode is set: commands run in a sandbox if there is one, else on the host, where they need approval",
    "off": "sandbox.mode is off: commands run on the host",
    "non-main": "sandbox.mode is non-main: every session but the agent's main one is sandboxed",
    "all": "sandbox.mode is all: every session is sandboxed",
}
_ACCESS = {
    "rw": "the agent's workspace, which it may change",
    "ro": "the agent's workspace, read-only",
    "none": "a private workspace, a copy of the agent's files and skills",
}
_NOT_PRIVATE = "others may listen: MEMORY.md, USER.md, memory/, bank/, .git and .pal of the workspace are not shown"


class VisiblePath(Struct, frozen=True):
    """One place that a command can see."""

    path: str
    writable: bool
    what: str


class SandboxExplanation(Struct, frozen=True, rename="camel"):
    session_key: str
    runs: Runs
    why: tuple[str, ...]
    mode: str
    scope: str
    access: str
    walls: SandboxStatus
    seen: tuple[VisiblePath, ...]
    network: bool
    memory_mb: int
    cpu_seconds: int
    processes: int
    file_mb: int
    disk_mb: int
    env: tuple[str, ...]  # names only: a value may be a secret


class SandboxReport(Struct, frozen=True):
    ok: bool
    walls: SandboxStatus
    probes: tuple[ProbeResult, ...] = ()


@operation("sandbox.explain", scope="read")
async def explain_sandbox(
    services: Services,
    session_key: Annotated[str, "Of this session. Default: the agent's main one."] = "",
    agent: OfAgent = "",
) -> SandboxExplanation:
    """Show where the commands of a session run, what they see and may use, and why.

    Examples:
      pal sandbox explain
      pal sandbox explain --session-key agent:main:telegram:group:-1001
    """
    key = await services.dispatcher.place(Inbound("", "", session_key=session_key, agent=agent))
    settings, place = services.toolsets.settings(key.agent).sandbox, services.toolsets.environment(key)
    walls = await services.toolsets.sandbox(key.agent).check()
    runs = where_commands_run(place, walls)
    hides = (_NOT_PRIVATE,) if runs == "sandbox" and not key.is_private else ()
    return made_of(
        SandboxExplanation,
        settings,
        session_key=str(key),
        runs=runs,
        why=(*_reasons(settings, place, walls), *hides),
        walls=walls,
        seen=_seen(settings, place) if runs == "sandbox" else (),
        network=place.network if runs == "sandbox" else runs == "host",
        env=tuple(sorted(place.env)),
    )


@operation("sandbox.test", scope="write")
async def try_sandbox(
    services: Services,
    session_key: Annotated[str, "Test the sandbox of this session."] = "",
    agent: OfAgent = "",
) -> SandboxReport:
    """Test the sandbox with short commands. Exit code 1 when a test fails.

    Takes a few seconds. Nothing is changed, and nothing is left running.

    Examples:
      pal sandbox test
      pal sandbox test --json
    """
    key = await services.dispatcher.place(Inbound("", "", session_key=session_key, agent=agent))
    sandbox, place = services.toolsets.sandbox(key.agent), services.toolsets.environment(key)
    walls = await sandbox.check()
    if not walls.works or walls.name == "host":  # a host has no walls to try
        return SandboxReport(False, walls)
    with scratch_folder("pal-sandbox-") as spare:
        # A private workspace is made when it is first used; trying the walls is no such use.
        if place.sandboxed == "no" or not place.workspace.is_dir():
            place = replace(place, workspace=spare, network=False)
        probes = tuple([probe async for probe in ProbeRun(sandbox, place, services.home.root).run()])
    return SandboxReport(all(probe.passed for probe in probes), walls, probes)


def _reasons(settings: SandboxSettings, place: ExecEnvironment, walls: SandboxStatus) -> list[str]:
    told = [_MODES[settings.mode]]
    if settings.mode == "non-main" and place.sandboxed == "no":
        told.append("this is the main session")
    if place.sandboxed != "no":
        if not walls.works:
            told.append(f"{walls.name} does not work here: {walls.why}")
            if place.sandboxed == "required":
                told.append("the configured sandbox is not available, so no command runs")
        told.append(f"sandbox.workspaceAccess is {settings.access}: inside is {_ACCESS[settings.access]}")
        if place.own is not None and place.private:
            told.append(MEMORY_IS_REAL)
    return told


def _seen(settings: SandboxSettings, place: ExecEnvironment) -> tuple[VisiblePath, ...]:
    found = [VisiblePath(str(place.workspace), place.writable, _ACCESS[settings.access])]
    if place.agent_workspace is not None:
        found.append(VisiblePath(AGENT_PLACE, False, "the same once more"))
    programs = VisiblePath("/usr, /bin, /lib and a few files of /etc", False, "this machine's programs")
    if settings.backend == "docker":
        programs = VisiblePath("/", False, "the image's files")
    return (*found, programs, VisiblePath("/tmp", True, "empty, in memory, removed after the command"))  # noqa: S108  the sandbox's
