"""Where the commands and files of one session are: which sandbox, which workspace, what may be written; and the same as
text for the prompt and the status. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct, structs

from palinurus.domain.keys import SessionKey
from palinurus.sandbox.sandbox import MIB, CommandLimits, SandboxCommand, SandboxMount, SandboxStatus
from palinurus.sandbox.settings import SandboxSettings
from palinurus.workspace.boundary import MEMORY_DIRECTORY, MEMORY_FILES, Boundary, OverlayBoundary, is_memory
from palinurus.workspace.files import BOOTSTRAP
from palinurus.workspace.instructions import INSTRUCTIONS, WHOLE, Instructions

AGENT_PLACE = "/agent"
INSIDE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SCRATCH = "/tmp"  # noqa: S108  of the sandbox
BEGINNINGS = frozenset(slot.name for slot in BOOTSTRAP)
Access = Literal["none", "ro", "rw"]
Runs = Literal["sandbox", "host", "nowhere"]
MEMORY_IS_REAL = "MEMORY.md, USER.md and memory/ are the agent's own: file and memory tools reach them, commands do not"


class ExecEnvironment(Struct, frozen=True):
    """The workspace and limits of one session, for tools, memory, the prompt and status texts.

    `sandboxed`: required (without a sandbox, commands are refused), preferred (otherwise the host, with approval), no.
    """

    sandboxed: Literal["required", "preferred", "no"]
    workspace: Path  # the agent's workspace, or the private one of this sandbox; it has the same path inside
    writable: bool
    agent_workspace: Path | None = None  # shown read-only at /agent
    network: bool = False
    limits: CommandLimits = CommandLimits()
    env: Mapping[str, str] = {}
    access: Access = "rw"  # access to the agent's own workspace
    own: Path | None = None  # the agent's workspace, if the session's is a folder of its sandbox
    private: bool = True  # whether only the owner takes part: then the real memory is used
    instructions: Instructions = INSTRUCTIONS  # files that sessions start with
    shared: bool = False  # other agents share the folder, so the agent's start files are read from its own workspace
    others: tuple[str, ...] = ()  # folders inside the agent's workspace that belong to other agents

    @property
    def fixed(self) -> frozenset[str]:
        """Returns what of the agent's own workspace the session sees read-only in its folder."""
        return BEGINNINGS - frozenset(MEMORY_FILES) if self.shared and self.own else frozenset()


def boundary_of(place: ExecEnvironment, own: Boundary) -> Boundary:
    """Returns the workspace as our own code in the session sees it; commands see only the folder.

    `own` is the agent's workspace.
    """
    fixed = place.fixed
    if place.own is None or not (place.private or fixed):
        return Boundary(place.workspace)
    return OverlayBoundary(place.workspace, own, lambda path: path in fixed or (place.private and is_memory(path)))


def exec_environment(
    settings: SandboxSettings,
    workspace: Path,
    key: SessionKey,
    instructions: Instructions = INSTRUCTIONS,
    others: tuple[str, ...] = (),
) -> ExecEnvironment:
    """Returns where things are. Pure: creates nothing."""
    memory, file, disk = (size * MIB for size in (settings.memory_mb, settings.file_mb, settings.disk_mb))
    limits = CommandLimits(memory, settings.cpu_seconds, settings.processes, file, disk_bytes=disk)
    host = ExecEnvironment(
        "no",
        workspace,
        writable=True,
        network=True,
        limits=limits,
        env=settings.env,
        instructions=instructions,
        others=others,
    )
    if (sandboxed := _sandboxed(settings, key)) == "no":
        return host
    private = settings.access == "none"
    return structs.replace(
        host,
        sandboxed=sandboxed,
        workspace=settings.root / _scope_id(settings.scope, key) if private else workspace,
        writable=settings.access != "ro",
        agent_workspace=workspace if settings.access == "ro" else None,
        network=settings.network,
        env={**settings.env, **(settings.docker.env if settings.backend == "docker" else {})},
        access=settings.access,
        own=workspace if private else None,
        private=key.is_private,
        shared=private and settings.scope == "shared",
        others=() if private else others,
    )


def command_in(
    place: ExecEnvironment,
    argv: Sequence[str],
    cwd: str = "",
    *,
    pty: bool = False,
    private: bool = True,
    guarded: bool = False,
    folders: Sequence[str] = (),
) -> SandboxCommand:
    """Returns what to start in a sandbox: with the workspace and a clean environment, without our own variables.

    `private` and `guarded` are as in SandboxMount; `folders` are visible too, read-only.
    """
    workspace = str(place.workspace)
    closed = (*MEMORY_FILES, MEMORY_DIRECTORY) if place.own is not None else ()
    instructions = place.instructions
    writable = place.writable and not (guarded and WHOLE in instructions.folders)
    mounts = [SandboxMount(place.workspace, workspace, writable, private, guarded, closed, instructions, place.others)]
    if place.agent_workspace is not None:
        mounts.append(SandboxMount(place.agent_workspace, AGENT_PLACE, private=private, others=place.others))
    others = (folder for folder in folders if not folder.startswith("/usr/"))  # every sandbox shows these
    mounts += [SandboxMount(Path(folder), folder) for folder in others]
    home = workspace if place.writable else SCRATCH
    env = {**clean_env(INSIDE_PATH, home, pty=pty), "USER": "pal", "LOGNAME": "pal", **place.env}
    return SandboxCommand(tuple(argv), cwd or workspace, env, tuple(mounts), place.network, pty, place.limits)


def clean_env(path: str, home: str, *, pty: bool = False) -> dict[str, str]:
    """Returns all variables of a command except those of its caller and the config. Our own environment contains
    keys."""
    return {"PATH": path, "HOME": home, "LANG": "C.UTF-8", "TERM": "xterm-256color" if pty else "dumb"}


def _sandboxed(settings: SandboxSettings, key: SessionKey) -> Literal["required", "preferred", "no"]:
    if settings.mode == "off":
        return "no"
    if settings.mode == "auto":
        return "preferred"
    return "no" if settings.mode == "non-main" and key == SessionKey.main(key.agent) else "required"


def _scope_id(scope: Literal["session", "agent", "shared"], key: SessionKey) -> str:
    """Returns a directory name. Others choose the names of peers and threads, so only letters and digits of a key are
    used, and a digest of the whole key distinguishes equal results."""
    whole = {"session": str(key), "agent": f"agent:{key.agent}", "shared": "shared"}[scope]
    shown = re.sub(r"[^a-z0-9]+", "-", whole.lower())[:48].strip("-")
    return f"{shown}-{hashlib.sha256(whole.encode()).hexdigest()[:12]}"


def where_commands_run(place: ExecEnvironment, status: SandboxStatus) -> Runs:
    if place.sandboxed == "no":
        return "host"
    if status.works:
        return "sandbox"
    return "host" if place.sandboxed == "preferred" else "nowhere"


def describe_access(place: ExecEnvironment) -> str:
    """Describes whose workspace it is and whether it is writable, in a few words."""
    if place.own is not None:
        return f"a copy of the agent's{', memory the real one' if place.private else ''}"
    return "read-write" if place.writable else "read-only"


def describe_sandbox(place: ExecEnvironment, status: SandboxStatus) -> str:
    """Returns the text for the model. It does not change from message to message."""
    return f"{_commands(place, status)} {_workspace(place)}"


def _commands(place: ExecEnvironment, status: SandboxStatus) -> str:
    runs = where_commands_run(place, status)
    if runs == "nowhere":
        return f"A sandbox ({status.name}) is required and does not work on this machine: no command runs."
    if runs == "host":
        asks = ", so they ask your user first" if place.sandboxed == "preferred" else ""
        return f"None: commands run on the machine itself, with network{asks}."
    network = "network" if place.network else "no network"
    return f"Commands run in a sandbox ({status.name}): they see the workspace and the machine's programs, {network}."


def _workspace(place: ExecEnvironment) -> str:
    if place.own is None:
        notes = "; `memory_write` writes real notes all the same" if place.private else ""
        return f"The workspace is your real one, {'read-write' if place.writable else f'read-only{notes}'}."
    text = "The workspace is a copy of your real one, which stays as it is; what you change here stays here."
    if place.private:
        text += " Only MEMORY.md, USER.md and memory/ are real: file and memory tools reach them, commands do not."
    return text + (" Other agents share it; your AGENTS.md, SOUL.md and so on are read-only." if place.shared else "")
