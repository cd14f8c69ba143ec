"""Methods to talk by: agent and chat, in OpenClaw's shape, over the operations of the house."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest, WaitTimeout
from palinurus.domain.messages import Image
from palinurus.gateway.door.words import check_words
from palinurus.gateway.talk.history import AskHistory, History, history
from palinurus.gateway.talk.methods import Method, Talk
from palinurus.operations import agents
from palinurus.operations.session_changes import Injected, inject_message
from palinurus.workspace.pictures import fit_image

CHANNEL = "webchat"
MAX_WAIT_MS = 600_000
MOST_PICTURES = 8


class Attachment(Struct, frozen=True, rename="camel"):
    content: str  # base64
    mime_type: str = ""
    type: str = "image"
    file_name: str = ""


class SendChat(Struct, frozen=True, rename="camel"):
    session_key: str
    message: str
    idempotency_key: str
    thinking: str = ""
    deliver: bool = False
    attachments: tuple[Attachment, ...] = ()
    timeout_ms: int = 0


class AskAgent(Struct, frozen=True, rename="camel"):
    message: str
    idempotency_key: str
    session_key: str = ""
    agent_id: str = ""
    thinking: str = ""
    attachments: tuple[Attachment, ...] = ()


class Started(Struct, frozen=True, rename="camel"):
    run_id: str
    session_key: str
    accepted_at: int
    status: str = "accepted"


class AwaitRun(Struct, frozen=True, rename="camel"):
    run_id: str
    timeout_ms: int = 30_000


class Abort(Struct, frozen=True, rename="camel"):
    session_key: str = ""
    run_id: str = ""


class Aborted(Struct, frozen=True, rename="camel"):
    ok: bool
    aborted: bool
    count: int


class Subscribe(Struct, frozen=True, rename="camel"):
    session_key: str = "*"
    on: bool = True


class Done(Struct, frozen=True):
    ok: bool = True


async def _submit(talk: Talk, message: str, key: str, agent: str, idempotency: str, inbound: Inbound) -> Started:
    check_words(talk.principal, message)
    house = talk.desk.house
    wanted = msgspec.structs.replace(inbound, text=message, session_key=key, agent=agent, idempotency_key=idempotency)
    # Before it is accepted: the first events of the run must find this client listening.
    place = str(await house.dispatcher.place(wanted))
    talk.desk.hub.listen(talk.listener, place)
    wanted = msgspec.structs.replace(wanted, session_key=place)
    accepted = await agents.SUBMIT.handler(house, wanted)
    return Started(accepted.run_id, accepted.session_key, accepted.accepted_at)


async def chat_send(talk: Talk, params: SendChat) -> Started:
    inbound = Inbound("", "", channel=CHANNEL, images=await _pictures(params.attachments))
    words = f"/think {params.thinking} {params.message}" if params.thinking else params.message
    return await _submit(talk, words, params.session_key, "", params.idempotency_key, inbound)


async def _agent(talk: Talk, params: AskAgent) -> Started:
    inbound = Inbound("", "", channel=CHANNEL, images=await _pictures(params.attachments))
    words = f"/think {params.thinking} {params.message}" if params.thinking else params.message
    return await _submit(talk, words, params.session_key, params.agent_id, params.idempotency_key, inbound)


async def _agent_final(talk: Talk, started: Started) -> dict[str, Any]:
    """The second answer of `agent`, which OpenClaw's clients wait for: how the run came out, with its words."""
    result = await agents.WAIT.handler(talk.desk.house, agents.Wait(started.run_id))
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


async def _agent_wait(talk: Talk, params: AwaitRun) -> dict[str, Any]:
    seconds = min(max(params.timeout_ms, 0), MAX_WAIT_MS) / 1000
    try:
        result = await agents.WAIT.handler(talk.desk.house, agents.Wait(params.run_id, seconds))
    except WaitTimeout:
        return {"runId": params.run_id, "status": "timeout"}
    told: dict[str, Any] = msgspec.to_builtins(result)
    return told


async def _inject(talk: Talk, params: Any) -> Injected:
    done = await inject_message.handler(talk.desk.house, params)
    key = await _key(talk, params.session_key)
    content = [{"type": "text", "text": done.text}]
    message = {"role": "assistant", "content": content, "timestamp": talk.desk.house.clock.now_ms()}
    told = {"runId": f"inject-{done.message_id}", "sessionKey": key, "state": "final", "message": message}
    talk.desk.hub.publish("chat", key, lambda: told)
    talk.desk.hub.publish("sessions.changed", key, lambda: {"sessionKey": key, "reason": "inject"})
    return done


async def abort(talk: Talk, params: Abort) -> Aborted:
    stop = agents.StopRuns(params.session_key, params.run_id)
    stopped = await agents.STOP.handler(talk.desk.house, stop)
    return Aborted(ok=True, aborted=stopped.count > 0, count=stopped.count)


async def _subscribe(talk: Talk, params: Subscribe) -> Done:
    key = params.session_key if params.session_key == "*" else await _key(talk, params.session_key)
    if params.on:
        talk.desk.hub.listen(talk.listener, key)
    else:
        talk.desk.hub.leave(talk.listener, key)
    return Done()


async def _key(talk: Talk, name: str) -> str:
    return str(await talk.desk.house.dispatcher.place(Inbound("", "", session_key=name)))


async def _pictures(attachments: tuple[Attachment, ...]) -> tuple[Image, ...]:
    if len(attachments) > MOST_PICTURES:
        raise BadRequest(f"{len(attachments)} attachments in one message, and {MOST_PICTURES} is the limit")
    return await asyncio.to_thread(lambda: tuple(map(_picture, attachments))) if attachments else ()


def _picture(attachment: Attachment) -> Image:
    try:
        data = base64.b64decode(attachment.content.partition("base64,")[2] or attachment.content, validate=True)
    except ValueError:  # letters that are not its own, or too few of them
        raise BadRequest(f"the attachment {attachment.file_name[:80]!r} is not base64") from None
    return fit_image(data)


METHODS = (
    # Not answered from memory: who has come back and asks again must listen again, and the inbox knows the message.
    Method(
        "agent",
        AskAgent,
        Started,
        "write",
        _agent,
        about="Say something to an agent; answered once accepted, and a second time when the run is over.",
        repeatable=True,
        final=_agent_final,
    ),
    Method("agent.wait", AwaitRun, dict[str, Any], "read", _agent_wait, about="How a run came out."),
    Method("chat.send", SendChat, Started, "write", chat_send, about="Say something in a session.", repeatable=True),
    Method("chat.history", AskHistory, History, "read", history, about="The last messages of a session."),
    Method("chat.abort", Abort, Aborted, "write", abort, about="Stop what runs in a session."),
    Method(
        "chat.inject",
        inject_message.params,
        Injected,
        "write",
        _inject,
        about="Put words into a session as the agent's, between two turns. No model is asked.",
    ),
    Method("sessions.subscribe", Subscribe, Done, "read", _subscribe, about="Hear the events of a session, or of all."),
)
