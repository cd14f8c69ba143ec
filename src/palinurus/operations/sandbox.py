"""Where the commands of a session run, what they see there, and whether the walls hold."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.handling import SandboxSettings
from palinurus.domain.envelope import Inbound
from palinurus.operations.house import House
from palinurus.operations.operation import operation
from palinurus.sandbox.description import MEMORY_IS_REAL, Runs, where_commands_run
from palinurus.sandbox.probes import Probe, Probing
from palinurus.sandbox.quarters import AGENT_PLACE, Quarters
from palinurus.sandbox.sandbox import Walls
from palinurus.sandbox.scratch_folder import scratch_folder

_MODES = {
    "auto": "no mode is set: commands run behind walls if this machine can make them, else on the host, where they ask",
    "off": "sandbox.mode is off: commands run on the host",
    "non-main": "sandbox.mode is non-main: every session but the agent's main one is sandboxed",
    "all": "sandbox.mode is all: every session is sandboxed",
}
_ACCESS = {
    "rw": "the agent's workspace, which it may change",
    "ro": "the agent's workspace, read-only",
    "none": "a private workspace, a copy of the agent's files and skills",
}
_NOT_PRIVATE = "others may listen: MEMORY.md, USER.md, memory/, .git and .pal of the workspace are not shown"


class Seen(Struct, frozen=True):
    """One place that a command can see."""

    path: str
    writable: bool
    what: str


class Explained(Struct, frozen=True, rename="camel"):
    session_key: str
    runs: Runs
    why: tuple[str, ...]
    mode: str
    scope: str
    access: str
    walls: Walls
    seen: tuple[Seen, ...]
    network: bool
    memory_mb: int
    cpu_seconds: int
    processes: int
    file_mb: int
    disk_mb: int
    env: tuple[str, ...]  # names only: a value may be a secret


class Tested(Struct, frozen=True):
    ok: bool
    walls: Walls
    probes: tuple[Probe, ...] = ()


@operation("sandbox.explain", scope="read")
async def explain_sandbox(
    house: House,
    session_key: Annotated[str, "Of this session. Default: the agent's main one."] = "",
    agent: Annotated[str, "Of this agent."] = "",
) -> Explained:
    """Show where the commands of a session run, what they see and may use, and why.

    Examples:
      pal sandbox explain
      pal sandbox explain --session-key agent:main:telegram:group:-1001
    """
    key = await house.dispatcher.place(Inbound("", "", session_key=session_key, agent=agent))
    settings, place = house.hands.settings(key.agent).sandbox, house.hands.quarters(key)
    walls = await house.hands.sandbox(key.agent).check()
    runs = where_commands_run(place, walls)
    return Explained(
        str(key),
        runs,
        (*_reasons(settings, place, walls), *((_NOT_PRIVATE,) if runs == "sandbox" and not key.is_private else ())),
        settings.mode,
        settings.scope,
        settings.access,
        walls,
        _seen(settings, place) if runs == "sandbox" else (),
        place.network if runs == "sandbox" else runs == "host",
        settings.memory_mb,
        settings.cpu_seconds,
        settings.processes,
        settings.file_mb,
        settings.disk_mb,
        tuple(sorted(place.env)),
    )


@operation("sandbox.test", scope="write")
async def try_sandbox(
    house: House,
    session_key: Annotated[str, "With the sandbox of this session."] = "",
    agent: Annotated[str, "Of this agent."] = "",
) -> Tested:
    """Try the walls with short commands. Exit code 1 when one does not hold.

    Takes some seconds. Nothing is changed, and nothing is left running.

    Examples:
      pal sandbox test
      pal sandbox test --json
    """
    key = await house.dispatcher.place(Inbound("", "", session_key=session_key, agent=agent))
    sandbox, place = house.hands.sandbox(key.agent), house.hands.quarters(key)
    walls = await sandbox.check()
    if not walls.works or walls.name == "host":  # a host has no walls to try
        return Tested(False, walls)
    with scratch_folder("pal-sandbox-") as spare:
        # A private workspace is made when it is first used; trying the walls is no such use.
        if place.sandboxed == "no" or not place.workspace.is_dir():
            place = replace(place, workspace=spare, network=False)
        probes = tuple([probe async for probe in Probing(sandbox, place, house.home.root).run()])
    return Tested(all(probe.passed for probe in probes), walls, probes)


def _reasons(settings: SandboxSettings, place: Quarters, walls: Walls) -> list[str]:
    told = [_MODES[settings.mode]]
    if settings.mode == "non-main" and place.sandboxed == "no":
        told.append("this is the main session")
    if place.sandboxed != "no":
        if not walls.works:
            told.append(f"{walls.name} does not work here: {walls.why}")
            if place.sandboxed == "required":
                told.append("a sandbox that was asked for and cannot be had is a refusal: no command runs")
        told.append(f"sandbox.workspaceAccess is {settings.access}: inside is {_ACCESS[settings.access]}")
        if place.own is not None and place.private:
            told.append(MEMORY_IS_REAL)
    return told


def _seen(settings: SandboxSettings, place: Quarters) -> tuple[Seen, ...]:
    found = [Seen(str(place.workspace), place.writable, _ACCESS[settings.access])]
    if place.agent_workspace is not None:
        found.append(Seen(AGENT_PLACE, False, "the same once more"))
    if settings.backend == "docker":
        found.append(Seen("/", False, "the image's files"))
    else:
        found.append(Seen("/usr, /bin, /lib and a few files of /etc", False, "this machine's programs"))
    return (*found, Seen("/tmp", True, "empty, in memory, gone with the command"))  # noqa: S108  the sandbox's


OPERATIONS = (explain_sandbox, try_sandbox)
