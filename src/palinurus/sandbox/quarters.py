"""Where the commands and files of one session live: which walls it has, which workspace it sees, what it may write."""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from palinurus.config.handling import SandboxSettings
from palinurus.domain.errors import NotFound, SandboxError, WorkspaceError
from palinurus.domain.keys import SessionKey
from palinurus.sandbox.sandbox import MIB, Command, Limits, Mount
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.files import BOOTSTRAP
from palinurus.workspace.instructions import INSTRUCTIONS, WHOLE, Instructions
from palinurus.workspace.overlay import MEMORY_DIRECTORY, MEMORY_FILES, OverlayBoundary, is_memory

AGENT_PLACE = "/agent"
INSIDE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SCRATCH = "/tmp"  # noqa: S108  of the sandbox
SEEDED_FILES, SEEDED_BYTES = 2_000, 64 * MIB  # of skills; more would make the first command of a session wait
BEGINNINGS = frozenset(slot.name for slot in BOOTSTRAP)
Access = Literal["none", "ro", "rw"]
_UNFIT = re.compile(r"[^a-z0-9]+")


class Quarters(Struct, frozen=True):
    """The one workspace of a session, for tools, memory, prompt and whoever tells people about it.

    `sandboxed`: required (a sandbox that cannot be had is a refusal), preferred (else the host, which asks), no.
    """

    sandboxed: Literal["required", "preferred", "no"]
    workspace: Path  # the agent's own, or the private one of this sandbox; inside it has the same path
    writable: bool
    agent_workspace: Path | None = None  # shown read-only at /agent
    network: bool = False
    limits: Limits = Limits()
    env: Mapping[str, str] = {}
    access: Access = "rw"  # to the agent's own workspace
    own: Path | None = None  # the agent's own, when the session's is a folder of its sandbox
    private: bool = True  # whether only the owner listens: then memory is the real one
    instructions: Instructions = INSTRUCTIONS  # what conversations begin with
    shared: bool = False  # the folder is other agents' too, so what an agent begins with is read from its own

    @property
    def fixed(self) -> frozenset[str]:
        """What of the agent's own workspace the session sees in its folder, to read only."""
        return BEGINNINGS - frozenset(MEMORY_FILES) if self.shared and self.own else frozenset()


def boundary_of(place: Quarters, own: Boundary) -> Boundary:
    """The workspace as everything of ours in the session sees it; commands see the folder alone.

    `own` is the agent's workspace.
    """
    fixed = place.fixed
    if place.own is None or not (place.private or fixed):
        return Boundary(place.workspace)
    return OverlayBoundary(place.workspace, own, lambda path: path in fixed or (place.private and is_memory(path)))


def quarters(
    settings: SandboxSettings, workspace: Path, key: SessionKey, instructions: Instructions = INSTRUCTIONS
) -> Quarters:
    """Pure: says where things are and makes nothing."""
    sandboxed = _sandboxed(settings, key)
    if sandboxed == "no":
        return Quarters(
            "no",
            workspace,
            writable=True,
            network=True,
            limits=_limits(settings),
            env=settings.env,
            instructions=instructions,
        )
    private = settings.access == "none"
    return Quarters(
        sandboxed,
        settings.root / _scope_id(settings.scope, key) if private else workspace,
        writable=settings.access != "ro",
        agent_workspace=workspace if settings.access == "ro" else None,
        network=settings.network,
        limits=_limits(settings),
        env={**settings.env, **(settings.docker.env if settings.backend == "docker" else {})},
        access=settings.access,
        own=workspace if private else None,
        instructions=instructions,
        private=key.is_private,
        shared=private and settings.scope == "shared",
    )


def command_in(
    place: Quarters,
    argv: Sequence[str],
    cwd: str = "",
    env: Mapping[str, str] | None = None,
    *,
    pty: bool = False,
    limits: Limits | None = None,
    private: bool = True,
    guarded: bool = False,
    folders: Sequence[str] = (),
) -> Command:
    """What to start in a sandbox: with the workspace, a clean environment, and nothing of ours.

    `private` and `guarded` are as in Mount; `folders` are shown as well, to read only.
    """
    workspace = str(place.workspace)
    closed = (*MEMORY_FILES, MEMORY_DIRECTORY) if place.own is not None else ()
    told = place.instructions
    writable = place.writable and not (guarded and WHOLE in told.folders)
    mounts = [Mount(place.workspace, workspace, writable, private, guarded, closed, told)]
    if place.agent_workspace is not None:
        mounts.append(Mount(place.agent_workspace, AGENT_PLACE, private=private))
    mounts += [Mount(Path(folder), folder) for folder in folders if not folder.startswith("/usr/")]  # that is there
    home = workspace if place.writable else SCRATCH
    return Command(
        tuple(argv),
        cwd or workspace,
        {**clean_env(INSIDE_PATH, home, pty=pty), "USER": "pal", "LOGNAME": "pal", **place.env, **(env or {})},
        tuple(mounts),
        place.network,
        pty,
        limits or place.limits,
    )


def clean_env(path: str, home: str, *, pty: bool = False) -> dict[str, str]:
    """All that a command is given besides what its caller and the config name. Our own environment holds keys."""
    return {"PATH": path, "HOME": home, "LANG": "C.UTF-8", "TERM": "xterm-256color" if pty else "dumb"}


def prepare_private(place: Quarters, source: Path) -> bool:
    """Make the private workspace, with what the agent needs to be itself: its markdown and its skills.

    What belongs to its owner alone (MEMORY.md, USER.md, memory/) is not copied: others may talk in such a session.
    Once the directory is there it is the session's, and nothing is copied any more. Returns whether it was made.
    """
    if place.workspace.is_dir():
        return False
    root = place.workspace.parent
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        staged = Path(tempfile.mkdtemp(prefix=".seeding-", dir=root))
        try:
            for name, data, mode in _seeds(Boundary(source)):
                _write(staged / name, data, mode)
            staged.rename(place.workspace)  # as a whole: one that is there is complete
        finally:
            shutil.rmtree(staged, ignore_errors=True)
    except OSError as error:
        if place.workspace.is_dir():  # somebody else was quicker
            return False
        raise SandboxError(f"no private workspace could be made at {place.workspace}: {error.strerror}") from error
    return True


def _sandboxed(settings: SandboxSettings, key: SessionKey) -> Literal["required", "preferred", "no"]:
    if settings.mode == "off":
        return "no"
    if settings.mode == "auto":
        return "preferred"
    return "no" if settings.mode == "non-main" and key == SessionKey.main(key.agent) else "required"


def _limits(settings: SandboxSettings) -> Limits:
    return Limits(settings.memory_mb * MIB, settings.cpu_seconds, settings.processes, settings.file_mb * MIB)


def _scope_id(scope: Literal["session", "agent", "shared"], key: SessionKey) -> str:
    """A directory's name. Peers and threads are named by others, so of a key only letters and digits are shown, and a
    digest of the whole keeps apart what then looks the same."""
    whole = {"session": str(key), "agent": f"agent:{key.agent}", "shared": "shared"}[scope]
    shown = _UNFIT.sub("-", whole.lower())[:48].strip("-")
    return f"{shown}-{hashlib.sha256(whole.encode()).hexdigest()[:12]}"


def _seeds(source: Boundary) -> Iterator[tuple[str, bytes, int]]:
    """Regular files inside the source only; a link that leads out, or a file that cannot be read, is left out."""
    names = [slot.name for slot in BOOTSTRAP if not slot.private] + _skills(source)
    left = SEEDED_BYTES
    for name in names:
        try:
            with source.open_file(name) as file:
                data = file.read()
                executable = file.stat.st_mode & 0o111
        except (NotFound, WorkspaceError):
            continue
        left -= len(data)
        if left < 0:
            return
        yield name, data, 0o755 if executable else 0o644


def _skills(source: Boundary) -> list[str]:
    try:
        return list(source.walk("skills", max_files=SEEDED_FILES).files)
    except (NotFound, WorkspaceError):
        return []


def _write(path: Path, data: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(mode)  # whatever the umask is
