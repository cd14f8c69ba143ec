"""A request of either endpoint becomes one message to an agent, and the run that answers it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec
from msgspec import Struct
from starlette.requests import Request

from palinurus.dispatch.runs import Run
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import ContextNote, ToolResult
from palinurus.domain.tool import ToolSpec
from palinurus.gateway.openai.calls import checked, waiting_for
from palinurus.gateway.openai.history import MOST_CHARACTERS, Current, Line, Talk, current
from palinurus.gateway.openai.pictures import pictures
from palinurus.gateway.openai.place import Place, again, backend, place_of
from palinurus.gateway.talk.desk import Desk

CHANNEL = "openai"
LONGEST_KEY = 256
INSTRUCTIONS = "instructions of the client"
HISTORY = "the conversation so far"


class Wish(Struct, frozen=True):
    """What a request asks for, whichever endpoint it came by."""

    model: str
    talk: Talk
    tools: Iterable[ToolSpec] = ()
    user: str = ""
    continues: SessionKey | None = None  # the session of an earlier response


class Asked(Struct, frozen=True):
    """A run, and whether it ends when its client goes away: nobody else would ever read it."""

    run: Run
    abandoned: bool


async def ask(desk: Desk, request: Request, wish: Wish) -> Asked:
    """When this returns the message is on the disk. Raises PalinurusErrors."""
    place = _place(desk, request, wish)
    answers = await waiting_for(desk.house, wish.talk.lines)
    if answers and (place.lasting or wish.continues) and answers.run.key != place.key:
        answers = None  # it says where it speaks, and nobody waits for it there
    if answers:
        place = again(answers.run.key)
        words = _words([line for line in wish.talk.new if line.role == "user"])
        message = await _message(words, answers.results)
    else:
        message = await _message(current(await _told(desk, place, wish)))
    key = _idempotency_key(request)
    message = msgspec.structs.replace(
        message,
        idempotency_key=f"{CHANNEL}:{key or desk.new_id()}",
        session_key=str(place.key),
        attended=place.lasting,
        notes=(*_instructions(wish.talk.instructions), *message.notes),
        model=backend(request.headers),
        client_tools=await checked(desk.house, place.agent, wish.tools),
    )
    run = await desk.house.dispatcher.submit(message)
    return Asked(run, abandoned=not place.lasting and not key)


def _place(desk: Desk, request: Request, wish: Wish) -> Place:
    if wish.continues:
        return again(wish.continues)
    agents = desk.house.agents
    return place_of(wish.model, wish.user, request.headers, agents.ids, agents.default, desk.new_id())


async def _told(desk: Desk, place: Place, wish: Wish) -> tuple[Line, ...]:
    """What of the conversation the session does not know: all of it, when it is new or the client sends only news."""
    if not place.lasting or wish.continues or await desk.house.sessions.find(place.key) is None:
        return wish.talk.lines
    return wish.talk.new


def _words(lines: list[Line]) -> Current:
    """What a client says beside the results that it brings; mostly nothing."""
    return current(lines) if lines else Current("")


async def _message(told: Current, results: tuple[ToolResult, ...] = ()) -> Inbound:
    notes = (ContextNote("history", told.history, HISTORY, origin=told.origin),) if told.history else ()
    images = await pictures(told.pictures) if told.pictures else ()
    return Inbound(told.text, "", images, channel=CHANNEL, notes=notes, plain=True, results=results)


def _instructions(text: str) -> tuple[ContextNote, ...]:
    """Told again only when they have changed: clients send them with every request. They do not touch the head."""
    if not text:
        return ()
    if len(text) > MOST_CHARACTERS:
        raise BadRequest(f"the instructions have {len(text):,} characters, the limit is {MOST_CHARACTERS:,}")
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
    return (ContextNote("notice", text, INSTRUCTIONS, digest),)


def _idempotency_key(request: Request) -> str:
    key: str = request.headers.get("idempotency-key", "").strip()
    if len(key) > LONGEST_KEY:
        raise BadRequest(f"an Idempotency-Key of {len(key)} characters", hint=f"{LONGEST_KEY} is the limit")
    return key
