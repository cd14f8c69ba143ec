"""What the events of a run become on the screen."""

from __future__ import annotations

import pytest

from palinurus.cli.terminal.reply import Reply
from palinurus.cli.terminal.spans import Line, StatusLine, amount, argument, status_line, tool_line
from palinurus.domain.events import (
    AssistantDelta,
    Lifecycle,
    Notice,
    RunEvent,
    RunResult,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
)

DONE = RunResult("r", "agent:main:main", "s", "ok", "all of it")


def text_of(lines: list[Line]) -> list[str]:
    return ["".join(text for _, text in line) for line in lines]


def heard(*events: RunEvent, verbose: bool = False, result: RunResult = DONE) -> list[str]:
    reply = Reply(lambda: 0.0)
    lines = [line for event in events for line in reply.hear(event, 60, verbose=verbose)]
    return text_of([*lines, *reply.end(result, 60)])


START = Lifecycle("start")


def test_text_tools_and_text_stand_apart_in_the_order_in_which_they_came() -> None:
    shown = heard(
        START,
        AssistantDelta("Let me "),
        AssistantDelta("look."),
        ToolStarted("1", "read", {"path": "notes/boat.md", "limit": 3}),
        ToolFinished("1", "read", "text", False, 0.12),
        ToolStarted("2", "grep", {"pattern": "boat"}),
        ToolFinished("2", "grep", "no such folder\nmore", True, 1.0),
        AssistantDelta("It is **Aster**."),
    )
    assert shown == [
        "",
        "Let me look.",
        "",
        "· read notes/boat.md 0.1 s",
        "× grep boat 1.0 s no such folder",
        "",
        "It is Aster.",
    ]


def test_thoughts_are_shown_only_when_asked_for() -> None:
    events = (START, ThinkingDelta("Six times\nse"), ThinkingDelta("ven."), AssistantDelta("42"))
    assert heard(*events) == ["", "42"]
    assert heard(*events, verbose=True) == ["", "Six times", "seven.", "", "42"]


def test_an_attempt_that_is_given_up_leaves_nothing_behind_when_it_was_not_printed_yet() -> None:
    shown = heard(START, AssistantDelta("Half a sen"), Notice("b goes on", discard=True), AssistantDelta("Whole."))
    assert shown == ["", "! b goes on", "", "Whole."]


def test_an_attempt_that_is_given_up_is_called_off_when_it_was_printed() -> None:
    shown = heard(START, AssistantDelta("One.\n\nTw"), Notice("b goes on", discard=True), AssistantDelta("Whole."))
    assert shown == ["", "One.", "", "! b goes on  (what was begun above is given up)", "", "Whole."]


def test_the_answer_to_a_command_keeps_its_layout() -> None:
    table = RunResult("r", "k", "", "ok", "part   raw\n# x    1,2")
    assert heard(result=table) == ["", "part   raw", "# x    1,2"]


@pytest.mark.parametrize(
    ("result", "last"),
    [
        (RunResult("r", "k", "", "error", error="no key"), "no key"),
        (RunResult("r", "k", "", "aborted", error="stopped by the user"), "stopped by the user"),
    ],
)
def test_how_it_failed_is_the_last_line(result: RunResult, last: str) -> None:
    assert heard(START, AssistantDelta("I beg"), result=result)[-1] == last


def test_one_that_was_stopped_while_it_waited_says_so() -> None:
    aborted = RunResult("r", "k", "", "aborted", error="stopped by the user")
    assert heard(result=aborted)[-1] == "stopped by the user before its turn came"


def test_one_that_steers_is_told_once_and_the_reply_is_not_repeated() -> None:
    reply = Reply(lambda: 0.0)
    told = reply.hear(Lifecycle("start", "joined host"), 60, verbose=False)
    assert text_of(told) == ["", "· your message reached the running reply"]
    joined = RunResult("r", "k", "", "ok", "the reply of the other", joined="host")
    assert reply.end(joined, 60, told_elsewhere=True) == []
    assert reply.seconds is None


def test_what_is_open_is_shown_as_it_stands() -> None:
    reply = Reply(lambda: 3.0)
    reply.hear(START, 60, verbose=False)
    reply.hear(AssistantDelta("Done.\n\nNow **bol"), 60, verbose=False)
    assert text_of(reply.open_lines(60)) == ["", "Now bol"]
    reply.hear(ToolStarted("1", "exec", {"command": "make test"}), 60, verbose=False)
    assert text_of(reply.open_lines(60))[-1] == "· exec make test …"
    assert (reply.seconds, reply.doing) == (0.0, "exec")


@pytest.mark.parametrize(
    ("arguments", "about"),
    [
        ({"limit": 5, "path": "a.md"}, "a.md"),
        ({"command": "ls", "path": "x"}, "ls"),
        ({"count": 3}, "3"),
        ({"deep": {"path": "x"}}, ""),
        ({}, ""),
    ],
)
def test_the_argument_that_matters_is_told(arguments: dict[str, object], about: str) -> None:
    assert argument(arguments) == about


def test_a_tool_line_is_one_line_however_long_its_argument() -> None:
    line = text_of([tool_line("exec", "x" * 500 + "\nrm", 2.0, "", 60)])[0]
    assert len(line) <= 60
    assert line.endswith("… 2.0 s")


@pytest.mark.parametrize(
    ("standing", "shown"),
    [
        (StatusLine(model="a/b", tokens=1234, window=200_000, cost=0.0123), "a/b · 1.2k of 200k tokens · $0.0123"),
        (StatusLine(model="a/b", running=3.2, waiting=1, doing="grep"), "grep 3 s, 1 waiting · a/b"),
        (StatusLine(model="a/b", cost=0.0, unpriced=2), "a/b · cost unknown"),
        (StatusLine(model="a/b", cost=1.5, unpriced=2), "a/b · $1.50 and more"),
        (StatusLine(session="agent:main:explicit:x", model="a/b"), "a/b · main:explicit:x"),
        (StatusLine(session="agent:main:main", model="a/b"), "a/b"),
    ],
)
def test_the_status_line_says_what_is_known(standing: StatusLine, shown: str) -> None:
    assert text_of([status_line(standing, 90)]) == [shown]


def test_where_it_is_narrow_the_status_line_drops_what_matters_less() -> None:
    standing = StatusLine(model="provider/model", tokens=1, window=1000, cost=1.0)
    assert text_of([status_line(standing, 20)]) == ["provider/model"]


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0"), (999, "999"), (1000, "1k"), (12_345, "12k"), (1_048_576, "1M"), (2_500_000, "2.5M")]
)
def test_amounts_are_short(number: int, shown: str) -> None:
    assert amount(number) == shown
