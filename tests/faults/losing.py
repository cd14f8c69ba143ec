"""A model that overflows, hangs, refuses and talks nonsense while the process is killed: nothing that was said is lost.

At every step each planted identifier is read or in notes, no row of the transcript is gone, and at the end the next
message is answered.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from palinurus.context.view import fold
from palinurus.domain.errors import Failure
from palinurus.domain.keys import SessionKey
from palinurus.domain.tool import ToolOutput, ToolRun, tool
from palinurus.providers.provider import ModelRequest, ReplyEvent
from palinurus.sessions.transcript import Row, decode_row
from palinurus.testing.fakes import Reply, call, calls, fails
from palinurus.testing.harness import Harness
from support.windowed import WindowedProvider, good_summary, is_flush, is_summary

T = TypeVar("T")
MAIN = SessionKey.main()
WINDOW = 5_000
FILLER = "the tide turns and the harbour lights come on one after the other while nobody is looking "
BOUNDED = settings(deadline=None, database=None)  # replaying what failed once would take minutes
MOODS = ("good", "good", "overflow", "junk", "silent", "fails", "hangs", "calls")


class Moody(WindowedProvider):
    """Answers as its mood is, to the conversation and to what is asked beside it."""

    def __init__(self) -> None:
        super().__init__(window=WINDOW)
        self.mood = self.aside = "good"
        self.hung = asyncio.Event()
        self.dice = random.Random(7)  # hypothesis draws the moods; this one only words

    async def stream(self, request: ModelRequest) -> AsyncIterator[ReplyEvent]:
        beside = is_summary(request) or is_flush(request)
        mood = self.aside if beside else self.mood
        if mood == "hangs":
            self.hung.set()
            await asyncio.get_running_loop().create_future()
        self.sums = lambda asked: good_summary(asked) if mood in ("good", "calls") else self._bad(mood)
        noted = '[{"text": "a good note of the harbour", "quote": "harbour"}]'
        self.notes = lambda _: Reply(noted) if mood == "good" else self._bad(mood)
        if not beside and mood not in ("good", "calls"):
            self.replies[:] = [self._bad(mood)]
            self.mood = "good" if mood == "overflow" else mood
        elif not beside and mood == "calls" and self.dice.random() < 0.8:
            self.replies[:] = [calls(call("look", f"c{self.dice.getrandbits(32)}", at="harbour"))]
        async for event in super().stream(request):
            yield event

    def _bad(self, mood: str) -> Reply:
        return {
            "overflow": fails(Failure.CONTEXT_OVERFLOW),
            "junk": Reply("## Decisions\n" + "blah " * 50),
            "silent": Reply(""),
        }.get(mood, fails(Failure.OVERLOAD))


class Conversation(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.root = Path(tempfile.mkdtemp(prefix="palinurus-never-lost-"))
        (self.root / "AGENTS.md").write_text("# Rules\nBe brief.\n")
        self.planted: list[str] = []
        self.rows: list[Row] = []
        self.pal = self.do(self._made())

    async def _made(self) -> Harness:
        @tool("look", "Look somewhere.")
        async def look(run: ToolRun, at: str) -> ToolOutput:
            return ToolOutput(f"{at}: {FILLER * 4}")

        return Harness(self.root, model=Moody(), tools=[look])

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, 60))

    @rule(mood=st.sampled_from(MOODS), aside=st.sampled_from(MOODS), length=st.integers(0, 12))
    def say(self, mood: str, aside: str, length: int) -> None:
        self.planted.append(f"ID-{len(self.planted):05d}-qx")
        self.do(self._say(f"Remember {self.planted[-1]}. {FILLER * length}", mood, aside))

    @rule(aside=st.sampled_from(MOODS))
    def compact(self, aside: str) -> None:
        self.do(self._say("/compact", "good", aside))

    @rule()
    def start_over(self) -> None:
        self.do(self._say("/new", "good", "good"))

    @rule(length=st.integers(400, 700))
    def say_far_too_much(self, length: int) -> None:
        self.planted.append(f"ID-{len(self.planted):05d}-qx")
        self.do(self._say(f"Remember {self.planted[-1]}. {FILLER * length}", "good", "good"))

    @rule()
    def crash(self) -> None:
        self.do(self.pal.crash())

    async def _say(self, text: str, mood: str, aside: str) -> None:
        """Say it; whoever hangs is stopped, or dies with the process."""
        model = self.pal.model
        model.mood, model.aside, model.hung = mood, aside, asyncio.Event()
        run = await self.pal.submits(text)
        ended, hung = asyncio.ensure_future(run.wait(40)), asyncio.ensure_future(model.hung.wait())
        await asyncio.wait({ended, hung}, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            model.mood = model.aside = "good"
            if len(self.planted) % 2:
                await self.pal.crash()
                run = await self.pal.dispatcher.find(run.id)
                await run.wait(40)
                ended.cancel()
            else:
                run.stop.request()
                await ended
        hung.cancel()
        model.mood = model.aside = "good"

    @invariant()
    def nothing_is_lost(self) -> None:
        self.do(self._look())

    async def _look(self) -> None:
        session = await self.pal.sessions.find(MAIN)
        if session is None:
            return
        rows = await self.pal.sessions.rows(session.id)
        assert rows[: len(self.rows)] == self.rows
        self.rows = rows
        read = "\n".join(line.message.text for line in fold([decode_row(row) for row in rows]).lines)
        noted = "\n".join(made.notes for made in await self.pal.sessions.extractions(session.id))
        assert [each for each in self.planted if each not in read and each not in noted] == []

    def teardown(self) -> None:
        try:
            answer = self.do(self._end())
            assert (answer.status, answer.text) == ("ok", "you said: still there?")
        finally:
            self.loop.close()
            shutil.rmtree(self.root)

    async def _end(self) -> Any:
        answer = await self.pal.hears("still there?")
        await self.pal.idle()
        await self.pal.__aexit__()
        return answer


def converse(*, examples: int, steps: int, derandomize: bool = False) -> None:
    """Raises AssertionError with the shortest conversation in which something was lost."""
    wanted = settings(BOUNDED, max_examples=examples, stateful_step_count=steps, derandomize=derandomize)
    run_state_machine_as_test(Conversation, settings=wanted)
