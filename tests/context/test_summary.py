"""A summary: what is asked, what is checked, and the one that is made by rule and always passes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palinurus.context.summary import (
    HEADINGS,
    SummaryOrder,
    by_rule,
    completed,
    faults,
    in_stages,
    question,
    rendered,
    sections,
    wanted,
)
from palinurus.context.view import Line
from palinurus.domain.messages import AssistantMessage, ContextNote, Message, Text, ToolCall, ToolResult, UserMessage
from palinurus.text.tokens import estimate_tokens

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=300) | st.sampled_from(
    [
        "We decided on berth 12-B.",
        "Never call before 9:00.",
        "TODO: book BK-1234-x7",
        "看看 /srv/data/日志.txt",
        "## Decisions",
    ]
)
messages: st.SearchStrategy[Message] = st.one_of(
    texts.map(UserMessage),
    texts.map(lambda text: AssistantMessage((Text(text),))),
    texts.map(lambda text: AssistantMessage((ToolCall("c", "read", {"path": text}),))),
    texts.map(lambda text: ToolResult("c", "read", text)),
)
lines = st.lists(messages, min_size=1, max_size=25).map(
    lambda said: [Line(f"l{number}", message) for number, message in enumerate(said)]
)


def asked(said: list[Line], previous: str = "", tokens: int = 1_000, characters: int = 16_000) -> SummaryOrder:
    return wanted(said, previous, tokens=tokens, characters=characters, focus="", strict=True)


@given(lines, texts, st.integers(64, 4_000), st.integers(400, 16_000))
def test_a_summary_by_rule_always_passes_the_check(
    said: list[Line], previous: str, tokens: int, characters: int
) -> None:
    want = asked(said, previous, tokens, characters)
    assert faults(by_rule(want), want) == []


@given(lines, lines, lines)
def test_summaries_of_summaries_by_rule_stay_good(first: list[Line], second: list[Line], third: list[Line]) -> None:
    summary = ""
    for said in (first, second, third):
        want = asked(said, summary, 200)
        summary = by_rule(want)
        assert faults(summary, want) == []
        assert list(sections(summary)) == list(HEADINGS)


def test_rules_and_tasks_stand_under_their_headings_and_survive_the_next_summary() -> None:
    first = by_rule(asked([Line("a", UserMessage("Never delete mails without my word. TODO: call Ann."))]))
    found = sections(first)
    assert any("Never delete mails" in line for line in found["## Constraints/Rules"])
    assert any("call Ann" in line for line in found["## Open TODOs"])
    second = by_rule(asked([Line("b", UserMessage("The boat is called Aster."))], first))
    assert "Never delete mails" in second
    assert "call Ann" in second


def test_the_check_names_what_is_missing() -> None:
    want = asked([Line("a", UserMessage("Look at /srv/boats/aster.log and BK-1234-x7."))])
    wrong = " ".join(faults("## Decisions\n- none", want))
    assert "`## Open TODOs`" in wrong
    assert "/srv/boats/aster.log, BK-1234-x7" in wrong
    bare = "\n".join(f"{heading}\n- none" for heading in HEADINGS)
    assert faults(completed(bare, want), want) == []
    assert "too long" in faults(completed(bare, want) + "\n" + "word " * 20_000, want)[0]


def test_what_rides_beside_a_message_is_not_summed_up() -> None:
    message = UserMessage("hi", context=(ContextNote("file", "the whole of SOUL.md", "SOUL.md"),))
    assert "SOUL" not in rendered([Line("a", message)])


def test_a_focus_is_bounded_and_asked_for() -> None:
    want = wanted([Line("a", UserMessage("hi"))], "", tokens=500, characters=900, focus="x" * 5_000, strict=True)
    assert len(want.focus) == 800
    assert "above all at: xxx" in question(want, "text")


def test_every_piece_of_a_long_reply_is_still_the_models() -> None:
    long = Line("a", AssistantMessage((Text("I would always delete them. " * 400),)))
    stages = in_stages([Line("u", UserMessage("hi")), long], 200)
    told = [rendered([line]) for stage in stages for line in stage]
    assert len(told) > 5
    assert [text.partition(" ")[0] for text in told] == ["[user]", *["[assistant]"] * (len(told) - 1)]


@given(lines, st.integers(50, 2_000))
def test_stages_hold_everything_and_none_is_too_long(said: list[Line], tokens: int) -> None:
    stages = in_stages(said, tokens)
    assert all(estimate_tokens(rendered(stage)) <= tokens * 1.5 + 40 for stage in stages)
    kept = "".join(rendered([line]) for stage in stages for line in stage)
    for line in said:
        if isinstance(line.message, UserMessage) and len(line.message.text) < 20:
            assert line.message.text in kept
