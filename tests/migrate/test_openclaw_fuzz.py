"""Damage of every kind, for a bounded time: reading never raises, and every line is either read or told."""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path

import pytest
from foreign_trees import Tree, add_rows, jsonl, look, said, talk

SECONDS = float(os.environ.get("FUZZ_SECONDS", "4"))
DICTIONARY = (
    *(b"{", b"}", b"[", b'"', b"\n", b"\x00", b"\xff", b"\xed\xa0\x80", b"null", b"1e999", b'"type"', b'"role":7'),
    *(b'"message":[]', b'"id":{}', b"\\ud800", b'"content":{"a":1}', b"\xef\xbb\xbf", b"[" * 3000),
)


def damaged(data: bytes, rng: random.Random) -> bytes:
    """The bytes with a few things done to them."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(5):
            case 0:
                del out[at:]  # cut off
            case 1 if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            case 2:
                out[at:at] = rng.choice(DICTIONARY)
            case 3:
                del out[at : at + rng.randrange(200)]
            case _:
                out[at:at] = out[at : at + rng.randrange(400)]
    return bytes(out)


def test_damaged_lines_are_read_or_told(tmp_path: Path) -> None:
    rng = random.Random(7)
    tree = Tree(tmp_path / ".openclaw")
    lines = [*talk("s", "one", "two", "三"), {"role": "tool_result", "content": {"x": 1}}, said("z", "x" * 3000)]
    whole = jsonl(lines)
    store = b'{"agent:main:main": {"sessionId": "s", "updatedAt": 1, "label": "tides"}}'
    ends = time.monotonic() + SECONDS
    rounds = 0
    while time.monotonic() < ends or rounds < 50:
        rounds += 1
        data = damaged(whole, rng)
        tree.write("agents/main/sessions/s.jsonl", data)
        tree.write("agents/main/sessions/sessions.json", damaged(store, rng) if rounds % 3 == 0 else store)
        tree.write(
            "openclaw.json", damaged(b'{"agents": {"list": [{"id": "main"}]}}', rng) if rounds % 7 == 0 else b"{}"
        )
        found, skipped = look(tree.root)
        lost = [loss for loss in skipped if loss.file.endswith("s.jsonl") and loss.line]
        there = sum(bool(line.strip(b" \t\r\n")) for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"))
        read = sum(sum(session.entries.values()) for session in found if session.file.endswith("s.jsonl"))
        assert read + len(lost) == there, f"round {rounds}: {data!r}"


@pytest.mark.parametrize("log", [False, True])
def test_damaged_databases_are_read_as_far_as_they_go(tmp_path: Path, log: bool) -> None:
    rng = random.Random(11)
    tree = Tree(tmp_path / ".openclaw")
    database = tree.database()
    if log:
        database.pragma("journal_mode", "wal")
    for number in range(5):
        lines = talk(f"s{number}", *(f"{at} " + "words " * 40 for at in range(20)))
        add_rows(database, f"agent:main:{number}", f"s{number}", lines, packed=3)
    path = tree.root / "agents/main/agent/openclaw-agent.sqlite"
    kept = tmp_path / "kept"
    shutil.copytree(path.parent, kept)
    database.close()
    sound = {file.name: file.read_bytes() for file in kept.iterdir() if not file.name.endswith("-shm")}
    ends = time.monotonic() + SECONDS
    rounds = 0
    while time.monotonic() < ends or rounds < 20:
        rounds += 1
        shutil.rmtree(path.parent)
        path.parent.mkdir()
        for name, data in sound.items():
            (path.parent / name).write_bytes(damaged(data, rng))
        found, skipped = look(tree.root)
        entries = sum(sum(session.entries.values()) for session in found)
        assert entries <= 5 * 21 * 3
        if not log:  # a log is taken up to its first damage, as after a crash; what lies behind it never was
            assert entries >= 5 * 21 or skipped, f"round {rounds}"
