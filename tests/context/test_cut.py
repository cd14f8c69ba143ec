"""Where a conversation is cut: never between a call and its result, and sparing the turn that goes on when it fits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palinurus.context.assemble import NO_RESULT, assemble, violations
from palinurus.context.budget import cut_points, divide, newest, plan_cut
from palinurus.context.settings import CompactionSettings
from palinurus.context.view import Line
from palinurus.domain.messages import AssistantMessage, Message, Text, ToolCall, ToolResult, UserMessage


def line(number: int, kind: str) -> list[Line]:
    messages: dict[str, list[Message]] = {
        "user": [UserMessage("u")],
        "reply": [AssistantMessage((Text("a"),))],
        "calls": [
            AssistantMessage((ToolCall(f"x{number}", "t", {}), ToolCall(f"y{number}", "t", {}))),
            ToolResult(f"x{number}", "t", "r"),
            ToolResult(f"y{number}", "t", "r"),
        ],
        "open": [AssistantMessage((ToolCall(f"z{number}", "t", {}),))],
    }
    return [Line(f"{number}-{index}", message) for index, message in enumerate(messages[kind])]


stories = st.lists(st.sampled_from(["user", "reply", "calls", "open"]), min_size=1, max_size=30).map(
    lambda kinds: [each for number, kind in enumerate(kinds) for each in line(number, kind)]
)
windows = st.integers(200, 400_000)


def test_a_window_is_divided_as_the_facts_say() -> None:
    large = divide(200_000, 5_000, CompactionSettings())
    assert (large.reserve, large.threshold, large.keep) == (16_384, 183_616, 20_000)
    small = divide(8_000, 2_000, CompactionSettings())
    assert (small.reserve, small.threshold, small.keep, small.summary) == (2_000, 6_000, 2_000, 1_000)


@given(windows, st.floats(0, 2))
def test_what_is_kept_and_summed_up_fits_below_the_threshold(window: int, share: float) -> None:
    room = divide(window, int(window * share), CompactionSettings())
    if room.head + 300 < room.threshold:
        assert room.head + room.keep + room.summary <= room.threshold


@given(stories, st.data(), windows, st.booleans())
def test_a_cut_splits_no_call_from_its_result(story: list[Line], data: st.DataObject, window: int, half: bool) -> None:
    weights = data.draw(st.lists(st.integers(1, 50_000), min_size=len(story), max_size=len(story)))
    turn = data.draw(st.integers(0, len(story)))
    room = divide(window, window // 10, CompactionSettings())
    cut = plan_cut(weights, cut_points(story), room, at_least_half=half, turn=turn)
    assert 0 <= cut <= len(story)
    kept = [each.message for each in story[cut:]]
    whole = [message.text for message in assemble([each.message for each in story])]
    rest = assemble([UserMessage("summary"), *kept])
    assert violations(rest) == []
    assert [message.text for message in rest].count(NO_RESULT) <= whole.count(NO_RESULT)
    results = {message.tool_call_id for message in kept if isinstance(message, ToolResult)}
    calls = {call.id for message in kept if isinstance(message, AssistantMessage) for call in message.calls}
    assert results <= calls


def test_the_turn_that_goes_on_is_spared_when_it_fits_and_cut_when_it_does_not() -> None:
    story = [
        each for number, kind in enumerate(("user", "reply", "user", "calls", "calls")) for each in line(number, kind)
    ]
    room = divide(8_000, 2_000, CompactionSettings())  # 2,000 are kept, 3,000 may stay
    points = cut_points(story)
    assert plan_cut([1_500, 1_500, 100, *[400] * 6], points, room, at_least_half=False, turn=2) == 2
    assert plan_cut([1_500, 1_500, 100, *[600] * 6], points, room, at_least_half=False, turn=2) == 6


def test_who_has_just_spoken_is_never_cut_away() -> None:
    story = [each for number, kind in enumerate(("user", "reply", "user")) for each in line(number, kind)]
    room = divide(8_000, 2_000, CompactionSettings())
    for half in (False, True):
        assert plan_cut([100, 100, 5_000], cut_points(story), room, at_least_half=half, turn=2) == 2


@given(stories, st.integers(0, 40))
def test_the_newest_lines_are_as_many_as_there_is_room_for_and_one_at_least(story: list[Line], room: int) -> None:
    kept = newest(story, room)
    assert kept == story[len(story) - len(kept) :]
    assert len(kept) == 1 or sum(len(each.message.text) for each in kept) <= room
    if len(kept) < len(story):
        assert sum(len(each.message.text) for each in story[len(story) - len(kept) - 1 :]) > room
    assert newest([], room) == []
