"""The channel of e-mail. A chat is a person's address, and in it each thread is a session of its own.

Mail is read in the order of its UIDs; the cursor moves when a mail has been passed on. What is refused (a sender
without proof, a program, something that cannot be read) is one line in the log and never answered. Nothing is kept here
that the mailbox does not know: a thread that is not in memory is looked up among the mails of the person.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar

from palinurus.dispatch.channels import (
    Channel,
    ChannelCapabilities,
    ChannelCheck,
    ChannelContext,
    ChannelInbox,
    ChannelMessage,
    ChatTarget,
    OutgoingPart,
    QuotedMessage,
    ReceivedFile,
    retry_request,
)
from palinurus.domain.envelope import Peer
from palinurus.domain.errors import (
    ConfigError,
    JobFailed,
    JobRefused,
    NotFound,
    WebError,
)
from palinurus.extensions.channels.email.mailbox import PIECE, Mailbox, MailboxLost, MailRefused, open_mailbox
from palinurus.extensions.channels.email.sender import (
    FindKey,
    Headers,
    MailSender,
    find_key,
    find_program,
    find_sender,
    find_signatures,
    has_valid_signature,
    is_address,
    is_vouched,
    read_headers,
    results_server,
    values_of,
)
from palinurus.extensions.channels.email.smtp import (
    MAX_MAIL,
    MailThread,
    compose,
    find_ids,
    open_smtp,
    quote,
    send_mail,
)
from palinurus.extensions.channels.email.structure import (
    MailPart,
    TransferDecoder,
    UnreadableMail,
    decode_part,
    decode_words,
    list_parts,
    split_reply,
)
from palinurus.extensions.channels.intake import NOT_TAKEN, BoundedDict
from palinurus.extensions.channels.settings import EmailSettings, MailServer, required_secret
from palinurus.text.markdown import TextLimits
from palinurus.tools.web.fetch import PageReader

log = logging.getLogger(__name__)

MAX_HEADER = 128 * 1024
MAX_SIGNED = 25 * 1024 * 1024  # bytes of a mail whose signature we check
MAX_TEXTS = 5  # parts
MAX_THREADS = 500  # in memory
LOOKED_THROUGH = 50  # mails of a person in which a thread is looked for
CONNECTIONS = 3  # beside the one that waits for mail
MAIL_TRIES = 3
_THREAD_HEADERS = "BODY.PEEK[HEADER.FIELDS (MESSAGE-ID IN-REPLY-TO REFERENCES SUBJECT)]<0.16384>"


class EmailChannel(Channel):
    capabilities: ClassVar[ChannelCapabilities] = ChannelCapabilities(
        TextLimits(100_000), dialect="html", threads=True, media=True
    )

    def __init__(self, context: ChannelContext, *, find_key: FindKey = find_key) -> None:
        super().__init__(context)
        self._settings = context.settings(EmailSettings)
        self._address = self._settings.address.lower()
        self._user = self._settings.user or self._settings.address
        self._check_settings()
        self._read_password()
        self._find_key = find_key
        self._pages = PageReader()
        self._connections = asyncio.Semaphore(CONNECTIONS)
        self._threads: BoundedDict[tuple[str, str], MailThread] = BoundedDict(MAX_THREADS)
        self._failures: Counter[int] = Counter()

    def _read_password(self) -> str:
        hint = "set channels.email.password, or EMAIL_PASSWORD in the environment"
        return required_secret(self.context, self._settings.password, "password", hint, "EMAIL_PASSWORD")

    def _check_settings(self) -> None:
        if not is_address(self._address):
            raise ConfigError("e-mail has no address", hint="set channels.email.address")
        if not self._settings.authserv_id and not self._settings.verify_dkim:
            raise ConfigError(
                "nothing would prove who wrote a mail",
                hint="set channels.email.authservId to the first word of Authentication-Results in a mail that you have"
                " received, or channels.email.verifyDkim to true if there is no such header",
            )
        for name, server in (("imap", self._settings.imap), ("smtp", self._settings.smtp)):
            if not server.host:
                raise ConfigError(f"e-mail has no {name} server", hint=f"set channels.email.{name}.host")
            if server.security == "none" and not _is_local(server):
                raise ConfigError(
                    f"the password would travel to {server.host} unencrypted",
                    hint=f"set channels.email.{name}.security to tls or starttls",
                )

    def _open(self) -> AbstractAsyncContextManager[Mailbox]:
        return open_mailbox(self._settings, self._user, self._read_password())

    async def run(self, inbox: ChannelInbox) -> None:
        async with self._open() as box:
            cursor = await self._find_cursor(box, inbox)
            inbox.connected(self._address)
            while True:
                for uid in await box.search_after(cursor):
                    await self._take(box, inbox, uid)
                    cursor = uid
                await box.wait_for_news(self._settings.poll_seconds)

    async def _find_cursor(self, box: Mailbox, inbox: ChannelInbox) -> int:
        """The UID of the last mail that was passed on; at first, of the last one that there is."""
        validity, _, uid = (await inbox.load_cursor()).partition(":")
        if validity == str(box.validity):
            return int(uid)
        if validity:
            log.warning("%s: the server has numbered its mails anew: only new mail is read", self._address)
        last = box.next_uid - 1 if box.next_uid else max(await box.search("ALL"), default=0)
        await inbox.save_cursor(f"{box.validity}:{last}")
        return last

    async def _take(self, box: Mailbox, inbox: ChannelInbox, uid: int) -> None:
        try:
            message = await self._read_mail(box, uid)
        except (MailboxLost, MailRefused) as error:
            self._failures[uid] += isinstance(error, MailRefused) or error.garbled
            if self._failures[uid] >= MAIL_TRIES:  # else one mail would end every connection
                log.warning("mail %d is skipped: %s", uid, error)
                await inbox.save_cursor(f"{box.validity}:{uid}")
            raise
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001  one mail, whatever is in it, does not stop those after it
            log.info("mail %d is refused: %s", uid, error if isinstance(error, UnreadableMail) else repr(error)[:300])
            message = None
        if message is not None:
            await self._pass_on(inbox, message)
        await inbox.save_cursor(f"{box.validity}:{uid}")

    async def _pass_on(self, inbox: ChannelInbox, message: ChannelMessage) -> None:
        pause = 0.5
        while True:
            try:
                return await inbox.receive(message)
            except NOT_TAKEN as error:
                log.warning("mail %s waits: %s", message.id, error)
            await self.context.sleep(pause)
            pause = min(2 * pause, 30.0)

    async def _read_mail(self, box: Mailbox, uid: int) -> ChannelMessage | None:
        """None: it is gone. Raises UnreadableMail for what is not passed on."""
        header = f"BODY.PEEK[HEADER]<0.{MAX_HEADER}>"
        found = await box.fetch(str(uid), f"INTERNALDATE BODYSTRUCTURE {header}")
        answer = next((each for each in found if each.get("UID") == str(uid) and "BODYSTRUCTURE" in each), None)
        if answer is None:
            return None
        raw = _header_of(answer)
        if len(raw) >= MAX_HEADER:
            raise UnreadableMail("its header is too long")
        headers = await asyncio.to_thread(read_headers, raw)
        sender = await self._admit(box, uid, headers)
        words, attached = list_parts(answer["BODYSTRUCTURE"])
        text = await self._read_text(box, uid, words)
        place = f"{box.validity}:{uid}"
        return self._translate(place, headers, sender, text, attached, _milliseconds(answer.get("INTERNALDATE")))

    async def _admit(self, box: Mailbox, uid: int, headers: Headers) -> MailSender:
        sender = find_sender(headers)
        if reason := find_program(headers, sender, self._address):
            raise UnreadableMail(reason)
        if is_vouched(headers, sender.domain, self._settings.authserv_id):
            return sender
        if self._settings.verify_dkim and await self._is_signed(box, uid, headers, sender.domain):
            return sender
        raise UnreadableMail(f"nothing proves that it is from {sender.address}")

    async def _is_signed(self, box: Mailbox, uid: int, headers: Headers, domain: str) -> bool:
        keys: dict[str, str] = {}
        for name in find_signatures(headers, domain):
            if found := await asyncio.to_thread(self._find_key, name):
                keys[name] = found.decode("ascii", "replace")
        if not keys:
            return False
        raw = bytearray()
        async for piece in box.read_pieces(uid, ""):
            raw += piece
            if len(raw) > MAX_SIGNED:
                raise UnreadableMail("it is too long for its signature to be checked")
        return await has_valid_signature(bytes(raw), keys)

    async def _read_text(self, box: Mailbox, uid: int, parts: list[MailPart]) -> str:
        texts = []
        for part in parts[:MAX_TEXTS]:
            text = await asyncio.to_thread(decode_part, part, await box.read(uid, part.section, most=PIECE))
            if part.mime_type == "text/html":
                text = await self._read_html(text)
            texts.append(text)
        return "\n\n".join(texts)

    async def _read_html(self, html: str) -> str:
        try:
            page = await self._pages.read(html.encode(), url="about:blank", charset="utf-8", most=PIECE)
        except WebError as error:
            log.info("the HTML of a mail is left out: %s", error.message)
            return "[The HTML of this mail cannot be read.]"
        return page.text

    def _translate(
        self, place: str, headers: Headers, sender: MailSender, text: str, attached: list[MailPart], sent_at: int
    ) -> ChannelMessage:
        thread = read_thread(headers, place)
        self._threads[sender.address, thread.id] = thread
        words = split_reply(text)
        answered = next(iter(find_ids(" ".join(values_of(headers, "in-reply-to")))), "")
        own = words.own if answered or words.own.startswith("/") else _with_subject(thread.subject, words.own)
        # What is quoted is what the sender's program wrote: nothing proves that it is what we said.
        quoted = QuotedMessage(answered, text=words.quoted) if answered or words.quoted else None
        peer = Peer(sender.address, thread=thread.id, sender_name=sender.name)
        files = tuple(each.as_file(place) for each in attached)
        update = f"{sender.address} {thread.last}"  # nobody else's mail can pass for a repetition of it
        return ChannelMessage(thread.last, update, sender.address, peer, own, files, quoted, sent_at=sent_at)

    async def send(self, target: ChatTarget, part: OutgoingPart) -> str:
        if not is_address(target.to):
            raise JobRefused(f"{target.to!r} is not a mail address")
        thread = await self._find_thread(target)
        mail = await asyncio.to_thread(compose, self._address, target, part, thread, self.context.clock.now_ms())
        raw = await asyncio.to_thread(quote, mail)
        if len(raw) > MAX_MAIL:
            raise JobRefused(f"the mail has {len(raw) >> 20} MB, and servers take {MAX_MAIL >> 20}")
        await retry_request(
            self.context,
            self._settings.retry.policy(),
            lambda: send_mail(self._settings, self._user, self._read_password(), target.to, raw),
        )
        return str(mail["Message-ID"])

    async def _find_thread(self, target: ChatTarget) -> MailThread:
        """A thread that is neither in memory nor in the mailbox is answered by a mail of its own."""
        if target.thread and (target.to, target.thread) not in self._threads:
            try:
                async with self._connections, self._open() as box:
                    await self._look_up(box, target.to)
            except MailRefused:  # the server cannot search
                log.info("the thread of a mail to %s cannot be looked up", target.to)
            except (OSError, ConfigError) as error:
                raise JobFailed(f"the mailbox cannot be searched for the thread: {error}") from None
        return self._threads.get((target.to, target.thread), MailThread())

    async def _look_up(self, box: Mailbox, address: str) -> None:
        uids = (await box.search("FROM", f'"{address}"'))[-LOOKED_THROUGH:]
        if not uids:
            return
        for answer in await box.fetch(",".join(map(str, uids)), _THREAD_HEADERS):
            headers = read_headers(_header_of(answer)[:MAX_HEADER])
            thread = read_thread(headers, f"{box.validity}:{answer.get('UID')}")
            self._threads[address, thread.id] = thread

    async def fetch(self, file: ReceivedFile) -> AsyncIterator[bytes]:
        validity, uid, section, encoding = file.ref.split(":")
        decoder = TransferDecoder(encoding)
        async with self._connections, self._open() as box:
            if validity != str(box.validity):
                raise NotFound("the server has numbered its mails anew: the file is not found any more")
            async for piece in box.read_pieces(int(uid), section):
                yield decoder.decode(piece)
        yield decoder.decode(b"", is_last=True)

    async def check(self) -> tuple[ChannelCheck, ...]:
        checks = []
        for name, attempt in (("imap", self._check_mailbox), ("smtp", self._check_smtp)):
            try:
                checks.append(await attempt())
            except ConfigError as error:
                checks.append(ChannelCheck(name, ok=False, about=error.message, hint=error.hint))
            except Exception as error:  # noqa: BLE001  whatever it is, it is what was to be found out
                hint = f"see whether channels.email.{name} names the host, the port and the security of the server"
                checks.append(ChannelCheck(name, ok=False, about=str(error), hint=hint))
        return tuple(checks)

    async def _check_mailbox(self) -> ChannelCheck:
        expected = self._settings.authserv_id.lower()
        async with self._connections, self._open() as box:
            last = (await box.search("ALL"))[-1:]
            found = await box.fetch(str(last[0]), f"BODY.PEEK[HEADER]<0.{MAX_HEADER}>") if last and expected else []
        server = results_server(read_headers(_header_of(found[0]))) if found else expected
        if server == expected:
            return ChannelCheck("imap", ok=True, about=f"{self._settings.folder} can be read")
        return ChannelCheck(
            "imap",
            ok=False,
            about=f"the newest mail has Authentication-Results of {server or 'nobody'}, not of {expected}",
            hint=f"set channels.email.authservId to {server}, if that is your server"
            if server
            else "if your server writes none, set channels.email.verifyDkim to true",
        )

    async def _check_smtp(self) -> ChannelCheck:
        async with open_smtp(self._settings, self._user, self._read_password()):
            return ChannelCheck("smtp", ok=True, about=f"mail can be sent as {self._address}")


def _is_local(server: MailServer) -> bool:
    try:
        return server.host == "localhost" or ipaddress.ip_address(server.host).is_loopback
    except ValueError:
        return False


def _header_of(answer: dict[str, Any]) -> bytes:
    return next((value for name, value in answer.items() if name.startswith("BODY[HEADER") and value), b"")


def _milliseconds(date: Any) -> int:
    """Of an INTERNALDATE: when the server got the mail. What the mail itself says is a claim."""
    try:
        return int(parsedate_to_datetime(date.decode("ascii").strip().replace("-", " ", 2)).timestamp() * 1000)
    except (AttributeError, ValueError, TypeError):
        return 0


def _with_subject(subject: str, text: str) -> str:
    """The mail that opens a thread often says in its subject what it is about."""
    return f"Subject: {subject}\n\n{text}".rstrip() if subject else text


def read_thread(headers: Headers, place: str) -> MailThread:
    """`place` stands for the Message-ID of a mail that has none."""
    ids = {name: find_ids(" ".join(values_of(headers, name))) for name in ("message-id", "references", "in-reply-to")}
    last = next(iter(ids["message-id"]), place)
    root = next(iter(ids["references"] or ids["in-reply-to"]), last)
    return MailThread(root, last, decode_words(" ".join(values_of(headers, "subject")[:1])))
