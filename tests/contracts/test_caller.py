"""What every caller keeps, in process or over the socket: the same answers, the same errors, the same streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from palinurus.config.home import Home
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import (
    BadRequest,
    Failure,
    NotFound,
    OutsideWorkspace,
    PalinurusError,
    ProviderError,
    QueueFull,
    StorageFull,
    WaitTimeout,
)
from palinurus.domain.events import AssistantDelta, Lifecycle, RunResult
from palinurus.operations.operation import operation
from palinurus.operations.remote import Hello, HomeIdentity, RemoteCaller, Server
from palinurus.operations.runs import (
    FollowRun,
    StopRuns,
    WaitForRun,
    converse,
    follow_run,
    stop_runs,
    submit_message,
    wait_for_run,
)
from palinurus.operations.services import Services
from palinurus.operations.sessions import list_sessions, search_sessions, show_session
from palinurus.operations.status import show_context, show_status
from palinurus.operations.table import Feed, LocalCaller, Operation, OperationClient, Table
from palinurus.providers.provider import ModelRequest, ReplyEvent, TextDelta
from palinurus.runtime.table import TABLE
from palinurus.testing.fakes import ScriptedProvider, call, calls
from palinurus.testing.harness import Harness

HELLO = Hello(HomeIdentity("config", "workspace"), 1, "pal test")


class Nothing(Struct, frozen=True):
    pass


ERRORS: list[PalinurusError] = [
    BadRequest("no", hint="yes"),
    QueueFull("full"),
    StorageFull("the disk"),
    OutsideWorkspace("out"),
    ProviderError("busy", kind=Failure.RATE_LIMIT, status=429, retry_after=3.0),
]
raised: list[PalinurusError] = []
left: list[str] = []
started = asyncio.Event


async def _raise(services: Services, params: Nothing) -> Nothing:
    raise raised[-1]


async def _endless(services: Services, params: Nothing) -> AsyncIterator[Nothing]:
    try:
        while True:
            yield Nothing()
            await asyncio.sleep(0)
    finally:
        left.append("feed")


async def _hang(services: Services, params: Nothing) -> Nothing:
    left.append("began")
    try:
        await asyncio.Event().wait()
    finally:
        left.append("call")
    return Nothing()


async def _break_feed(services: Services, params: Nothing) -> AsyncIterator[Nothing]:
    yield Nothing()
    raise raised[-1]


async def _bug(services: Services, params: Nothing) -> Nothing:
    raise ZeroDivisionError("a bug of ours")


RAISE: Operation[Nothing, Nothing] = operation("test.raise", scope="read")(_raise)
HANG: Operation[Nothing, Nothing] = operation("test.hang", scope="read")(_hang)
BUG: Operation[Nothing, Nothing] = operation("test.bug", scope="read")(_bug)
ENDLESS: Feed[Nothing, Nothing] = operation("test.endless", scope="read")(_endless)
BROKEN: Feed[Nothing, Nothing] = operation("test.broken", scope="read")(_break_feed)


@pytest.fixture(params=["local", "remote"])
async def caller(
    request: pytest.FixtureRequest, pal: Harness, home: Home, tmp_path: Path
) -> AsyncIterator[OperationClient]:
    raised.clear()
    left.clear()
    services = pal.services(home)
    if request.param == "local":
        yield LocalCaller(services)
        return
    server = Server(services, Table([*TABLE, RAISE, HANG, BUG, ENDLESS, BROKEN]), HELLO)
    await server.start(tmp_path / "pal.sock")
    remote = await RemoteCaller.connect(tmp_path / "pal.sock", HELLO)
    yield remote
    await remote.close()
    await asyncio.wait_for(server.close(), 60)


async def ask(caller: OperationClient, operation: Operation[Any, Any], params: Struct) -> Any:
    return await asyncio.wait_for(caller.call(operation, params), 60)


async def test_a_message_is_submitted_followed_and_waited_for(caller: OperationClient, pal: Harness) -> None:
    pal.model.says(calls(call("ls", "c1")), "Hello there.")
    accepted = await ask(caller, submit_message, Inbound("hi", "k1"))
    async with asyncio.timeout(60):
        events = [event async for event in caller.follow(follow_run, FollowRun(accepted.run_id))]
    assert [type(event).__name__ for event in events] == [
        "Lifecycle",
        "Lifecycle",
        "ModelCalled",
        "ModelAnswered",
        "ToolStarted",
        "ToolFinished",
        "ModelCalled",
        "AssistantDelta",
        "AssistantDelta",
        "ModelAnswered",
        "Lifecycle",
    ]
    assert (events[0], events[-1]) == (Lifecycle("accepted"), Lifecycle("end"))
    result = await ask(caller, wait_for_run, WaitForRun(accepted.run_id))
    assert isinstance(result, RunResult)
    assert (result.text, accepted.session_key) == ("Hello there.", "agent:main:main")


@pytest.mark.parametrize("after", [1, 3, 99])
async def test_events_are_read_from_any_place_of_the_log(caller: OperationClient, after: int) -> None:
    accepted = await ask(caller, submit_message, Inbound("hi", "k1"))
    async with asyncio.timeout(60):
        whole = [event async for event in caller.follow(follow_run, FollowRun(accepted.run_id))]
        rest = [event async for event in caller.follow(follow_run, FollowRun(accepted.run_id, after))]
    assert rest == whole[after:]


async def test_a_whole_exchange_gives_its_result_and_its_words(caller: OperationClient) -> None:
    words: list[str] = []
    result = await asyncio.wait_for(
        converse(caller, Inbound("hi", "k"), lambda e: words.append(e.text) if isinstance(e, AssistantDelta) else None),
        5,
    )
    assert "".join(words) == result.text == "you said: hi"


class Waiting(ScriptedProvider):
    async def stream(self, request: ModelRequest) -> AsyncIterator[ReplyEvent]:
        self.requests.append(request)
        yield TextDelta("well")
        await asyncio.Event().wait()


async def test_a_wait_ends_in_time_and_the_run_goes_on_until_it_is_stopped(
    caller: OperationClient, pal: Harness
) -> None:
    pal.model = Waiting()
    accepted = await ask(caller, submit_message, Inbound("hi", "k1"))
    with pytest.raises(WaitTimeout):
        await ask(caller, wait_for_run, WaitForRun(accepted.run_id, 0.01))
    assert (await ask(caller, stop_runs, StopRuns("agent:main:main"))).count == 1
    assert (await ask(caller, wait_for_run, WaitForRun(accepted.run_id, 5))).status == "aborted"
    assert (await ask(caller, stop_runs, StopRuns("agent:main:main"))).count == 0


async def test_sessions_are_listed_shown_and_searched(caller: OperationClient) -> None:
    accepted = await ask(caller, submit_message, Inbound("the anchor is rusty", "k1"))
    await ask(caller, wait_for_run, WaitForRun(accepted.run_id))
    listed = await ask(caller, list_sessions, list_sessions.params())
    assert [session.key for session in listed.sessions] == ["agent:main:main"]
    shown = await ask(caller, show_session, show_session.params("agent:main:main"))
    assert shown.session == listed.sessions[0]
    assert len(shown.entries) == shown.session.entry_count
    found = await ask(caller, search_sessions, search_sessions.params("anchor"))
    assert {hit.role for hit in found.hits} == {"user", "assistant"}


async def test_status_and_context_tell_how_things_stand(caller: OperationClient, home: Home) -> None:
    status = await ask(caller, show_status, show_status.params())
    assert (status.agent, status.model, status.home) == ("main", "scripted/model-1", str(home.root))
    accepted = await ask(caller, submit_message, Inbound("hi", "k1"))
    await ask(caller, wait_for_run, WaitForRun(accepted.run_id))
    report = await ask(caller, show_context, show_context.params())
    assert {"AGENTS.md", "tool read"} <= {part.name for part in report.parts}
    assert (report.messages, report.counted, report.total_tokens) == (2, True, 110)


@pytest.mark.parametrize(
    ("operation", "params", "kind"),
    [
        (submit_message, Inbound("", "k"), BadRequest),
        (submit_message, Inbound("hi", "k", agent="ghost"), NotFound),
        (wait_for_run, WaitForRun("ghost"), NotFound),
        (show_session, show_session.params("agent:main:direct:ghost"), NotFound),
        (show_session, show_session.params("a\nb"), BadRequest),
        (show_context, show_context.params("agent:ghost:main"), NotFound),
    ],
)
async def test_what_makes_no_sense_is_refused_with_the_same_error(
    caller: OperationClient, operation: Operation[Any, Any], params: Struct, kind: type[PalinurusError]
) -> None:
    with pytest.raises(kind) as refused:
        await ask(caller, operation, params)
    assert refused.value.message


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_an_error_keeps_its_type_and_its_fields(caller: OperationClient, error: PalinurusError) -> None:
    raised.append(error)
    with pytest.raises(type(error)) as arrived:
        await ask(caller, RAISE, Nothing())
    assert arrived.value.fields() == error.fields()
    with pytest.raises(type(error)):
        async with asyncio.timeout(60):
            _ = [item async for item in caller.follow(BROKEN, Nothing())]


async def test_a_bug_in_an_operation_is_an_error_and_not_silence(caller: OperationClient) -> None:
    with pytest.raises((ZeroDivisionError, PalinurusError), match="a bug of ours"):
        await ask(caller, BUG, Nothing())
    assert (await ask(caller, list_sessions, list_sessions.params())).sessions == ()


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


async def test_a_follower_that_leaves_ends_the_feed_at_its_source(caller: OperationClient) -> None:
    async with asyncio.timeout(60), aclosing(caller.follow(ENDLESS, Nothing())) as feed:  # type: ignore[type-var]
        async for _ in feed:
            break
    await until(lambda: left == ["feed"])


async def test_a_call_that_is_taken_back_is_cancelled_at_its_source(caller: OperationClient) -> None:
    asking = asyncio.create_task(caller.call(HANG, Nothing()))
    await until(lambda: left == ["began"])
    asking.cancel()
    await until(lambda: left == ["began", "call"])


async def test_many_calls_at_once_get_their_own_answers(caller: OperationClient) -> None:
    keys = [f"agent:main:direct:p{number}" for number in range(30)]
    accepted = await asyncio.gather(*(ask(caller, submit_message, Inbound("hi", key, session_key=key)) for key in keys))
    assert [answer.session_key for answer in accepted] == keys
    results = await asyncio.gather(*(ask(caller, wait_for_run, WaitForRun(answer.run_id)) for answer in accepted))
    assert [result.session_key for result in results] == keys


async def test_a_message_of_a_million_characters_arrives_whole(caller: OperationClient, pal: Harness) -> None:
    text = "ü" * 1_000_000
    pal.model.window = 2_000_000
    accepted = await ask(caller, submit_message, Inbound(text, "k"))
    await ask(caller, wait_for_run, WaitForRun(accepted.run_id))
    assert pal.model.requests[0].messages[-1].text == text
