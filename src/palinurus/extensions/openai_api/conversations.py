"""Conversations that a client keeps itself and sends whole with each request: which session each of them is.

A request without a session whose messages end where an earlier one ended, its reply included, goes on in the session of
that one. So its earlier messages are the real entries of a transcript, and the request to the model begins with the one
before (promise 20). A client that changes an earlier message, or asks for another reply, has another conversation.

This is a shortcut, in memory only: a conversation that is not found brings its history as labelled text.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import msgspec

from palinurus.domain.keys import SessionKey
from palinurus.extensions.openai_api.messages import ClientMessage
from palinurus.operations.services import Services

MOST = 4_096  # conversations; the one that was used least recently goes first


class ClientConversations:
    def __init__(self, _: Services) -> None:
        self._sessions: OrderedDict[str, SessionKey] = OrderedDict()

    def take(self, agent: str, messages: Sequence[ClientMessage]) -> SessionKey | None:
        """The session that ends with the last reply in these messages. Only the first request that goes on gets it."""
        replies = [at for at, message in enumerate(messages) if message.role == "assistant"]
        if not replies:
            return None
        return self._sessions.pop(conversation_digest(agent, messages[: replies[-1] + 1]), None)

    def put(self, key: SessionKey, messages: Sequence[ClientMessage], reply: str) -> None:
        """The session ends with these messages and this reply, as the client has them."""
        whole = [*messages, ClientMessage("assistant", reply)]
        self._sessions[conversation_digest(key.agent, whole)] = key
        if len(self._sessions) > MOST:
            self._sessions.popitem(last=False)


def conversation_digest(agent: str, messages: Sequence[ClientMessage]) -> str:
    """The same for all formats: some put text and calls of a reply into one message, others into several."""
    parts = [agent, *(part for message in messages for part in _parts(message))]
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def _parts(message: ClientMessage) -> Iterator[tuple[str, str]]:
    if text := message.text.strip():  # clients trim it
        yield f"{message.role}:{message.call_id}", text.encode("utf-8", "replace").decode()
    yield from (("call", call.encode("utf-8", "replace").decode()) for call in message.calls)
    yield from (
        ("picture", hashlib.sha256(picture.encode("utf-8", "replace")).hexdigest()) for picture in message.pictures
    )
