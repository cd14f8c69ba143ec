"""The pen of a session: linked, stamped, and without secrets."""

from __future__ import annotations

import pytest

from palinurus.config.secrets import Redactor
from palinurus.domain.envelope import Inbound
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, Text, Thinking, ToolCall, ToolResult, Usage, UserMessage
from palinurus.sessions.extraction import Extraction
from palinurus.sessions.journal import Journal, redacted
from palinurus.sessions.session import SessionChange
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import encode_entry
from palinurus.storage.database import MemoryDatabase
from palinurus.testing.fakes import FakeClock, SeededIds

EXACT = 'pass"word-of-the-harbour'
SHAPED = "ghp_" + "a1B2" * 9
redact = Redactor([EXACT]).redact


@pytest.fixture
async def journal(clock: FakeClock, new_id: SeededIds) -> Journal:
    store = SessionStore(MemoryDatabase(), clock, new_id)
    session = await store.open(SessionKey.main())
    return Journal(store, session, session.id, clock, new_id, redact)


async def test_each_entry_is_the_child_of_the_one_before(journal: Journal) -> None:
    first, second = journal.message(UserMessage("a")), journal.custom("x", 1)
    third = journal.reset("new")
    assert first.parent_id == journal.session.id
    assert (second.parent_id, third.parent_id) == (first.id, second.id)


async def test_writing_an_entry_twice_under_one_id_keeps_the_first(journal: Journal, clock: FakeClock) -> None:
    await journal.write([journal.message(UserMessage("once"), entry_id="run-1")])
    clock.advance(seconds=1)
    await journal.write([journal.message(UserMessage("twice"), entry_id="run-1")])
    assert journal.session.entry_count == 2  # the header and the message


async def test_an_append_moves_the_row_of_the_session(journal: Journal, clock: FakeClock) -> None:
    born = clock.now_ms()
    clock.advance(minutes=5)
    change = SessionChange(interaction=True, usage=Usage(5, 7, 11, 13), context_tokens=36, provider="p", model="m")
    said = journal.message(UserMessage("hi"))
    await journal.write([said], change)
    row = journal.session
    assert (row.input_tokens, row.output_tokens, row.total_tokens, row.context_tokens) == (29, 7, 36, 36)
    assert (row.started_at, row.last_interaction_at, row.created_at) == (born, clock.now_ms(), born)
    clock.advance(minutes=5)
    notes = Extraction("x", row.id, said.id, "- user: hi", "extractor", private=True, day="2026-11-15", at=born)
    await journal.write([journal.reset("new")], SessionChange(restarted=True, context_tokens=0, extraction=notes))
    assert (journal.session.started_at, journal.session.context_tokens) == (clock.now_ms(), 0)
    assert (journal.session.model, journal.session.total_tokens) == ("m", 36)


@pytest.mark.parametrize("secret", [EXACT, SHAPED])
@pytest.mark.parametrize(
    "kind", ["user", "reply", "thinking", "arguments", "nested", "name", "result", "details", "error"]
)
async def test_a_secret_anywhere_in_a_message_is_not_stored(journal: Journal, secret: str, kind: str) -> None:
    messages = {
        "user": UserMessage(f"my key is {secret}."),
        "reply": AssistantMessage((Text(f"you said {secret}"),)),
        "thinking": AssistantMessage((Thinking(f"so {secret}"),)),
        "arguments": AssistantMessage((ToolCall("c", "note", {"text": secret}),)),
        "nested": AssistantMessage((ToolCall("c", "note", {"a": [{"b": f"x {secret}"}]}),)),
        "name": AssistantMessage((ToolCall("c", "note", {secret: 1}),)),
        "result": ToolResult("c", "read", (Text(secret),)),
        "details": ToolResult("c", "read", "", details={"line": secret}),
        "error": AssistantMessage((), error_message=f"401 for {secret}"),
    }
    stored = encode_entry(journal.message(messages[kind]))
    assert "[redacted]" in stored
    assert not any(piece in stored for piece in (secret, secret.replace('"', '\\"'), "harbour", "a1B2"))


async def test_a_message_without_secrets_is_not_copied(journal: Journal) -> None:
    message = UserMessage("the tide is at nine")
    assert journal.message(message).message is message


def test_redacting_keeps_every_other_field() -> None:
    cleaned = redacted(Inbound(f"key {EXACT}", "k1", agent="main", channel="telegram"), redact)
    assert cleaned == Inbound("key [redacted]", "k1", agent="main", channel="telegram")
