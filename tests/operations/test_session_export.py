"""A conversation to take away: everything that was said, in a form that its own words cannot break."""

from __future__ import annotations

import json

import pytest

from palinurus.config.home import Home
from palinurus.domain.errors import NotFound
from palinurus.operations.session_changes import patch_session
from palinurus.operations.sessions import export_session
from palinurus.testing.fakes import call, calls
from palinurus.testing.harness import Harness

MAIN = "agent:main:main"


async def test_a_conversation_is_exported_for_people(pal: Harness, home: Home) -> None:
    pal.model.says(calls(call("read", path="SOUL.md")), "You are calm.")
    await pal.hears("who am I?")
    await pal.hears("```\nnot the end\n```")
    done = await export_session(pal.services(home), session_key=MAIN)
    assert (done.file_name, done.media_type) == ("agent-main-main.md", "text/markdown")
    for said in ("## You", "who am I?", "Curious and calm.", "You are calm.", "not the end"):
        assert said in done.content


async def test_the_lines_are_the_very_ones_that_are_stored(pal: Harness, home: Home) -> None:
    await pal.hears("hello")
    services = pal.services(home)
    session = (await services.sessions.recent())[0]
    rows = await services.sessions.rows(session.id)
    lines = await export_session(services, session_key=MAIN, format="jsonl")
    assert lines.content.splitlines() == [row.payload for row in rows]
    whole = json.loads((await export_session(services, session_key=MAIN, format="json")).content)
    assert [entry["id"] for entry in whole["entries"]] == [row.id for row in rows]


async def test_a_file_name_is_harmless_whatever_the_session_is_called(pal: Harness, home: Home) -> None:
    await pal.hears("hello")
    services = pal.services(home)
    await patch_session(services, key=MAIN, label='../../<img src=x onerror=alert(1)>"')
    done = await export_session(services, session_key=MAIN)
    assert done.file_name == "img-src-x-onerror-alert-1.md"


async def test_what_is_not_there_is_not_exported(pal: Harness, home: Home) -> None:
    with pytest.raises(NotFound):
        await export_session(pal.services(home), session_key="agent:main:direct:nobody")
