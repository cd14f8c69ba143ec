"""Try the walls: a handful of short commands that should fail, and two that should not.

Everything is bounded in time and number and stays inside the sandbox's limits. Only the shell and a few programs that
every system has are used, so that the same probes run in any sandbox.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace

from palinurus.domain.errors import PalinurusError
from palinurus.sandbox.process import read_whole
from palinurus.sandbox.quarters import Quarters, command_in
from palinurus.sandbox.sandbox import MIB, Limits, Sandbox
from palinurus.sandbox.scratch_folder import scratch_folder

SECONDS = 10.0
STOP_SECONDS = 5.0  # a third of a second on a machine that has nothing else to do
_FORKS = "i=0; while [ $i -lt {} ]; do sleep 8 & i=$((i+1)); done; echo all of them"
_HOARD = "head -c {0} /dev/zero | tail -c {0} | wc -c"  # tail keeps it all in memory
_ALL_KINDS = (
    "head -c {0} /dev/zero > /tmp/some; head -c {0} /dev/zero > /dev/shm/some;"
    " head -c {0} /dev/zero | tail -c {0} | (sleep {1}; wc -c)"
)
_SLEEPERS = "sleep 600 & (setsid sleep 600 &) ; (trap '' TERM HUP; sleep 600) & echo up; wait"


class Probe(Struct, frozen=True):
    name: str
    passed: bool
    what: str = ""
    milliseconds: int = 0


class _Tried(Struct, frozen=True):
    code: int
    said: str
    reason: str


Look = Callable[[], Awaitable[tuple[bool, str]]]


class Probing:
    """Probes of one sandbox in one place. `secret_folder` must not be seen inside: the home of pal."""

    def __init__(self, sandbox: Sandbox, place: Quarters, secret_folder: Path) -> None:
        self._sandbox = sandbox
        self._place = place
        self._secret_folder = secret_folder

    async def run(self) -> AsyncIterator[Probe]:
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
            yield Probe(name, passed, what, round((monotonic() - started) * 1000))

    async def _try(self, line: str, **limits: int) -> _Tried:
        allowed = replace(Limits(), **limits, wall_seconds=SECONDS)
        process = await self._sandbox.start(command_in(self._place, ("/bin/sh", "-c", line), limits=allowed))
        try:
            said = (await read_whole(process)).decode(errors="replace").strip()
            ended = await process.wait()
        finally:
            await process.kill()
        return _Tried(ended.code, said, ended.reason)

    async def _runs(self) -> tuple[bool, str]:
        tried = await self._try("echo here")
        return tried.said == "here" and tried.code == 0, "" if tried.said == "here" else tried.said[:200]

    async def _workspace(self) -> tuple[bool, str]:
        name = f".pal-probe-{secrets.token_hex(6)}"
        tried = await self._try(f"cd {_quoted(self._place.workspace)} && echo x > {name} && rm {name} && echo written")
        written = tried.said == "written"
        wanted = self._place.writable
        with suppress(OSError):
            (self._place.workspace / name).unlink(missing_ok=True)
        told = "is read-only" if not written else "can be written"
        return written == wanted, told if written == wanted else f"{told}, and should not be; {tried.said[:200]}"

    async def _secret(self) -> tuple[bool, str]:
        word = secrets.token_hex(16)
        with _hidden(word, self._secret_folder) as one, _hidden(word, None) as two:
            paths = " ".join(map(_quoted, (one, two)))
            tried = await self._try(f"cat {paths} /proc/1/environ /proc/1/root/{one} 2>/dev/null")
        seen = word in tried.said
        return not seen, "can be read" if seen else "cannot be read"

    async def _system(self) -> tuple[bool, str]:
        tried = await self._try(
            "for d in / /usr /etc /dev /bin; do (echo x > $d/.pal-probe) 2>/dev/null && echo $d; done"
        )
        return not tried.said, f"can be written: {tried.said.split()}" if tried.said else "is read-only"

    async def _network(self) -> tuple[bool, str]:
        """A door of ours on loopback is in the kernel's list of doors, if it is the same network."""
        with socket.create_server(("127.0.0.1", 0)) as door:
            port = f":{door.getsockname()[1]:04X}"
            tried = await self._try("cat /proc/net/tcp /proc/net/dev")
        shared = any(port in line for line in tried.said.splitlines())
        told = "is the host's" if shared else "is not the host's"
        return shared == self._place.network, f"{told}, as the config says" if self._place.network else told

    async def _memory(self) -> tuple[bool, str]:
        little, much = (
            await self._try(_HOARD.format(MIB)),
            await self._try(_HOARD.format(160 * MIB), memory_bytes=64 * MIB),
        )
        if str(MIB) not in little.said:  # else a limit and a missing program would look the same
            return False, f"cannot be tried: {little.said[:200]}"
        bound = str(160 * MIB) not in much.said
        return bound, "is limited" if bound else "is not limited"

    async def _memory_in_all(self) -> tuple[bool, str]:
        """Each of the three is below the limit, and together they are above. The last waits to be looked at."""
        some = 28 * MIB
        little, much = (
            await self._try(_ALL_KINDS.format(MIB, 0)),
            await self._try(_ALL_KINDS.format(some, 3), memory_bytes=64 * MIB),
        )
        if str(MIB) not in little.said:
            return False, f"cannot be tried: {little.said[:200]}"
        bound = str(some) not in much.said
        return bound, "is limited" if bound else "is not limited"

    async def _processes(self) -> tuple[bool, str]:
        few, many = await self._try(_FORKS.format(3)), await self._try(_FORKS.format(60), processes=24)
        if "all of them" not in few.said:
            return False, f"cannot be tried: {few.said[:200]}"
        bound = "all of them" not in many.said
        return bound, "are limited" if bound else "are not limited"

    async def _file_size(self) -> tuple[bool, str]:
        tried = await self._try("cd /tmp && head -c 4194304 /dev/zero > big; wc -c < big", file_bytes=MIB)
        size = tried.said.split()[-1:] or ["0"]
        bound = size[0].isdigit() and int(size[0]) <= MIB
        return bound, "is limited" if bound else f"is not limited: {tried.said[:200]}"

    async def _cpu(self) -> tuple[bool, str]:
        tried = await self._try("while :; do :; done", cpu_seconds=1)
        bound = tried.code > 128 and not tried.reason
        return bound, "is limited" if bound else "is not limited"

    async def _stop(self) -> tuple[bool, str]:
        allowed = replace(Limits(), wall_seconds=SECONDS)
        process = await self._sandbox.start(command_in(self._place, ("/bin/sh", "-c", _SLEEPERS), limits=allowed))
        async with asyncio.timeout(SECONDS):
            await process.read()
        started = monotonic()
        await process.kill()
        took = monotonic() - started
        return took <= STOP_SECONDS, f"everything ended in {took:.2f} s"


@contextmanager
def _hidden(word: str, folder: Path | None) -> Iterator[Path]:
    with scratch_folder(".pal-probe-", folder) as place:
        file = place / "secret"
        file.write_text(word)
        yield file


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "'\\''") + "'"
