"""Secrets: taken out of what is stored and of what is sent in the very same turn, wherever they came from."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from palinurus.storage.database import MemoryDatabase
from palinurus.testing.fakes import Reply, call, calls
from palinurus.testing.harness import Harness

EXACT = "correct-horse-battery"
SHAPED = "sk-proj-" + "Ab3" * 10


@pytest.fixture
async def pal(workspace: Path) -> AsyncIterator[Harness]:
    async with Harness(workspace, secrets=[EXACT]) as whole:
        yield whole


def stored(pal: Harness) -> str:
    assert isinstance(pal.database, MemoryDatabase)
    rows = [row for (row,) in pal.database.look(lambda tx: tx.execute("SELECT payload FROM entries").fetchall())]
    jobs = pal.database.look(lambda tx: tx.execute("SELECT payload, outcome FROM jobs").fetchall())
    return "\n".join([*rows, *(text or "" for job in jobs for text in job)])


def sent(pal: Harness) -> str:
    return msgspec.json.encode(pal.model.requests).decode()


@pytest.mark.parametrize("secret", [EXACT, SHAPED])
async def test_a_secret_that_somebody_types_is_neither_stored_nor_sent(pal: Harness, secret: str) -> None:
    await pal.hears(f"my key is {secret}, use it")
    assert secret not in stored(pal) + sent(pal)
    assert "[redacted], use it" in sent(pal)


@pytest.mark.parametrize("secret", [EXACT, SHAPED])
async def test_a_secret_that_a_tool_reads_is_not_sent_in_the_same_turn(
    pal: Harness, workspace: Path, secret: str
) -> None:
    (workspace / "notes.txt").write_text(f"key={secret}\n")
    pal.model.says(calls(call("read", path="notes.txt")), "It holds a key.")
    await pal.hears("what is in notes.txt?")
    assert len(pal.model.requests) == 2
    assert "[redacted]" in (await pal.tool_results())[0].text
    assert secret not in stored(pal) + sent(pal)


@pytest.mark.parametrize("secret", [EXACT, SHAPED])
async def test_a_secret_that_the_model_says_or_passes_on_is_not_stored_or_sent_back(pal: Harness, secret: str) -> None:
    noting = call("memory_write", text=f"the key is {secret}")
    pal.model.says(Reply(f"I write {secret} down.", (noting,)), f"Noted {secret}.")
    reply = await pal.hears("note my key")
    assert secret not in stored(pal) + sent(pal) + reply.text


@pytest.mark.parametrize("secret", [EXACT, SHAPED])
async def test_a_secret_in_a_workspace_file_is_in_neither_head_nor_note(
    pal: Harness, workspace: Path, secret: str
) -> None:
    (workspace / "TOOLS.md").write_text(f"The printer's password is {secret}\n")
    await pal.hears("one")
    (workspace / "SOUL.md").write_text(f"My soul is {secret}\n")
    await pal.hears("two")
    assert "The printer's password is [redacted]" in pal.model.requests[0].head.system
    assert secret not in stored(pal) + sent(pal)
    assert pal.model.requests[1].head == pal.model.requests[0].head
