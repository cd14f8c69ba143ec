"""Which key is asked next."""

from __future__ import annotations

import msgspec
import pytest

from palinurus.providers.keys.credential_file import Credential
from palinurus.providers.keys.pool import CredentialPool
from palinurus.testing.fakes import FakeClock


def key(name: str, kind: str = "api_key", source: str = "file", expires_at: int | None = None) -> Credential:
    return Credential(f"openai:{name}", "openai", kind, f"secret-{name}", source, expires_at)  # type: ignore[arg-type]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def pool(clock: FakeClock) -> CredentialPool:
    return CredentialPool(clock)


def names(pool: CredentialPool, *keys: Credential, order: tuple[str, ...] = ()) -> list[str]:
    return [known.id.partition(":")[2] for known in pool.order(keys, order)]


def test_oauth_goes_before_tokens_and_tokens_before_keys(pool: CredentialPool) -> None:
    assert names(pool, key("c"), key("b", "token"), key("a", "oauth")) == ["a", "b", "c"]


def test_a_more_trusted_source_goes_first_whatever_the_kind(pool: CredentialPool) -> None:
    assert names(pool, key("env", "oauth", "environment"), key("config", source="config")) == ["config", "env"]


def test_of_equals_the_one_that_rested_longest_goes_first(pool: CredentialPool, clock: FakeClock) -> None:
    a, b, c = key("a"), key("b"), key("c")
    for used in (b, a, c):
        clock.advance(seconds=1)
        pool.begin(used)
    assert names(pool, a, b, c) == ["b", "a", "c"]


def test_what_answered_last_is_asked_again_until_it_tires(pool: CredentialPool, clock: FakeClock) -> None:
    a, b = key("a"), key("b")
    pool.good(b)
    assert names(pool, a, b) == ["b", "a"]
    pool.cool(b, 30)
    assert names(pool, a, b) == ["a", "b"]
    clock.advance(seconds=31)
    assert names(pool, a, b) == ["b", "a"]


def test_a_prescribed_order_goes_before_trust_and_kind(pool: CredentialPool) -> None:
    assert names(pool, key("a", "oauth"), key("b"), key("c"), order=("openai:c", "openai:b")) == ["c", "b", "a"]


def test_of_tired_ones_the_first_to_be_rested_is_asked_first(pool: CredentialPool) -> None:
    a, b = key("a"), key("b")
    pool.cool(a, 300)
    pool.cool(b, 30)
    assert names(pool, a, b) == ["b", "a"]
    assert (pool.rests(a), pool.rests(b), pool.rests(None)) == (300, 30, 0)


def test_an_expired_one_is_not_asked(pool: CredentialPool, clock: FakeClock) -> None:
    soon = key("soon", expires_at=clock.now_ms() + 1000)
    assert names(pool, soon) == ["soon"]
    clock.advance(seconds=2)
    assert names(pool, soon) == []
    assert pool.state(soon).state == "expired"


def test_success_forgets_failures_and_a_new_secret_starts_fresh(pool: CredentialPool) -> None:
    a = key("a")
    pool.cool(a, 30)
    pool.cool(a, 30)
    assert pool.failures(a) == 2
    assert pool.failures(msgspec.structs.replace(a, secret="another")) == 0
    pool.good(a)
    assert (pool.failures(a), pool.rests(a)) == (0, 0)


def test_the_state_of_a_key_tells_everything_but_its_secret(pool: CredentialPool) -> None:
    a = key("a")
    pool.good(a)
    pool.cool(a, 12)
    state = pool.state(a)
    assert (state.state, state.rests_seconds, state.last_good, state.failures) == ("resting", 12.0, True, 1)
    assert a.secret.encode() not in msgspec.json.encode(state)
