"""Notes are taken before something is cut: by the model when it writes good ones, by rule else, and put into a file."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from noted import model, result, user

from palinurus.context.daily_notes import NoteFiles, mark_of
from palinurus.context.flush import QUESTION, Flush, check_notes
from palinurus.context.settings import CompactionSettings, FlushSettings
from palinurus.domain.errors import Failure, StorageError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin
from palinurus.sessions.extraction import Extraction
from palinurus.sessions.session import SessionChange, new_session
from palinurus.testing.fakes import FakeClock, Reply, SeededIds, call, calls, fails
from palinurus.testing.harness import Harness
from palinurus.workspace.boundary import Boundary
from support.windowed import WindowedProvider

MAIN = SessionKey.main()
LINES = [
    user("Please book the ferry to Bornholm, my reference is BK-2201-x7."),
    model("The ferry to Bornholm leaves on 2026-12-03 at 08:30 from pier 4."),
    result("wrote /srv/plans/bornholm.md"),
]
FILLER = "the tide turns and the harbour lights come on one after the other while nobody is looking "


def test_good_notes_are_kept_one_bullet_a_line_with_what_the_user_told_exactly() -> None:
    checked = check_notes("## Trip\n* The user books the ferry to Bornholm\n\n1. The ferry leaves from pier 4\n", LINES)
    assert checked.notes.splitlines() == [
        "- The user books the ferry to Bornholm",
        "- The ferry leaves from pier 4",
        "- 2025-11-15 user: Please book the ferry to Bornholm, my reference is BK-2201-x7.",
    ]
    assert checked.refused == 0


def test_what_the_user_asked_to_remember_is_noted_whether_the_model_does_or_not() -> None:
    lines = [user("Remember that Ada is allergic to walnuts."), model("I will."), user("I live in Lisbon.")]
    forgot = check_notes("- The user lives in Lisbon", lines).notes
    assert forgot.splitlines() == [
        "- The user lives in Lisbon",
        "- 2025-11-15 user: Remember that Ada is allergic to walnuts.",
    ]
    assert check_notes("- Ada is allergic to walnuts", lines).notes == "- Ada is allergic to walnuts"


@pytest.mark.parametrize(
    "invented",
    [
        "Ada is allergic to peanuts",
        "Ada moved to Oslo in 1987",
        "Ada, the sister of Peter, is allergic to walnuts",
        "The locker has the number 4472",
        "Sure! Here are the notes",
        "I can read files, search the notes and answer questions",
        "NO_REPLY",
        "Notes of this conversation:",
    ],
)
def test_a_line_that_says_something_else_is_refused_and_the_others_are_kept(invented: str) -> None:
    lines = [
        user("My sister Ada is allergic to walnuts. My locker has the number 4471."),
        model("I can read files, search the notes and answer questions."),
    ]
    checked = check_notes(f"{invented}\n- Ada, the sister of the user, is allergic to walnuts", lines)
    assert checked.notes.splitlines()[0] == "- Ada, the sister of the user, is allergic to walnuts"
    assert not any(invented in line for line in checked.notes.splitlines())


def test_notes_in_other_words_and_scripts_pass_and_a_day_may_be_worked_out() -> None:
    lines = [user("Tomorrow I am meeting the architects at the quay."), user("我妹妹住在上海，她对花生过敏。")]
    told = "- The user meets the architect at the quay on 2025-11-16\n- 用户的妹妹住在上海，对花生过敏"
    assert check_notes(told, lines).notes == told


@pytest.mark.parametrize(
    "text",
    [
        "",
        "NO_REPLY",
        "I'm sorry, but I can't help with that.",
        "Es tut mir leid, das geht nicht.",
        "# Notes\n```\n```",
        "- purple elephants dance around quantum bananas beneath seventeen forgotten moonbeams",
        "- " + "The ferry to Bornholm leaves. " * 100,
        "\n".join(f"- the ferry {number}" for number in range(500)),
    ],
    ids=["nothing", "silence", "refusal", "German refusal", "no words", "nonsense", "one endless note", "too many"],
)
def test_notes_that_are_none_are_not_kept(text: str) -> None:
    assert check_notes(text, LINES).notes == ""


def test_notes_of_a_conversation_that_has_read_words_from_outside_say_so() -> None:
    lines = [*LINES, result("ferry prices", origin=Origin.OUTSIDE)]
    assert "- The ferry leaves from pier 4 (from outside)" in check_notes("- The ferry leaves from pier 4", lines).notes


async def test_the_model_is_not_asked_where_others_listen() -> None:
    async def silent(question: str) -> str | None:
        raise AssertionError("nobody should be asked")

    clock = FakeClock()
    key = SessionKey.parse("agent:main:telegram:group:7")
    made = await Flush(clock, SeededIds(1)).extracted(new_session("s", key, 0), key, LINES, silent=silent)
    assert (made.made_by, made.private, made.key) == ("extractor", False, str(key))


# -- in whole conversations --------------------------------------------------------------------------------------------


@pytest.fixture
async def pal(workspace: Path) -> AsyncIterator[Harness]:
    async with Harness(workspace, model=WindowedProvider(otherwise=lambda _: Reply("I see."))) as whole:
        whole.turns.maintenance.place_notes = NoteFiles(whole.sessions, lambda _: whole.files.boundary, whole.clock)
        yield whole


async def talk(pal: Harness, turns: int, key: str = "", first: int = 0) -> None:
    for turn in range(first, first + turns):
        assert (await pal.hears(f"Booking BK-{turn:04d}-x7 is for berth {turn}. {FILLER * 16}", key=key)).status == "ok"
        await pal.idle()


async def until_flushed(pal: Harness, key: str = "") -> list[Extraction]:
    for turn in range(60):
        await talk(pal, 1, key, first=turn)
        session = await pal.sessions.find(SessionKey.parse(key) if key else MAIN)
        assert session is not None
        if session.memory_flush_count:
            return await pal.sessions.extractions(session.id)
    raise AssertionError("nothing was flushed")


def daily(pal: Harness, workspace: Path) -> str:
    files = list((workspace / "memory").glob("*.md"))
    return "\n".join(file.read_text() for file in files)


async def test_near_the_end_of_the_window_the_model_takes_notes_and_nobody_hears_of_it(
    pal: Harness, workspace: Path
) -> None:
    pal.model.notes = lambda _: Reply("- The user books berths in the harbour, each booking under a number of its own")
    made = await until_flushed(pal)
    (flush,) = pal.model.flushes
    before = pal.model.requests[-1]
    assert flush.head == before.head
    assert flush.messages[: len(before.messages)] == before.messages
    assert made[0].made_by == "model"
    assert "BK-0003-x7" in made[0].notes
    said = "\n".join(message.text for message in await pal.messages())
    assert QUESTION not in said
    assert "number of its own" not in said
    text = daily(pal, workspace)
    assert text.count("number of its own") == 1
    assert "## Notes from agent:main:main, " in text


async def test_notes_are_taken_once_before_each_compaction(pal: Harness) -> None:
    await talk(pal, 60)
    session = await pal.sessions.find(MAIN)
    assert session is not None
    assert session.compaction_count >= 3
    assert session.memory_flush_count <= session.compaction_count + 1


@pytest.mark.parametrize(
    "reply",
    [
        Reply("NO_REPLY"),
        Reply("I'm sorry, I cannot do that."),
        fails(Failure.OVERLOAD),
        calls(call("exec", command="rm -rf /")),
    ],
    ids=["silence", "refusal", "failure", "a tool"],
)
async def test_when_the_model_writes_none_the_extractor_does(pal: Harness, reply: Reply) -> None:
    pal.model.notes = lambda _: reply
    made = await until_flushed(pal)
    assert made[0].made_by == "extractor"
    assert "BK-0003-x7" in made[0].notes


async def test_with_the_flush_switched_off_notes_are_taken_when_something_is_cut(pal: Harness) -> None:
    off = CompactionSettings(flush=FlushSettings(enabled=False))
    pal.agents.agent = msgspec.structs.replace(pal.agents.agent, compaction=off)
    await talk(pal, 30)
    session = await pal.sessions.find(MAIN)
    assert session is not None
    assert (session.memory_flush_count, pal.model.flushes) == (0, [])
    assert session.compaction_count
    assert await pal.sessions.extractions(session.id)


async def test_notes_of_a_group_stay_with_the_group(pal: Harness, workspace: Path) -> None:
    await talk(pal, 30, key="agent:main:telegram:group:7")
    session = await pal.sessions.find(SessionKey.parse("agent:main:telegram:group:7"))
    assert session is not None
    made = await pal.sessions.extractions(session.id)
    assert made
    assert not any(each.private or each.place for each in made)
    assert await pal.sessions.unplaced() == []
    assert "BK-0003-x7" not in daily(pal, workspace)


# -- the file of the day ----------------------------------------------------------------------------------------------


async def noted(pal: Harness) -> Extraction:
    await pal.hears("Remember that my locker is number 4471.")
    await pal.hears("/new")
    (made,) = await pal.sessions.unplaced() or [None]
    assert made is not None
    return made


@pytest.fixture
async def waiting(workspace: Path) -> AsyncIterator[Harness]:
    """Without anybody who writes the notes."""
    async with Harness(workspace) as whole:
        yield whole


async def test_a_crash_between_the_file_and_its_mark_doubles_nothing(waiting: Harness, workspace: Path) -> None:
    made = await noted(waiting)
    boundary = Boundary(workspace)

    class Dies:
        """Implements what Placing needs of a store, and dies before the mark is kept."""

        unplaced = waiting.sessions.unplaced

        async def set_place(self, extraction_id: str, place: str) -> None:
            raise StorageError("the process died here")

    assert await NoteFiles(Dies(), lambda _: boundary, waiting.clock)() == 0  # type: ignore[arg-type]
    assert await NoteFiles(waiting.sessions, lambda _: boundary, waiting.clock)() == 1
    text = daily(waiting, workspace)
    assert text.count("locker is number 4471") == text.count(mark_of(made)) == 1
    (placed,) = await waiting.sessions.extractions(made.session_id)
    assert placed.place == f"memory/{made.day}.md"
    assert await NoteFiles(waiting.sessions, lambda _: boundary, waiting.clock)() == 0


async def test_what_stands_in_the_file_already_stays_and_the_notes_come_behind_it(
    waiting: Harness, workspace: Path
) -> None:
    made = await noted(waiting)
    (workspace / "memory").mkdir(exist_ok=True)
    (workspace / "memory" / f"{made.day}.md").write_text("# My day\n\n- no newline at the end")
    await NoteFiles(waiting.sessions, lambda _: Boundary(workspace), waiting.clock)()
    lines = (workspace / "memory" / f"{made.day}.md").read_text().splitlines()
    assert lines[:5] == ["# My day", "", "- no newline at the end", "", lines[4]]
    assert lines[4].startswith("## Notes from agent:main:main, ")
    assert lines[-1] == mark_of(made)


async def test_where_nothing_can_be_written_notes_wait_and_are_written_later(
    waiting: Harness, workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await noted(waiting)
    (workspace / "memory").mkdir(exist_ok=True)
    (workspace / "memory").rename(workspace / "elsewhere")
    (workspace / "memory").write_text("a file where the folder should be")
    placing = NoteFiles(waiting.sessions, lambda _: Boundary(workspace), waiting.clock)
    with caplog.at_level(logging.WARNING):
        assert await placing() == 0
        assert await placing() == 0
    assert len([record for record in caplog.records if "stay in the database" in record.message]) == 1
    (workspace / "memory").unlink()
    assert await placing() == 1
    assert "4471" in daily(waiting, workspace)


async def test_notes_of_an_agent_that_is_gone_wait(waiting: Harness) -> None:
    made = await noted(waiting)

    def gone(agent_id: str) -> Boundary:
        return waiting.agents.get("nobody").files.boundary

    assert await NoteFiles(waiting.sessions, gone, waiting.clock)() == 0
    assert [each.id for each in await waiting.sessions.unplaced()] == [made.id]
    await waiting.sessions.append(made.session_id, (), SessionChange())
