"""What the gate costs a tool call, with its audit log on a real disk, and what the walls cost a command.

The same tool, which does nothing, is called through the gate and without it, in turn; `true` is run behind bubblewrap's
walls and on the host, in turn.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import warm
from palinurus.domain.clock import SystemClock, random_id
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import ToolCall
from palinurus.domain.tool import ToolOutput, ToolRun, tool
from palinurus.ledger.audit import random_salt
from palinurus.ledger.audit_log import AuditLog
from palinurus.sandbox.bubblewrap import BubblewrapSandbox
from palinurus.sandbox.host import HostSandbox
from palinurus.sandbox.sandbox import Sandbox, SandboxCommand, SandboxMount
from palinurus.storage.database import Database
from palinurus.tools.approval import Approvals, ApprovalStore
from palinurus.tools.gate import Gate, GateServices
from palinurus.tools.grant_issuer import GrantIssuer
from palinurus.tools.grants import GrantStore
from palinurus.tools.policy import Policy
from palinurus.tools.registry import ToolRegistry
from palinurus.tools.settings import ExecSettings

CALLS = 100  # in one measurement; the median counts
COMMANDS = 10


@tool("read", "Does nothing.")
async def read(run: ToolRun, path: str = "") -> ToolOutput:
    return ToolOutput("x" * 400)


class Hands:
    def __init__(self, home: Path) -> None:
        self._database = Database(home / "home.sqlite", "home")
        clock, grants = SystemClock(), GrantStore(self._database)
        approvals = Approvals(
            ApprovalStore(self._database), GrantIssuer(grants, clock, random_id, lambda _: ExecSettings())
        )
        audit = AuditLog(self._database, clock, random_salt)
        self._registry = ToolRegistry([read])
        self._gate = Gate(self._registry, Policy(), GateServices(approvals, grants, audit, clock, lambda text: text))
        self._run = ToolRun(SessionKey.main(), "run", private=True)
        self._home = home
        self._walls: Sandbox = BubblewrapSandbox()
        self._host: Sandbox = HostSandbox()

    async def measure(self) -> dict[str, float]:
        bare, gated = [], []
        for number in range(CALLS):
            call = ToolCall(f"c{number}", "read", {"path": "notes.md"})
            bare.append(await _timed(lambda: self._registry.run(self._run, call)))  # noqa: B023  # awaited at once
            gated.append(await _timed(lambda: self._gate.run(self._run, call)))  # noqa: B023
        figures = {"gate_ms": median(gated) - median(bare)}
        if (await self._walls.check()).works:
            pairs = [(await self._spawned(self._walls), await self._spawned(self._host)) for _ in range(COMMANDS)]
            figures["walls_ms"], figures["host_ms"] = (median(column) for column in zip(*pairs, strict=True))
        return figures

    async def _spawned(self, place: Sandbox) -> float:
        mounts = (SandboxMount(self._home, str(self._home), writable=True),) if place is self._walls else ()
        command = SandboxCommand(("true",), str(self._home), {"PATH": "/usr/bin:/bin"}, mounts)

        async def run() -> Any:
            process = await place.start(command)
            while await process.read():
                pass
            return await process.wait()

        return await _timed(run)

    async def close(self) -> None:
        await self._database.close()


async def _timed(work: Callable[[], Awaitable[Any]]) -> float:
    began = time.perf_counter_ns()
    await work()
    return (time.perf_counter_ns() - began) / 1e6


def main() -> None:
    loop = asyncio.new_event_loop()

    async def start() -> Hands:
        folder = Path.home() / "workspace"
        folder.mkdir()
        return Hands(folder)

    hands = loop.run_until_complete(start())

    async def batch(rounds: int) -> list[dict[str, float]]:
        return [await hands.measure() for _ in range(rounds)]

    warm.answer(warm.run_in(loop, batch))
    loop.run_until_complete(hands.close())
    loop.close()


if __name__ == "__main__":
    main()
