"""A session's row: its state besides the transcript."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from palinurus.domain.envelope import SURFACES, Delivery, Inbound, Spawn
from palinurus.domain.keys import PEER_KINDS, SessionKey
from palinurus.domain.messages import Usage
from palinurus.ledger.usage import UsageRow
from palinurus.sessions.extraction import Extraction

MAX_PEER_NAME = 200


class Preferences(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Settings that users chose for one session, under OpenClaw's names. Empty: as in the config."""

    verbose_level: str = ""  # off | on | full
    response_usage: str = ""  # off | tokens | cost | full
    elevated_level: str = ""  # off | on | ask | full
    reasoning_level: str = ""  # off | on | stream
    queue_mode: str = ""
    queue_debounce_ms: int | None = None
    queue_cap: int | None = None
    queue_drop: str = ""
    model_override: str = ""  # provider/model, imported from another home; a choice made here takes precedence
    thinking_level: str = ""


class Session(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The current state of one session. Times are milliseconds since the epoch."""

    id: str
    key: str
    agent: str
    chat_type: str
    created_at: int
    updated_at: int
    started_at: int  # start of the part that is read: creation or the last reset
    last_interaction_at: int  # a person wrote; scheduled runs do not count
    label: str = ""
    provider: str = ""
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    context_tokens: int = 0  # tokens in the context window at the last call
    compaction_count: int = 0
    memory_flush_count: int = 0
    memory_flush_at: int = 0
    memory_flush_compaction_count: int = 0  # number of compactions at that time
    entry_count: int = 0
    delivery: Delivery | None = None
    peer_name: str = ""  # of the person at the other end of it; they chose it themselves
    spawned_by: str = ""  # of a subagent: the key of its parent's session
    spawn_depth: int = 0
    preferences: Preferences = Preferences()
    archived_at: int | None = None  # since then another session may use its key
    archive_mark: str = ""  # idempotency key of the archive operation


class SessionChange(Struct, frozen=True):
    """What an append changes in the session's row. None leaves a field unchanged; usage is added.

    `spent` is added to the usage ledger together with the entries, `extraction` is stored before them.
    """

    interaction: bool = False
    restarted: bool = False
    usage: Usage | None = None
    context_tokens: int | None = None
    provider: str | None = None
    model: str | None = None
    label: str | None = None
    delivery: Delivery | None = None
    peer_name: str = ""  # goes with the delivery
    spawn: Spawn | None = None
    preferences: Preferences | None = None
    spent: UsageRow | None = None
    extraction: Extraction | None = None
    compacted: bool = False
    flushed: bool = False  # the notes were made ahead of time
    unused: bool = False  # whoever wrote does not use the session: its time of last use stays


NO_CHANGE = SessionChange()


def changed(session: Session, change: SessionChange, *, now: int, entries: int) -> Session:
    """The row after an append; every storage uses this function."""
    usage = change.usage or Usage()
    label = change.spawn.label if change.spawn else ""
    return msgspec.structs.replace(
        session,
        updated_at=session.updated_at if change.unused else now,
        started_at=now if change.restarted else session.started_at,
        last_interaction_at=now if change.interaction else session.last_interaction_at,
        label=change.label if change.label is not None else session.label or label,
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
        peer_name=change.peer_name if change.delivery else session.peer_name,
        spawned_by=change.spawn.parent if change.spawn else session.spawned_by,
        spawn_depth=len(change.spawn.lineage) if change.spawn else session.spawn_depth,
        preferences=change.preferences or session.preferences,
    )


def place_after(session: Session, inbound: Inbound) -> Delivery | None:
    """Where the people of a session are reached after a message; None: as before.

    The session of a chat is reached in that chat. Any other one is the owner's: what somebody else writes into it, or
    the owner in a group, does not move it. A client of the owner's own gets nothing delivered, so it replaces no chat.
    """
    if not inbound.by_person:
        return None
    is_direct = inbound.peer is None or inbound.peer.kind == "direct"
    if SessionKey.parse(session.key).kind not in PEER_KINDS and not (inbound.by_owner and is_direct):
        return None
    has_chat = session.delivery is not None and session.delivery.channel not in SURFACES
    return None if has_chat and inbound.place.channel in SURFACES else inbound.place


def archived(session: Session, mark: str, *, now: int) -> Session:
    """The row of an archived session; an already archived one is unchanged."""
    if session.archived_at is not None:
        return session
    return msgspec.structs.replace(session, updated_at=now, archived_at=now, archive_mark=mark)


def new_session(session_id: str, key: SessionKey, now: int) -> Session:
    return Session(session_id, str(key), key.agent, key.chat_type, now, now, now, now, entry_count=1)
