"""Commands in containers, through the `docker` program. Experimental: written and not yet tried against an engine.

A container has its own root, no network, no capabilities, a read-only file system, and the limits that the engine
keeps by cgroups; it is thrown away after each command. The workspace stands in it at its own path.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from time import monotonic

import msgspec

from palinurus.config.hands import DockerOptions
from palinurus.domain.errors import PalinurusError, SandboxError
from palinurus.sandbox.covers import Cover, covered, make_room
from palinurus.sandbox.family import LAST_SECONDS, POLITE_SECONDS, alive, gone, signal_all
from palinurus.sandbox.process import Running, read_whole
from palinurus.sandbox.sandbox import AGAIN_SECONDS, Command, Limits, Mount, Walls
from palinurus.sandbox.spawn import held, spawn
from palinurus.sandbox.view import Hidden, covers, real_mounts

IMAGE = "debian:bookworm-slim"
PREFIX = "palinurus-"
ANSWER_SECONDS = 20.0
NOBODY = "65534:65534"
REMARKS = (
    "experimental: not tried against an engine by its makers",
    "whoever may talk to the engine is root on this machine, and pal may",
)
_FOR_DOCKER = (
    "PATH",
    "HOME",
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
    "DOCKER_TLS_VERIFY",
    "DOCKER_CERT_PATH",
)
_SHARED_NETWORK = re.compile(r"host|container:.*|ns:.*", re.IGNORECASE)


class DockerSandbox:
    """Raises SandboxError at once for a network that would join the host's or another container's."""

    name = "docker"

    def __init__(
        self,
        options: DockerOptions | None = None,
        pal_home: Path | None = None,
        user_home: Path | None = None,
        program: str = "docker",
    ) -> None:
        self._options = options or DockerOptions.model_construct()
        self._hidden = Hidden(pal_home, user_home)
        self._program = program
        self._walls: Walls | None = None
        self._checked = 0.0
        self._checking = asyncio.Lock()

    async def check(self) -> Walls:
        async with self._checking:
            if self._walls is None or (not self._walls.works and monotonic() - self._checked > AGAIN_SECONDS):
                why = _refused_network(self._options) or await self._trouble()
                self._walls = Walls(self.name, works=not why, why=why, remarks=REMARKS)
                self._checked = monotonic()
            return self._walls

    async def start(self, command: Command) -> Running:
        found = await self.check()
        if not found.works:
            raise SandboxError(f"docker does not work here: {found.why}", hint="`pal sandbox test` tries it again")
        name = f"{PREFIX}{secrets.token_hex(8)}"
        for mount in command.mounts:
            if covers(mount.source, self._hidden):
                raise SandboxError(f"{mount.source} holds the home of pal", hint="use another workspace")
        command = msgspec.structs.replace(command, mounts=tuple(real_mounts(command.mounts, self._hidden)))
        for mount in (each for each in command.mounts if each.guarded or each.closed):
            await asyncio.to_thread(make_room, mount)
        # Variables go through a file that nobody else can open: every user of the machine can read an argument.
        with held(variables_file(command.env)) as (fd,):
            argv = run_arguments(self._program, self._options, command, name, f"/dev/fd/{fd}")
            spawned = spawn(argv, _own_env(), pty=command.pty, cwd="/", pass_fds=(fd,))
            return Running(spawned, _Ending(self, name, spawned.child.pid), command.limits.wall_seconds)

    async def ask(self, *arguments: str) -> tuple[int, str]:
        """One question to the engine: how it ended, what it said."""
        spawned = spawn((self._program, *arguments), _own_env(), cwd="/")
        process = Running(spawned, _Ending(None, "", spawned.child.pid), ANSWER_SECONDS)
        said = (await read_whole(process)).decode(errors="replace").strip()
        return (await process.wait()).code, said

    async def _trouble(self) -> str:
        if shutil.which(self._program) is None:
            return f"{self._program} is not installed; see docs.docker.com/engine/install, or use bubblewrap on Linux"
        try:
            code, said = await self.ask("version", "--format", "{{.Server.Version}}")
        except PalinurusError as error:
            return str(error)
        if code:
            last = said.splitlines()[-1] if said else "no answer"
            return f"no engine answers ({last}); start it, and see that this user may talk to it"
        image = self._options.image or IMAGE
        code, _ = await self.ask("image", "inspect", "--format", "ok", image)
        return f"the image {image} is not there: docker pull {image}" if code else ""


class _Ending:
    """The engine ends the container and everything in it; then our own docker program ends by itself."""

    def __init__(self, sandbox: DockerSandbox | None, name: str, pid: int) -> None:
        self._sandbox, self._name = sandbox, name
        self._client = alive(pid)

    async def __call__(self, ended: bool) -> list[int]:
        if self._sandbox is not None and not ended:
            await self._sandbox.ask("kill", self._name)
        client = [self._client] if self._client else []
        if await gone(client, POLITE_SECONDS):
            signal_all(client, signal.SIGKILL)
        return [each.pid for each in await gone(client, LAST_SECONDS)]


def run_arguments(program: str, options: DockerOptions, command: Command, name: str, env_file: str) -> list[str]:
    """`docker run` with every wall it has. Raises SandboxError for what would take one down."""
    if why := _refused_network(options):
        raise SandboxError(why)
    limits = command.limits
    asked = [program, "run", "--rm", "--interactive", "--init", "--name", name, "--hostname", "sandbox"]
    asked += ["--tty"] if command.pty else []
    asked += ["--network", _network(options, command), "--read-only", "--cap-drop", "ALL"]
    asked += ["--security-opt", "no-new-privileges", "--pull", "never", "--log-driver", "none"]
    asked += ["--user", _user(command), "--workdir", command.cwd, "--env-file", env_file]
    asked += [*_resources(options, limits), *_scratch(limits)]
    for mount in command.mounts:
        asked += ["--mount", _mount(str(mount.source), mount.target, writable=mount.writable)]
        for cover in covered(mount):
            asked += ["--mount", _covered(mount, cover)]
    return [*asked, "--entrypoint", command.argv[0], options.image or IMAGE, *command.argv[1:]]


def variables_file(env: Mapping[str, str]) -> bytes:
    if unfit := [name for name, value in env.items() if "\n" in value or "\0" in value]:
        raise SandboxError(f"the variable {unfit[0]} has several lines: docker cannot pass it", hint="leave it out")
    return "".join(f"{name}={value}\n" for name, value in env.items()).encode()


def _refused_network(options: DockerOptions) -> str:
    network = (options.network or "").strip()
    if _SHARED_NETWORK.fullmatch(network):
        return f"sandbox.docker.network {network!r} would share somebody else's network; use none or a network's name"
    return ""


def _network(options: DockerOptions, command: Command) -> str:
    """None unless the command may have one; then the one that is named, or docker's ordinary one."""
    if not command.network:
        return "none"
    named = (options.network or "").strip()
    return named if named and named != "none" else "bridge"


def _user(command: Command) -> str:
    """The owner of the workspace, so that files stay theirs; never root."""
    found = next((mount for mount in command.mounts if mount.writable), None)
    if found is None:
        return NOBODY
    owner = found.source.stat()
    if not owner.st_uid:
        raise SandboxError(
            f"{found.source} belongs to root, and nobody is root in a container",
            hint="give it to an ordinary user (chown), or use bubblewrap",
        )
    return f"{owner.st_uid}:{owner.st_gid}"


def _resources(options: DockerOptions, limits: Limits) -> list[str]:
    memory = str(options.memory or limits.memory_bytes or "")
    processes = options.pids_limit or limits.processes
    asked = ["--memory", memory, "--memory-swap", memory] if memory else []
    asked += ["--pids-limit", str(processes)] if processes else []
    asked += ["--cpus", f"{options.cpus:g}"] if options.cpus else []
    asked += ["--ulimit", f"cpu={limits.cpu_seconds}"] if limits.cpu_seconds else []
    asked += ["--ulimit", f"fsize={limits.file_bytes}"] if limits.file_bytes else []
    return [*asked, "--ulimit", "core=0"]


def _scratch(limits: Limits) -> list[str]:
    size = limits.memory_bytes // 2 or 512 * 1024 * 1024
    return ["--tmpfs", f"/tmp:rw,nosuid,nodev,mode=1777,size={size}"]  # noqa: S108  the container's


def _mount(source: str, target: str, *, writable: bool) -> str:
    if "," in source + target or '"' in source + target:
        raise SandboxError(f"docker cannot show {source}: its name has a comma or a quote", hint="rename it")
    return f"type=bind,source={source},target={target}{'' if writable else ',readonly'}"


def _covered(mount: Mount, cover: Cover) -> str:
    place = f"{mount.target}/{cover.name}"
    if cover.how == "empty directory":
        return f"type=tmpfs,target={place},tmpfs-mode=0555"
    source = f"{mount.source}/{cover.name}" if cover.how in ("as it is", "held") else "/dev/null"
    return _mount(source, place, writable=cover.how == "held")


def _own_env() -> dict[str, str]:
    """What the docker program needs to find its engine; the container gets none of it."""
    return {name: os.environ[name] for name in _FOR_DOCKER if name in os.environ}
