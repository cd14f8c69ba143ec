"""A mail server on loopback: IMAP4rev1 with IDLE and SMTP with AUTH, for one mailbox, with the person's side of it."""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from contextlib import suppress
from email import message_from_bytes
from email.message import EmailMessage, Message
from email.policy import SMTP as MAIL_POLICY
from email.policy import default as modern
from itertools import count
from typing import Any

from msgspec import Struct

from channels.network import Fault, Feature, SentFile, SentMessage
from palinurus.testing.loop_time import excuse

AUTHSERV = "mx.pal.example"
DATE = '"18-Nov-2026 10:00:00 +0000"'
_ITEM = re.compile(r"BODY\.PEEK\[([^\]]*)\](?:<(\d+)\.(\d+)>)?|[A-Z0-9.]+")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')


class StoredMail(Struct):
    uid: int
    raw: bytes


class FakeMail:
    channel = "email"
    features: frozenset[Feature] = frozenset({"threads", "media", "redelivery"})
    self_id = "agent@pal.example"

    def __init__(self) -> None:
        self.sent: list[SentMessage] = []
        self.typing: list[str] = []
        self.commands: list[str] = []
        self.requests = 0
        self.mails: list[StoredMail] = []
        self.validity = 7
        self.capabilities = "IMAP4rev1 IDLE"
        self.starttls: ssl.SSLContext | None = None  # what STARTTLS leads to; None: it is not known
        self.logins: list[str] = []  # whatever came with a password
        self.plain_logins: list[str] = []  # of these, what was not encrypted
        self.fetched: list[str] = []
        self.password = "open-sesame-91"
        self._refused = False
        self._faults: list[Fault] = []
        self._numbers = count(1)
        self._uids = count(1)
        self._writers: dict[StreamWriter, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._news = asyncio.Condition()

    async def start(self) -> None:
        self._imap = await asyncio.start_server(self._serve(self._speak_imap), "127.0.0.1", 0)
        self._smtp = await asyncio.start_server(self._serve(self._speak_smtp), "127.0.0.1", 0, limit=1 << 26)

    async def stop(self) -> None:
        for server in (self._imap, self._smtp):
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def config(self) -> dict[str, Any]:
        def server(listening: asyncio.Server) -> dict[str, Any]:
            return {"host": "127.0.0.1", "port": listening.sockets[0].getsockname()[1], "security": "none"}

        return {
            "address": self.self_id,
            "password": self.password,
            "imap": server(self._imap),
            "smtp": server(self._smtp),
            "authservId": AUTHSERV,
        }

    # --- what people do

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
        kind: str = "document",
    ) -> str:
        address = sender if "@" in sender else f"{sender}@people.example"
        mail = EmailMessage(policy=MAIL_POLICY)
        mail["From"] = f"{sender_name} <{address}>"
        mail["To"] = self.self_id
        mail["Message-ID"] = f"<mail-{next(self._numbers)}@people.example>"
        if thread:
            mail["References"] = f"<thread-{thread}@people.example>"
        if reply_to:
            mail["In-Reply-To"] = reply_to
        mail.set_content(text)
        for file in files:
            main, _, sub = (file.mime_type or "application/octet-stream").partition("/")
            mail.add_attachment(file.data, maintype=main, subtype=sub, filename=file.name)
        await self.deliver_mail(mail.as_bytes())
        return str(mail["Message-ID"])

    async def deliver_mail(self, raw: bytes, *, results: str | None = None) -> int:
        """A mail arrives, with the results of this server; by default they vouch for the domain of people."""
        if results is None:
            results = f"{AUTHSERV}; dmarc=pass (p=none) header.from=people.example"
        head = f"Authentication-Results: {results}\r\n".encode() if results else b""
        return await self._store(head + raw)

    async def _store(self, raw: bytes) -> int:
        self.mails.append(StoredMail(next(self._uids), raw))
        async with self._news:
            self._news.notify_all()
        return self.mails[-1].uid

    async def rewrite(self, message_id: str, text: str) -> None:
        raise AssertionError("a sent mail cannot be changed")

    async def repeat(self) -> None:
        await self._store(self.mails[-1].raw)

    async def press(self, message: SentMessage, label: str, *, sender: str = "42") -> str:
        raise AssertionError("mail has no buttons")

    async def garble(self) -> None:
        await self.deliver_mail(b"\xff\xfe\x00 junk\r\n\x80: \x81\r\n\r\n\x82\x83")

    def fail(self, *faults: Fault) -> None:
        self._faults += faults

    async def disconnect(self) -> None:
        for writer, kind in list(self._writers.items()):
            if kind == "imap":
                writer.transport.abort()

    def refuse_token(self, refused: bool = True) -> None:
        self._refused = refused

    async def renumber(self) -> None:
        """The mailbox is built anew: other UIDs, and all connections end."""
        self.validity += 1
        self._uids = count(1)
        self.mails = [StoredMail(next(self._uids), mail.raw) for mail in self.mails]
        await self.disconnect()

    # --- both servers

    def _serve(self, speak: Callable[[StreamReader, StreamWriter], Any]) -> Callable[..., Any]:
        async def serve(reader: StreamReader, writer: StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            self._writers[writer] = "imap" if speak == self._speak_imap else "smtp"
            try:
                with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
                    await speak(reader, writer)
            except asyncio.CancelledError:
                pass  # the test is over; a cancelled handler of a connection is reported as an error
            finally:
                self._tasks.discard(task)
                del self._writers[writer]
                writer.transport.abort()

        return serve

    def _note_login(self, line: str, writer: StreamWriter) -> None:
        if re.search(r"\b(LOGIN|AUTH)\b", line) and writer.get_extra_info("sslcontext") is None:
            self.plain_logins.append(line)

    def _accepts(self, user: str, password: str) -> bool:
        self.logins.append(password)
        return not self._refused and (user, password) == (self.self_id, self.password)

    # --- IMAP

    async def _speak_imap(self, reader: StreamReader, writer: StreamWriter) -> None:
        writer.write(b"* OK ready\r\n")
        seen = 0
        while line := (await reader.readline()).decode().rstrip("\r\n"):
            self.requests += 1
            self._note_login(line, writer)
            tag, _, command = line.partition(" ")
            name = command.partition(" ")[0].upper()
            if name == "IDLE" and "IDLE" in self.capabilities:
                seen = await self._idle(reader, writer, seen)
                writer.write(f"{tag} OK IDLE done\r\n".encode())
                continue
            answer = getattr(self, f"_imap_{'_'.join(command.split(' ')[: 2 if name == 'UID' else 1]).lower()}", None)
            lines, status = ([], "BAD unknown") if answer is None else answer(command)
            if name == "AUTHENTICATE" and not status.startswith("OK"):
                writer.write(b"+ eyJzdGF0dXMiOiI0MDAifQ==\r\n")  # the reason, to be answered by an empty line
                await reader.readline()
            for each in lines:
                writer.write(b"* " + each + b"\r\n")
            if name in ("SELECT", "NOOP", "UID"):
                seen = self._tell(writer, seen)
            writer.write(f"{tag} {status}\r\n".encode())
            await writer.drain()
            if name == "STARTTLS" and status.startswith("OK"):
                await writer.start_tls(self.starttls)  # type: ignore[arg-type]

    def _tell(self, writer: StreamWriter, seen: int) -> int:
        if len(self.mails) != seen:
            writer.write(f"* {len(self.mails)} EXISTS\r\n".encode())
        return len(self.mails)

    async def _idle(self, reader: StreamReader, writer: StreamWriter, seen: int) -> int:
        writer.write(b"+ idling\r\n")
        done = asyncio.ensure_future(reader.readline())
        try:
            while not done.done():
                seen = self._tell(writer, seen)
                news = asyncio.ensure_future(self._wait_for_news(seen))
                await asyncio.wait((done, news), return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
        finally:
            done.cancel()
        return seen

    async def _wait_for_news(self, seen: int) -> None:
        async with self._news:
            await self._news.wait_for(lambda: len(self.mails) != seen)

    def _imap_capability(self, _: str) -> tuple[list[bytes], str]:
        offered = " STARTTLS" if self.starttls else ""
        return [f"CAPABILITY {self.capabilities}{offered}".encode()], "OK"

    def _imap_starttls(self, _: str) -> tuple[list[bytes], str]:
        return [], "OK begin" if self.starttls else "BAD unknown command"

    def _imap_login(self, command: str) -> tuple[list[bytes], str]:
        user, password = _QUOTED.findall(command)
        return [], "OK" if self._accepts(user, password) else "NO [AUTHENTICATIONFAILED] wrong"

    def _imap_authenticate(self, command: str) -> tuple[list[bytes], str]:
        return [], "OK" if self._accepts_token(command.split(" ")[2]) else "NO [AUTHENTICATIONFAILED] wrong"

    def _accepts_token(self, said: str) -> bool:
        user, token, *_ = base64.b64decode(said).decode().split("\1")
        return self._accepts(user.removeprefix("user="), token.removeprefix("auth=Bearer "))

    def _imap_select(self, command: str) -> tuple[list[bytes], str]:
        if command != 'SELECT "INBOX"':
            return [], "NO no such folder"
        last = self.mails[-1].uid if self.mails else 0
        return [
            b"FLAGS (\\Seen)",
            f"OK [UIDVALIDITY {self.validity}] valid".encode(),
            f"OK [UIDNEXT {last + 1}] next".encode(),
        ], "OK [READ-WRITE]"

    def _imap_noop(self, _: str) -> tuple[list[bytes], str]:
        return [], "OK"

    def _imap_uid_search(self, command: str) -> tuple[list[bytes], str]:
        after = re.search(r"UID (\d+):\*", command)
        sender = re.search(r'FROM "(.*)"', command)
        found = [mail.uid for mail in self.mails if after is None or mail.uid >= int(after[1])]
        if after is not None and not found and self.mails:
            found = [self.mails[-1].uid]  # `*` is the last one, so a range is never empty
        if sender is not None:
            wanted = sender[1].lower().encode()
            found = [each.uid for each in self.mails if wanted in each.raw.partition(b"\r\n\r\n")[0].lower()]
        return [" ".join(["SEARCH", *map(str, found)]).encode()], "OK"

    def _imap_uid_fetch(self, command: str) -> tuple[list[bytes], str]:
        self.fetched.append(command)
        _, _, uids, items = command.split(" ", 3)
        wanted = {int(each) for each in uids.split(",")}
        chosen = [(number, mail) for number, mail in enumerate(self.mails, 1) if mail.uid in wanted]
        return [self._fetched(number, mail, items) for number, mail in chosen], "OK"

    def _fetched(self, number: int, mail: StoredMail, items: str) -> bytes:
        with excuse("the server takes the mail apart"):
            return self._compose_answer(number, mail.raw, mail.uid, items)

    def _compose_answer(self, number: int, raw: bytes, uid: int, items: str) -> bytes:
        parsed = message_from_bytes(raw)
        pieces = []
        for item in _ITEM.finditer(items):
            if item[1] is not None:
                data = section_of(parsed, raw, item[1])
                start = int(item[2] or 0)
                data = data[start : start + int(item[3])] if item[2] else data
                shown = f"<{start}>" if item[2] else ""
                pieces.append(f"BODY[{item[1]}]{shown} {{{len(data)}}}\r\n".encode() + data)
            else:
                known = {"UID": str(uid), "INTERNALDATE": DATE}
                value = known[item[0]].encode() if item[0] in known else structure_of(parsed)
                pieces.append(item[0].encode() + b" " + value)
        return f"{number} FETCH (".encode() + b" ".join(pieces) + b")"

    # --- SMTP

    async def _speak_smtp(self, reader: StreamReader, writer: StreamWriter) -> None:
        writer.write(b"220 pal.example ESMTP\r\n")
        while line := (await reader.readline()).decode().rstrip("\r\n"):
            self.requests += 1
            self._note_login(line, writer)
            name, fault = line.partition(" ")[0].upper(), self._faults[0] if self._faults else None
            if name == "EHLO":
                offered = "250-STARTTLS\r\n" if self.starttls else ""
                writer.write(f"250-pal.example\r\n{offered}250-8BITMIME\r\n250 AUTH PLAIN XOAUTH2\r\n".encode())
            elif name == "STARTTLS" and self.starttls:
                writer.write(b"220 go ahead\r\n")
                await writer.start_tls(self.starttls)
            elif name == "AUTH":
                writer.write(b"235 ok\r\n" if self._accepts_auth(*line.split(" ")[1:]) else b"535 5.7.8 wrong\r\n")
            elif name in ("MAIL", "RCPT"):
                refusal = _refusal(name, fault)
                if refusal:
                    del self._faults[0]
                writer.write((refusal or "250 ok").encode() + b"\r\n")
            elif name == "DATA":
                writer.write(b"354 go ahead\r\n")
                if not await self._take(reader, writer):
                    return
            else:
                writer.write(b"221 bye\r\n" if name == "QUIT" else b"502 unknown\r\n")
            await writer.drain()

    def _accepts_auth(self, kind: str, said: str) -> bool:
        if kind == "XOAUTH2":
            return self._accepts_token(said)
        _, user, password = base64.b64decode(said).decode().split("\0")
        return self._accepts(user, password)

    async def _take(self, reader: StreamReader, writer: StreamWriter) -> bool:
        fault = self._faults.pop(0) if self._faults else None
        if fault == "cut-before":
            await reader.readline()
            return False
        raw = (await reader.readuntil(b"\r\n.\r\n"))[:-3]
        with excuse("the server reads the mail"):
            self.sent.append(read_sent(re.sub(rb"(?m)^\.\.", b".", raw)))
        writer.write(
            b"??? what\r\n" if fault == "malformed" else b"250 2.0.0 queued\r\n" if fault != "cut-after" else b""
        )
        return fault != "cut-after"


def _refusal(name: str, fault: Fault | None) -> str:
    if name == "MAIL":
        return "421 4.3.2 service not available" if fault == "server-error" else ""
    return {
        "rate-limit": "451 4.7.1 Greylisting in action, please come back later",
        "long-rate-limit": "451 4.7.1 Greylisted, please try again in 120 seconds",
        "gone": "550 5.1.1 user unknown",
    }.get(fault or "", "")


def read_sent(raw: bytes) -> SentMessage:
    mail = message_from_bytes(raw, policy=modern)
    assert isinstance(mail, EmailMessage)
    body = mail.get_body(("html", "plain"))
    root = re.search(r"<thread-(.*?)@", str(mail["References"] or ""))
    files = [
        SentFile(part.get_filename() or "", part.get_payload(decode=True), part.get_content_type())
        for part in mail.iter_attachments()
    ]
    return SentMessage(
        str(mail["Message-ID"]),
        str(mail["To"]),
        body.get_content() if body else "",
        root[1] if root else "",
        str(mail["In-Reply-To"] or ""),
        files=tuple(files),
        raw=raw,
    )


def section_of(mail: Message, raw: bytes, section: str) -> bytes:
    head, _, body = raw.partition(b"\r\n\r\n")
    if section.startswith("HEADER"):
        lines = re.split(rb"\r\n(?![ \t])", head)
        wanted = re.findall(r"[A-Z-]+", section.partition("(")[2])
        chosen = [line for line in lines if not wanted or line.partition(b":")[0].decode("latin-1").upper() in wanted]
        return b"\r\n".join(chosen) + b"\r\n\r\n"
    if not section:
        return raw
    part: Message = mail
    if mail.is_multipart():
        for number in map(int, section.split(".")):
            part = part.get_payload()[number - 1]  # type: ignore[index,assignment]
        return part.as_bytes(policy=part.policy.clone(linesep="\r\n")).partition(b"\r\n\r\n")[2]
    return body


def structure_of(part: Message) -> bytes:
    """The BODYSTRUCTURE of a mail."""
    if part.is_multipart() and part.get_content_maintype() == "multipart":
        parts = b"".join(structure_of(each) for each in part.get_payload())  # type: ignore[arg-type]
        return b"(" + parts + b' "' + part.get_content_subtype().encode() + b'")'
    size = len(part.as_bytes().partition(b"\n\n")[2])
    shown = part.get("Content-Disposition", "")
    disposition = f'("{shown.partition(";")[0]}" {_pairs(part, "content-disposition")})' if shown else "NIL"
    encoding = part.get("Content-Transfer-Encoding", "7bit")
    lines = " 1" if part.get_content_maintype() == "text" else ""
    return (
        f'("{part.get_content_maintype()}" "{part.get_content_subtype()}" {_pairs(part, "content-type")} NIL NIL '
        f'"{encoding}" {size}{lines} NIL {disposition} NIL)'
    ).encode("utf-8", "surrogateescape")


def _pairs(part: Message, header: str) -> str:
    found = re.findall(r';\s*([\w*-]+)=("(?:[^"\\]|\\.)*"|[^;\s]+)', str(part.get(header, "")))
    shown = " ".join(f'"{name}" "{value.strip(chr(34))}"' for name, value in found)
    return f"({shown})" if shown else "NIL"
