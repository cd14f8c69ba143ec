"""The mail that the agent sends: composed, and handed to the SMTP server with the truth about what became of it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP as MAIL_POLICY
from email.utils import format_datetime

from aiosmtplib import (
    SMTP,
    SMTPAuthenticationError,
    SMTPDataError,
    SMTPException,
    SMTPRecipientRefused,
    SMTPResponse,
    SMTPResponseException,
    SMTPSenderRefused,
    SMTPServerDisconnected,
    SMTPStatus,
)
from msgspec import Struct

from palinurus.dispatch.channels import ChatTarget, OutgoingPart
from palinurus.domain.errors import ConfigError, JobFailed, JobRefused
from palinurus.extensions.channels.email.structure import decode_words
from palinurus.extensions.channels.settings import LOGIN_HINT, EmailSettings

PORTS = {"tls": 465, "starttls": 587, "none": 25}
TIMEOUT = 60.0
ANSWER_SECONDS = 300.0  # a server may look for viruses before it answers
QUIT_SECONDS = 5.0
LOGIN_REST = 120.0
MAX_SUBJECT = 200
MAX_MAIL = 25 * 1024 * 1024  # bytes; hardly a server takes more
# Message-IDs of others are repeated as they are: folding would cut or encode them.
_POLICY = MAIL_POLICY.clone(max_line_length=900)
_MESSAGE_ID = re.compile(r"<[!-;=?-~]{1,250}>")
_OWN_ID = re.compile(r"<[0-9a-f]{32}\.([0-9a-f]{16})@[^>]*>")
_PAUSE = re.compile(r"(\d{1,6}) ?(s|m)(ec|in|\b)", re.IGNORECASE)


class MailThread(Struct, frozen=True):
    """What is needed to answer in a thread."""

    root: str = ""  # Message-IDs
    last: str = ""
    subject: str = ""

    @property
    def id(self) -> str:
        """Programs that name only the mail that they answer name ours, in which the thread is written."""
        own = _OWN_ID.fullmatch(self.root)
        return own[1] if own else hashlib.sha256(self.root.encode()).hexdigest()[:16]


def find_ids(value: str) -> list[str]:
    """The Message-IDs in a header."""
    return _MESSAGE_ID.findall(value[:20_000])


def compose(sender: str, target: ChatTarget, part: OutgoingPart, thread: MailThread, now_ms: int) -> EmailMessage:
    """No header can be injected: they hold one line each, and their ids are checked."""
    mail = EmailMessage(policy=_POLICY)
    mail["From"] = sender
    mail["To"] = target.to
    mail["Subject"] = _subject(thread, part)
    mail["Date"] = format_datetime(datetime.fromtimestamp(now_ms / 1000, UTC))
    mail["Message-ID"] = _own_id(sender, target, part, now_ms)
    mail["Auto-Submitted"] = "auto-replied"
    if answered := next(iter(find_ids(part.reply_to) or find_ids(thread.last)), ""):
        mail["In-Reply-To"] = answered
    if ids := list(dict.fromkeys(each for each in (*find_ids(thread.root), answered) if each)):
        mail["References"] = " ".join(ids)
    mail.set_content(part.plain)
    if part.text:
        mail.add_alternative(part.text, subtype="html")
    if part.file is not None:
        kind, _, subtype = part.file.mime_type.partition("/")
        known = re.fullmatch(r"[a-z]+/[\w.+-]+", part.file.mime_type) is not None and kind not in (
            "multipart",
            "message",
        )
        mail.add_attachment(
            part.file.data,
            maintype=kind if known else "application",
            subtype=subtype if known else "octet-stream",
            filename=decode_words(part.file.name) or "file",
        )
    return mail


def quote(mail: EmailMessage) -> bytes:
    """The mail as it follows DATA. A large one takes long."""
    return re.sub(rb"(?m)^\.", b"..", mail.as_bytes()) + b".\r\n"


def _subject(thread: MailThread, part: OutgoingPart) -> str:
    if not thread.subject:
        first = next((line for line in part.plain.split("\n", 20) if line.strip()), "Message")
        return ("Re: " if thread.root or part.reply_to else "") + decode_words(first)[:70]
    subject = decode_words(thread.subject)[:MAX_SUBJECT]
    return subject if subject.lower().startswith("re:") else f"Re: {subject}"


def _own_id(sender: str, target: ChatTarget, part: OutgoingPart, now_ms: int) -> str:
    """The same for every attempt, so that a server may recognise a repetition."""
    key = part.idempotency_key or f"{now_ms} {part.text}"
    digest = hashlib.sha256(f"{sender}\n{target.to}\n{key}".encode()).hexdigest()[:32]
    thread = f".{target.thread}" if re.fullmatch(r"[0-9a-f]{16}", target.thread) else ""
    return f"<{digest}{thread}@{sender.rpartition('@')[2]}>"


@asynccontextmanager
async def open_smtp(settings: EmailSettings, user: str, password: str) -> AsyncIterator[SMTP]:
    """A connection that is logged in. Raises ConfigError for what only a person can mend, else SMTPException."""
    server = settings.smtp
    client = SMTP(
        hostname=server.host,
        port=server.port or PORTS[server.security],
        use_tls=server.security == "tls",
        start_tls=server.security == "starttls",
        local_hostname=settings.address.rpartition("@")[2],  # else it asks the DNS for the machine's name
        timeout=TIMEOUT,
    )
    try:
        await _log_in(client, settings, user, password)
        yield client
    finally:
        client.close()


async def _log_in(client: SMTP, settings: EmailSettings, user: str, password: str) -> None:
    try:
        await client.connect()
        await (client.auth_xoauth2 if settings.auth == "xoauth2" else client.login)(user, password)
    except SMTPAuthenticationError as error:
        if error.code < 500:
            raise
        raise ConfigError(
            f"{client.hostname} refuses the user {user} or the password ({error.code})", hint=LOGIN_HINT
        ) from None
    except SMTPException as error:
        if "not supported" not in str(error):
            raise
        raise ConfigError(
            f"{client.hostname}: {error}", hint="set channels.email.smtp.security to how the server encrypts"
        ) from None


async def send_mail(settings: EmailSettings, user: str, password: str, to: str, raw: bytes) -> None:
    """One attempt, with what `quote` has made. Once the mail is on its way, only the server says what became of it."""
    on_its_way = False
    try:
        async with open_smtp(settings, user, password) as client:
            await client.mail(settings.address)
            await client.rcpt(to)
            await _expect(client.execute_command(b"DATA"), SMTPStatus.start_input)
            if (protocol := client.protocol) is None:
                raise SMTPServerDisconnected("the connection is lost")
            protocol.write(raw)  # not `client.data`, which makes the loop wait while it quotes a large mail
            on_its_way = True
            await _expect(protocol.read_response(timeout=ANSWER_SECONDS), SMTPStatus.completed)
            with suppress(SMTPException):
                await client.quit(timeout=QUIT_SECONDS)
    except ConfigError as error:
        raise JobFailed(error.message, hint=error.hint, retry_after=LOGIN_REST) from None
    except SMTPResponseException as error:
        if 400 <= error.code < 600:
            raise _refusal(error) from None
        if on_its_way:
            raise
        raise JobFailed("the mail server gives an answer that cannot be read") from None
    except (SMTPException, OSError) as error:
        if on_its_way:
            raise
        raise JobFailed(f"the mail was not sent: {error}") from None


async def _expect(answer: Awaitable[SMTPResponse], code: int) -> None:
    if (found := await answer).code != code:
        raise SMTPDataError(found.code, found.message)


def _refusal(error: SMTPResponseException) -> JobFailed | JobRefused:
    text = f"the mail server refuses the mail: {error.code} {error.message[:300]}"
    if error.code >= 500 and isinstance(error, SMTPSenderRefused | SMTPRecipientRefused | SMTPDataError):
        return JobRefused(text)
    pause = _PAUSE.search(error.message[:1_000])  # servers that greylist say so in words
    return JobFailed(text, retry_after=int(pause[1]) * (60.0 if pause[2].lower() == "m" else 1.0) if pause else None)
