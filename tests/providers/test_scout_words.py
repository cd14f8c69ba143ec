"""What a question is about, and which lines are worth quoting for it."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.providers.scout.asked import asked
from palinurus.providers.scout.quoting import Line, cited_lines, quotes
from palinurus.providers.scout.words import stem

MONDAY = date(2026, 11, 16)


@pytest.mark.parametrize(
    "forms",
    ["colour colours color", "bicycle bicycles bike", "berry berries", "box boxes", "run runs running ran",
     "like likes liked", "paint paints painted painting", "city cities", "glass glasses", "hour hours", "speed speeds",
     "day days", "buy bought buys", "child children kids", "move moved moving"],
)  # fmt: skip
def test_forms_of_a_word_share_a_stem(forms: str) -> None:
    assert len({stem(form) for form in forms.split()}) == 1


@pytest.mark.parametrize(("one", "other"), [("wedding", "wednesday"), ("tea", "teacher"), ("bicycle", "bicyclist")])
def test_other_words_do_not_share_a_stem(one: str, other: str) -> None:
    assert stem(one) != stem(other)


@pytest.mark.parametrize(
    ("question", "subject"),
    [
        ("what colour is my bicycle?", "bik"),
        ("do you remember my dog's name?", "dog"),
        ("where does bob live?", "bob"),
        ("Who painted the fence?", "fenc"),
        ("when did we go to lisbon", "lisbon"),
        ("how many kids does Anna have?", "anna"),
        ("Anna's birthday?", "anna"),
        ("what have we decided about the budget", "budget"),
        ("小明的生日是什么时候", "小明"),
        ("トムの誕生日はいつですか", "トム"),
        ("ねこの名前は何ですか", "ねこ"),
    ],
)
def test_a_question_has_a_subject_that_no_line_may_lack(question: str, subject: str) -> None:
    assert asked(question, MONDAY).subject == (subject,)


def found(question: str, *lines: str) -> tuple[str, list[str]]:
    best = quotes(asked(question, MONDAY), cited_lines("\n".join(lines)))
    return best.how, [line.place for line in best.lines]


@pytest.mark.parametrize(
    ("question", "line"),
    [
        ("what colour is my bicycle?", "- my bicycle is green"),
        ("what is my dog called?", "The dog is called Rex"),
        ("where does bob live?", "Bob moved to Oslo in May"),
        ("who painted the fence?", "Jonas repaired and painted the old fence"),
        ("How many kids does Anna have?", "Anna: I have 3 kids"),
        ("when did I buy the boat?", "bought the boat from a fisherman"),
        ("do I prefer trains or planes?", "prefers trains to planes"),
        ("what did we decide about the budget?", "Decision: the budget is cut"),
        ("what did the doctor say about my knee?", "the doctor says that the knee needs rest"),
        ("我的自行车是什么颜色", "- 我的自行车是绿色的"),
        ("小明的生日是什么时候？", "- 小明的生日是三月五日"),
        ("狗叫什么名字", "我的狗叫旺财"),
        ("私の自転車は何色ですか", "- 自転車は緑色です"),
        ("トムの誕生日はいつですか？", "トムの誕生日は三月五日"),
        ("강아지 이름이 뭐야?", "강아지 이름은 초코"),
    ],
)
def test_a_line_that_answers_is_found(question: str, line: str) -> None:
    assert found(question, f"memory/2026-11-15.md#L3: {line}") == ("answers", ["memory/2026-11-15.md#L3"])


@pytest.mark.parametrize(
    ("question", "line"),
    [
        ("when is Zebulon's birthday?", "Anna's birthday is on 5 March"),
        ("where does bob live?", "Alice lives in Oslo"),
        ("what colour is my bicycle?", "the car is green"),
        ("who painted the fence?", "Jonas painted the shed"),
        ("小明的生日是什么时候", "小红的生日是三月五日"),
        ("トムの誕生日はいつですか", "マリーの誕生日は三月五日"),
        ("what colour is my bicycle?", "what colour is my bicycle?"),  # a question that was asked before
        ("what is my name?", "- Name:"),
    ],
)
def test_a_line_about_something_else_is_not(question: str, line: str) -> None:
    assert found(question, f"memory/2026-11-15.md#L3: {line}") == ("nothing", [])


def test_a_line_of_the_same_thing_that_does_not_say_it_is_told_apart() -> None:
    assert found("what colour is my bicycle?", "memory/a.md#L1: my bicycle has a flat tyre")[0] == "speaks"


def test_the_name_of_a_file_can_say_whom_its_lines_are_about() -> None:
    assert found("where does Anna live?", "memory/people/anna.md#L3: lives in Oslo")[0] == "answers"


def test_in_a_conversation_the_lines_before_tell_what_a_line_is_about() -> None:
    talk = [
        "memory/2026-01-01.md#L3: - Bob: how is your sister in Lyon?",
        "memory/2026-01-01.md#L4: - Anna: she has moved to Oslo",
        "memory/2026-01-01.md#L5: - Bob: far away!",
        "memory/2026-01-01.md#L9: - Anna: good night",
    ]
    assert found("where has Anna's sister moved?", *talk)[1][0] == "memory/2026-01-01.md#L4"


def test_in_a_list_they_do_not() -> None:
    notes = ["memory/2026-01-01.md#L3: - Zebulon called", "memory/2026-01-01.md#L4: - birthday of Anna on 5 March"]
    assert found("when is Zebulon's birthday?", *notes) == ("speaks", ["memory/2026-01-01.md#L3"])


def ranked(question: str, *lines: str) -> list[str]:
    return found(question, *lines)[1]


def test_the_line_that_holds_more_of_the_question_comes_first() -> None:
    assert ranked(
        "which train goes to Lyon?",
        "memory/2026-01-01.md#L1: the train is late",
        "memory/2026-01-02.md#L1: Lyon has the best train station for travellers",
        "memory/2026-01-03.md#L1: no train today",
    )[0] == "memory/2026-01-02.md#L1"  # fmt: skip


def test_a_rare_word_weighs_more_than_a_common_one() -> None:
    common = [f"memory/2026-01-0{day}.md#L1: meeting number {day}" for day in range(1, 8)]
    assert ranked("the meeting with Zoe", *common, "memory/2025-01-01.md#L9: Zoe likes jazz") == [
        "memory/2025-01-01.md#L9"
    ]


def test_ties_go_to_the_newest_line_and_at_most_three_are_quoted() -> None:
    lines = [f"memory/2026-01-0{day}.md#L{day}: tea at {day}" for day in range(1, 6)]
    assert ranked("tea?", "MEMORY.md#L1: tea is good", *lines) == [
        "memory/2026-01-05.md#L5",
        "memory/2026-01-04.md#L4",
        "memory/2026-01-03.md#L3",
    ]


def test_whoever_wants_to_know_all_about_something_is_quoted_more() -> None:
    lines = [f"memory/2026-01-0{day}.md#L{day}: Anna did thing {day}" for day in range(1, 9)]
    assert len(ranked("what do you know about Anna?", *lines)) == 6


def test_the_same_words_are_quoted_once_from_the_newest_place() -> None:
    assert ranked("tea?", "memory/2026-01-01.md#L1: - tea is hot", "memory/2026-01-02.md#L1: tea is hot") == [
        "memory/2026-01-02.md#L1"
    ]


@given(st.text(max_size=200), st.lists(st.text(max_size=80), max_size=6))
def test_whatever_is_asked_only_given_lines_are_quoted(question: str, texts: list[str]) -> None:
    lines = [Line("memory/a.md", number, text) for number, text in enumerate(texts, 1)]
    assert set(quotes(asked(question, MONDAY), lines).lines) <= set(lines)
