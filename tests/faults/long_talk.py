"""A conversation of thousands of turns with tool calls on a small window: it stays within it, and stays quick.

The rooms are real, the store is SQLite on a disk; the model answers at once, so what is measured is ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import msgspec
from msgspec import Struct

from palinurus.context.budget import message_tokens
from palinurus.context.daily_notes import NoteFiles
from palinurus.domain.clock import random_id
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Message
from palinurus.domain.tool import ToolOutput, ToolRun, tool
from palinurus.providers.provider import ModelRequest
from palinurus.sessions.store import CACHED_SESSIONS, SessionStore
from palinurus.storage.database import Database
from palinurus.testing.fakes import FakeClock, Reply, call, calls
from palinurus.testing.harness import Harness
from support.windowed import WindowedProvider

WINDOW = 8_000
SAMPLE = 40  # turns around a point that is measured
FILLER = "the tide turns and the harbour lights come on one after the other while nobody is looking "


class Talked(Struct, frozen=True):
    turns: int
    compactions: int
    flushes: int
    fullest: int  # tokens of the largest request
    early_ms: float  # CPU of a turn around turn 20, p50
    late_ms: float  # around the last
    first_half: int  # bytes that the disk grew by
    second_half: int

    @property
    def slower(self) -> float:
        return self.late_ms / self.early_ms

    def __str__(self) -> str:
        return (
            f"{self.turns:,} turns, {self.compactions} compactions, "
            f"fullest request {self.fullest:,} of {WINDOW:,} tokens, "
            f"CPU of a turn {self.early_ms:.1f} ms at first and {self.late_ms:.1f} ms at last ({self.slower:.2f}×), "
            f"the disk grew by {self.first_half / 1e6:.1f} and {self.second_half / 1e6:.1f} MB"
        )


class QuickModel(WindowedProvider):
    """Weighs each message once, so that what is measured is ours and not the counting of a fake."""

    def __init__(self) -> None:
        super().__init__(window=WINDOW, otherwise=lambda _: Reply("NO_REPLY"))
        self._weighed: dict[int, tuple[Message, int]] = {}

    def tokens(self, request: ModelRequest) -> int:
        empty = msgspec.structs.replace(request, messages=())
        return super().tokens(empty) + sum(map(self._weight, request.messages))

    def _weight(self, message: Message) -> int:
        if id(message) not in self._weighed:
            self._weighed[id(message)] = message, message_tokens(message)
        return self._weighed[id(message)][1]


async def talk_for_long(folder: Path, *, turns: int, progress: Callable[[str], None] = lambda _: None) -> Talked:
    workspace = folder / "workspace"
    workspace.mkdir(parents=True)
    (workspace / "AGENTS.md").write_text("# Rules\nBe brief.\n")

    @tool("look", "Look at something.")
    async def look(run: ToolRun, at: str) -> ToolOutput:
        return ToolOutput(f"{at}: " + FILLER * 8)

    clock, model = FakeClock(), QuickModel()
    database = Database(folder / "home.sqlite", "home")
    sessions = SessionStore(database, clock, random_id, remembers=CACHED_SESSIONS)
    try:
        async with Harness(workspace, model=model, tools=[look], sessions=sessions) as pal:
            pal.clock = clock
            pal.turns.maintenance.place_notes = NoteFiles(sessions, lambda _: pal.files.boundary, clock)
            took: list[float] = []
            sizes = [_size(folder)]
            for turn in range(turns):
                model.says(calls(call("look", f"c{turn}", at=f"pier {turn}")), Reply(f"Seen. {FILLER * 2}"))
                began = time.process_time()
                reply = await pal.hears(f"Booking BK-{turn:05d}-x7 is for berth {turn}. {FILLER * 3}")
                await pal.idle()
                took.append((time.process_time() - began) * 1000)
                assert reply.status == "ok", reply.error
                model.requests.clear()
                model.summaries.clear()
                model.flushes.clear()
                clock.advance(minutes=1)
                if turn + 1 == turns // 2 or turn + 1 == turns:
                    sizes.append(_size(folder))
                if (turn + 1) % 500 == 0:
                    progress(f"{turn + 1:,} turns, p50 {median(took[-SAMPLE:]):.1f} ms")
            session = await sessions.find(SessionKey.main())
            assert session is not None
            assert session.entry_count > 4 * turns  # nothing was taken away
            return Talked(
                turns,
                session.compaction_count,
                session.memory_flush_count,
                max(model.counts),
                median(took[10 : 10 + SAMPLE]),
                median(took[-SAMPLE:]),
                sizes[1] - sizes[0],
                sizes[2] - sizes[1],
            )
    finally:
        await database.close()


def check_long(talked: Talked) -> None:
    assert talked.fullest <= WINDOW, str(talked)
    assert talked.compactions >= talked.turns // 50, str(talked)
    assert talked.second_half <= 1.2 * talked.first_half + 1_000_000, str(talked)
    assert talked.slower <= 1.5, str(talked)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
