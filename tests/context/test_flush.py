"""Notes are taken before something is cut: by the model when it writes good ones, by rule else, and put into a file."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from noted import model, result, user

from palinurus.context.daily_notes import NoteFiles, mark_of
from palinurus.context.fact_check import check_drafts, read_drafts
from palinurus.context.flush import QUESTION, Flush
from palinurus.context.settings import CompactionSettings, FlushSettings
from palinurus.context.view import Line
from palinurus.domain.clock import local_time
from palinurus.domain.errors import Failure, StorageError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import ContextNote, Origin
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


def draft(text: str, quote: str, **more: Any) -> dict[str, Any]:
    return {"text": text, "quote": quote, **more}


def answer(*drafts: dict[str, Any]) -> str:
    return msgspec.json.encode(drafts).decode()


def checked(lines: list[Line], *drafts: dict[str, Any], outside: bool = False) -> tuple[list[str], int]:
    done = check_drafts(read_drafts(answer(*drafts)), lines, outside=outside)
    return [each.line for each in done.facts], done.refused


def test_good_facts_are_kept_with_what_the_user_told_exactly() -> None:
    lines, refused = checked(
        LINES,
        draft("The user books the ferry to Bornholm", "book the ferry to Bornholm", who="user", entities=["Bornholm"]),
        draft("The ferry leaves from pier 4", "from pier 4", kind="experience", occurred_start="2026-12-03"),
    )
    assert lines == [
        "- W @Bornholm: The user books the ferry to Bornholm",
        "- B: The ferry leaves from pier 4 (2026-12-03)",
        "- W @Bornholm: Please book the ferry to Bornholm, my reference is BK-2201-x7.",
    ]
    assert refused == 0


def test_what_the_user_asked_to_remember_is_noted_whether_the_model_does_or_not() -> None:
    lines = [user("Remember that Ada is allergic to walnuts."), model("I will."), user("I live in Lisbon.")]
    lisbon = draft("The user lives in Lisbon", "I live in Lisbon")
    assert checked(lines, lisbon)[0] == [
        "- W: The user lives in Lisbon",
        "- W @Ada: Remember that Ada is allergic to walnuts.",
    ]
    nuts = draft("Ada is allergic to walnuts", "Ada is allergic to walnuts", who="Ada")
    assert checked(lines, nuts)[0] == ["- W @Ada: Ada is allergic to walnuts"]


@pytest.mark.parametrize(
    ("invented", "quote"),
    [
        ("Ada is allergic to peanuts", "Ada is allergic to walnuts"),
        ("Ada moved to Oslo in 1987", "My sister Ada"),
        ("Ada, the sister of Peter, is allergic to walnuts", "Ada is allergic to walnuts"),
        ("The locker has the number 4472", "My locker has the number"),
        ("The locker has the number 4471", "the locker is number 4471"),
        ("The locker has the number 4471", ""),
        ("I can read files, search the notes and answer questions", "I can read files"),
    ],
)
def test_a_fact_that_says_something_else_or_quotes_nothing_is_refused_and_the_others_are_kept(
    invented: str, quote: str
) -> None:
    lines = [
        user("My sister Ada is allergic to walnuts. My locker has the number 4471."),
        model("I can read files, search the notes and answer questions."),
    ]
    good = draft("Ada, the sister of the user, is allergic to walnuts", "my sister  Ada is allergic")
    kept, refused = checked(lines, draft(invented, quote), good)
    assert kept[0] == "- W: Ada, the sister of the user, is allergic to walnuts"
    assert (refused, [line for line in kept if invented in line]) == (1, [])


def test_facts_in_other_words_and_scripts_pass_and_a_day_may_be_worked_out() -> None:
    lines = [user("Tomorrow I am meeting the architects at the quay."), user("我妹妹住在上海，她对花生过敏。")]
    quay = draft("The user meets the architect at the quay on 2025-11-16", "meeting the architects")
    sister = draft("用户的妹妹住在上海，对花生过敏", "我妹妹住在上海")
    assert checked(lines, quay, sister)[0] == [f"- W: {quay['text']}", f"- W: {sister['text']}"]


def test_a_period_stays_one_and_what_is_no_period_is_left_out() -> None:
    lines = [user("I was in Marrakech for the birthday of Andy.")]

    def noted(first: str, last: str) -> str:
        fact = draft("The user was in Marrakech", "I was in Marrakech", occurred_start=first, occurred_end=last)
        return checked(lines, fact)[0][0]

    assert noted("2025-11-27", "2025-12-01") == "- W: The user was in Marrakech (2025-11-27 to 2025-12-01)"
    assert noted("2025-12-01", "2025-11-27") == noted("soon", "") == "- W: The user was in Marrakech"


def test_what_was_recalled_is_not_noted_again_unless_the_user_says_it_himself() -> None:
    recalled = ContextNote("recall", "memory/2025-11-01.md#L3: My dentist is Dr Weber.")
    looked_up = result("My dentist is Dr Weber.", tool="memory_search")
    fact = draft("The dentist of the user is Dr Weber", "your dentist is Dr Weber")
    asks, replies = user("Who is my dentist?", context=(recalled,)), model("Your dentist is Dr Weber.")
    assert checked([asks, replies], fact) == ([], 1)
    assert checked([user("Who is my dentist?"), looked_up, replies], fact) == ([], 1)
    says = user("As I said, your dentist is Dr Weber, like mine.", context=(recalled,))
    assert checked([says], fact)[1] == 0


@pytest.mark.parametrize(
    "text",
    ["- The ferry leaves from pier 4", "Sure! Here are the facts.", '{"text": "a", "quote": "b"}', "[1]", "[" * 5_000,
     '[{"text": "a"}]', '[{"text": "a", "quote": "b", "kind": "rumour"}]', '[{"text": "a", "quote": "b", "c": 1}]'],
)  # fmt: skip
def test_an_answer_of_another_form_is_not_read(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_drafts(text)


def test_facts_that_are_too_long_or_too_many_are_not_kept() -> None:
    endless = draft("The ferry to Bornholm leaves. " * 100, "The ferry to Bornholm leaves")
    assert checked(LINES, endless) == ([], 1)
    assert checked(LINES, *(draft(f"the ferry {number}", "the ferry") for number in range(500))) == ([], 500)


def test_facts_of_a_conversation_that_has_read_words_from_outside_say_so_and_the_users_own_do_not() -> None:
    lines = [*LINES, user("My dentist is Dr Weber."), result("ferry prices", origin=Origin.OUTSIDE)]
    kept = checked(
        lines,
        draft("The ferry leaves from pier 4", "from pier 4"),
        draft("The dentist of the user is Dr Weber", "My dentist is Dr Weber"),
    )[0]
    assert "- W: The ferry leaves from pier 4 (from outside)" in kept
    assert [line for line in kept if "Weber" in line] == ["- W @Dr-Weber: My dentist is Dr Weber."]


async def test_a_model_that_answers_in_another_form_is_asked_once_more() -> None:
    asked: list[str] = []
    good = answer(draft("The ferry leaves from pier 4", "from pier 4"))

    async def silent(question: str) -> str | None:
        asked.append(question)
        return good if len(asked) == 2 else "- The ferry leaves from pier 4"

    flush, session = Flush(FakeClock(), SeededIds(1)), new_session("s", MAIN, 0)
    made = await flush.extracted(session, MAIN, LINES, silent=silent)
    assert (made.made_by, len(asked)) == ("model", 2)
    assert "could not be used" in asked[1]
    good = "still none"
    asked.clear()
    made = await flush.extracted(session, MAIN, LINES, silent=silent)
    assert (made.made_by, len(asked)) == ("extractor", 2)
    assert "BK-2201-x7" in made.notes


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
    pal.model.notes = lambda _: Reply(
        answer(draft("The user books berths in the harbour, each booking under a number of its own", "is for berth 0"))
    )
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
    assert "## Retain\n\n### From agent:main:main, " in text


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


async def test_each_fact_stands_in_the_file_of_the_day_on_which_it_was_said(waiting: Harness, workspace: Path) -> None:
    first = f"{local_time(waiting.clock):%Y-%m-%d}"
    await waiting.hears("I fly to Oslo tomorrow.")
    waiting.clock.advance(minutes=1_800)
    await waiting.hears("My dentist is Dr Weber.")
    await waiting.hears("/new")
    for _ in range(2):
        await NoteFiles(waiting.sessions, lambda _: Boundary(workspace), waiting.clock)()
    lines = {
        file.stem: [line for line in file.read_text().splitlines() if line.startswith("- ")]
        for file in (workspace / "memory").glob("*.md")
    }
    last = f"{local_time(waiting.clock):%Y-%m-%d}"
    assert lines == {first: ["- W @Oslo: I fly to Oslo tomorrow."], last: ["- W @Dr-Weber: My dentist is Dr Weber."]}


async def test_what_stands_in_the_file_already_stays_and_the_notes_come_behind_it(
    waiting: Harness, workspace: Path
) -> None:
    made = await noted(waiting)
    (workspace / "memory").mkdir(exist_ok=True)
    (workspace / "memory" / f"{made.day}.md").write_text("# My day\n\n- no newline at the end")
    await NoteFiles(waiting.sessions, lambda _: Boundary(workspace), waiting.clock)()
    lines = (workspace / "memory" / f"{made.day}.md").read_text().splitlines()
    assert lines[:5] == ["# My day", "", "- no newline at the end", "", lines[4]]
    assert lines[4] == "## Retain"
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
