"""Stored sessions as a turn reads them, and the changes people make: choices, preferences.

A session is opened as its journal, which writes, and its view, which is what the model reads of it.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from palinurus.context.assemble import TurnInput, input_entries
from palinurus.context.budget import rough_tokens, run_off_loop_if_many
from palinurus.context.view import View, Views, last_usage
from palinurus.domain.clock import Clock, NewId, local_time
from palinurus.domain.envelope import Inbound
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage
from palinurus.providers.provider import ModelRef
from palinurus.sessions.journal import Journal, Redact, redacted
from palinurus.sessions.reader import Reader
from palinurus.sessions.session import Preferences, Session, SessionChange
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import CHOSEN_MODEL, CHOSEN_THINKING, Entry


class OpenSession(Struct, frozen=True):
    key: SessionKey
    journal: Journal
    view: View


class SessionHistory:
    def __init__(self, sessions: SessionStore, clock: Clock, new_id: NewId, redact: Redact) -> None:
        self.sessions = sessions
        self.reader = Reader(sessions, whole=False)
        self.views = Views()
        self._clock = clock
        self._new_id = new_id
        self._redact = redact

    async def open(self, key: SessionKey) -> OpenSession:
        """The session, created if there is none."""
        session = await self.sessions.open(key)
        view = await self.view(session)
        return OpenSession(key, self.journal(session, view), view)

    def journal(self, session: Session, view: View) -> Journal:
        return Journal(self.sessions, session, view.tail, self._clock, self._new_id, self._redact)

    def clean(self, inbound: Inbound) -> Inbound:
        """The message without secrets, as it is accepted and stored."""
        return redacted(inbound, self._redact)

    # -- reading ------------------------------------------------------------------------------------------------------

    async def view(self, session: Session) -> View:
        """The current view of a session, with its chosen model and thinking level."""
        view = await self.views.read(session.id, await self.reader.entries(session.id))
        preferences = session.preferences
        model = view.model if view.chose_model else preferences.model_override
        thinking = view.thinking if view.chose_thinking else preferences.thinking_level
        if (model, thinking) == (view.model, view.thinking):
            return view
        return msgspec.structs.replace(view, model=model, thinking=thinking)

    async def view_of(self, key: SessionKey) -> View:
        """The view of a session; empty if it does not exist."""
        session = await self.sessions.find(key)
        return await self.view(session) if session else View()

    async def whole_view(self, session: Session) -> View:
        """The view including old messages that are usually not decoded."""
        self.reader.read_whole(session.id)
        self.views.forget(session.id)
        return await self.view(session)

    async def view_for_window(self, session: Session, view: View, window: int) -> View:
        """The view, with everything that such a window may hold."""
        return view if await _is_enough(view, window) else await self.whole_view(session)

    # -- what people change -------------------------------------------------------------------------------------------

    async def store_unanswered(self, key: SessionKey, message: TurnInput, why: str) -> None:
        """Stores a message that cannot be answered, and why: it was accepted, so it belongs to the transcript."""
        session = await self.open(key)
        if message.run_id in session.view.stored_ids:
            return
        journal = session.journal
        entries = input_entries(message, local_time(self._clock), journal, message.inbound.notes)
        reply = AssistantMessage((), stop_reason="error", error_message=why, timestamp=self._clock.now_ms())
        await journal.write([*entries, journal.message(reply)])

    async def choose(self, key: SessionKey, run_id: str, *, model: str | None, thinking: str | None) -> None:
        """Stores a choice of model or thinking level for the session. Repeating it for one run is harmless."""
        journal = (await self.open(key)).journal
        entries: list[Entry] = []
        if model is not None:
            ref = ModelRef.parse(model)
            entries.append(journal.model_change(ref.provider, ref.model, entry_id=f"{run_id}{CHOSEN_MODEL}"))
        if thinking is not None:
            entries.append(journal.thinking_change(thinking, entry_id=f"{run_id}{CHOSEN_THINKING}"))
        await journal.write(entries)

    async def preferences(self, key: SessionKey) -> Preferences:
        session = await self.sessions.find(key)
        return session.preferences if session else Preferences()

    async def set_preferences(self, key: SessionKey, preferences: Preferences) -> None:
        """Stores the preferences of a session; its transcript is not changed."""
        session = await self.sessions.open(key)
        await self.sessions.append(session.id, (), SessionChange(preferences=preferences))


async def _is_enough(view: View, window: int) -> bool:
    """Whether the undecoded part would not fit anyway: newer messages fill the window more than twice."""
    if not view.unread:
        return True
    counted, _ = last_usage(view)
    if 0 < counted <= window:
        return False
    newer = view.lines[view.read_from :]
    return await run_off_loop_if_many(newer, lambda: sum(rough_tokens(line.message) for line in newer)) > 2 * window
