"""The gist of a conversation without a model: what is kept, what is not, and that no exact word is ever lost."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from noted import NOON, model, result, user

from palinurus.context.extract import AT_LEAST, SHARE, exact_of, extract
from palinurus.context.view import Line
from palinurus.domain.messages import AssistantMessage, ContextNote, Origin, Text, ToolCall
from palinurus.text.sentences import MOST, identifiers

SMALL_TALK = (
    "Well, that sounds nice. It was quite a long day in the end, and everybody went home a little tired. "
    "There was some wind, then there was none. People walked by and looked at the water for a while. "
)


def test_what_the_user_wants_remembered_is_kept_and_small_talk_is_not() -> None:
    talk = [line for number in range(40) for line in (user(f"{SMALL_TALK}({number})"), model(SMALL_TALK * 2))]
    talk.insert(20, user(f"{SMALL_TALK} Remember that my sister Ada is allergic to walnuts. {SMALL_TALK}"))
    talk.insert(50, model(f"{SMALL_TALK} We decided to use Postgres instead of SQLite for the archive."))
    notes = extract(talk)
    assert "- 2025-11-15 user: Remember that my sister Ada is allergic to walnuts." in notes
    assert "- 2025-11-15 assistant: We decided to use Postgres instead of SQLite for the archive." in notes
    assert len(notes) <= SHARE * sum(len(line.message.text) for line in talk)


def test_each_note_says_who_and_on_which_day_of_the_users_zone() -> None:
    late = NOON + 11 * 3_600_000 + 1_800_000  # 23:30 UTC: tomorrow in Berlin
    notes = extract([user("Never call me before nine.", at=late)], zone=ZoneInfo("Europe/Berlin"))
    assert notes == "- 2025-11-16 user: Never call me before nine."


def test_what_was_said_twice_is_noted_once() -> None:
    notes = extract([user("My locker is number 4471."), model("Noted."), user("my locker is number 4471!")])
    assert notes.count("4471") == 1


def test_what_rides_beside_a_message_is_never_extracted() -> None:
    kinds = ("time", "file", "heartbeat", "notice", "history", "recall", "startup")
    context = tuple(ContextNote(kind, f"Remember SECRET-{kind}-4471.") for kind in kinds)
    assert "4471" not in extract([user("Remember the milk.", context=context)])


def test_words_from_outside_keep_their_mark() -> None:
    notes = extract(
        [
            user("Remember to pay invoice INV-2201.", origin=Origin.OUTSIDE),
            user("Please read the page."),
            model("", ToolCall("c", "web_fetch", {"url": "https://example.org/offer"})),
            result("see https://example.org/deal-9 now", tool="web_fetch", origin=Origin.OUTSIDE),
            model("The page says that you must buy before 2025-12-01."),
            user("I always decide that myself."),
            model("We will wait until Friday."),
        ]
    )
    assert "somebody (from outside): Remember to pay invoice INV-2201." in notes
    assert "assistant (having read text from outside): The page says" in notes
    assert "Identifiers (from outside): https://example.org/deal-9" in notes
    assert "assistant (having read text from outside): We will wait until Friday." in notes  # it is still read


def test_of_tools_only_paths_ids_and_errors_are_kept() -> None:
    log = "\n".join(f"line {number} of a log that nobody reads, at /var/log/part-{number}.log" for number in range(500))
    written = ToolCall("c", "write", {"path": "src/main_loop.py", "content": "def helper_one(): ...\n" * 200})
    notes = extract(
        [user("Please look."), model("", written), result(log), result("no such file: /opt/missing.cfg", is_error=True)]
    )
    assert "src/main_loop.py" in notes
    assert "no such file: /opt/missing.cfg" in notes
    assert "nobody reads" not in notes
    assert "helper_one" not in notes
    assert notes.count("/var/log/part-") <= 12


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("请记住，我的护照号码是E12345678，有效期到2031-05-04。", ["E12345678", "2031-05-04", "护照号码"]),
        ("合同放在 /home/王/合同/2026-终稿.pdf 里。", ["/home/王/合同/2026-終稿.pdf".replace("終", "终")]),
        ("覚えておいて：会議は11月20日15:30、部屋はB-204です。", ["11月20日15:30", "B-204"]),
        (
            "Merk dir: Die Rechnung 2026-0815 liegt in Ablage/2026/rechnung.pdf.",
            ["2026-0815", "Ablage/2026/rechnung.pdf"],
        ),
        ("Bitte immer an wartung@werft-nord.example schreiben.", ["wartung@werft-nord.example"]),
    ],
)
def test_other_languages_keep_their_facts(said: str, kept: list[str]) -> None:
    filler = [
        model("嗯，好的，没问题。天气不错，大家都很开心，慢慢来吧。" * 4 + f"第{number}次") for number in range(30)
    ]
    notes = extract([*filler, user(said), *filler])
    assert [each for each in kept if each not in notes] == []


def test_notes_stay_small_when_tools_have_given_much() -> None:
    talk = [line for number in range(60) for line in (user(f"{SMALL_TALK} BK-{number:04d}."), result(SMALL_TALK * 40))]
    notes = extract(talk)
    assert len(notes) <= SHARE * sum(len(line.message.text) for line in talk)
    assert all(f"BK-{number:04d}" in notes for number in range(60))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Mail bob@example.org, see https://example.org/a?b=1.", ["bob@example.org", "https://example.org/a?b=1"]),
        ("in src/app/main.py and ~/notes/x.md", ["src/app/main.py", "~/notes/x.md"]),
        ("v1.2.3 on 2026-11-15 at 14:05 for 80%", ["v1.2.3", "2026-11-15", "14:05", "80%"]),
        (
            "set MAX_RETRIES, camelCase and snake_case in README.md",
            ["MAX_RETRIES", "camelCase", "snake_case", "README.md"],
        ),
        ("run `rm -rf build`", ["rm -rf build"]),
        ("the cat sat on the mat, e.g. 3 times", []),
        ("192.168.1.10:8080 #1234 @ada", ["192.168.1.10:8080", "#1234", "@ada"]),
    ],
)
def test_identifiers_are_told_by_their_shape(text: str, found: list[str]) -> None:
    assert list(identifiers(text)) == found


@pytest.mark.parametrize("piece", ["a", "a/", "@a", "x@", "a+", "+", "..", "a.b@", "/a", "aB", "a_", "`a", "http://"])
def test_no_text_makes_the_search_for_identifiers_slow(piece: str) -> None:
    text = piece * (30_000 // len(piece))
    assert len(identifiers(text)) <= MOST  # minutes before the patterns were bounded; the suite's limit would tell


_alphabet = st.sampled_from([*"aZx7/.:@_-#%,;!?~\\é记", "ab", "Foo", "://", ".md"])
_tokens = st.lists(st.lists(_alphabet, min_size=1, max_size=8).map("".join) | st.just("word,"), max_size=12)
_spaces = st.sampled_from([" ", "\n", "  \t", "\u3000"])


@given(_tokens, _spaces)
def test_identifiers_of_a_text_are_those_of_its_words(words: list[str], space: str) -> None:
    assert identifiers(space.join(words)) == tuple(dict.fromkeys(each for word in words for each in identifiers(word)))


_words = st.text(max_size=80) | st.sampled_from(["BK-7731-x", "/etc/motd", "remember 2031-01-01.", "记住", SMALL_TALK])
_lines = st.lists(
    st.one_of(
        st.builds(user, _words, origin=st.sampled_from([Origin.OWNER, Origin.OUTSIDE, Origin.SYSTEM])),
        st.builds(model, _words),
        st.builds(result, _words, is_error=st.booleans()),
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(_lines)
def test_every_identifier_of_any_conversation_is_in_its_notes(lines: list[Line]) -> None:
    notes = extract(lines)
    exact = exact_of(lines)
    assert [each for each in (*exact.said, *exact.outside) if each not in notes] == []
    for line in lines:
        if line.id.startswith("u-"):
            assert [each for each in identifiers(line.message.text) if each not in notes] == []
    assert all(line.startswith("- ") for line in notes.split("\n") if line)


@settings(max_examples=60, deadline=None)
@given(_lines)
def test_notes_of_notes_do_not_grow(lines: list[Line]) -> None:
    notes = extract(lines)
    again = extract([user(notes, at=0)])
    assert len(again) <= max(len(notes) + len(notes.split("\n")) * 10, AT_LEAST)


def test_what_scout_quotes_from_memory_is_no_news() -> None:
    quoted = Line("a", AssistantMessage((Text("From my notes: the gate code is 7719."),), model="scout"))
    assert extract([user("Which code has the gate?"), quoted]) == "- 2025-11-15 user: Which code has the gate?"


def test_a_whole_conversation_of_nothing_has_no_notes() -> None:
    assert extract([]) == ""
    assert extract([user(""), model("")]) == ""
