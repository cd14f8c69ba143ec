"""How fast an OpenClaw home is read and carried over, and in how much memory: a generated tree of JSONL.

Machines are noisy, so the same is done beside it by the shortest script that could: every line through `json.loads` and
into one bare table of SQLite, with nothing checked, counted, hashed, looked through or staged.

python benchmarks/migrate.py --megabytes 1024 --apply
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import sqlite3
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

from palinurus.domain.clock import SystemClock
from palinurus.extensions.migrate.export_tree import ExportedAgent, TreeWriter
from palinurus.extensions.migrate.exporter import SessionExporter
from palinurus.extensions.migrate.import_store import Destination, ImportStore
from palinurus.extensions.migrate.migration import Migration
from palinurus.extensions.migrate.openclaw.home import OpenClawHome
from palinurus.storage.database import Database

WORDS = tuple("the boat lies at the quay and waits for wind while we mend sails and count ropes".split())  # noqa: SIM905


def make_tree(root: Path, megabytes: int, sessions: int, seed: int = 1) -> tuple[int, int]:
    """Bytes and entries of a tree with the first session as large as all others together."""
    rng = random.Random(seed)
    folder = root / "agents" / "main" / "sessions"
    folder.mkdir(parents=True)
    (root / "openclaw.json").write_text('{"agents": {"list": [{"id": "main"}]}}')
    store, size, entries = {}, 0, 0
    for number in range(sessions):
        share = megabytes * 1024 * 1024 // 2 // (1 if number == 0 else max(1, sessions - 1))
        name = f"00000000-0000-4000-8000-{number:012d}"
        store[f"agent:main:explicit:{number}"] = {"sessionId": name, "updatedAt": 1_790_000_000_000 + number}
        with (folder / f"{name}.jsonl").open("w") as file:
            written, count = _write(file, name, share, rng)
        size, entries = size + written, entries + count
    (folder / "sessions.json").write_text(json.dumps(store))
    return size, entries


def _write(file: object, name: str, share: int, rng: random.Random) -> tuple[int, int]:
    lines = [json.dumps({"type": "session", "version": 3, "id": name, "timestamp": "2026-11-01T10:00:00.000Z"})]
    written, count, parent = 0, 0, None
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(10, 90))) for _ in range(200)]
    while written < share:
        while len(lines) < 1000:
            text, entry = texts[rng.randrange(200)], f"{rng.getrandbits(32):08x}{count + len(lines):x}"
            role = ("user", "assistant")[len(lines) % 2]
            content = text if role == "user" else [{"type": "text", "text": text}]
            message: dict[str, Any] = {"role": role, "content": content, "timestamp": 1_790_000_000_000}
            if role == "assistant":
                message |= {
                    "provider": "mock",
                    "model": "mock-large",
                    "stopReason": "stop",
                    "usage": {"input": 9, "output": 9},
                }
            line = {"type": "message", "id": entry, "parentId": parent, "timestamp": "2026-11-01T10:00:00.000Z"}
            lines.append(json.dumps({**line, "message": message}))
            parent = entry
        data = "\n".join(lines) + "\n"
        file.write(data)  # type: ignore[attr-defined]
        written, count = written + len(data), count + len(lines)
        lines = []
    return written, count


async def migrate(root: Path, home: Path, *, apply: bool) -> float:
    home.mkdir(exist_ok=True)
    database = Database(home / "home.sqlite", "home")
    importer = ImportStore(database, SystemClock())
    began = time.perf_counter()
    with OpenClawHome(root, root) as foreign:
        to = Destination({"main": home / "workspace"}, home / "skills")
        report = await Migration(foreign, importer, to, SystemClock(), lambda _: None, apply=apply).run()
    took = time.perf_counter() - began
    print(
        f"  {len(report.sessions)} sessions, {sum(sum(s.entries.values()) for s in report.sessions):,} entries", end=""
    )
    await database.close()
    return took


def by_a_short_script(root: Path, target: Path) -> float:
    began = time.perf_counter()
    table = sqlite3.connect(target)
    table.execute("PRAGMA journal_mode = wal")
    table.execute("PRAGMA synchronous = full")
    table.execute("CREATE TABLE entries (position INTEGER PRIMARY KEY, session, id, parent, type, payload)")
    for path in sorted((root / "agents" / "main" / "sessions").glob("*.jsonl")):
        with path.open() as file:
            while lines := list(islice(file, 8_000)):
                found = ((json.loads(line), line) for line in lines)
                rows = [(path.stem, value["id"], value.get("parentId"), value["type"], line) for value, line in found]
                table.executemany("INSERT INTO entries VALUES (NULL, ?, ?, ?, ?, ?)", rows)
                table.commit()
    table.close()
    target.unlink()
    return time.perf_counter() - began


async def export(home: Path, into: Path) -> float:
    database = Database(home / "home.sqlite", "home")
    began = time.perf_counter()
    writer = TreeWriter(SessionExporter(database), into, SystemClock())
    done = await writer.write([ExportedAgent("main", home / "workspace", is_default=True)], home / "skills")
    took = time.perf_counter() - began
    print(f"  {done.sessions} sessions, {done.entries:,} entries", end="")
    await database.close()
    return took


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=128)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--apply", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pal-bench-") as folder:
        root = Path(folder) / "openclaw"
        size, entries = make_tree(root, asked.megabytes, asked.sessions)
        print(f"{size / 1e6:.0f} MB, {entries:,} entries")
        home = Path(folder) / "home"
        for label in ("look", "apply", "again", "export")[: 4 if asked.apply else 1]:
            cpu = time.process_time()
            if label == "export":
                took = asyncio.run(export(home, Path(folder) / "out"))
            else:
                took = asyncio.run(migrate(root, home, apply=label != "look"))
            cpu = time.process_time() - cpu
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(f"  {label}: {took:.1f} s ({cpu:.1f} s of CPU), {size / 1e6 / took:.0f} MB/s, peak {peak:.0f} MB")
            if label == "apply":
                plain = by_a_short_script(root, Path(folder) / "plain.sqlite")
                rate = f"{size / 1e6 / plain:.0f} MB/s"
                print(f"  a short script: {plain:.1f} s, {rate}; ours took {took / plain:.2f} times that")


if __name__ == "__main__":
    main()
