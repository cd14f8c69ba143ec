"""One session as a row of OpenClaw's list.

In these rows `totalTokens` is how full the window was at the last call, as OpenClaw counts it; what was used in all is
`inputTokens` and `outputTokens`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from palinurus.domain.envelope import Delivery
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import ToolResult, UserMessage
from palinurus.operations.house import House
from palinurus.operations.sessions import newest_first
from palinurus.sessions.session import Session
from palinurus.sessions.transcript import MessageEntry, Row, decode_row

MAX_TITLE = 60
MAX_PREVIEW = 160


class SessionRow(Struct, frozen=True, rename="camel", omit_defaults=True):
    key: str
    session_id: str
    kind: str  # direct | group
    chat_type: str
    updated_at: int
    created_at: int
    last_interaction_at: int
    has_active_run: bool
    active_run_ids: tuple[str, ...]
    agent_id: str
    started_at: int = 0
    label: str = ""
    display_name: str = ""
    derived_title: str = ""
    last_message_preview: str = ""
    channel: str = ""
    model_provider: str = ""
    model: str = ""
    thinking_level: str = ""
    verbose_level: str = ""
    elevated_level: str = ""
    reasoning_level: str = ""
    response_usage: str = ""
    queue_mode: str = ""
    queue_debounce_ms: int | None = None
    queue_cap: int | None = None
    queue_drop: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    total_tokens_fresh: bool = True
    compaction_count: int = 0
    delivery_context: Delivery | None = None
    last_channel: str = ""
    last_to: str = ""


async def session_row(house: House, session: Session, *, title: bool, last: bool) -> SessionRow:
    """With the first words of the conversation as its title, and with its last words, if these are asked for."""
    key = SessionKey.parse(session.key)
    active = tuple(run.id for run in house.dispatcher.runs.active(key))
    rows = await house.sessions.rows(session.id) if title or last else []
    delivery, chosen = session.delivery, session.preferences
    return SessionRow(
        key=session.key,
        session_id=session.id,
        kind="direct" if session.chat_type == "direct" else "group",
        chat_type=session.chat_type,
        updated_at=session.updated_at,
        created_at=session.created_at,
        last_interaction_at=session.last_interaction_at,
        has_active_run=bool(active),
        active_run_ids=active,
        agent_id=session.agent,
        started_at=session.started_at,
        label=session.label,
        display_name=session.label,
        derived_title=_first_words(rows) if title else "",
        last_message_preview=_last_words(rows) if last else "",
        channel=key.channel,
        model_provider=session.provider,
        model=session.model,
        verbose_level=chosen.verbose_level,
        elevated_level=chosen.elevated_level,
        reasoning_level=chosen.reasoning_level,
        response_usage=chosen.response_usage,
        queue_mode=chosen.queue_mode,
        queue_debounce_ms=chosen.queue_debounce_ms,
        queue_cap=chosen.queue_cap,
        queue_drop=chosen.queue_drop,
        input_tokens=session.input_tokens,
        output_tokens=session.output_tokens,
        total_tokens=session.context_tokens,
        compaction_count=session.compaction_count,
        delivery_context=delivery,
        last_channel=delivery.channel if delivery else "",
        last_to=delivery.to if delivery else "",
    )


def _first_words(rows: Sequence[Row]) -> str:
    for row in rows:
        entry = decode_row(row)
        if isinstance(entry, MessageEntry) and isinstance(entry.message, UserMessage) and entry.message.text.strip():
            return _short(entry.message.text, MAX_TITLE)
    return ""


def _last_words(rows: Sequence[Row]) -> str:
    said = (entry.message for entry in newest_first(rows) if not isinstance(entry.message, ToolResult))
    return next((_short(message.text, MAX_PREVIEW) for message in said if message.text.strip()), "")


def _short(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
