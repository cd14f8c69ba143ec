"""Change a session from any surface: how it is called and run, start it over, end it, put words into it.

Whoever listens to the session is told, by whichever surface it was changed.

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
from palinurus.dispatch.queue import DROPS, parse_mode
from palinurus.domain.errors import BadRequest, NotFound, Stale
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, Text
from palinurus.operations.operation import Private, SessionRef, operation
from palinurus.operations.scopes import LOCAL, Caller
from palinurus.operations.services import Services
from palinurus.sessions.names import find_session, is_whole, likely_keys, require_session
from palinurus.sessions.session import Preferences, Session, SessionChange
from palinurus.sessions.transcript import SENT

MAX_LABEL = 512
MAX_QUEUE = 100
MAX_DEBOUNCE_MS = 600_000

Choice = str | None | UnsetType
"""A value, None to go back to what the config says, or UNSET to leave it as it is."""
ResetReason = Annotated[Literal["new", "reset"], Private]
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


class ResolvedModel(Struct, frozen=True, rename="camel"):
    """What answers in the session from now on."""

    model_provider: str
    model: str
    thinking_level: str


class PatchedSession(Struct, frozen=True):
    key: str
    entry: Session
    resolved: ResolvedModel
    ok: bool = True


class ResetSession(Struct, frozen=True):
    key: str
    entry: Session
    ok: bool = True


class DeletedSession(Struct, frozen=True, rename="camel"):
    key: str
    deleted: bool  # False: it had ended before
    archived: tuple[str, ...] = ()  # the id of the session that has ended
    ok: bool = True


class InjectedMessage(Struct, frozen=True, rename="camel"):
    message_id: str
    text: str  # as it was kept
    ok: bool = True


@operation("sessions.patch", scope="write")
async def patch_session(
    services: Services, params: PatchSession, caller: Caller = LOCAL, idempotency_key: str = ""
) -> PatchedSession:
    """Name a session, or choose how it is run. null goes back to what the config says."""
    if params.elevated_level not in (UNSET, "off"):  # to clear an `off` is to allow it, too
        caller.need("approvals", "elevatedLevel")
    label = _label(params.label)
    key = await _named(services, params.key, begin=_chooses(params))
    before = await services.turns.history.preferences(key)
    after = _preferred(before, params)
    model = await _model(services, key, params.model)
    thinking = _one_of("thinkingLevel", params.thinking_level, THINKING)
    mark = mark_of(services, "sessions.patch", idempotency_key)
    reads = model is not None or thinking is not None  # it changes what the model reads

    async def work() -> Session:
        session = await _expected(services, key, params.expected_session_id)
        if reads:
            await services.turns.history.choose(key, mark, model=model, thinking=thinking)
        change = SessionChange(label=label, preferences=after if after != before else None)
        return await services.sessions.append(session.id, (), change)

    entry = await (services.dispatcher.in_lane(key, work) if reads else work())
    services.holder.publish_change(str(key), "patch")
    return PatchedSession(str(key), entry, await what_answers(services, key))


@operation("sessions.reset", scope="admin", strict=False)
async def reset_session(
    services: Services,
    key: SessionRef,
    reason: ResetReason = "reset",
    expected_session_id: Expected = "",
    idempotency_key: str = "",
) -> ResetSession:
    """Reset a session, as /new does. All messages stay in the transcript.

    Example:
      pal sessions reset agent:main:main
    """
    place = await _named(services, key)
    mark = mark_of(services, "sessions.reset", idempotency_key)

    async def work() -> Session:
        session = await _expected(services, place, expected_session_id)
        if f"{mark}-reset" in {row.id for row in await services.sessions.rows(session.id)}:
            return session  # asked for again: what was said since then is not put away
        source = {"senderId": "owner", "commandSource": "sessions.reset"}
        await services.turns.hooks.collect_messages(f"command:{reason}", place, lambda: source)
        await services.turns.maintenance.reset(place, reason, mark, services.agents.get(place.agent))
        return await services.sessions.open(place)

    entry = await services.dispatcher.in_lane(place, work)
    services.holder.publish_change(str(place), reason)
    return ResetSession(str(place), entry)


@operation("sessions.delete", scope="write", strict=False)
async def delete_session(
    services: Services, key: SessionRef, expected_session_id: Expected = "", idempotency_key: str = ""
) -> DeletedSession:
    """End a session and stop its run. Its transcript is archived; the key can be used for a new session."""
    agent = services.agents.default
    named = await find_session(services.sessions, key, agent=agent, archived=True)
    place = SessionKey.parse(named.key) if named else likely_keys(key, agent)[0]
    mark = mark_of(services, "sessions.delete", idempotency_key)

    async def work() -> DeletedSession:
        if earlier := await _archived_as(services, place, mark):
            return earlier
        session = await services.sessions.find(place)
        if session is None:
            return DeletedSession(str(place), deleted=False)
        _check_id(session, expected_session_id)
        ended = _ended(await services.sessions.archive(session.id, mark))
        gone = {"sessionId": session.id, "reason": "deleted"}
        services.turns.hooks.observe("session_end", place, lambda: gone)
        services.holder.publish_change(ended.key, "delete")
        return ended

    if earlier := await _archived_as(services, place, mark):
        return earlier  # before anything is stopped that belongs to the conversation after it
    if named is None:
        await require_session(services.sessions, key, agent=agent)  # says what may have been meant
    current = await services.sessions.find(place)
    if current is not None:
        _check_id(current, expected_session_id)
    services.dispatcher.stop(place)
    return await services.dispatcher.in_lane(place, work)


@operation("chat.inject", scope="admin", strict=False)
async def inject_message(
    services: Services, session_key: str, message: str, label: str = "", idempotency_key: str = ""
) -> InjectedMessage:
    """Put words of the assistant's into a conversation, without a turn."""
    key = await _named(services, session_key)
    text = _words(message, label)
    entry_id = f"{mark_of(services, 'chat.inject', idempotency_key)}{SENT}inject"

    async def work() -> str:
        session = await services.sessions.find(key)
        if session is None:
            raise NotFound(f"there is no session {str(key)!r}", hint="`pal sessions list` shows them")
        view = await services.turns.history.view(session)
        journal = services.turns.history.journal(session, view)
        words = AssistantMessage((Text(journal.redact(text)),), timestamp=services.clock.now_ms())
        await journal.write([journal.message(words, entry_id=entry_id)])
        return words.text

    kept = await services.dispatcher.in_lane(key, work)
    said = {"role": "assistant", "content": [{"type": "text", "text": kept}], "timestamp": services.clock.now_ms()}
    told = {"runId": f"inject-{entry_id}", "sessionKey": str(key), "state": "final", "message": said}
    services.holder.publish("chat", str(key), lambda: told)
    services.holder.publish_change(str(key), "inject")
    return InjectedMessage(entry_id, kept)


def mark_of(services: Services, name: str, idempotency_key: str) -> str:
    """The id under which something is written: the same for the same key, a fresh one when there is none."""
    if not idempotency_key:
        return services.new_id()
    return hashlib.sha256(f"{name}\0{idempotency_key}".encode("utf-8", "surrogatepass")).hexdigest()[:24]


async def _named(services: Services, text: str, *, begin: bool = False) -> SessionKey:
    """The key of a session that is there and whose agent exists. Raises BadRequest or NotFound.

    `begin`: by its whole key also one in which nothing was said yet, whose model somebody chooses beforehand.
    """
    key = SessionKey.parse(text) if is_whole(text) else await _key(services, text)
    if key.agent not in services.agents.ids:
        raise NotFound(f"there is no agent {key.agent!r}", hint=f"configured: {', '.join(services.agents.ids)}")
    return key if begin else await _key(services, text)


async def _key(services: Services, text: str) -> SessionKey:
    return SessionKey.parse((await require_session(services.sessions, text, agent=services.agents.default)).key)


def _chooses(params: PatchSession) -> bool:
    """Whether it says how a session is run, and not only what it is called."""
    return params != PatchSession(params.key, params.label, expected_session_id=params.expected_session_id)


async def _expected(services: Services, key: SessionKey, session_id: str) -> Session:
    session = await services.sessions.open(key)
    _check_id(session, session_id)
    return session


def _check_id(session: Session, expected: str) -> None:
    if expected and session.id != expected:
        raise Stale(f"{session.key} is a different session now", hint="read it again, then decide")


async def _archived_as(services: Services, key: SessionKey, mark: str) -> DeletedSession | None:
    return next((_ended(each) for each in await services.sessions.archived(key) if each.archive_mark == mark), None)


def _ended(session: Session) -> DeletedSession:
    return DeletedSession(session.key, deleted=True, archived=(session.id,))


async def what_answers(services: Services, key: SessionKey) -> ResolvedModel:
    """The model and the thinking level of the next turn in a session. Raises NotFound for an agent that is not here."""
    view = await services.turns.history.view_of(key)
    _, route = await services.agents.get(key.agent).choose_model(view.model)
    return ResolvedModel(route.provider, route.model, view.thinking or route.thinking)


async def _model(services: Services, key: SessionKey, wanted: Choice) -> str | None:
    """The whole name of a model; "" for the agent's own, None for no change."""
    if wanted is UNSET or not wanted:
        return None if wanted is UNSET else ""
    return await services.agents.get(key.agent).find_model(wanted)


def _preferred(before: Preferences, params: PatchSession) -> Preferences:
    usage = "tokens" if params.response_usage == "on" else params.response_usage  # OpenClaw's older word
    mode = params.queue_mode
    if isinstance(mode, str) and mode:
        mode = parse_mode(mode) or mode
    chosen: dict[str, str | None] = {
        "verbose_level": _one_of("verboseLevel", params.verbose_level, VERBOSE),
        "response_usage": _one_of("responseUsage", usage, USAGE),
        "elevated_level": _one_of("elevatedLevel", params.elevated_level, ELEVATED),
        "reasoning_level": _one_of("reasoningLevel", params.reasoning_level, REASONING),
        "queue_mode": _one_of("queueMode", mode, ("steer", "followup", "collect", "interrupt")),
        "queue_drop": _one_of("queueDrop", params.queue_drop, DROPS),
    }
    wanted: dict[str, str | int | None] = {name: value for name, value in chosen.items() if value is not None}
    if params.queue_debounce_ms is not UNSET:
        wanted["queue_debounce_ms"] = _bounded("queueDebounceMs", params.queue_debounce_ms, 0, MAX_DEBOUNCE_MS)
    if params.queue_cap is not UNSET:
        wanted["queue_cap"] = _bounded("queueCap", params.queue_cap, 1, MAX_QUEUE)
    return msgspec.structs.replace(before, **wanted)


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
        raise BadRequest(
            f"the name has {len(label)} characters, the limit is {MAX_LABEL}", hint="a few words are enough"
        )
    return label


def _words(message: str, label: str) -> str:
    if not message.strip():
        raise BadRequest("the message is empty", hint="write a message")
    if len(message) > MAX_TEXT:
        raise BadRequest(f"the message has {len(message):,} characters, the limit is {MAX_TEXT:,}")
    named = _label(label)
    return f"[{named}]\n\n{message}" if named else message
