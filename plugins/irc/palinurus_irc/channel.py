"""The adapter of IRC: one connection to one server, its channels as groups, and queries as direct chats.

A nick proves nothing: whoever comes first has it. So a person is nick!user@host as the server says it, and before
something is sent to a person the server is asked whether the nick is still theirs. IRC does not confirm messages: a
PING follows each one, and what the server says before its PONG is about that message.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Annotated, ClassVar

from palinurus.config.section import Secret, Section, option
from palinurus.dispatch.channels import (
    Channel,
    ChannelCapabilities,
    ChannelCheck,
    ChannelContext,
    ChannelInbox,
    ChannelMessage,
    ChatTarget,
    OutgoingPart,
)
from palinurus.domain.envelope import Peer
from palinurus.domain.errors import ConfigError, JobFailed, JobRefused
from palinurus.text.markdown import TextLimits

from .protocol import IrcLine, fold, names, one_line, parse_line, shown

LINE_BYTES = 330  # of a text: with the longest mask and channel in front of it a line has 512
CONNECT_SECONDS = 30.0
ANSWER_SECONDS = 60.0  # a server makes those wait who write fast
QUIET_SECONDS = 120.0  # then the server is asked whether it is still there
ABSENT_SECONDS = 600.0
HINT = "check channels.irc: host, port, tls, nick, password"
NICK_TAKEN = ("433", "436")
BAD_LOGIN = {"464": "the password is wrong", "465": "the server has banned us", "432": "the nick is not allowed"}
NOT_SENT = frozenset({"401", "402", "403", "404", "407", "411", "412", "413", "414", "415", "442", "477", "531"})


class IrcSettings(Section, frozen=True):
    """`channels.irc`."""

    host: Annotated[str, option("The server.")] = ""
    port: Annotated[int, option("Its port.", ge=1, le=65535)] = 6697
    tls: Annotated[bool, option("Whether the connection is encrypted.")] = True
    nick: Annotated[str, option("The agent's nick.")] = "pal"
    password: Annotated[Secret | None, option("The server's password, if it wants one.")] = None
    join: Annotated[tuple[str, ...], option("Channels, such as #home.")] = ()


class IrcChannel(Channel):
    capabilities: ClassVar = ChannelCapabilities(TextLimits(LINE_BYTES, "bytes", lines=1))

    def __init__(self, context: ChannelContext) -> None:
        super().__init__(context)
        self._settings = settings = context.settings(IrcSettings)
        if not settings.host or one_line(settings.nick) != settings.nick or " " in settings.nick or not settings.nick:
            raise ConfigError("channels.irc needs a host and a nick without spaces", hint=HINT)
        self._password = context.secret(settings.password)
        self._nick = settings.nick
        self._writer: asyncio.StreamWriter | None = None
        self._numbers = count(1)
        self._waiting: dict[str, asyncio.Future[None]] = {}  # by the token of a PING
        self._answers: list[IrcLine] = []  # what the server has said since the last message
        self._one_at_a_time = asyncio.Lock()

    async def run(self, inbox: ChannelInbox) -> None:
        reader = await self._log_in()
        try:
            for channel in self._settings.join:
                self._write(f"JOIN {one_line(channel)}")
            inbox.connected(f"{self._nick}@{self._settings.host}")
            while True:
                await self._handle(await self._next(reader), inbox)
        finally:
            self._hang_up()

    async def send(self, target: ChatTarget, part: OutgoingPart) -> str:
        async with self._one_at_a_time:  # an answer of the server does not say which message it is about
            if self._writer is None:
                raise JobFailed("IRC is not connected")
            to, text = target.to, one_line(part.plain or part.text)
            if not text:
                raise JobRefused("there is nothing to send on IRC: only text can be")
            if "!" in to:
                to = await self._present(to)
            token = f"{self.context.clock.now_ms()}-{next(self._numbers)}"
            self._write(f"PRIVMSG {one_line(to).replace(' ', '')} :{text}")
            if wrong := next((line for line in await self._answer(token) if line.command in NOT_SENT), None):
                raise JobRefused(f"IRC did not deliver to {to}: {one_line(wrong.last)[:200]}")
            return token

    async def check(self) -> tuple[ChannelCheck, ...]:
        if self._writer is not None:
            return (ChannelCheck("login", True, f"connected as {self._nick}"),)
        try:
            await self._log_in()
        except (ConfigError, OSError, TimeoutError) as error:
            return (ChannelCheck("login", False, str(error) or type(error).__name__, HINT),)
        finally:
            self._hang_up()
        return (ChannelCheck("login", True, f"{self._settings.host} lets {self._nick} in"),)

    async def _present(self, mask: str) -> str:
        """The nick of a person who is still who they were."""
        nick, _, address = mask.partition("!")
        self._write(f"USERHOST {one_line(nick).replace(' ', '')}")
        answers = await self._answer(f"who-{next(self._numbers)}")
        now = " ".join(line.last for line in answers if line.command == "302")
        found, _, where = now.strip().partition("=")
        if fold(found.rstrip("*")) != fold(nick) or where[1:] != address:
            raise JobFailed(f"{nick} is not on IRC now, or is somebody else", retry_after=ABSENT_SECONDS)
        return nick

    async def _answer(self, token: str) -> list[IrcLine]:
        """What the server says before it answers a PING. When the connection is lost, nobody knows: ConnectionError."""
        self._answers = answers = []
        self._waiting[token] = answered = asyncio.get_running_loop().create_future()
        try:
            self._write(f"PING :{token}")
            async with asyncio.timeout(ANSWER_SECONDS):
                await answered
        finally:
            del self._waiting[token]
        return answers

    async def _log_in(self) -> asyncio.StreamReader:
        """Raises ConfigError for what only the config can mend."""
        settings = self._settings
        trust = await asyncio.to_thread(ssl.create_default_context) if settings.tls else None
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, self._writer = await asyncio.open_connection(settings.host, settings.port, ssl=trust)
            try:
                await self._register(reader)
            except BaseException:
                self._hang_up()
                raise
        return reader

    async def _register(self, reader: asyncio.StreamReader) -> None:
        self._nick = self._settings.nick
        if self._password:
            self._write(f"PASS {one_line(self._password)}")
        self._write(f"NICK {self._nick}", f"USER {self._settings.nick} 0 * :Palinurus")
        while (line := await self._read(reader)).command != "001":
            if line.command in NICK_TAKEN:  # perhaps by our last connection, of which the server does not know yet
                self._nick += "_"
                self._write(f"NICK {self._nick}")
            elif line.command == "PING":
                self._write(f"PONG :{line.last}")
            elif why := BAD_LOGIN.get(line.command, ""):
                raise ConfigError(f"{self._settings.host} refuses the login: {why}", hint=HINT)
            elif line.command == "ERROR" and "assword" in line.last:
                raise ConfigError(f"{self._settings.host} refuses the login: {one_line(line.last)[:200]}", hint=HINT)
        self._nick = line.params[0] if line.params else self._nick

    async def _next(self, reader: asyncio.StreamReader) -> IrcLine:
        try:
            async with asyncio.timeout(QUIET_SECONDS):
                return await self._read(reader)
        except TimeoutError:
            self._write("PING :quiet")
        async with asyncio.timeout(ANSWER_SECONDS):
            return await self._read(reader)

    async def _read(self, reader: asyncio.StreamReader) -> IrcLine:
        data = await reader.readline()
        if not data.endswith(b"\n"):
            raise ConnectionError(f"{self._settings.host} has closed the connection")
        return parse_line(data)

    async def _handle(self, line: IrcLine, inbox: ChannelInbox) -> None:
        handlers: dict[str, Callable[[], Awaitable[None]]] = {
            "PRIVMSG": lambda: self._receive(line, inbox),
            "NICK": lambda: self._renamed(line),
            "PING": lambda: self._pong(line),
            "PONG": lambda: self._answered(line.last),
        }
        if handler := handlers.get(line.command):
            await handler()
        elif self._waiting and line.command.isdigit():
            self._answers.append(line)

    async def _receive(self, line: IrcLine, inbox: ChannelInbox) -> None:
        text = shown(line.last)
        if text is None or "!" not in line.prefix or len(line.params) < 2 or fold(line.nick) == fold(self._nick):
            return
        sender = f"{fold(line.nick)}!{line.prefix.partition('!')[2]}"
        group = line.params[0][:1] in "#&+!"
        peer = Peer(
            fold(line.params[0]) if group else sender,
            "group" if group else "direct",
            mentioned=names(text, self._nick),
            sender_name=line.nick,
        )
        at = self.context.clock.now_ms()
        name = f"{at}-{next(self._numbers)}"  # IRC has no ids, and repeats nothing
        await inbox.receive(ChannelMessage(name, name, sender, peer, text, sent_at=at))

    async def _renamed(self, line: IrcLine) -> None:
        if fold(line.nick) == fold(self._nick):
            self._nick = line.last

    async def _pong(self, line: IrcLine) -> None:
        self._write(f"PONG :{line.last}")

    async def _answered(self, token: str) -> None:
        if (waiting := self._waiting.get(token)) and not waiting.done():
            waiting.set_result(None)

    def _write(self, *lines: str) -> None:
        if self._writer is None:
            raise ConnectionError("IRC is not connected")
        for line in lines:
            self._writer.write(f"{line}\r\n".encode())

    def _hang_up(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionError("the connection to IRC was lost while a message was being sent"))
