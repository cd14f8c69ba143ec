"""A session's row of ours, made of what another home says about the session and what its transcript shows."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from palinurus.domain.keys import SessionKey
from palinurus.migrate.foreign import ForeignSession
from palinurus.migrate.tally import Tally
from palinurus.sessions.session import Preferences, Session

MARK = "import"
RESET = f"{MARK}:reset"  # of what a reset had put away in the other home


def session_row(session: ForeignSession, tally: Tally, now: int) -> Session:
    """Where replies go is not taken over: the doors of the other home are not ours. Nor is what was allowed there."""
    if session.own is not None:
        chosen = replace(session.own.preferences, elevated_level="")
        return replace(session.own, key=session.key, agent=session.agent, delivery=None, preferences=chosen)
    known = _details(session)
    key = SessionKey.parse(session.key)
    created = tally.first_at or session.updated_at or now
    updated = max(session.updated_at, tally.last_at) or now
    return Session(
        id=session.session_id,
        key=str(key),
        agent=key.agent,
        chat_type=key.chat_type,
        created_at=created,
        updated_at=updated,
        started_at=_number(known, "sessionStartedAt") or created,
        last_interaction_at=_number(known, "lastInteractionAt") or updated,
        label=session.label,
        provider=_text(known, "modelProvider"),
        model=_text(known, "model"),
        input_tokens=_number(known, "inputTokens"),
        output_tokens=_number(known, "outputTokens"),
        total_tokens=_number(known, "totalTokens"),
        compaction_count=_number(known, "compactionCount") or tally.entries["compaction"],
        memory_flush_at=_number(known, "memoryFlushAt"),
        memory_flush_compaction_count=_number(known, "memoryFlushCompactionCount"),
        entry_count=tally.count,
        preferences=Preferences(
            verbose_level=_text(known, "verboseLevel"),
            response_usage=_text(known, "responseUsage"),
            reasoning_level=_text(known, "reasoningLevel"),
            queue_mode=_text(known, "queueMode"),
            model_override=_model_override(known),
            thinking_level=_text(known, "thinkingLevel"),
        ),
        archived_at=None if session.origin == "live" else updated,
        archive_mark="" if session.origin == "live" else RESET if session.origin == "reset" else MARK,
    )


def details_of(session: ForeignSession) -> str:
    """What goes along without being understood: the row as the other home wrote it."""
    if session.own is not None:
        return session.extra
    return f'{{"openclaw":{session.details}}}' if session.details else ""


def _details(session: ForeignSession) -> dict[str, Any]:
    try:
        value = json.loads(session.details) if session.details else {}
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _model_override(known: dict[str, Any]) -> str:
    """What its people chose. `model` and `modelProvider` only say what was asked last, as does an override that the
    program set by itself, to get round a model that failed."""
    provider, model = _text(known, "providerOverride").strip(), _text(known, "modelOverride").strip()
    if not model or _text(known, "modelOverrideSource") not in ("", "user"):
        return ""
    return f"{provider or _text(known, 'modelProvider')}/{model}".strip("/")


def _number(known: dict[str, Any], name: str) -> int:
    value = known.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0


def _text(known: dict[str, Any], name: str) -> str:
    value = known.get(name)
    return value.encode(errors="replace").decode()[:200] if isinstance(value, str) else ""
