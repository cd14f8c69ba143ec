"""A backup that is taken while two processes talk in several sessions holds every word acknowledged before it began."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import msgspec
import pytest
from audit import audit

from homes import PATIENCE, PalHome
from palinurus.domain.envelope import Inbound

SESSIONS, BACKUPS, AT_ONCE = 4, 2, 8


async def talk(home: PalHome, name: str, accepted: list[str], running: asyncio.Event, over: asyncio.Event) -> None:
    """Say one thing after the other until it is over; each is noted when its acknowledgement is heard."""
    answered = asyncio.Semaphore(AT_ONCE)

    def listen(line: str) -> None:
        if line.startswith("accepted "):
            accepted.append(line.removeprefix("accepted "))
            if len(accepted) > 20:
                running.set()
        elif line.startswith("done "):
            answered.release()

    worker = await home.worker(listen)
    try:
        for number in itertools.count():
            if over.is_set():
                break
            await asyncio.wait_for(answered.acquire(), PATIENCE)
            text = f"{name} {number}"
            key = f"agent:main:explicit:room-{number % SESSIONS}"
            await worker.say(msgspec.json.encode(Inbound(text, text, session_key=key)).decode())
        ended = await worker.leave()
        assert ended.code == 0, ended.err
    finally:
        await worker.kill()


@pytest.mark.slow
async def test_a_backup_under_load_restores_to_every_acknowledged_message(home: PalHome, place: Path) -> None:
    accepted: list[str] = []
    running, over = asyncio.Event(), asyncio.Event()
    promised: list[tuple[Path, list[str]]] = []
    async with asyncio.TaskGroup() as talks:
        for name in ("ann", "ben"):
            talks.create_task(talk(home, name, accepted, running, over))
        await asyncio.wait_for(running.wait(), PATIENCE)
        try:
            for number in range(BACKUPS):
                promised.append((place / f"b{number}.tar.gz", list(accepted)))
                made = await home.pal("backup", "create", "--to", str(promised[-1][0]), "--json")
                assert made.code == 0, made.err
                assert len(accepted) > len(promised[-1][1]), "nobody spoke while it was taken"
        finally:
            over.set()
    for target, before in promised:
        fresh = PalHome(place / f"fresh-{target.name}")
        done = await fresh.pal("backup", "restore", str(target))
        assert done.code == 0, done.err
        audit(fresh.database).check_kept(before)  # the audit checks the file's integrity too
    lived = await fresh.pal("agent", "-m", "are you there?", "--session-key", "agent:main:explicit:after")
    assert lived.code == 0, lived.err
    assert "are you there?" in lived.out
