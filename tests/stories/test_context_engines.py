"""A context engine that fails costs no turn: it is disabled with a notice, and the built-in one is used."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from palinurus.config.home import Home
from palinurus.context.engine import Assembly, ContextEngine, LegacyEngine
from palinurus.context.summary import HEADINGS, SummaryOrder
from palinurus.domain.events import Notice
from palinurus.domain.messages import AssistantMessage, Message, Text, UserMessage
from palinurus.operations.status import show_status
from palinurus.sessions.session import Session
from palinurus.sessions.transcript import CompactionEntry
from palinurus.testing.harness import Harness
from support.windowed import WindowedProvider

STEPS = ("bootstrap", "ingest", "assemble", "compact", "after_turn")
WORDS = "the tide turns and the harbour lights come on one after the other while nobody is looking " * 16


class Watching(LegacyEngine):
    """Does what legacy does, and remembers what it was asked."""

    name = "watching"

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.messages: list[Message] = []

    async def bootstrap(self, session: Session) -> None:
        self.heard.append("bootstrap")

    async def ingest(self, session: Session, message: Message) -> None:
        self.heard.append("ingest")
        self.messages.append(message)

    async def assemble(self, session: Session, assembly: Assembly) -> Sequence[Message]:
        self.heard.append("assemble")
        return assembly.messages

    async def compact(self, session: Session, wanted: SummaryOrder) -> str:
        self.heard.append("compact")
        bodies = ["- by the engine", "- none", "- none", "- none", f"- {', '.join(wanted.exact) or 'none'}"]
        return "\n".join(f"{heading}\n{body}" for heading, body in zip(HEADINGS, bodies, strict=True))

    async def after_turn(self, session: Session) -> None:
        self.heard.append("after_turn")


def breaking(step: str) -> ContextEngine:
    async def breaks(*_: Any) -> Any:
        raise RuntimeError(f"no {step} today")

    engine = Watching()
    setattr(engine, step, breaks)
    return engine


async def talk(pal: Harness, turns: int) -> list[Notice]:
    heard: list[Notice] = []
    for turn in range(turns):
        run = await pal.submits(f"Booking BK-{turn:04d}-x7. {WORDS}")
        assert (await run.wait(60)).status == "ok"
        heard += [event async for event in run.events() if isinstance(event, Notice)]
        await pal.idle()
    return heard


@pytest.mark.parametrize("step", STEPS)
async def test_an_engine_that_raises_in_any_of_its_steps_costs_no_turn(workspace: Path, home: Home, step: str) -> None:
    model = WindowedProvider()
    async with Harness(workspace, model=model, engine=breaking(step)) as pal:
        heard = await talk(pal, 20)
        assert len([entry for entry in await pal.transcript() if isinstance(entry, CompactionEntry)]) >= 1
        told = (await show_status(pal.services(home))).warnings
        assert f"the context engine watching is disabled: {step} gave" in told[0]
        if step != "after_turn":  # nobody follows a run that has ended
            assert [event.text for event in heard] == [told[0]]
        assert pal.turns.maintenance.engines.name == "legacy"


async def test_an_engine_sees_every_message_and_may_write_the_summary(workspace: Path) -> None:
    engine = Watching()
    async with Harness(workspace, model=WindowedProvider(), engine=engine) as pal:
        await talk(pal, 20)
        assert set(engine.heard) == set(STEPS)
        assert engine.heard.count("bootstrap") == 1
        assert engine.heard.count("after_turn") == 20
        assert engine.messages == await pal.messages()
        done = [entry for entry in await pal.transcript() if isinstance(entry, CompactionEntry)]
        assert all("- by the engine" in entry.summary for entry in done)
        assert pal.model.summaries == []


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [AssistantMessage((Text("I begin"),))],
        [UserMessage("a"), UserMessage("b")],
        [UserMessage("a"), AssistantMessage((Text("b"),))],
    ],
    ids=["nothing", "a reply first", "nobody answered", "a reply last"],
)
async def test_an_engine_that_makes_what_no_provider_takes_is_set_aside(
    workspace: Path, messages: list[Message]
) -> None:
    class Odd(Watching):
        async def assemble(self, session: Session, assembly: Assembly) -> Sequence[Message]:
            return messages

    async with Harness(workspace, engine=Odd()) as pal:
        assert (await pal.hears("hi")).text == "you said: hi"
        assert "no provider takes" in pal.turns.maintenance.engines.trouble


async def test_a_summary_of_an_engine_is_checked_like_any_other(workspace: Path) -> None:
    class Forgetful(Watching):
        async def compact(self, session: Session, wanted: SummaryOrder) -> str:
            return "They talked."

    async with Harness(workspace, model=WindowedProvider(), engine=Forgetful()) as pal:
        await talk(pal, 20)
        done = [entry for entry in await pal.transcript() if isinstance(entry, CompactionEntry)]
        assert done
        assert all("They talked." not in entry.summary for entry in done)
        assert "cannot be used" in pal.turns.maintenance.engines.trouble


async def test_an_engine_that_never_answers_is_not_waited_for(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(Watching):
        async def assemble(self, session: Session, assembly: Assembly) -> Sequence[Message]:
            await asyncio.get_running_loop().create_future()
            return ()

    monkeypatch.setattr("palinurus.context.engine.STEP_SECONDS", 0.05)
    async with Harness(workspace, engine=Hanging()) as pal:
        assert (await pal.hears("hi")).text == "you said: hi"
