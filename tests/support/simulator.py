"""Lives whole homes on virtual time, by seed: clients, edits, faults and crashes, the promises checked at each step.

    python -m support.simulator --seed 17            repeats one life exactly
    python -m support.simulator --seeds 0-9999       lives many, and prints the seed of each that fails

Both in the folder `tests`, or with PYTHONPATH=tests.

A room that joins gives its borders to `life.Life`, its share of events to `World.steps`, and its promises to
`witness.Witness`.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from palinurus.domain.clock import Clock, NewId
from palinurus.ledger.audit_log import AuditLog
from palinurus.sessions.store import CACHED_SESSIONS, SessionStore
from palinurus.storage.database import MemoryDatabase
from palinurus.storage.jobs import JobQueue

from .disk import DiskHome
from .shelf import MakeShelf, Shelf
from .virtual import Deadlock, Livelock, run_virtually
from .world import PromiseBroken, World

STEPS = 60
SHOWN = 40  # lines of the trace that a failure prints


class Report(Struct, frozen=True):
    """What one life came to."""

    seed: int
    steps: int
    digest: str  # of everything that happened
    messages: int
    turns: int  # requests that the model received
    lives: int
    counts: dict[str, int]
    virtual_seconds: float


def in_memory(clock: Clock, new_id: NewId, home: Path) -> Shelf:
    database = MemoryDatabase()
    return Shelf(
        database,
        SessionStore(database, clock, new_id, remembers=CACHED_SESSIONS),
        JobQueue(database),
        AuditLog(database, clock, new_id),
    )


def on_disk(clock: Clock, new_id: NewId, home: Path) -> Shelf:
    return DiskHome(home, clock, new_id).open()


def simulate(seed: int, steps: int = STEPS, *, shelf: MakeShelf = in_memory) -> Report:
    """Live one life. Raises PromiseBroken with the seed and the last things that happened."""
    with tempfile.TemporaryDirectory(prefix="palinurus-life-") as folder, _quiet():
        return run_virtually(lambda: _live(seed, steps, Path(folder), shelf))


async def _live(seed: int, steps: int, home: Path, shelf: MakeShelf) -> Report:
    world = World(seed, home, shelf)
    trace, witness = world.trace, world.witness
    try:
        await world.run(steps)
    except PromiseBroken as error:
        raise PromiseBroken(_told(seed, steps, str(error), world)) from None
    finally:
        world.end()
    return Report(
        seed=seed,
        steps=steps,
        digest=trace.digest,
        messages=len(witness.letters),
        turns=witness.requests,
        lives=world.lives,
        counts=dict(trace.counts),
        virtual_seconds=asyncio.get_running_loop().time(),
    )


def _told(seed: int, steps: int, what: str, world: World) -> str:
    trace = world.trace
    lines = "\n".join(f"    {line}" for line in trace.lines[-SHOWN:])
    again = f"python -m support.simulator --seed {seed} --steps {steps}{' --disk' if world.files else ''}"
    return f"{what}\n  after {trace.counts['step']} steps; the last things that happened:\n{lines}\n  again: {again}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Planted explosions are logged by those who survive them, which is right and would fill the screen."""
    log = logging.getLogger("palinurus")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(level)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m support.simulator", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, help="live this one life")
    parser.add_argument("--seeds", default="0-199", metavar="A-B", help="live all of these (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of each life (default: %(default)s)")
    parser.add_argument("--disk", action="store_true", help="keep the homes on the disk instead of in memory")
    asked = parser.parse_args(arguments)
    first, _, last = asked.seeds.partition("-") if asked.seed is None else (str(asked.seed), "", "")
    seeds = range(int(first), int(last or first) + 1)
    began, turns, failed = time.perf_counter(), 0, []
    for seed in seeds:
        try:
            turns += simulate(seed, asked.steps, shelf=on_disk if asked.disk else in_memory).turns
        except (PromiseBroken, Deadlock, Livelock) as error:
            failed.append(seed)
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
    seconds = time.perf_counter() - began
    print(f"{len(seeds)} lives, {turns} turns in {seconds:.1f} s: {turns / seconds:.0f} turns a second")
    print(f"failed: {failed or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
