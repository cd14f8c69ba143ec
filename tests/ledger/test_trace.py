"""A trace tells what a run did and when, holds nobody's words, and stays small whatever happens."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from palinurus.domain.events import (
    ApprovalAsked,
    ApprovalSettled,
    AssistantDelta,
    Lifecycle,
    ModelAnswered,
    ModelCalled,
    Notice,
    Plan,
    RunEvent,
    RunResult,
    ToolFinished,
    ToolStarted,
)
from palinurus.domain.messages import Usage
from palinurus.ledger.trace import MOST_STEPS, Collector, ModelStep, RunTrace, ToolStep, line_of

ACCEPTED = 1_000_000
KEY = "agent:main:main"
ASKED = ApprovalAsked("a1", Plan("exec", "rm"), "d", "why", 0)


def heard(*events: tuple[int, RunEvent]) -> Collector:
    collector = Collector("run-1", KEY, "cli", ACCEPTED)
    for at, event in events:
        collector.hear(event, ACCEPTED + at)
    return collector


def ended(collector: Collector, at: int, **fields: object) -> RunTrace:
    result = RunResult("run-1", KEY, "s", "ok", "the reply itself", "openai/m", Usage(10, 5))
    return collector.trace(ACCEPTED + at, msgspec.structs.replace(result, **fields))


def test_a_turn_with_a_tool_is_told_step_by_step() -> None:
    collector = heard(
        (20, Lifecycle("start")),
        (25, ModelCalled("openai", "m")),
        (125, AssistantDelta("let me")),
        (325, ModelAnswered("openai", "m", 0.3, 0.1, Usage(100, 9), "toolUse")),
        (330, ToolStarted("c1", "exec", {"command": "a secret command"})),
        (340, ASKED),
        (3340, ApprovalSettled("a1", "allowed-once", "me")),
        (3840, ToolFinished("c1", "exec", "what it printed", is_error=False, seconds=3.5, where="sandbox")),
        (3850, ModelCalled("openai", "m")),
        (4000, ModelAnswered("openai", "m", 0.15, 0.05, Usage(120, 4), "stop")),
    )
    trace = ended(collector, 4010)
    assert (trace.status, trace.started, trace.ms, trace.model, trace.usage) == (
        "ok",
        20,
        4010,
        "openai/m",
        Usage(10, 5),
    )
    assert trace.steps == (
        ModelStep(25, "openai", "m", 300, 100, Usage(100, 9), "toolUse"),
        ToolStep(330, "exec", 3510, "sandbox", False, "allowed-once", 3000),
        ModelStep(3850, "openai", "m", 150, 50, Usage(120, 4), "stop"),
    )
    written = msgspec.json.encode(trace).decode()
    assert not any(word in written for word in ("secret", "printed", "let me", "the reply itself"))
    line = line_of(trace)
    assert (line.model_calls, line.tool_calls) == (2, 1)


def test_retries_stand_with_the_call_they_belong_to_and_who_answered_is_named() -> None:
    collector = heard(
        (0, Lifecycle("start")),
        (1, ModelCalled("openai", "big")),
        (2, Notice("openai is overloaded; trying again in 1 s")),
        (3, Notice("openai is overloaded; going on with local/small", discard=True)),
        (9, ModelAnswered("local", "small", 0.008, None, Usage(), "stop")),
    )
    (step,) = ended(collector, 10).steps
    assert isinstance(step, ModelStep)
    assert (step.provider, step.model, step.ms) == ("local", "small", 8)
    assert [notice.partition("; ")[2] for notice in step.notices] == [
        "trying again in 1 s",
        "going on with local/small",
    ]


def test_a_call_that_was_skipped_is_a_step_of_no_length() -> None:
    collector = heard((0, Lifecycle("start")), (5, ToolFinished("c", "ls", "Skipped", is_error=True, seconds=0.0)))
    assert ended(collector, 6).steps == (ToolStep(5, "ls", 0, is_error=True),)


def test_what_still_goes_on_is_shown_as_going_on() -> None:
    collector = heard((7, Lifecycle("start")), (8, ToolStarted("c", "exec", {})), (9, ASKED))
    trace = collector.trace(ACCEPTED + 500)
    assert (trace.status, trace.ms) == ("running", 500)
    assert trace.steps == (ToolStep(8, "exec", None, approval="waiting"),)
    assert heard().trace(ACCEPTED + 3).status == "waiting"


def test_one_that_joined_another_says_whose_turn_answered_it() -> None:
    assert heard((4, Lifecycle("start", "joined host-1"))).trace(ACCEPTED).joined == "host-1"


def test_a_clock_that_is_set_back_gives_no_negative_times() -> None:
    collector = heard(
        (50, Lifecycle("start")), (60, ModelCalled("p", "m")), (-900, ModelAnswered("p", "m", -0.9, -0.5))
    )
    trace = ended(collector, -1000)
    (step,) = trace.steps
    assert isinstance(step, ModelStep)
    assert (step.ms, step.first_token, trace.ms) == (0, 0, 0)


TEXTS = st.text(max_size=2_000)
EVENTS: st.SearchStrategy[RunEvent] = st.one_of(
    st.builds(Lifecycle, st.just("start"), TEXTS),
    st.builds(ModelCalled, TEXTS, TEXTS),
    st.builds(ModelAnswered, TEXTS, TEXTS, st.floats(-10, 1e6), st.none() | st.floats(-10, 1e6), st.just(Usage(1))),
    st.builds(ToolStarted, TEXTS, TEXTS, st.just({})),
    st.builds(ToolFinished, TEXTS, TEXTS, TEXTS, st.booleans(), st.floats(0, 1)),
    st.builds(Notice, TEXTS),
    st.just(ASKED),
    st.builds(ApprovalSettled, st.just("a1"), st.sampled_from(["denied", "expired"])),
)


@given(st.lists(st.tuples(st.integers(-5, 10_000), EVENTS), max_size=60))
def test_whatever_events_come_in_whatever_order_a_trace_can_be_kept_and_read_again(
    events: list[tuple[int, RunEvent]],
) -> None:
    trace = ended(heard(*events), 10_000)
    assert msgspec.json.decode(msgspec.json.encode(trace), type=RunTrace) == trace
    assert all(step.at >= 0 and (step.ms or 0) >= 0 for step in trace.steps)
    assert len(msgspec.json.encode(trace)) < 60_000


def test_a_run_of_ten_thousand_calls_has_a_small_trace_that_says_what_it_leaves_out() -> None:
    collector = heard((0, Lifecycle("start")))
    for at in range(10_000):
        collector.hear(ToolStarted("c", "x" * 5_000, {}), ACCEPTED + at)
        for _ in range(20):
            collector.hear(Notice("y" * 5_000), ACCEPTED + at)
        collector.hear(ToolFinished("c", "x", "", is_error=False, seconds=0), ACCEPTED + at)
    trace = ended(collector, 10_000)
    assert (len(trace.steps), trace.left_out) == (MOST_STEPS, 10_000 - MOST_STEPS)
    assert len(msgspec.json.encode(trace)) < 60_000
