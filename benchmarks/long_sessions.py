"""What it costs to speak in a session that is long: the CPU of `pal agent -m hi`, the first time and later.

Three kinds of story. In `cut` a compaction stands behind every 200 messages, as in a home that has been lived in. The
others were never cut, as when another program kept them and they were brought over: their first run has to take notes
of all of it before the cut (promise 2). In `uncut` the user's newest words fill those notes; in `facts` they do not, so
that every word is read for them. `held` is the longest time that one callback of the first
run has kept the event loop for itself. A home with one exchange is measured first, to compare with.

    python -m benchmarks.long_sessions
    python -m benchmarks.long_sessions --entries 100000
"""

from __future__ import annotations

import argparse
import asyncio.events
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import msgspec

from palinurus.domain.messages import AssistantMessage, Text, UserMessage
from palinurus.sessions.extraction import Extraction
from palinurus.sessions.session import Session
from palinurus.sessions.store import add_entry, add_extraction
from palinurus.sessions.transcript import CompactionEntry, Entry, MessageEntry
from palinurus.storage.transaction import Transaction, encoded

SIZES = (1_000, 10_000, 100_000)
BETWEEN_CUTS = 200
KEPT = 5
LATER = 3  # runs, of which the quickest is shown
KEY = "agent:main:main"
AT = "2026-11-15T09:00:00.000Z"
HELD = "held "


def story(count: int, parent: str, kind: str) -> Iterator[Entry]:
    for number in range(count):
        if number % 2:
            text = f"Berth {number} is free from Tuesday on; Maria has paid {number * 3} euros for it. " * 2
            yield MessageEntry(f"e{number}", AT, parent, message=AssistantMessage((Text(text),)))
        else:
            said = "Berth {} is free on Tuesday." if kind == "facts" else "My boat number {} needs a berth."
            asked = f"{said.format(number)} Who pays Maria the {number * 3} euros?"
            yield MessageEntry(f"e{number}", AT, parent, message=UserMessage(asked, timestamp=1_763_197_200_000))
        parent = f"e{number}"
        if kind == "cut" and number % BETWEEN_CUTS == BETWEEN_CUTS - 1:
            kept = f"e{number - KEPT}"
            yield CompactionEntry(f"c{number}", AT, parent, summary="Berths were given away.", first_kept_entry_id=kept)
            parent = f"c{number}"


def write_story(home: Path, count: int, kind: str) -> None:
    """Behind what the session of a home holds already."""
    connection = apsw.Connection(str(home / "home.sqlite"))
    tx = Transaction(connection)
    with connection:
        row = tx.value("sessions.session_by_key", key=KEY)
        session = msgspec.json.decode(row, type=Session)
        last = "SELECT id FROM entries WHERE session_id = ? ORDER BY position DESC LIMIT 1"
        before, added = connection.execute(last, (session.id,)).get, 0
        for entry in story(count, before, kind):
            if isinstance(entry, CompactionEntry):
                made = Extraction(
                    f"x-{entry.id}", session.id, entry.parent_id or "", "", "extractor", False, "", 0, KEY
                )
                add_extraction(tx, made)
            add_entry(tx, session.id, entry)
            added += 1
        grown = msgspec.structs.replace(session, entry_count=session.entry_count + added)
        tx.run("sessions.change_session", id=session.id, now=session.updated_at, row=encoded(grown))
    connection.close()


def run(home: Path) -> tuple[float, float]:
    """Seconds of CPU, and the longest that one callback has held the loop."""
    env = {**os.environ, "PALINURUS_HOME": str(home)}
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.long_sessions", "--speak"],
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    if process.returncode:
        raise SystemExit(said)
    return used.ru_utime + used.ru_stime, float(said.rpartition(HELD)[2])


def speak() -> None:
    """`pal agent -m hi` in this process, with a watch on the callbacks of its loop."""
    longest, plain = 0.0, asyncio.events.Handle._run  # noqa: SLF001

    def timed(handle: asyncio.events.Handle) -> None:
        nonlocal longest
        began = time.thread_time()
        plain(handle)
        longest = max(longest, time.thread_time() - began)

    asyncio.events.Handle._run = timed  # type: ignore[method-assign]  # noqa: SLF001
    from palinurus.__main__ import main  # what it loads belongs to the run

    sys.argv = ["pal", "agent", "-m", "hi"]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
    finally:
        print(f"{HELD}{longest}", file=sys.stderr)


def measure(sizes: tuple[int, ...]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "short"
        run(home)
        cpu, held = min(run(home) for _ in range(LATER))
        print(f"{'entries':>8}  {'story':<8}  {'first':>8}  {'held':>8}  {'later':>8}")
        print(f"{2:>8}  {'short':<8}  {'':>8}  {held * 1000:>5.0f} ms  {cpu:>6.2f} s")
        for count in sizes:
            for kind in ("cut", "uncut", "facts"):
                home = Path(folder) / f"{count}-{kind}"
                run(home)
                write_story(home, count, kind)
                first, held = run(home)
                later, _ = min(run(home) for _ in range(LATER))
                print(f"{count:>8,}  {kind:<8}  {first:>6.2f} s  {held * 1000:>5.0f} ms  {later:>6.2f} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, action="append", help="how long the stories are, instead of all three")
    parser.add_argument("--speak", action="store_true", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.speak:
        speak()
    else:
        measure(tuple(told.entries or SIZES))
