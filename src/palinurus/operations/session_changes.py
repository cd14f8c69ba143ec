"""Change a session from any door: how it is called and run, start it over, end it, put words into it.

What a model reads is changed in the session's lane, between two turns. An idempotency key makes asking twice harmless,
also after a crash: what is written carries an id that is made of the key.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from palinurus.dispatch.directives import ELEVATED, REASONING, THINKING, USAGE, VERBOSE
from palinurus.dispatch.dispatcher import MAX_TEXT
from palinurus.dispatch.queueing import DROPS, parse_mode
from palinurus.domain.errors import BadRequest, NotFound, Stale
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, Text
from palinurus.operations.house import House
from palinurus.operations.operation import Private, operation
from palinurus.operations.sessions import SessionRef
from palinurus.sessions.names import find_session, is_whole, likely_keys, require_session
from palinurus.sessions.session import Preferences, Session, SessionChange
from palinurus.sessions.transcript import SENT

MAX_LABEL = 512
MAX_QUEUE = 100
MAX_DEBOUNCE_MS = 600_000

Choice = str | None | UnsetType
"""A value, None to go back to what the config says, or UNSET to leave it as it is."""
Expected = Annotated[str, Private, "Only if the conversation still has this id."]


class PatchSession(Struct, frozen=True, rename="camel", omit_defaults=True):
    key: str
    label: Choice = UNSET
    model: Choice = UNSET  # provider/model or a short name
    thinking_level: Choice = UNSET
    verbose_level: Choice = UNSET
    response_usage: Choice = UNSET
    elevated_level: Choice = UNSET
    reasoning_level: Choice = UNSET
    queue_mode: Choice = UNSET
    queue_debounce_ms: int | UnsetType | None = UNSET
    queue_cap: int | UnsetType | None = UNSET
    queue_drop: Choice = UNSET
    expected_session_id: str = ""
    idempotency_key: str = ""


class Resolved(Struct, frozen=True, rename="camel"):
    """What answers in the session from now on."""

    model_provider: str
    model: str
    thinking_level: str


class Patched(Struct, frozen=True):
    key: str
    entry: Session
    resolved: Resolved
    ok: bool = True


class WasReset(Struct, frozen=True):
    key: str
    entry: Session
    ok: bool = True


class Deleted(Struct, frozen=True, rename="camel"):
    key: str
    deleted: bool  # False: it had ended before
    archived: tuple[str, ...] = ()  # the id of the session that has ended
    ok: bool = True


class Injected(Struct, frozen=True, rename="camel"):
    message_id: str
    text: str  # as it was kept
    ok: bool = True


@operation("sessions.patch", scope="write")
async def patch_session(house: House, params: PatchSession) -> Patched:
    """Name a session, or choose how it is run. null goes back to what the config says."""
    label = _label(params.label)
    key = await _named(house, params.key, begin=_chooses(params))
    before = await house.turns.preferences(key)
    after = _preferred(before, params)
    model = await _model(house, key, params.model)
    thinking = _one_of("thinkingLevel", params.thinking_level, THINKING)
    mark = mark_of(house, "sessions.patch", params.idempotency_key)

    async def work() -> Session:
        session = await _expected(house, key, params.expected_session_id)
        if model is not None or thinking is not None:
            await house.turns.choose(key, mark, model=model, thinking=thinking)
        change = SessionChange(label=label, preferences=after if after != before else None)
        return await house.sessions.append(session.id, (), change)

    reads = model is not None or thinking is not None
    entry = await (house.dispatcher.in_lane(key, work) if reads else work())
    return Patched(str(key), entry, await what_answers(house, key))


@operation("sessions.reset", scope="write")
async def reset_session(
    house: House,
    key: SessionRef,
    reason: Annotated[Literal["new", "reset"], Private] = "reset",
    expected_session_id: Expected = "",
    idempotency_key: str = "",
) -> WasReset:
    """Start a conversation over, as /new does. What was said stays in the transcript.

    Example:
      pal sessions reset agent:main:main
    """
    place = await _named(house, key)
    mark = mark_of(house, "sessions.reset", idempotency_key)

    async def work() -> Session:
        session = await _expected(house, place, expected_session_id)
        if f"{mark}-reset" in {row.id for row in await house.sessions.rows(session.id)}:
            return session  # asked for again: what was said since then is not put away
        await house.turns.reset(place, reason, mark, house.agents.get(place.agent))
        return await house.sessions.open(place)

    return WasReset(str(place), await house.dispatcher.in_lane(place, work))


@operation("sessions.delete", scope="write")
async def delete_session(
    house: House, key: SessionRef, expected_session_id: Expected = "", idempotency_key: str = ""
) -> Deleted:
    """End a conversation and stop what runs in it. Its words are archived; the key begins a new one."""
    agent = house.agents.default
    named = await find_session(house.sessions, key, agent=agent, archived=True)
    place = SessionKey.parse(named.key) if named else likely_keys(key, agent)[0]
    mark = mark_of(house, "sessions.delete", idempotency_key)

    async def work() -> Deleted:
        if earlier := await _archived_as(house, place, mark):
            return earlier
        session = await house.sessions.find(place)
        if session is None:
            return Deleted(str(place), deleted=False)
        _check_id(session, expected_session_id)
        return _ended(await house.sessions.archive(session.id, mark))

    if earlier := await _archived_as(house, place, mark):
        return earlier  # before anything is stopped that belongs to the conversation after it
    if named is None:
        await require_session(house.sessions, key, agent=agent)  # says what may have been meant
    current = await house.sessions.find(place)
    if current is not None:
        _check_id(current, expected_session_id)
    house.dispatcher.stop(place)
    return await house.dispatcher.in_lane(place, work)


@operation("chat.inject", scope="write")
async def inject_message(
    house: House, session_key: str, message: str, label: str = "", idempotency_key: str = ""
) -> Injected:
    """Put words of the assistant's into a conversation, without a turn."""
    key = await _named(house, session_key)
    text = _words(message, label)
    entry_id = f"{mark_of(house, 'chat.inject', idempotency_key)}{SENT}inject"

    async def work() -> str:
        session = await house.sessions.find(key)
        if session is None:
            raise NotFound(f"there is no session {str(key)!r}", hint="`pal sessions list` shows them")
        view = await house.turns.view(session)
        journal = house.turns.journal(session, view)
        words = AssistantMessage((Text(journal.redact(text)),), timestamp=house.clock.now_ms())
        await journal.write([journal.message(words, entry_id=entry_id)])
        return words.text

    return Injected(entry_id, await house.dispatcher.in_lane(key, work))


def mark_of(house: House, name: str, idempotency_key: str) -> str:
    """The id under which something is written: the same for the same key, a fresh one when there is none."""
    if not idempotency_key:
        return house.new_id()
    return hashlib.sha256(f"{name}\0{idempotency_key}".encode("utf-8", "surrogatepass")).hexdigest()[:24]


async def _named(house: House, text: str, *, begin: bool = False) -> SessionKey:
    """The key of a session that is there and whose agent exists. Raises BadRequest or NotFound.

    `begin`: by its whole key also one in which nothing was said yet, whose model somebody chooses beforehand.
    """
    key = SessionKey.parse(text) if is_whole(text) else await _key(house, text)
    if key.agent not in house.agents.ids:
        raise NotFound(f"there is no agent {key.agent!r}", hint=f"configured: {', '.join(house.agents.ids)}")
    return key if begin else await _key(house, text)


async def _key(house: House, text: str) -> SessionKey:
    return SessionKey.parse((await require_session(house.sessions, text, agent=house.agents.default)).key)


def _chooses(params: PatchSession) -> bool:
    """Whether it says how a session is run, and not only what it is called."""
    return params != PatchSession(
        params.key,
        params.label,
        expected_session_id=params.expected_session_id,
        idempotency_key=params.idempotency_key,
    )


async def _expected(house: House, key: SessionKey, session_id: str) -> Session:
    session = await house.sessions.open(key)
    _check_id(session, session_id)
    return session


def _check_id(session: Session, expected: str) -> None:
    if expected and session.id != expected:
        raise Stale(f"{session.key} is another conversation by now", hint="look again, then decide")


async def _archived_as(house: House, key: SessionKey, mark: str) -> Deleted | None:
    return next((_ended(each) for each in await house.sessions.archived(key) if each.archive_mark == mark), None)


def _ended(session: Session) -> Deleted:
    return Deleted(session.key, deleted=True, archived=(session.id,))


async def what_answers(house: House, key: SessionKey) -> Resolved:
    """The model and the thinking level of the next turn in a session. Raises NotFound for an agent that is not here."""
    view = await house.turns.view_of(key)
    _, route = await house.agents.get(key.agent).choose_model(view.model)
    return Resolved(route.provider, route.model, view.thinking or route.thinking)


async def _model(house: House, key: SessionKey, wanted: Choice) -> str | None:
    """The whole name of a model; "" for the agent's own, None for no change."""
    if wanted is UNSET or not wanted:
        return None if wanted is UNSET else ""
    return await house.agents.get(key.agent).find_model(wanted)


def _preferred(before: Preferences, params: PatchSession) -> Preferences:
    usage = "tokens" if params.response_usage == "on" else params.response_usage  # OpenClaw's older word
    mode = params.queue_mode
    if isinstance(mode, str) and mode:
        mode = parse_mode(mode) or mode
    wanted: dict[str, str | None] = {
        "verbose_level": _one_of("verboseLevel", params.verbose_level, VERBOSE),
        "response_usage": _one_of("responseUsage", usage, USAGE),
        "elevated_level": _one_of("elevatedLevel", params.elevated_level, ELEVATED),
        "reasoning_level": _one_of("reasoningLevel", params.reasoning_level, REASONING),
        "queue_mode": _one_of("queueMode", mode, ("steer", "followup", "collect", "interrupt")),
        "queue_drop": _one_of("queueDrop", params.queue_drop, DROPS),
    }
    after = msgspec.structs.replace(before, **{name: value for name, value in wanted.items() if value is not None})
    if params.queue_debounce_ms is not UNSET:
        after = msgspec.structs.replace(
            after, queue_debounce_ms=_bounded("queueDebounceMs", params.queue_debounce_ms, 0, MAX_DEBOUNCE_MS)
        )
    if params.queue_cap is not UNSET:
        after = msgspec.structs.replace(after, queue_cap=_bounded("queueCap", params.queue_cap, 1, MAX_QUEUE))
    return after


def _one_of(name: str, wanted: Choice, allowed: tuple[str, ...]) -> str | None:
    """The value; "" for what the config says, None for no change."""
    if wanted is UNSET:
        return None
    if wanted is None or wanted == "":
        return ""
    if wanted.lower() not in allowed:
        raise BadRequest(f"{name} cannot be {wanted[:80]!r}", hint=", ".join(allowed))
    return wanted.lower()


def _bounded(name: str, wanted: int | None, least: int, most: int) -> int | None:
    if wanted is not None and not least <= wanted <= most:
        raise BadRequest(f"{name} cannot be {str(wanted)[:20]}", hint=f"{least} to {most}")
    return wanted


def _label(wanted: Choice) -> str | None:
    if wanted is UNSET:
        return None
    label = " ".join((wanted or "").split())
    if len(label) > MAX_LABEL:
        raise BadRequest(f"the name has {len(label)} characters, the limit is {MAX_LABEL}", hint="a few words will do")
    return label


def _words(message: str, label: str) -> str:
    if not message.strip():
        raise BadRequest("the message is empty", hint="say something")
    if len(message) > MAX_TEXT:
        raise BadRequest(f"the message has {len(message):,} characters, the limit is {MAX_TEXT:,}")
    named = _label(label)
    return f"[{named}]\n\n{message}" if named else message


OPERATIONS = (patch_session, reset_session, delete_session, inject_message)
