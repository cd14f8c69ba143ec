"""Tests a sandbox: a few short commands that should fail, and two that should not.

Everything is bounded in time and number and stays inside the sandbox's limits. Only the shell and a few standard
programs are used, so that the same probes run in any sandbox.
"""

from __future__ import annotations

import asyncio
import secrets
import shlex
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic

from msgspec import Struct, structs

from palinurus.domain.errors import PalinurusError
from palinurus.sandbox.environment import ExecEnvironment, command_in
from palinurus.sandbox.folders import scratch_folder
from palinurus.sandbox.process import read_whole
from palinurus.sandbox.sandbox import MIB, CommandLimits, Process, ProcessEnd, Sandbox

SECONDS = 10.0
STOP_SECONDS = 5.0  # a third of a second on an idle machine
_FORKS = "i=0; while [ $i -lt {} ]; do sleep 8 & i=$((i+1)); done; echo all of them"
_FORKED = "all of them"
_HOARD = "head -c {0} /dev/zero | tail -c {0} | wc -c"  # tail holds it all in memory
_ALL_KINDS = (
    "head -c {0} /dev/zero > /tmp/some; head -c {0} /dev/zero > /dev/shm/some;"
    " head -c {0} /dev/zero | tail -c {0} | (sleep {1}; wc -c)"
)
_SLEEPERS = "sleep 600 & (setsid sleep 600 &) ; (trap '' TERM HUP; sleep 600) & echo up; wait"


class ProbeResult(Struct, frozen=True):
    name: str
    passed: bool
    what: str = ""
    milliseconds: int = 0


Look = Callable[[], Awaitable[tuple[bool, str]]]


class ProbeRun(Struct, frozen=True):
    """Probes of one sandbox in one environment. `secret_folder` must not be visible inside: the home of pal."""

    sandbox: Sandbox
    place: ExecEnvironment
    secret_folder: Path

    async def run(self) -> AsyncIterator[ProbeResult]:
        looks: dict[str, Look] = {
            "a command runs": self._runs,
            "the workspace": self._workspace,
            "a secret outside": self._secret,
            "the system": self._system,
            "the network": self._network,
            "memory": self._memory,
            "memory in all": self._memory_in_all,
            "processes": self._processes,
            "file size": self._file_size,
            "CPU time": self._cpu,
            "stop": self._stop,
        }
        for name, look in looks.items():
            started = monotonic()
            try:
                passed, what = await look()
            except (PalinurusError, OSError, TimeoutError) as error:
                passed, what = False, str(error) or type(error).__name__
            yield ProbeResult(name, passed, what, round((monotonic() - started) * 1000))

    async def _start(self, line: str, **limits: int) -> Process:
        allowed = structs.replace(CommandLimits(), **limits, wall_seconds=SECONDS)
        return await self.sandbox.start(
            command_in(structs.replace(self.place, limits=allowed), ("/bin/sh", "-c", line))
        )

    async def _try(self, line: str, **limits: int) -> str:
        return (await self._end(line, **limits))[0]

    async def _end(self, line: str, **limits: int) -> tuple[str, ProcessEnd]:
        process = await self._start(line, **limits)
        try:
            output = (await read_whole(process)).decode(errors="replace").strip()
            return output, await process.wait()
        finally:
            await process.kill()

    async def _compare(self, little: str, much: str, signs: tuple[object, object], **limits: int) -> tuple[bool, str]:
        """The small amount must work and print its output: otherwise a limit and a missing program would look the
        same."""
        allowed, refused = await self._try(little), await self._try(much, **limits)
        if str(signs[0]) not in allowed:
            return False, f"cannot be tested: {allowed[:200]}"
        return _limited(str(signs[1]) not in refused)

    async def _runs(self) -> tuple[bool, str]:
        output, ended = await self._end("echo here")
        return output == "here" and ended.code == 0, "" if output == "here" else output[:200]

    async def _workspace(self) -> tuple[bool, str]:
        name = f".pal-probe-{secrets.token_hex(6)}"
        folder = shlex.quote(str(self.place.workspace))
        output = await self._try(f"cd {folder} && echo x > {name} && rm {name} && echo written")
        with suppress(OSError):
            (self.place.workspace / name).unlink(missing_ok=True)
        state = "can be written" if output == "written" else "is read-only"
        passed = (output == "written") == self.place.writable
        return passed, state if passed else f"{state}, and should not be; {output[:200]}"

    async def _secret(self) -> tuple[bool, str]:
        secret = secrets.token_hex(16)
        with _hidden(secret, self.secret_folder) as one, _hidden(secret, None) as two:
            paths = shlex.join(map(str, (one, two)))
            seen = secret in await self._try(f"cat {paths} /proc/1/environ /proc/1/root/{one} 2>/dev/null")
        return not seen, "can be read" if seen else "cannot be read"

    async def _system(self) -> tuple[bool, str]:
        line = "for d in / /usr /etc /dev /bin; do (echo x > $d/.pal-probe) 2>/dev/null && echo $d; done"
        output = await self._try(line)
        return not output, f"can be written: {output.split()}" if output else "is read-only"

    async def _network(self) -> tuple[bool, str]:
        """Opens a port on loopback and looks for it in the kernel's port list, which has it if the network is the
        same."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = f":{server.getsockname()[1]:04X}"
            shared = port in await self._try("cat /proc/net/tcp /proc/net/dev")
        state = "is the host's" if shared else "is not the host's"
        return shared == self.place.network, f"{state}, as the config says" if self.place.network else state

    async def _memory(self) -> tuple[bool, str]:
        much = 160 * MIB
        return await self._compare(_HOARD.format(MIB), _HOARD.format(much), (MIB, much), memory_bytes=64 * MIB)

    async def _memory_in_all(self) -> tuple[bool, str]:
        """Each of the three is below the limit, and together they are above. The last waits to be measured."""
        some = 28 * MIB
        little, much = _ALL_KINDS.format(MIB, 0), _ALL_KINDS.format(some, 3)
        return await self._compare(little, much, (MIB, some), memory_bytes=64 * MIB)

    async def _processes(self) -> tuple[bool, str]:
        passed, what = await self._compare(_FORKS.format(3), _FORKS.format(60), (_FORKED, _FORKED), processes=24)
        return passed, what.replace("is ", "are ", 1)

    async def _file_size(self) -> tuple[bool, str]:
        output = await self._try("cd /tmp && head -c 4194304 /dev/zero > big; wc -c < big", file_bytes=MIB)
        size = (output.split() or ["0"])[-1]
        bound = size.isdigit() and int(size) <= MIB
        return bound, "is limited" if bound else f"is not limited: {output[:200]}"

    async def _cpu(self) -> tuple[bool, str]:
        _, ended = await self._end("while :; do :; done", cpu_seconds=1)
        return _limited(ended.code > 128 and not ended.reason)

    async def _stop(self) -> tuple[bool, str]:
        process = await self._start(_SLEEPERS)
        async with asyncio.timeout(SECONDS):
            await process.read()
        started = monotonic()
        await process.kill()
        took = monotonic() - started
        return took <= STOP_SECONDS, f"everything ended in {took:.2f} s"


def _limited(bound: bool) -> tuple[bool, str]:
    return bound, "is limited" if bound else "is not limited"


@contextmanager
def _hidden(secret: str, folder: Path | None) -> Iterator[Path]:
    with scratch_folder(".pal-probe-", folder) as place:
        file = place / "secret"
        file.write_text(secret)
        yield file
