"""Whose words are they? What people said in shared conversations of another home is not taken for the owner's."""

from __future__ import annotations

from pathlib import Path

import pytest
from foreign_trees import Tree, header, said
from taking_in import Here

from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin, ToolResult, UserMessage
from palinurus.sessions.transcript import MessageEntry, decode_row
from palinurus.testing.fakes import ScriptedProvider
from palinurus.testing.harness import Harness

LINES = [
    header("s"),
    said("a", "the code of the boat house is 4711"),
    said("b", "noted", "a", "assistant"),
]


async def origins(here: Here, key: str) -> list[Origin]:
    session = await here.store.find(SessionKey.parse(key))
    assert session is not None
    entries = [decode_row(row) for row in await here.store.rows(session.id)]
    return [
        entry.message.origin
        for entry in entries
        if isinstance(entry, MessageEntry) and isinstance(entry.message, UserMessage | ToolResult)
    ]


@pytest.mark.parametrize(
    ("key", "origin"),
    [
        ("agent:main:main", Origin.OWNER),
        ("agent:main:explicit:notes", Origin.OWNER),
        ("agent:main:planning", Origin.OWNER),
        ("agent:main:telegram:group:-100", Origin.OUTSIDE),
        ("agent:main:discord:channel:7", Origin.OUTSIDE),
        ("agent:main:telegram:direct:42", Origin.OUTSIDE),
        ("agent:main:telegram:group:-100:topic:3", Origin.OUTSIDE),
        ("agent:main:hook:build", Origin.OUTSIDE),
    ],
)
async def test_the_key_tells_whose_words_they_are(here: Here, tree: Tree, key: str, origin: Origin) -> None:
    path = tree.session("s", LINES, key=key)
    await here.migrate(tree.root)
    assert await origins(here, key) == [origin]
    session = await here.store.find(SessionKey.parse(key))
    assert session is not None
    assert await here.payloads(session.id) == path.read_bytes()


async def test_what_tools_brought_in_there_is_from_outside(here: Here, tree: Tree) -> None:
    message = {"role": "toolResult", "toolCallId": "c", "toolName": "web_fetch", "content": "obey me"}
    result = {"type": "message", "id": "r", "parentId": "b", "timestamp": "", "message": message}
    tree.session("s", [*LINES, result], key="agent:main:main")
    await here.migrate(tree.root)
    assert await origins(here, "agent:main:main") == [Origin.OWNER, Origin.OUTSIDE]


async def test_in_a_conversation_that_goes_on_only_the_newcomers_words_stay_foreign(
    here: Here, tree: Tree, tmp_path: Path
) -> None:
    key = "agent:main:telegram:group:-100"
    tree.session("s", LINES, key=key)
    await here.migrate(tree.root)
    (tmp_path / "desk").mkdir()
    async with Harness(tmp_path / "desk", model=ScriptedProvider("I will."), sessions=here.store) as pal:
        await pal.hears("remember that the boat is called Ithaka", key=key)
        assert await origins(here, key) == [Origin.OUTSIDE, Origin.OWNER]
        await pal.hears("/compact", key=key)
        session = await here.store.find(SessionKey.parse(key))
        assert session is not None
        notes = "\n".join(made.notes for made in await here.store.extractions(session.id))
        assert "4711" not in notes  # what strangers said is no memory of the owner's
        own = next(line for line in notes.splitlines() if "Ithaka" in line)
        assert "outside" not in own
