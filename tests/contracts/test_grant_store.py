"""One suite for every keeper of grants."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.domain.errors import BadRequest, NotFound
from palinurus.storage.database import Database
from palinurus.tools.grants import Grant, GrantStore, is_in_force

MAIN, DIRECT, CODER = "agent:main:main", "agent:main:direct:ann", "agent:coder:main"


@pytest.fixture
def store(database: Database) -> GrantStore:
    return GrantStore(database)


def grant(name: str, scope: Any = "home", **fields: Any) -> Grant:
    return Grant(name, "exec", scope, **{"binary": "/bin/ls", "resolved": "/bin/ls", "args": ("-l", "*")} | fields)


async def active(store: GrantStore, session_key: str, now: int = 100) -> set[str]:
    agent = session_key.split(":")[1]
    return {each.id for each in await store.active(agent=agent, session_key=session_key, now=now)}


async def test_a_grant_is_kept_as_it_was_given(store: GrantStore) -> None:
    given_one = grant("g", "agent", agent="main", created_at=5, expires_at=500, created_by="owner", source="import")
    await store.add(given_one)
    assert await store.all() == [given_one]
    assert await store.active(agent="main", session_key=MAIN, now=10) == [given_one]


async def test_a_grant_holds_where_it_was_given_and_nowhere_else(store: GrantStore) -> None:
    await store.add(grant("everywhere"))
    await store.add(grant("agent", "agent", agent="main"))
    await store.add(grant("session", "session", agent="main", session_key=DIRECT))
    assert await active(store, MAIN) == {"everywhere", "agent"}
    assert await active(store, DIRECT) == {"everywhere", "agent", "session"}
    assert await active(store, CODER) == {"everywhere"}


async def test_a_grant_ends_at_its_expiry(store: GrantStore) -> None:
    await store.add(grant("short", expires_at=100))
    assert await active(store, MAIN, 99) == {"short"}
    assert await active(store, MAIN, 100) == set()
    assert [each.id for each in await store.all()] == ["short"]


async def test_a_revoked_grant_holds_no_more_and_says_since_when(store: GrantStore) -> None:
    await store.add(grant("g"))
    assert (await store.revoke("g", 50)).revoked_at == 50
    assert (await store.revoke("g", 70)).revoked_at == 50
    assert await active(store, MAIN) == set()
    await store.used("g", 80, "ls")
    assert await active(store, MAIN) == set()
    assert [(each.revoked_at, each.last_used_at) for each in await store.all()] == [(50, 80)]
    with pytest.raises(NotFound, match="there is no grant 'zz'"):
        await store.revoke("zz", 50)


async def test_the_last_use_is_kept_and_a_very_long_command_is_cut_short(store: GrantStore) -> None:
    await store.add(grant("g"))
    await store.used("g", 60, "ls -l a")
    await store.used("g", 70, "ls -l " + "b" * 10_000)
    (kept,) = await store.all()
    assert kept.last_used_at == 70
    assert kept.last_used_command.startswith("ls -l bbb")
    assert len(kept.last_used_command) == 501


async def test_the_use_of_a_grant_that_is_not_kept_here_is_no_trouble(store: GrantStore) -> None:
    await store.used("of-the-config", 60, "ls")
    assert await store.all() == []


async def test_all_grants_come_newest_first(store: GrantStore) -> None:
    for name, at in (("b", 20), ("a", 10), ("c", 20)):
        await store.add(grant(name, created_at=at))
    assert [each.id for each in await store.all()] == ["c", "b", "a"]


async def test_an_id_is_not_used_twice(store: GrantStore) -> None:
    await store.add(grant("g"))
    with pytest.raises(BadRequest, match="grant 'g' exists already"):
        await store.add(grant("g", "agent", agent="coder"))
    assert [each.scope for each in await store.all()] == ["home"]


@given(
    scope=st.sampled_from(["session", "agent", "home"]),
    revoked=st.none() | st.integers(0, 200),
    expires=st.none() | st.integers(0, 200),
    now=st.integers(0, 200),
    key=st.sampled_from([MAIN, DIRECT, CODER]),
)
def test_nothing_that_was_revoked_or_has_ended_ever_holds(
    scope: Any, revoked: int | None, expires: int | None, now: int, key: str
) -> None:
    one = grant("g", scope, agent="main", session_key=MAIN, revoked_at=revoked, expires_at=expires)
    if is_in_force(one, agent=key.split(":")[1], session_key=key, now=now):
        assert revoked is None
        assert expires is None or now < expires
        assert scope == "home" or key.startswith("agent:main:")
