"""Commands in containers, through the `docker` program. Experimental: tested with podman, not with Docker's own engine.

A container has its own root, no network, no capabilities, a read-only file system, and the limits that the engine sets
by cgroups; it is removed after each command. The workspace has the same path in it as outside.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import msgspec

from palinurus.domain.errors import PalinurusError, SandboxError
from palinurus.sandbox import view
from palinurus.sandbox.family import LAST_SECONDS, POLITE_SECONDS, Relative, alive, gone, signal_all
from palinurus.sandbox.process import RunningProcess, read_whole
from palinurus.sandbox.sandbox import MIB, CheckedSandbox, CommandLimits, SandboxCommand, SandboxMount
from palinurus.sandbox.settings import DockerOptions
from palinurus.sandbox.spawn import SpawnedProcess, held, spawn
from palinurus.sandbox.totals import UsageTotals, looks_at_disks

IMAGE = "debian:bookworm-slim"
PREFIX = "palinurus-"
ANSWER_SECONDS = 20.0
NOBODY = "65534:65534"
REMARKS = (
    "experimental: tried by its makers with podman 4.3 in docker's place, not with Docker's own engine",
    "access to the engine is root access to this machine, and pal has it",
)
_FOR_DOCKER = ("PATH", "HOME", *(f"DOCKER_{name}" for name in ("HOST", "CONTEXT", "CONFIG", "TLS_VERIFY", "CERT_PATH")))
_JOINED = 'exec "$@" 2>&1'  # an engine transports the two outputs separately, and their order would be lost
_SHARED_NETWORK = re.compile(r"host|container:.*|ns:.*", re.IGNORECASE)


class DockerSandbox(CheckedSandbox):
    """Runs commands in containers. Raises SandboxError for a network that would join the host's or another
    container's."""

    name = "docker"

    def __init__(
        self,
        options: DockerOptions | None = None,
        pal_home: Path | None = None,
        user_home: Path | None = None,
        program: str = "docker",
    ) -> None:
        super().__init__()
        self._options = options or DockerOptions()
        self._hidden = view.Hidden(pal_home, user_home)
        self._program = program

    def _remarks(self, *, works: bool) -> tuple[str, ...]:
        return REMARKS

    async def _start(self, command: SandboxCommand) -> RunningProcess:
        name = f"{PREFIX}{secrets.token_hex(8)}"
        for mount in command.mounts:
            if view.covers(mount.source, self._hidden):
                raise SandboxError(f"{mount.source} contains the home of pal", hint="use another workspace")
        mounts = await asyncio.to_thread(view.prepare_mounts, command.mounts, self._hidden)
        command = msgspec.structs.replace(command, mounts=tuple(mounts))
        totals = UsageTotals(await asyncio.to_thread(looks_at_disks, command))
        # Variables go through a file that only we can open: every user of the machine can read arguments.
        with held(variables_file(command.env)) as (fd,):
            argv = run_arguments(self._program, self._options, command, name, f"/dev/fd/{fd}")
            spawned = spawn(argv, _own_env(), pty=command.pty, cwd="/", pass_fds=(fd,))
            process = self._process(spawned, name, command.limits.wall_seconds)
        process.watch(totals)
        return process

    def _process(self, spawned: SpawnedProcess, name: str, seconds: float) -> RunningProcess:
        client = alive(spawned.child.pid)
        return RunningProcess(spawned, partial(self._end_all, name, [client] if client else []), seconds)

    async def _end_all(self, name: str, client: list[Relative], ended: bool) -> list[int]:
        """Lets the engine end a container, if there is one, and everything in it; then our docker program ends by
        itself."""
        began = not name or ended or (await self.ask("kill", name))[0] == 0
        if await gone(client, POLITE_SECONDS if began else 0):
            signal_all(client, signal.SIGKILL)
        left = await gone(client, LAST_SECONDS)
        if not began:  # the container was being created: it would stay for ever
            await self.ask("rm", "--force", name)
        return [each.pid for each in left]

    async def ask(self, *arguments: str) -> tuple[int, str]:
        """Runs one docker command and returns its exit code and output."""
        process = self._process(spawn((self._program, *arguments), _own_env(), cwd="/"), "", ANSWER_SECONDS)
        output = (await read_whole(process)).decode(errors="replace").strip()
        return (await process.wait()).code, output

    async def _trouble(self) -> str:
        if refused := _refused_network(self._options):
            return refused
        if shutil.which(self._program) is None:
            return f"{self._program} is not installed; see docs.docker.com/engine/install, or use bubblewrap on Linux"
        try:
            code, output = await self.ask("version", "--format", "{{.Server.Version}}")
        except PalinurusError as error:
            return str(error)
        if code:
            last = output.splitlines()[-1] if output else "no answer"
            return f"no engine answers ({last}); start it, and see that this user may talk to it"
        image = self._options.image or IMAGE
        code, _ = await self.ask("image", "inspect", "--format", "ok", image)
        return f"the image {image} is missing: docker pull {image}" if code else ""


def run_arguments(program: str, options: DockerOptions, command: SandboxCommand, name: str, env_file: str) -> list[str]:
    """Returns the `docker run` arguments with every restriction. Raises SandboxError for an option that would lift
    one."""
    if why := _refused_network(options):
        raise SandboxError(why)
    limits = command.limits
    args = [program, "run", "--rm", "--interactive", "--init", "--name", name, "--hostname", "sandbox"]
    args += ["--tty"] if command.pty else []
    args += ["--network", _network(options, command), "--read-only", "--cap-drop", "ALL"]
    args += ["--security-opt", "no-new-privileges", "--pull", "never", "--log-driver", "none"]
    args += ["--user", _user(command), "--workdir", command.cwd, "--env-file", env_file]
    args += [*_resources(options, limits), "--tmpfs"]
    args.append(f"/tmp:rw,nosuid,nodev,mode=1777,size={limits.memory_bytes // 2 or 512 * MIB}")  # noqa: S108  its own
    for mount in command.mounts:
        args += ["--mount", _mount(str(mount.source), mount.target, writable=mount.writable)]
        covers = view.covered(mount)
        for cover in covers:
            args += ["--mount", _covered(mount, cover)]
        shown = view.MountedDirectory(mount.source, str(mount.source), mount.target, mount.writable, covers)
        for place in view.repositories([shown]):
            args += ["--mount", _mount(f"{mount.source}/.git", place, writable=False)]
    return [*args, "--entrypoint", "/bin/sh", options.image or IMAGE, "-c", _JOINED, "sh", *command.argv]


def variables_file(env: Mapping[str, str]) -> bytes:
    if unfit := [name for name, value in env.items() if "\n" in value or "\0" in value]:
        raise SandboxError(f"the variable {unfit[0]} has several lines: docker cannot pass it", hint="leave it out")
    return "".join(f"{name}={value}\n" for name, value in env.items()).encode()


def _refused_network(options: DockerOptions) -> str:
    network = (options.network or "").strip()
    if _SHARED_NETWORK.fullmatch(network):
        return f"sandbox.docker.network {network!r} would share another network; use none or a network's name"
    return ""


def _network(options: DockerOptions, command: SandboxCommand) -> str:
    """Returns none unless the command may have a network; then the configured one, or docker's default."""
    if not command.network:
        return "none"
    named = (options.network or "").strip()
    return named if named and named != "none" else "bridge"


def _user(command: SandboxCommand) -> str:
    """Returns the owner of the workspace, so that new files belong to them; never root."""
    found = next((mount for mount in command.mounts if mount.writable), None)
    if found is None:
        return NOBODY
    owner = found.source.stat()
    if not owner.st_uid:
        said = f"{found.source} belongs to root, and commands in a container do not run as root"
        raise SandboxError(said, hint="give it to an ordinary user (chown), or use bubblewrap")
    return f"{owner.st_uid}:{owner.st_gid}"


def _resources(options: DockerOptions, limits: CommandLimits) -> list[str]:
    memory = str(options.memory or limits.memory_bytes or "")
    processes = options.pids_limit or limits.processes
    args = ["--memory", memory, "--memory-swap", memory] if memory else []
    args += ["--pids-limit", str(processes)] if processes else []
    args += ["--cpus", f"{options.cpus:g}"] if options.cpus else []
    args += ["--ulimit", f"cpu={limits.cpu_seconds}"] if limits.cpu_seconds else []
    args += ["--ulimit", f"fsize={limits.file_bytes}"] if limits.file_bytes else []
    return [*args, "--ulimit", "core=0"]


def _mount(source: str, target: str, *, writable: bool) -> str:
    if "," in source + target or '"' in source + target:
        raise SandboxError(f"docker cannot show {source}: its name has a comma or a quote", hint="rename it")
    return f"type=bind,source={source},target={target}{'' if writable else ',readonly'}"


def _covered(mount: SandboxMount, cover: view.Cover) -> str:
    place = f"{mount.target}/{cover.name}"
    if cover.how == "empty directory":
        return f"type=tmpfs,target={place},tmpfs-mode=0555"
    source = f"{mount.source}/{cover.name}" if cover.how in ("as it is", "held") else "/dev/null"
    return _mount(source, place, writable=cover.how == "held")


def _own_env() -> dict[str, str]:
    """Returns the variables that docker needs to find its engine; the container gets none of them."""
    return {name: os.environ[name] for name in _FOR_DOCKER if name in os.environ}
