"""ngircd from Debian, people who speak to it, and a relay between it and the adapter that can break the connection."""

from __future__ import annotations

import asyncio
import socket
from asyncio.subprocess import DEVNULL, Process
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from channels.network import Fault, Feature, SentFile, SentMessage


PASSWORD = "let-me-in-7351"
CONFIG = """[Global]
Name = irc.test.example
Info = test
Listen = 127.0.0.1
Ports = {port}
Password = {password}
ServerGID = 65534
ServerUID = 65534
MotdPhrase = hello
[Limits]
MaxConnectionsIP = 0
MaxNickLength = 30
PingTimeout = 600
[Options]
DNS = no
Ident = no
PAM = no
SyslogFacility = local1
[Channel]
Name = #700
Modes = tn
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


class IrcPerson:
    """Somebody with a client of their own."""

    def __init__(self, nick: str) -> None:
        self.nick = nick
        self.heard: list[tuple[str, str]] = []  # to whom, and what
        self.lines: list[str] = []

    async def connect(self, port: int, user: str = "") -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        await self.say(f"PASS {PASSWORD}", f"NICK {self.nick}", f"USER {user or self.nick.lower()} 0 * :x")
        self._listening = asyncio.create_task(self._listen())
        await self.until(" 001 ")

    async def say(self, *lines: str) -> None:
        self._writer.write("".join(f"{line}\r\n" for line in lines).encode())
        await self._writer.drain()

    async def raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def until(self, what: str) -> None:
        async with asyncio.timeout(60):
            while not any(what in line for line in self.lines):
                await asyncio.sleep(0.01)

    async def leave(self) -> None:
        self._writer.close()
        self._listening.cancel()
        with suppress(asyncio.CancelledError):
            await self._listening

    async def _listen(self) -> None:
        while data := await self._reader.readline():
            line = data.decode().rstrip("\r\n")
            self.lines.append(line)
            if line.startswith("PING"):
                await self.say(line.replace("PING", "PONG"))
            head, _, text = line.partition(" :")
            if " PRIVMSG " in head:
                self.heard.append((head.split()[2], text))


class IrcNetwork:
    """Implements FakeNetwork with the real server; what it has no faults for, the relay makes."""

    channel = "irc"
    features: frozenset[Feature] = frozenset({"groups"})
    self_id = "pal"

    def __init__(self) -> None:
        self.sent: list[SentMessage] = []
        self.typing: list[str] = []
        self.commands: list[str] = []
        self.requests = 0
        self.people: dict[str, IrcPerson] = {}
        self.links: list[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = []
        self._faults: list[Fault] = []
        self._refused = False
        self._gate = asyncio.Lock()
        self._folder = TemporaryDirectory()
        self._pending: tuple[str, str] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        self.server_port = free_port()
        path = Path(self._folder.name) / "ngircd.conf"
        path.write_text(CONFIG.format(port=self.server_port, password=PASSWORD))
        Path(self._folder.name).chmod(0o755)
        self.process: Process = await asyncio.create_subprocess_exec(
            "/usr/sbin/ngircd", "-n", "-f", str(path), stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL
        )
        async with asyncio.timeout(60):
            while not await self._answers():
                await asyncio.sleep(0.05)
        self._relay = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._relay.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        for person in self.people.values():
            await person.leave()
        self.people.clear()
        self._relay.close()
        await self.disconnect()
        for task in list(self._tasks):
            task.cancel()
        self.process.terminate()
        await self.process.wait()
        self._folder.cleanup()

    async def _answers(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.server_port)
        except OSError:
            return False
        writer.close()
        return True

    def config(self) -> dict[str, Any]:
        address = {"host": "127.0.0.1", "port": self.port, "tls": False}
        return {**address, "nick": "pal", "password": PASSWORD, "join": ["#700"]}

    async def person(self, sender: str = "42", name: str = "Ada") -> IrcPerson:
        if sender not in self.people:
            self.people[sender] = IrcPerson(name)
            await self.people[sender].connect(self.server_port)
        return self.people[sender]

    async def write(
        self,
        text: str,
        *,
        sender: str = "42",
        sender_name: str = "Ada",
        chat: str = "",
        thread: str = "",
        mention: bool = False,
        reply_to: str = "",
        files: tuple[SentFile, ...] = (),
        kind: Literal["image", "voice", "document"] = "document",
    ) -> str:
        person = await self.person(sender, sender_name)
        if chat:
            await person.say(f"JOIN #{chat}")
            await self.present(person, chat)
        else:
            await self.present(person, "")
        await person.say(f"PRIVMSG {f'#{chat}' if chat else 'pal'} :{'pal: ' if mention else ''}{text}")
        return ""

    async def present(self, person: IrcPerson, chat: str) -> None:
        """Waits for the agent, as a person does who sees that it is not there."""
        async with asyncio.timeout(60):
            while not await self._sees(person, *((f"NAMES #{chat}", " 366 ") if chat else ("ISON pal", " 303 "))):
                await asyncio.sleep(0.02)

    async def _sees(self, person: IrcPerson, question: str, end: str) -> bool:
        person.lines.clear()
        await person.say(question)
        await person.until(end)
        return any(" 353 " in line or " 303 " in line for line in person.lines if "pal" in line.split(":")[-1])

    async def rewrite(self, message_id: str, text: str) -> None:
        raise NotImplementedError

    async def repeat(self) -> None:
        """IRC repeats nothing."""

    async def press(self, message: SentMessage, label: str, *, sender: str = "42") -> str:
        raise NotImplementedError

    async def garble(self) -> None:
        person = await self.person()
        await self.present(person, "")
        await person.raw(b"PRIVMSG pal :\x01VERSION\x01\r\nPRIVMSG pal :\xff\xfe\x02\r\nNOTICE pal :\x03\r\n")
        for client, _ in self.links:
            client.write(b"\r\n:\r\n: PRIVMSG\r\n:x PRIVMSG pal\r\nPONG\r\n@a=b :c!d@e 999\r\n\x00\xff\r\n")

    def fail(self, *faults: Fault) -> None:
        self._faults += faults

    async def disconnect(self) -> None:
        async with self._gate:  # nobody comes back before the server has seen them go
            for pair in self.links:
                for each in pair:
                    each.close()
            self.links.clear()
            for person in self.people.values():
                while await self._sees(person, "ISON pal", " 303 "):
                    await asyncio.sleep(0.02)

    def refuse_token(self, refused: bool = True) -> None:
        self._refused = refused

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (task := asyncio.current_task()) is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        async with self._gate:
            above_reader, above = await asyncio.open_connection("127.0.0.1", self.server_port)
        self.links.append((writer, above))
        with suppress(OSError, asyncio.CancelledError):
            await asyncio.gather(self._down(above_reader, writer), self._up(reader, above))
        writer.close()
        above.close()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(4096):
            writer.write(data)
        writer.close()

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.readline():
            line = data.decode()
            if line.startswith("PASS") and self._refused:
                data = b"PASS wrong\r\n"
            if line.startswith("PRIVMSG"):
                fault = self._faults.pop(0) if self._faults else ""
                if fault == "cut-before":
                    break
                to, _, text = line[8:].rstrip("\r\n").partition(" :")
                self._pending = to, text
                if fault == "cut-after":
                    writer.write(data)
                    self._note("lost")
                    break
            if line.startswith("PING") and self._pending:
                self._note(line.partition(":")[2].strip())
            writer.write(data)
            await writer.drain()
        writer.close()
        for client, above in self.links:
            if above is writer:
                client.close()

    def _note(self, message_id: str) -> None:
        assert self._pending is not None
        self.sent.append(SentMessage(message_id, *self._pending))
        self._pending = None
