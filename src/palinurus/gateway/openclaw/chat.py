"""Messages to agents, and the history of a session: a page at a time, from the end or around a message.

A message that a search found may belong to an earlier session under the same key.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Annotated, Any

import msgspec
from msgspec import Struct

from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest, NotFound, WaitTimeout
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Image
from palinurus.gateway.auth.guard import check_commands
from palinurus.gateway.websocket.methods import ClientSession, method
from palinurus.operations import runs
from palinurus.operations.services import Services
from palinurus.sessions.session import Session
from palinurus.sessions.transcript import Broken, CompactionEntry, Entry, MessageEntry, ResetEntry, Row, decode_row
from palinurus.workspace.pictures import fit_image

CHANNEL = "webchat"
MAX_WAIT_MS = 600_000
MOST_PICTURES = 8
MESSAGES = 200
MAX_MESSAGES = 1_000
MAX_BYTES = 6 * 1024 * 1024
MAX_SUMMARY = 4_000
PlacedMessage = tuple[int, dict[str, Any]]  # the index of its row


class Attachment(Struct, frozen=True, rename="camel"):
    content: str  # base64
    mime_type: str = ""
    type: str = "image"
    file_name: str = ""


class AcceptedRun(Struct, frozen=True, rename="camel"):
    run_id: str
    session_key: str
    accepted_at: int
    status: str = "accepted"


class OkReply(Struct, frozen=True):
    ok: bool = True


class ChatHistory(Struct, frozen=True, rename="camel"):
    session_key: str
    session_id: str
    messages: tuple[dict[str, Any], ...]
    thinking_level: str = ""
    has_more: bool = False  # there are older ones
    has_newer: bool = False
    ended: bool = False  # it is an earlier session of this key


async def _agent_final(client: ClientSession, started: AcceptedRun) -> dict[str, Any]:
    """The second answer of `agent`, which OpenClaw's clients wait for: the outcome of the run with its text."""
    result = await runs.wait_for_run.run(client.services, runs.WaitForRun(started.run_id))
    about = {"sessionId": result.session_id, "model": result.model, "usage": msgspec.to_builtins(result.usage)}
    return {
        "runId": result.run_id,
        "sessionKey": result.session_key,
        "status": result.status,
        "summary": result.error or "completed",
        "result": {
            "payloads": [{"text": result.text, "mediaUrl": None}] if result.text else [],
            "meta": {"durationMs": result.duration_ms, "agentMeta": about},
        },
    }


# Not replayed: a client that reconnects and repeats it must listen again, and the inbox recognises the message.
@method("agent", scope="write", repeatable=True, final=_agent_final, answers_first=True)
async def ask_agent(
    client: ClientSession,
    message: str,
    session_key: str = "",
    agent_id: str = "",
    thinking: str = "",
    attachments: tuple[Attachment, ...] = (),
    idempotency_key: str = "",
) -> AcceptedRun:
    """Send a message to an agent. Answered when it is accepted, and a second time when the run has ended."""
    text = f"/think {thinking} {message}" if thinking else message
    check_commands(client.principal, text)
    services = client.services
    pictures = await _pictures(attachments)
    inbound = Inbound(text, idempotency_key, channel=CHANNEL, session_key=session_key, agent=agent_id, images=pictures)
    # Before it is accepted: the first events of the run must find this client listening.
    place = str(await services.dispatcher.place(inbound))
    client.gateway.hub.listen(client.listener, place)
    accepted = await runs.submit_message.run(services, msgspec.structs.replace(inbound, session_key=place))
    return AcceptedRun(accepted.run_id, accepted.session_key, accepted.accepted_at)


@method("agent.wait", scope="read")
async def wait_for_run(client: ClientSession, run_id: str, timeout_ms: int = 30_000) -> dict[str, Any]:
    """How a run came out."""
    seconds = min(max(timeout_ms, 0), MAX_WAIT_MS) / 1000
    try:
        result = await runs.wait_for_run.run(client.services, runs.WaitForRun(run_id, seconds))
    except WaitTimeout:
        return {"runId": run_id, "status": "timeout"}
    told: dict[str, Any] = msgspec.to_builtins(result)
    return told


@method("sessions.subscribe", scope="read")
async def subscribe(client: ClientSession, session_key: str = "*", on: bool = True) -> OkReply:
    """Receive the events of a session, or of all."""
    key = session_key
    if key != "*":
        key = str(await client.services.dispatcher.place(Inbound("", "", session_key=key)))
    change = client.gateway.hub.listen if on else client.gateway.hub.leave
    change(client.listener, key)
    return OkReply()


async def _pictures(attachments: tuple[Attachment, ...]) -> tuple[Image, ...]:
    if len(attachments) > MOST_PICTURES:
        raise BadRequest(f"{len(attachments)} attachments in one message; the limit is {MOST_PICTURES}")
    return await asyncio.to_thread(lambda: tuple(map(_picture, attachments))) if attachments else ()


def _picture(attachment: Attachment) -> Image:
    try:
        data = base64.b64decode(attachment.content.partition("base64,")[2] or attachment.content, validate=True)
    except ValueError:
        raise BadRequest(f"the attachment {attachment.file_name[:80]!r} is not base64") from None
    return fit_image(data)


@method("chat.history", scope="read")
async def show_history(
    client: ClientSession,
    session_key: str,
    limit: int = MESSAGES,
    before: Annotated[str, "The id of a message: only messages before it."] = "",
    after: Annotated[str, "Only messages after it."] = "",
    around: Annotated[str, "Messages around it, with it in the middle."] = "",
    marks: Annotated[bool, "Also where the context starts anew: {role: mark, kind: reset | compaction}."] = False,
) -> ChatHistory:
    """The last messages of a session."""
    services = client.services
    key = await services.dispatcher.place(Inbound("", "", session_key=session_key))
    client.gateway.hub.listen(client.listener, str(key))
    session, rows, at = await _found(services, key, around or before or after)
    if session is None:
        return ChatHistory(str(key), "", ())
    limit = min(max(limit, 1), MAX_MESSAGES)

    def walk(places: Iterable[int]) -> Iterator[PlacedMessage]:
        """A row is decoded when it is reached: transcripts are long."""
        found = ((index, _message(decode_row(rows[index]), marks=marks)) for index in places)
        return ((index, message) for index, message in found if message)

    earlier, end = range(at - 1, -1, -1), len(rows)
    if around:
        newer = _fitting(walk(range(at, end)), limit - limit // 2, MAX_BYTES // 2)
        shown = [*_fitting(walk(earlier), limit // 2, MAX_BYTES // 2)[::-1], *newer]
    elif after and not before:
        shown = _fitting(walk(range(at + 1, end)), limit, MAX_BYTES)
    else:
        shown = _fitting(walk(earlier), limit, MAX_BYTES)[::-1]
    thinking = (await services.turns.history.view_of(key)).thinking
    first, last = (shown[0][0], shown[-1][0]) if shown else (0, end)
    return ChatHistory(
        str(key),
        session.id,
        tuple(message for _, message in shown),
        thinking,
        has_more=any(walk(range(first - 1, -1, -1))),
        has_newer=any(walk(range(last + 1, end))),
        ended=session.archived_at is not None,
    )


async def _found(services: Services, key: SessionKey, entry: str) -> tuple[Session | None, Sequence[Row], int]:
    """The session, its rows and the index of an entry in them, or of the end. Raises NotFound."""
    session = await services.sessions.find(key)
    if not entry:
        rows = await services.sessions.rows(session.id) if session else []
        return session, rows, len(rows)
    for each in ([session] if session else []) + await services.sessions.archived(key):
        rows = await services.sessions.rows(each.id)
        at = next((index for index in range(len(rows) - 1, -1, -1) if rows[index].id == entry), None)
        if at is not None:
            return each, rows, at
    raise NotFound(f"there is no message {entry[:80]!r} in this session", hint="leave the id out")


def _fitting(messages: Iterator[PlacedMessage], limit: int, max_bytes: int) -> list[PlacedMessage]:
    """As many as fit. The first one, when it alone is too large, comes without its content."""
    found: list[PlacedMessage] = []
    for at, message in islice(messages, limit):
        size = len(msgspec.json.encode(message))
        if size > max_bytes and not found:
            message, size = {**message, "content": f"({size:,} bytes: too large to show)"}, 0  # noqa: PLW2901
        if size > max_bytes:
            break
        max_bytes -= size
        found.append((at, message))
    return found


def _message(entry: Entry | Broken, *, marks: bool) -> dict[str, Any] | None:
    match entry:
        case MessageEntry():
            return {"id": entry.id, **msgspec.to_builtins(entry.message)}
        case ResetEntry() if marks:
            return _mark(entry, "reset", entry.reason)
        case CompactionEntry() if marks:
            return _mark(entry, "compaction", entry.summary) | {"tokensBefore": entry.tokens_before}
        case _:
            return None


def _mark(entry: ResetEntry | CompactionEntry, kind: str, text: str) -> dict[str, Any]:
    cut = text if len(text) <= MAX_SUMMARY else f"{text[: MAX_SUMMARY - 1]}…"
    return {"id": entry.id, "role": "mark", "kind": kind, "text": cut, "timestamp": _milliseconds(entry.timestamp)}


def _milliseconds(timestamp: str) -> int:
    try:
        return round(datetime.fromisoformat(timestamp).timestamp() * 1000)
    except ValueError:  # an imported line
        return 0
