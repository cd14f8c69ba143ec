"""What a chat's status line is made of, and the last words of a session."""

from __future__ import annotations

import pytest

from palinurus.config.home import Home
from palinurus.domain.errors import NotFound
from palinurus.operations.sessions import show_session
from palinurus.operations.status import show_session_status
from palinurus.operations.table import LocalCaller
from palinurus.testing.harness import Harness


async def test_a_session_that_nobody_has_spoken_in_stands_at_nought(pal: Harness, home: Home) -> None:
    standing = await LocalCaller(pal.services(home)).call(
        show_session_status, show_session_status.params("agent:main:explicit:new")
    )
    assert (standing.context_tokens, standing.cost, standing.unpriced) == (0, 0.0, 0)
    assert standing.model
    assert standing.window > 0


async def test_a_session_that_was_spoken_in_tells_its_tokens_and_calls(pal: Harness, home: Home) -> None:
    pal.model.says("Hello.", "Hello to you.")
    await pal.hears("hi")
    await pal.hears("hi", key="agent:main:direct:alice")
    caller = LocalCaller(pal.services(home))
    standing = await caller.call(show_session_status, show_session_status.params())
    assert standing.session_key == "agent:main:main"
    assert standing.context_tokens > 0
    assert standing.unpriced == 1  # nobody told the price, and the other session's call is not counted
    await pal.hears("/verbose full")
    assert (await caller.call(show_session_status, show_session_status.params())).verbose == "full"


async def test_an_agent_that_is_none_has_no_standing(pal: Harness, home: Home) -> None:
    with pytest.raises(NotFound, match="there is no agent 'ghost'"):
        await LocalCaller(pal.services(home)).call(show_session_status, show_session_status.params("agent:ghost:main"))


async def test_only_the_last_entries_of_a_session_are_shown_when_so_many_are_asked_for(
    pal: Harness, home: Home
) -> None:
    pal.model.says("one", "two")
    await pal.hears("first")
    await pal.hears("second")
    caller = LocalCaller(pal.services(home))
    whole = (await caller.call(show_session, show_session.params("agent:main:main"))).entries
    assert (await caller.call(show_session, show_session.params("agent:main:main", last=2))).entries == whole[-2:]
    assert (await caller.call(show_session, show_session.params("agent:main:main", last=10_000))).entries == whole
