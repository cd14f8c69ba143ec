"""The connection to Discord's gateway.

discord.py speaks the protocol, parses events and keeps the state of the servers. Three things are done otherwise than
its Client does them. It reconnects with pauses of seconds: the library's grow to 17 minutes, or are none at all when a
connection is closed as soon as it is made. An event that the library cannot parse is skipped instead of ending the
connection. And the address of the gateway belongs to the account, not to the process.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp
import discord
from discord.gateway import DiscordWebSocket, KeepAliveHandler, ReconnectWebSocket
from discord.http import HTTPClient
from yarl import URL

from palinurus.dispatch.channels import ChannelContext
from palinurus.domain.errors import ConfigError, PalinurusError
from palinurus.extensions.channels.discord.rest import LOGIN_HINT, USER_AGENT, DiscordApi

log = logging.getLogger(__name__)

CONNECT_SECONDS = 60
CLOSE_SECONDS = 3  # how long the other side may take to say goodbye
LONGEST_PAUSE = 30.0
LARGEST_FRAME = 64 * 1024 * 1024
STALE_TRIES = 3  # after as many failures the address that Discord gave for resuming is no longer believed
INTENT_HINT = (
    "in Discord's developer portal (discord.com/developers/applications) choose the app, Bot, "
    "Privileged Gateway Intents; switch on Message Content Intent and save"
)
FATAL = {
    4004: ("Discord does not accept the bot's token", LOGIN_HINT),
    4014: ("the bot may not read messages: its Message Content Intent is off", INTENT_HINT),
}


class AccountSocket(DiscordWebSocket):
    """One connection. What makes no sense is skipped."""

    async def received_message(self, msg: Any, /) -> None:
        try:
            await super().received_message(msg)
        except (ReconnectWebSocket, discord.ConnectionClosed, OSError, aiohttp.ClientError):
            raise
        except Exception as error:  # noqa: BLE001  the library raises anything when a field is missing
            log.warning("skipped an event of Discord that makes no sense (%s)", type(error).__name__)


class SocketOpener(HTTPClient):
    """Stands where discord.py's client has its REST client, so that nothing is sent behind our back."""

    def __init__(self, api: DiscordApi) -> None:
        super().__init__(asyncio.get_running_loop())
        self._api = api
        self.socket: aiohttp.ClientWebSocketResponse | None = None

    async def ws_connect(self, url: str, *, compress: int = 0) -> aiohttp.ClientWebSocketResponse:
        self.socket = await self._api.session.ws_connect(
            url,
            max_msg_size=LARGEST_FRAME,
            timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_SECONDS),
            autoclose=False,
            headers={"User-Agent": USER_AGENT},
            compress=compress,
        )
        return self.socket

    async def close(self) -> None:
        if self.socket is not None:
            await self.socket.close()


class GatewayClient(discord.Client):
    """Stays connected until it is cancelled. `events` are called in the order of what arrives; `lost` when the
    connection is gone, with the reason."""

    def __init__(
        self,
        api: DiscordApi,
        token: str,
        gateway: str,
        context: ChannelContext,
        events: Mapping[str, Callable[..., None]],
        room: Callable[[], Awaitable[None]],
    ) -> None:
        intents = discord.Intents(
            guilds=True, guild_messages=True, dm_messages=True, message_content=True, reactions=True
        )
        super().__init__(
            intents=intents,
            guild_ready_timeout=0,  # it is ready when Discord says so
            member_cache_flags=discord.MemberCacheFlags.none(),
        )
        self.http: SocketOpener = SocketOpener(api)
        self.http.token = token
        self._connection.http = self.http
        self._gateway = URL(gateway)
        self._context = context
        self._events = events
        self._room = room
        self._failures = 0  # since it was connected last

    def dispatch(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        if event in ("connect", "resumed"):
            self._failures = 0
        if handler := self._events.get(event):
            handler(*args)

    async def connect(self, *, reconnect: bool = True) -> None:
        session = self._session()
        while True:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    self.ws = await AccountSocket.from_client(self, **session)
                while True:
                    await self.ws.poll_event()
                    await self._room()
            except discord.ConnectionClosed as error:
                raise _closed(error.code) from error
            except ReconnectWebSocket:
                why = f"the connection was closed (code {self.http.socket and self.http.socket.close_code})"
            except (OSError, aiohttp.ClientError) as error:
                why = f"Discord cannot be reached ({type(error).__name__})"
            self._events["lost"](why)
            self._stop_heartbeats()
            await self.http.close()
            session = self._session()
            await self._pause(new="resume" not in session)

    def _session(self) -> dict[str, Any]:
        """How to connect: with what was received last, or anew. `initial` spares discord.py's own pause."""
        last: DiscordWebSocket | None = self.ws  # None until the first connection
        if last is None or last.session_id is None:  # the library forgets a session that Discord calls invalid
            return {"gateway": self._gateway, "initial": True}
        gateway = last.gateway if self._failures < STALE_TRIES else self._gateway
        return {"gateway": gateway, "resume": True, "session": last.session_id, "sequence": last.sequence}

    async def _pause(self, *, new: bool) -> None:
        """None after a good connection. Discord asks for 1 to 5 seconds before a new session."""
        pause = min(LONGEST_PAUSE, 2.0 ** (self._failures - 1)) * (0.5 + self._context.dice()) if self._failures else 0
        self._failures += 1
        pause = max(pause, 1 + 4 * self._context.dice()) if new else pause
        if pause:
            await self._context.sleep(pause)

    def _stop_heartbeats(self) -> list[KeepAliveHandler]:
        """Their threads: discord.py forgets one if the connection breaks while it is made."""
        found = [
            each
            for each in threading.enumerate()
            if isinstance(each, KeepAliveHandler) and each.ws._connection is self._connection  # noqa: SLF001
        ]
        for thread in found:
            thread.stop()
        return found

    async def close(self) -> None:
        await super().close()
        for thread in self._stop_heartbeats():
            await asyncio.to_thread(thread.join, CLOSE_SECONDS)


def _closed(code: int) -> PalinurusError:
    if code in FATAL:
        about, hint = FATAL[code]
        return ConfigError(about, hint=hint)
    return PalinurusError(f"Discord closed the connection (code {code})")
