"""The walk along the failover table: again, next key, next model, and what is said about it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from palinurus.domain.errors import Failure, ProviderError
from palinurus.domain.messages import AssistantMessage, Text
from palinurus.providers.failover import ATTEMPTS, COOLDOWNS, RULES, FailoverProvider, ModelCandidate, decide
from palinurus.providers.keys.credential_file import Credential
from palinurus.providers.keys.pool import LONGEST_REST, CredentialPool
from palinurus.providers.provider import (
    Head,
    ModelRef,
    ModelRequest,
    Provider,
    ReplyDone,
    ReplyEvent,
    ReplyFailed,
    ReplyNotice,
    TextDelta,
)
from palinurus.testing.fakes import FakeClock

REQUEST = ModelRequest("one", Head("be brief"), ())


class World:
    """Models that answer as scripted, by who asks them with which key; sleeps that cost nothing."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.pool = CredentialPool(self.clock)
        self.script: dict[str, list[ProviderError | str | None]] = {}
        self.asked: list[str] = []
        self.slept: list[float] = []

    def candidate(self, ref: str, *names: str) -> ModelCandidate:
        parsed = ModelRef.parse(ref)
        keys = tuple(
            Credential(
                f"{parsed.provider}:{name}", parsed.provider, "api_key", f"secret-{parsed.provider}-{name}", "file"
            )
            for name in names
        )
        return ModelCandidate(parsed, lambda credential: Scripted(self, parsed, credential), keys)

    def relay(self, *candidates: ModelCandidate) -> FailoverProvider:
        return FailoverProvider(candidates, self.pool, sleep=self.sleep, dice=lambda: 0.0, redact=hide)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.advance(seconds=seconds)

    def fails(self, who: str, *kinds: Failure | ProviderError | str) -> None:
        self.script[who] = [
            kind if isinstance(kind, ProviderError | str) and not isinstance(kind, Failure) else failure(kind)
            for kind in kinds
        ]


class Scripted:
    """Implements Provider. Says half a word before it fails with MALFORMED, so that something was streamed."""

    wire = "scripted"

    def __init__(self, world: World, ref: ModelRef, credential: Credential | None) -> None:
        self.name = ref.provider
        self._world = world
        self._who = f"{ref} {credential.id}" if credential else str(ref)

    def context_window(self, model: str) -> int:
        return 1000

    async def stream(self, request: ModelRequest) -> AsyncIterator[ReplyEvent]:
        self._world.asked.append(self._who)
        script = self._world.script.get(self._who, [])
        step = script.pop(0) if script else "hello"
        if isinstance(step, ProviderError):
            if step.kind is Failure.MALFORMED:
                yield TextDelta("hal")
            yield ReplyFailed(step, "hal" if step.kind is Failure.MALFORMED else "")
            return
        yield TextDelta(str(step))
        yield ReplyDone(AssistantMessage((Text(str(step)),), self.name, request.model))

    async def close(self) -> None:
        pass


def failure(kind: Failure | str, retry_after: float | None = None, message: str = "") -> ProviderError:
    return ProviderError(message or f"it is {kind}", kind=Failure(kind), hint="mend it", retry_after=retry_after)


def hide(text: str) -> str:
    return text.replace("secret-openai-a", "[redacted]")


async def events(provider: Provider, request: ModelRequest = REQUEST) -> list[ReplyEvent]:
    return [event async for event in provider.stream(request)]


def answer(found: list[ReplyEvent]) -> AssistantMessage:
    assert isinstance(found[-1], ReplyDone)
    return found[-1].message


def error(found: list[ReplyEvent]) -> ProviderError:
    assert isinstance(found[-1], ReplyFailed)
    return found[-1].error


def notices(found: list[ReplyEvent]) -> list[ReplyNotice]:
    return [event for event in found if isinstance(event, ReplyNotice)]


@pytest.fixture
def world() -> World:
    return World()


def test_the_table_has_a_row_for_every_kind_of_failure() -> None:
    assert set(RULES) == set(Failure)


# One row for each kind: who is asked, in order, when the first key of the first model always fails that way.
AGAIN = ["openai/one openai:a"] * ATTEMPTS
WALKS: dict[Failure, list[str]] = {
    Failure.AUTH: [AGAIN[0], "openai/one openai:b"],
    Failure.BILLING: [AGAIN[0], "openai/one openai:b"],
    Failure.RATE_LIMIT: [*AGAIN, "openai/one openai:b"],
    Failure.OVERLOAD: [*AGAIN, "groq/two"],
    Failure.NETWORK: [*AGAIN, "groq/two"],
    Failure.TIMEOUT: [*AGAIN, "groq/two"],
    Failure.MALFORMED: [*AGAIN, "groq/two"],
    Failure.MODEL_NOT_FOUND: [AGAIN[0], "groq/two"],
    Failure.BAD_REQUEST: [AGAIN[0], "groq/two"],
    Failure.CONTEXT_OVERFLOW: [AGAIN[0]],
    Failure.REFUSAL: [AGAIN[0]],
}


@pytest.mark.parametrize("kind", list(Failure))
async def test_each_kind_of_failure_is_met_as_its_row_says(world: World, kind: Failure) -> None:
    relay = world.relay(world.candidate("openai/one", "a", "b"), world.candidate("groq/two"))
    world.fails("openai/one openai:a", *[kind] * 9)
    found = await events(relay)
    assert world.asked == WALKS[kind]
    assert isinstance(found[-1], ReplyFailed if RULES[kind].then == "stop" else ReplyDone)
    first, second = relay._candidates[0].credentials
    assert bool(world.pool.rests(first)) is bool(RULES[kind].cools)
    assert world.pool.rests(second) == 0


@pytest.mark.parametrize("kind", [kind for kind in Failure if not RULES[kind].cools])
async def test_what_says_nothing_about_a_key_never_cools_it(world: World, kind: Failure) -> None:
    relay = world.relay(world.candidate("openai/one", "a"))
    world.fails("openai/one openai:a", *[kind] * 9)
    await events(relay)
    assert world.pool.failures(relay._candidates[0].credentials[0]) == 0


async def test_waits_double_and_the_wait_that_the_provider_asks_for_is_honoured(world: World) -> None:
    relay = world.relay(world.candidate("openai/one", "a"))
    world.fails("openai/one openai:a", Failure.OVERLOAD, Failure.OVERLOAD)
    await events(relay)
    assert world.slept == [1.0, 2.0]
    world.slept.clear()
    world.fails("openai/one openai:a", failure(Failure.RATE_LIMIT, retry_after=7))
    await events(relay)
    assert world.slept == [7.0]


async def test_a_wait_longer_than_half_a_minute_is_not_waited_for_and_the_key_rests_as_long(world: World) -> None:
    relay = world.relay(world.candidate("openai/one", "a", "b"))
    world.fails("openai/one openai:a", failure(Failure.RATE_LIMIT, retry_after=90))
    await events(relay)
    assert world.slept == []
    assert world.pool.rests(relay._candidates[0].credentials[0]) == 90


def test_rests_grow_with_failures_in_a_row_and_jitter_only_lengthens_a_wait() -> None:
    bad = failure(Failure.AUTH)
    rests = [decide(bad, attempt=1, failures_in_a_row=count, dice=0).cooldown for count in range(4)]
    assert rests == [*COOLDOWNS, COOLDOWNS[-1]]
    late = decide(failure(Failure.NETWORK), attempt=1, failures_in_a_row=0, dice=0.999)
    assert 1.0 < late.wait <= 1.1


async def test_the_answer_carries_who_really_answered_and_each_step_is_told_in_one_line(world: World) -> None:
    relay = world.relay(world.candidate("openai/one", "a", "b"), world.candidate("groq/two"))
    world.fails("openai/one openai:a", failure(Failure.AUTH, message="openai/one refused\nthe key secret-openai-a"))
    world.fails("openai/one openai:b", Failure.MODEL_NOT_FOUND)
    found = await events(relay)
    message = answer(found)
    assert (message.provider, message.model) == ("groq", "two")
    assert [notice.text for notice in notices(found)] == [
        "openai/one refused the key [redacted]; going on with openai/one with openai:b",
        "it is model_not_found; going on with groq/two",
    ]


async def test_text_of_an_abandoned_attempt_is_to_be_discarded_and_silence_is_not(world: World) -> None:
    relay = world.relay(world.candidate("openai/one"))
    world.fails("openai/one", Failure.MALFORMED, Failure.NETWORK)
    found = await events(relay)
    assert [event.text for event in found if isinstance(event, TextDelta)] == ["hal", "hello"]
    assert [notice.discard for notice in notices(found)] == [True, False]


async def test_when_nobody_answers_one_line_lists_who_was_asked_and_why_each_failed(world: World) -> None:
    relay = world.relay(world.candidate("openai/one", "a", "b"), world.candidate("groq/two"))
    world.fails("openai/one openai:a", failure(Failure.AUTH, message="openai/one refused the key secret-openai-a"))
    world.fails("openai/one openai:b", Failure.BILLING)
    world.fails("groq/two", *[Failure.NETWORK] * 3)
    failed = error(await events(relay))
    assert failed.message == (
        "no model answered: openai/one with openai:a: refused the key [redacted]; "
        "openai/one with openai:b: it is billing; groq/two, 3 times: it is network"
    )
    assert (failed.kind, failed.hint) == (Failure.AUTH, "mend it")


async def test_a_single_failure_is_told_as_it_came(world: World) -> None:
    relay = world.relay(world.candidate("openai/one", "a"))
    world.fails("openai/one openai:a", failure(Failure.BAD_REQUEST, message="no such field"))
    assert error(await events(relay)).message == "no such field"


async def test_what_ends_the_walk_gives_its_kind_to_the_failure(world: World) -> None:
    relay = world.relay(world.candidate("openai/one"), world.candidate("groq/two"), world.candidate("xai/three"))
    world.fails("openai/one", Failure.MODEL_NOT_FOUND)
    world.fails("groq/two", Failure.CONTEXT_OVERFLOW)
    assert error(await events(relay)).kind is Failure.CONTEXT_OVERFLOW
    assert "xai/three" not in world.asked


@pytest.mark.parametrize("kind", [Failure.AUTH, Failure.BILLING])
async def test_a_key_refused_for_one_model_is_asked_for_the_next_and_rests_only_for_those_that_refused(
    world: World, kind: Failure
) -> None:
    one, two, three = (world.candidate(f"openai/{name}", "a") for name in ("one", "two", "three"))
    other = world.candidate("groq/four")
    world.fails("openai/one openai:a", *[kind] * 9)
    world.fails("openai/two openai:a", *[kind] * 9)
    await events(world.relay(one, two, three, other))
    assert world.asked == ["openai/one openai:a", "openai/two openai:a", "openai/three openai:a"]
    world.asked.clear()
    await events(world.relay(one, two, three, other))
    assert world.asked == ["openai/three openai:a"]
    assert world.pool.state(one.credentials[0]).models == ("one", "two")


async def test_a_rate_limit_rests_the_key_for_every_model(world: World) -> None:
    candidates = [world.candidate(f"openai/{name}", "a") for name in ("one", "two")]
    world.fails("openai/one openai:a", failure(Failure.RATE_LIMIT, retry_after=90))
    await events(world.relay(*candidates, world.candidate("groq/three")))
    assert world.asked == ["openai/one openai:a", "groq/three"]


async def test_a_key_rests_as_long_as_the_provider_asks_however_often_it_failed(world: World) -> None:
    candidate = world.candidate("openai/one", "a")
    for _ in range(3):
        world.fails("openai/one openai:a", *[failure(Failure.RATE_LIMIT, retry_after=1)] * 3)
        error(await events(world.relay(candidate)))
        assert world.pool.rests(candidate.credentials[0]) == 1
    world.fails("openai/one openai:a", failure(Failure.RATE_LIMIT, retry_after=7 * 24 * 3600))
    error(await events(world.relay(candidate)))
    assert world.pool.rests(candidate.credentials[0]) == LONGEST_REST


async def test_a_resting_key_is_passed_over_while_anybody_else_is_ready_and_asked_when_nobody_is(world: World) -> None:
    candidates = (world.candidate("openai/one", "a"), world.candidate("groq/two", "g"))
    world.pool.cool(candidates[0].credentials[0], 60)
    await events(world.relay(*candidates))
    assert world.asked == ["groq/two groq:g"]
    world.asked.clear()
    await events(world.relay(candidates[0]))
    assert world.asked == ["openai/one openai:a"]


async def test_within_a_turn_whoever_answered_is_asked_first_and_a_new_turn_begins_with_the_primary(
    world: World,
) -> None:
    candidates = (world.candidate("openai/one"), world.candidate("groq/two"))
    turn = world.relay(*candidates)
    world.fails("openai/one", Failure.MODEL_NOT_FOUND)
    await events(turn)
    await events(turn)
    await events(world.relay(*candidates))
    assert world.asked == ["openai/one", "groq/two", "groq/two", "openai/one"]
    assert (turn.name, turn.wire) == ("openai", "scripted")


async def test_the_key_that_answered_is_remembered_across_turns(world: World) -> None:
    candidate = world.candidate("openai/one", "a", "b")
    world.fails("openai/one openai:a", Failure.AUTH)
    await events(world.relay(candidate))
    world.clock.advance(minutes=10)
    world.asked.clear()
    await events(world.relay(candidate))
    assert world.asked == ["openai/one openai:b"]


async def test_every_model_is_sent_the_same_head_and_messages(world: World) -> None:
    seen: list[ModelRequest] = []

    class Recorder(Scripted):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ReplyEvent]:
            seen.append(request)
            async for event in super().stream(request):
                yield event

    def recorded(ref: str) -> ModelCandidate:
        parsed = ModelRef.parse(ref)
        return ModelCandidate(parsed, lambda credential: Recorder(world, parsed, credential))

    world.fails("openai/one", Failure.BAD_REQUEST)
    await events(world.relay(recorded("openai/one"), recorded("groq/two")))
    assert [request.model for request in seen] == ["one", "two"]
    assert seen[0].head is seen[1].head
    assert seen[0].messages is seen[1].messages


async def test_a_stream_that_ends_without_a_word_is_a_failure_like_another(world: World) -> None:
    class Mute(Scripted):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ReplyEvent]:
            return
            yield

    parsed = ModelRef.parse("openai/one")
    mute = ModelCandidate(parsed, lambda credential: Mute(world, parsed, credential))
    found = await events(world.relay(mute, world.candidate("groq/two")))
    assert answer(found).provider == "groq"


async def test_cancellation_passes_through_at_once_while_it_waits(world: World) -> None:
    waiting = asyncio.Event()

    async def forever(_: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    world.fails("openai/one", Failure.OVERLOAD)
    relay = FailoverProvider([world.candidate("openai/one"), world.candidate("groq/two")], world.pool, sleep=forever)
    task = asyncio.create_task(events(relay))
    await asyncio.wait_for(waiting.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert world.asked == ["openai/one"]
