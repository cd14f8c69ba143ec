"""What a question is about, and which lines are worth quoting for it."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.providers.scout.quotes import QuotableLine, choose_lines, parse_question
from palinurus.text.words import root

MONDAY = date(2026, 11, 16)


@pytest.mark.parametrize(
    "forms",
    ["colour colours color", "bicycle bicycles bike", "berry berries", "box boxes", "run runs running ran",
     "like likes liked", "paint paints painted painting", "city cities", "glass glasses", "hour hours", "speed speeds",
     "day days", "buy bought buys", "child children kids", "move moved moving"],
)  # fmt: skip
def test_forms_of_a_word_share_a_root(forms: str) -> None:
    assert len({root(form) for form in forms.split()}) == 1


@pytest.mark.parametrize(("one", "other"), [("wedding", "wednesday"), ("tea", "teacher"), ("bicycle", "bicyclist")])
def test_other_words_do_not_share_a_root(one: str, other: str) -> None:
    assert root(one) != root(other)


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("do you remember my dog's name?", "dog"),
        ("how many kids does Anna have?", "anna"),
        ("Anna's birthday?", "anna"),
        ("小明的生日是什么时候", "小明"),
        ("トムの誕生日はいつですか", "トム"),
        ("ねこの名前は何ですか", "ねこ"),
    ],
)
def test_a_line_must_hold_the_names_of_a_question(question: str, name: str) -> None:
    assert parse_question(question, MONDAY).names == (name,)


@pytest.mark.parametrize(
    ("question", "topic"),
    [
        ("what colour is my bicycle?", "bike"),
        ("where does bob live?", "bob"),
        ("when did we go to lisbon", "lisbon"),
        ("what have we decided about the budget", "budget"),
    ],
)
def test_what_a_question_asks_of_its_subject_need_not_be_named(question: str, topic: str) -> None:
    assert (parse_question(question, MONDAY).names, parse_question(question, MONDAY).topics) == ((), (topic,))


def found(question: str, *lines: str, broad: bool = False) -> list[str]:
    quotable = []
    for line in lines:
        place, _, text = line.partition(": ")
        path, _, number = place.partition("#L")
        quotable.append(QuotableLine(path, int(number), text))
    return [line.place for line in choose_lines(parse_question(question, MONDAY, broad=broad), quotable)]


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
    assert found(question, f"memory/2026-11-15.md#L3: {line}") == ["memory/2026-11-15.md#L3"]


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
    assert found(question, f"memory/2026-11-15.md#L3: {line}") == []


def test_the_name_of_a_file_can_say_whom_its_lines_are_about() -> None:
    assert found("where does Anna live?", "memory/people/anna.md#L3: lives in Oslo") == ["memory/people/anna.md#L3"]


def test_in_a_conversation_the_lines_before_tell_what_a_line_is_about() -> None:
    talk = [
        "memory/2026-01-01.md#L3: - Bob: how is your sister in Lyon?",
        "memory/2026-01-01.md#L4: - Anna: she has moved to Oslo",
        "memory/2026-01-01.md#L5: - Bob: far away!",
        "memory/2026-01-01.md#L9: - Anna: good night",
    ]
    assert found("where has Anna's sister moved?", *talk)[0] == "memory/2026-01-01.md#L4"


def test_in_a_list_they_do_not() -> None:
    notes = ["memory/2026-01-01.md#L3: - Zebulon called", "memory/2026-01-01.md#L4: - birthday of Anna on 5 March"]
    assert found("when is Zebulon's birthday?", *notes) == ["memory/2026-01-01.md#L3"]


def test_the_line_that_holds_more_of_the_question_comes_first() -> None:
    assert found(
        "which train goes to Lyon?",
        "memory/2026-01-01.md#L1: the train is late",
        "memory/2026-01-02.md#L1: Lyon has the best train station for travellers",
        "memory/2026-01-03.md#L1: no train today",
    )[0] == "memory/2026-01-02.md#L1"  # fmt: skip


def test_a_rare_word_weighs_more_than_a_common_one() -> None:
    common = [f"memory/2026-01-0{day}.md#L1: meeting number {day}" for day in range(1, 8)]
    assert found("the meeting with Zoe", *common, "memory/2025-01-01.md#L9: Zoe likes jazz") == [
        "memory/2025-01-01.md#L9"
    ]


def test_ties_go_to_the_newest_line_and_at_most_three_are_quoted() -> None:
    lines = [f"memory/2026-01-0{day}.md#L{day}: tea at {day}" for day in range(1, 6)]
    assert found("tea?", "MEMORY.md#L1: tea is good", *lines) == [
        "memory/2026-01-05.md#L5",
        "memory/2026-01-04.md#L4",
        "memory/2026-01-03.md#L3",
    ]


def test_whoever_wants_to_know_all_about_something_is_quoted_more() -> None:
    lines = [f"memory/2026-01-0{day}.md#L{day}: Anna did thing {day}" for day in range(1, 9)]
    assert len(found("Anna", *lines, broad=True)) == 6


def test_the_same_words_are_quoted_once_from_the_newest_place() -> None:
    assert found("tea?", "memory/2026-01-01.md#L1: - tea is hot", "memory/2026-01-02.md#L1: tea is hot") == [
        "memory/2026-01-02.md#L1"
    ]


@given(st.text(max_size=200), st.lists(st.text(max_size=80), max_size=6))
def test_whatever_is_asked_only_given_lines_are_quoted(question: str, texts: list[str]) -> None:
    lines = [QuotableLine("memory/a.md", number, text) for number, text in enumerate(texts, 1)]
    assert set(choose_lines(parse_question(question, MONDAY), lines)) <= set(lines)
