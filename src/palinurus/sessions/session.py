"""A session's row: what is known about a conversation besides its words."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from palinurus.domain.envelope import Delivery
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Usage
from palinurus.ledger.usage import UsageRow
from palinurus.sessions.extraction import Extraction


class Preferences(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What its people have chosen for one conversation, under OpenClaw's names. Empty: as the config says."""

    verbose_level: str = ""  # off | on | full
    response_usage: str = ""  # off | tokens | cost | full
    elevated_level: str = ""  # off | on | ask | full
    reasoning_level: str = ""  # off | on | stream
    queue_mode: str = ""
    queue_debounce_ms: int | None = None
    queue_cap: int | None = None
    queue_drop: str = ""
    model_override: str = ""  # provider/model, brought from another home; a choice made here goes before it
    thinking_level: str = ""


class Session(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The current state of one conversation. Times are milliseconds since the epoch."""

    id: str
    key: str
    agent: str
    chat_type: str
    created_at: int
    updated_at: int
    started_at: int  # of the part that is read: creation or the last reset
    last_interaction_at: int  # a person spoke; the clock's own turns do not count
    label: str = ""
    provider: str = ""
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    context_tokens: int = 0  # how full the window was at the last call
    compaction_count: int = 0
    memory_flush_count: int = 0
    memory_flush_at: int = 0
    memory_flush_compaction_count: int = 0  # how many compactions there had been then
    entry_count: int = 0
    delivery: Delivery | None = None
    preferences: Preferences = Preferences()
    archived_at: int | None = None  # since then another conversation may go on under its key
    archive_mark: str = ""  # who archives twice under one mark has archived once


class SessionChange(Struct, frozen=True):
    """What an append changes in the session's row. None leaves a field as it is; usage is added.

    `spent` goes into the usage ledger together with the entries, `extraction` among the session's notes before them.
    """

    interaction: bool = False
    restarted: bool = False
    usage: Usage | None = None
    context_tokens: int | None = None
    provider: str | None = None
    model: str | None = None
    label: str | None = None
    delivery: Delivery | None = None
    preferences: Preferences | None = None
    spent: UsageRow | None = None
    extraction: Extraction | None = None
    compacted: bool = False
    flushed: bool = False  # the notes were taken ahead of time


NO_CHANGE = SessionChange()


def changed(session: Session, change: SessionChange, *, now: int, entries: int) -> Session:
    """The row after an append: the one place where it is computed, whoever stores it."""
    usage = change.usage or Usage()
    return Session(
        id=session.id,
        key=session.key,
        agent=session.agent,
        chat_type=session.chat_type,
        created_at=session.created_at,
        updated_at=now,
        started_at=now if change.restarted else session.started_at,
        last_interaction_at=now if change.interaction else session.last_interaction_at,
        label=session.label if change.label is None else change.label,
        provider=session.provider if change.provider is None else change.provider,
        model=session.model if change.model is None else change.model,
        input_tokens=session.input_tokens + usage.input + usage.cache_read + usage.cache_write,
        output_tokens=session.output_tokens + usage.output,
        total_tokens=session.total_tokens + usage.total,
        context_tokens=session.context_tokens if change.context_tokens is None else change.context_tokens,
        compaction_count=session.compaction_count + change.compacted,
        memory_flush_count=session.memory_flush_count + change.flushed,
        memory_flush_at=now if change.flushed else session.memory_flush_at,
        memory_flush_compaction_count=(
            session.compaction_count if change.flushed else session.memory_flush_compaction_count
        ),
        entry_count=session.entry_count + entries,
        delivery=change.delivery or session.delivery,
        preferences=change.preferences or session.preferences,
        archived_at=session.archived_at,
        archive_mark=session.archive_mark,
    )


def archived(session: Session, mark: str, *, now: int) -> Session:
    """The row of a conversation that has ended; one that had ended before stays as it is."""
    if session.archived_at is not None:
        return session
    return msgspec.structs.replace(session, updated_at=now, archived_at=now, archive_mark=mark)


def new_session(session_id: str, key: SessionKey, now: int) -> Session:
    return Session(session_id, str(key), key.agent, key.chat_type, now, now, now, now, entry_count=1)
