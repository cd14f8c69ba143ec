"""Requests to Telegram's Bot API, and what their failures say of a message: it was not sent, it never can be, or nobody
knows. The library repeats no request by itself.

The token is part of every address, so addresses are neither logged nor shown.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import msgspec
from msgspec import Struct
from telegram import Bot
from telegram.error import NetworkError, TelegramError
from telegram.request import HTTPXRequest

from palinurus.domain.errors import JobFailed, JobRefused, PalinurusError

TOKEN_HINT = "write to @BotFather, /mybots, API Token, and set channels.telegram.botToken"  # noqa: S105
ANSWER_SECONDS = 30.0  # if no answer comes in this time, nobody knows what was sent
PIECE_BYTES = 65_536
UPDATES_PER_POLL = 100
UPDATE_KINDS = ["message", "edited_message", "callback_query"]

# These happen before a byte of the request is written.
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)

for _name in ("httpx", "httpcore"):  # they log addresses
    logging.getLogger(_name).setLevel(logging.WARNING)
logging.getLogger("telegram").setLevel(logging.CRITICAL + 1)  # it logs what people say; whatever is wrong is raised


class AnswerParameters(Struct, frozen=True):
    retry_after: float | None = None
    migrate_to_chat_id: int | None = None


class RefusalAnswer(Struct, frozen=True):
    """What Telegram answers to a request that it did not do."""

    description: str = ""
    parameters: AnswerParameters = AnswerParameters()


class BotApiError(TelegramError):
    """Telegram's server answered, and did not do what was asked for. The library's errors lack the status."""

    def __init__(self, code: int, answer: RefusalAnswer) -> None:
        super().__init__(f"{code} {answer.description}".strip())
        self.code = code
        self.retry_after = answer.parameters.retry_after
        self.moved_to = str(answer.parameters.migrate_to_chat_id or "")
        self.is_about_token = code in (401, 404)  # 404: it does not look like one

    def says(self, *phrases: str) -> bool:
        return any(phrase in self.message.lower() for phrase in phrases)


class BotApiRequest(HTTPXRequest):
    """The library's HTTP client, with errors that keep Telegram's status and parameters."""

    __slots__ = ()

    async def do_request(self, *args: Any, **kwargs: Any) -> tuple[int, bytes]:
        code, payload = await super().do_request(*args, **kwargs)
        if code < 400:
            return code, payload
        try:
            answer = msgspec.json.decode(payload, type=RefusalAnswer)
        except ValueError:  # a proxy's page
            answer = RefusalAnswer()
        raise BotApiError(code, answer)

    async def pieces(self, address: str) -> AsyncIterator[bytes]:
        async with self._client.stream("GET", address) as answer:
            if answer.status_code >= 400:
                raise BotApiError(answer.status_code, RefusalAnswer("the file cannot be fetched"))
            async for piece in answer.aiter_bytes(PIECE_BYTES):
                yield piece


class BotClient(Bot):
    """A bot with one pool of connections for polls and one for everything else. Building it takes a moment."""

    __slots__ = ("_files",)

    def __init__(self, token: str, root: str) -> None:
        tls = {"verify": httpx.create_ssl_context()}
        polls, others = (
            BotApiRequest(size, ANSWER_SECONDS, ANSWER_SECONDS, 10.0, 10.0, httpx_kwargs=tls) for size in (2, 32)
        )
        super().__init__(token, f"{root}/bot", f"{root}/file/bot", others, polls)
        self._files = others

    async def poll(self, offset: int, seconds: int) -> list[Any]:
        """The updates as JSON: the library would give up all of them for one that it cannot read."""
        asked = {"offset": offset, "timeout": seconds, "limit": UPDATES_PER_POLL, "allowed_updates": UPDATE_KINDS}
        found = await self._post("getUpdates", asked, read_timeout=seconds + 10)
        if not isinstance(found, list):
            raise TelegramError("the updates are no list")
        return found

    async def download(self, file_id: str) -> AsyncIterator[bytes]:
        file = await self.get_file(file_id)
        async for piece in self._files.pieces(file.file_path or ""):
            yield piece

    async def close_connections(self) -> None:
        for request in self._request:
            await request.shutdown()


@contextmanager
def mapped_errors(*, repeatable: bool = False) -> Iterator[None]:
    """Raises JobFailed, JobRefused or, when nobody can know, PalinurusError for an error of the library.

    `repeatable`: doing it twice is harmless, so JobFailed is raised also when nobody knows.
    """
    try:
        yield
    except BotApiError as error:
        about = f"Telegram: {error.message}"
        if error.code == 429 or error.is_about_token or (repeatable and error.code >= 500):
            hint = TOKEN_HINT if error.is_about_token else ""
            raise JobFailed(about, hint=hint, retry_after=error.retry_after) from error
        if error.code < 500:
            raise JobRefused(about) from error
        raise PalinurusError(f"{about}: nobody knows what it did") from error
    except (TelegramError, httpx.HTTPError) as error:
        cause = error.__cause__ if isinstance(error, NetworkError) else error
        if repeatable or isinstance(cause, _UNSENT):
            raise JobFailed(f"Telegram was not reached: {error or type(error).__name__}") from error
        raise PalinurusError(f"Telegram did not answer, and nobody knows what it did: {error}") from error
