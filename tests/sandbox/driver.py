"""A process that starts sandboxes for the escape suite: one order a line on its input, one outcome on its output.

It runs as root or as an ordinary user, as it was started; its own environment holds a secret that must not get inside.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from time import monotonic
from typing import Any

from palinurus.domain.errors import PalinurusError
from palinurus.sandbox.bubblewrap import BubblewrapSandbox
from palinurus.sandbox.environment import ExecEnvironment, command_in
from palinurus.sandbox.sandbox import CommandLimits, Process
from palinurus.workspace.instructions import instructions_in

MOST = 100_000


async def carry_out(sandbox: BubblewrapSandbox, order: dict[str, Any]) -> dict[str, Any]:
    workspace = Path(order["workspace"])
    told = instructions_in(workspace, order.get("files", ()), order.get("folders", ()), order.get("records", ()))
    network = order.get("network", False)
    limits = CommandLimits(**{"wall_seconds": 15.0, **order.get("limits", {})})
    pty, env = order.get("pty", False), order.get("env", {})
    place = ExecEnvironment(
        "required",
        workspace,
        order.get("writable", True),
        network=network,
        limits=limits,
        env=env,
        instructions=told,
    )
    covers = {"private": order.get("private", True), "guarded": order.get("guarded", False)}
    process = await sandbox.start(command_in(place, order["argv"], pty=pty, **covers))
    said, began = b"", monotonic()
    try:
        async with asyncio.timeout(60):
            if until := order.get("stop_at", ""):
                said = await until_said(process, until.encode())
                began = monotonic()
                await process.kill()
            while len(said) < MOST and (piece := await process.read()):
                said += piece
            ended = await process.wait()
    finally:
        await process.kill()
    return {
        "said": said.decode(errors="replace"),
        "code": ended.code,
        "reason": ended.reason,
        "seconds": monotonic() - began,
    }


async def until_said(process: Process, word: bytes) -> bytes:
    said = b""
    while word not in said and (piece := await process.read()):
        said += piece
    return said


async def main() -> None:
    home = Path(sys.argv[1])
    sandbox = BubblewrapSandbox(home, home.parent)
    watched = BubblewrapSandbox(home, home.parent, find_groups=lambda: None)
    walls = await sandbox.check()
    print(json.dumps({"works": walls.works, "why": walls.why, "pid": os.getpid()}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        try:
            order = json.loads(line)
            outcome = await carry_out(watched if order.get("watched") else sandbox, order)
        except (PalinurusError, TimeoutError) as error:
            outcome = {"error": str(error) or type(error).__name__}
        print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
