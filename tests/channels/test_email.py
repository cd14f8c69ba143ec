"""What only mail has: senders without proof, threads, quoted mails, hostile MIME, and what SMTP says of a sent mail."""

from __future__ import annotations

import base64
import datetime
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from email import message_from_bytes
from pathlib import Path
from typing import Any

import msgspec
import pytest

from channels.conftest import Account, until
from channels.network import SentFile
from channels.networks.email import AUTHSERV, FakeMail
from palinurus.dispatch.channels import ChannelMessage, ChatTarget, OutgoingFile, OutgoingPart
from palinurus.domain.errors import ConfigError, JobFailed, JobRefused, NotFound
from palinurus.extensions.channels.email.channel import EmailChannel
from palinurus.extensions.channels.email.sender import find_sender, is_vouched, read_headers
from palinurus.extensions.channels.email.structure import (
    MAX_TEXT,
    MailPart,
    TransferDecoder,
    UnreadableMail,
    decode_part,
    decode_words,
    list_parts,
    read_fetches,
    split_reply,
)

ADA = "ada@people.example"


@pytest.fixture
async def mail() -> AsyncIterator[FakeMail]:
    fake = FakeMail()
    await fake.start()
    try:
        yield fake
    finally:
        await fake.stop()


@pytest.fixture
async def account(mail: FakeMail) -> AsyncIterator[Account]:
    async with Account(mail).running() as running:
        yield running


def raw(body: str | bytes = "hello", *, sender: str = f"Ada <{ADA}>", **headers: str) -> bytes:
    lines = {"From": sender, "Message-ID": f"<{abs(hash(str(body)))}@people.example>"}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return head.encode() + b"\r\n" + (body.encode() if isinstance(body, str) else body)


async def received(account: Account, count: int = 1) -> list[ChannelMessage]:
    await until(lambda: len(account.inbox.messages) >= count)
    return account.inbox.messages


async def only_the_last(account: Account) -> None:
    """Of all that was delivered only a last, good mail is passed on."""
    await account.network.write("a last one")
    assert [message.text for message in await received(account)] == ["a last one"]


async def test_an_access_token_is_read_anew_for_each_connection(mail: FakeMail) -> None:
    account = Account(mail)
    tokens = {mail.password}
    context = account.make(auth="xoauth2").context
    account.channel = EmailChannel(msgspec.structs.replace(context, secret=lambda _: next(iter(tokens))))
    async with account.running():
        await mail.write("hello", sender=ADA)
        [message] = await received(account)
        mail.password = "renewed"  # it has expired
        with pytest.raises(JobFailed, match="refuses the user"):
            await account.channel.send(ChatTarget(ADA), OutgoingPart("aye", "aye"))
        imap, smtp = await account.channel.check()
        assert (imap.ok, smtp.ok) == (False, False)
        tokens.clear()
        tokens.add("renewed")
        await account.channel.send(ChatTarget(ADA, message.peer.thread), OutgoingPart("aye", "aye"))
        await mail.disconnect()
        await mail.write("again", sender=ADA)
        assert [each.text for each in await received(account, 2)] == ["hello", "again"]
    assert len(mail.sent) == 1


# --- who wrote it


async def test_a_from_without_proof_is_refused_and_not_answered(account: Account, mail: FakeMail) -> None:
    await mail.deliver_mail(raw("let me in"), results="")
    await mail.deliver_mail(raw("let me in"), results=f"{AUTHSERV}; spf=fail smtp.mailfrom={ADA}; dkim=none")
    await only_the_last(account)
    assert mail.sent == []


async def test_results_of_another_server_below_or_above_our_own_prove_nothing(account: Account, mail: FakeMail) -> None:
    forged = f"{AUTHSERV}; dmarc=pass header.from=people.example"
    await mail.deliver_mail(raw("below", Authentication_Results=forged), results=f"{AUTHSERV}; spf=none")
    await mail.deliver_mail(raw("other"), results="mx.other.example; dmarc=pass header.from=people.example")
    await only_the_last(account)


PROOFS = [
    ("a.example; dmarc=pass (p=none) header.from=people.example", True),
    ("A.example 1; DMARC=pass header.from=People.Example", True),
    ("a.example; dkim=pass (2048-bit key) header.d=people.example header.s=k", True),
    ("a.example; dkim=fail header.d=people.example; dkim=pass header.i=@people.example", True),
    ("a.example; spf=pass smtp.mailfrom=bounce@people.example", True),
    ("a.example; dmarc=pass header.from=evil.example", False),
    ("a.example; dkim=pass header.d=evil.example", False),
    ("a.example; dkim=pass header.d=sub.people.example", False),  # it may belong to somebody else
    ("a.example; dkim=pass header.d=example", False),
    ("a.example; dkim=pass header.d=xpeople.example", False),
    ("a.example; spf=pass smtp.helo=people.example", False),
    ("a.example; dmarc=fail header.from=people.example; spf=pass smtp.mailfrom=people.example", False),
    ('a.example; spf=fail smtp.mailfrom="x; dmarc=pass header.from=people.example"@evil.example', False),
    ("a.example; spf=fail (x; dmarc=pass header.from=people.example)", False),
    ("a.example; dmarc=pass header.from=evil.example header.from=people.example", False),
    ("a.example; spf=fail ) ; dmarc=pass header.from=people.example", False),
    ("b.example; dmarc=pass header.from=people.example", False),
    ("a.example.evil.example; dmarc=pass header.from=people.example", False),
    ("a.example; none", False),
    ("", False),
]


@pytest.mark.parametrize(("results", "proven"), PROOFS)
def test_only_results_for_the_domain_of_from_prove_it(results: str, proven: bool) -> None:
    assert is_vouched([("authentication-results", results)], "people.example", "a.example") is proven


@pytest.mark.parametrize(
    ("header", "address", "name"),
    [
        ("Ada@People.Example", ADA, ""),
        (f'"boss@bank.example" <{ADA}>', ADA, "boss@bank.example"),
        (f"=?utf-8?q?Ad=C3=A1?= <{ADA}>", ADA, "Adá"),
        (f"Ada (of the (bank) <{ADA}>", "", ""),
        (f"Ada (of the bank) <{ADA}>", ADA, "Ada"),
        ("ada@pеople.example", "ada@xn--pople-zwe.example", ""),  # a Cyrillic е
        ("ada@bücher.example", "ada@xn--bcher-kva.example", ""),
        (f"{ADA}, eve@evil.example", "", ""),
        (f"{ADA} <eve@evil.example>", "", ""),
        (f"<{ADA}> <eve@evil.example>", "", ""),
        (f"{ADA}>", "", ""),
        ("ada@people.example@evil.example", "", ""),
        ('"ada@people.example"@evil.example', "", ""),
        ("nobody", "", ""),
        ("", "", ""),
    ],
)
def test_a_from_is_one_address_in_ascii_or_none(header: str, address: str, name: str) -> None:
    if not address:
        with pytest.raises(UnreadableMail):
            find_sender([("from", header)])
        return
    found = find_sender([("from", header)])
    assert (found.address, found.name) == (address, name)


def test_two_headers_from_are_refused_however_they_are_written() -> None:
    headers = read_headers(b"From: ada@people.example\r\nFROM : eve@evil.example\r\n\r\n")
    with pytest.raises(UnreadableMail):
        find_sender(headers)


@pytest.mark.parametrize(
    "headers",
    [
        {"Auto-Submitted": "auto-replied"},
        {"Precedence": "bulk"},
        {"List-Id": "<news.people.example>"},
        {"Return-Path": "<>"},
        {"Content-Type": 'multipart/report; boundary="x"'},
        {"From": "MAILER-DAEMON@people.example"},
        {"From": "agent@pal.example"},
    ],
)
async def test_what_a_program_has_sent_is_never_passed_on(
    account: Account, mail: FakeMail, headers: dict[str, str]
) -> None:
    domain = headers.get("From", "@people.example").partition("@")[2]
    await mail.deliver_mail(raw("I am away", **headers), results=f"{AUTHSERV}; dmarc=pass header.from={domain}")
    await only_the_last(account)


async def test_our_own_mail_is_refused_when_it_comes_back(account: Account, mail: FakeMail) -> None:
    await account.channel.send(ChatTarget(ADA), OutgoingPart("hello", "hello", idempotency_key="k"))
    returned = mail.sent[0].raw.replace(b"From: agent@pal.example", f"From: {ADA}".encode())
    await mail.deliver_mail(returned)  # forwarded by a program
    await only_the_last(account)


class Signer:
    """Somebody with a key in the DNS."""

    def __init__(self) -> None:
        from cryptography.hazmat.primitives import serialization as form
        from cryptography.hazmat.primitives.asymmetric import rsa

        key = rsa.generate_private_key(65537, 2048)
        self._pem = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.TraditionalOpenSSL, form.NoEncryption())
        public = key.public_key().public_bytes(form.Encoding.DER, form.PublicFormat.SubjectPublicKeyInfo)
        self.record = b"v=DKIM1; k=rsa; p=" + base64.b64encode(public)

    def sign(self, mail: bytes, domain: bytes = b"people.example", **more: Any) -> bytes:
        import dkim

        signed: bytes = dkim.sign(mail, b"k1", domain, self._pem, include_headers=[b"from", b"message-id"], **more)
        return signed + mail


async def test_a_dkim_signature_is_checked_where_the_server_writes_no_results(mail: FakeMail) -> None:
    ada, eve = Signer(), Signer()
    keys = {"k1._domainkey.people.example": ada.record, "k1._domainkey.evil.example": eve.record}
    account = Account(mail)
    account.channel = account.make(authservId="", verifyDkim=True)
    assert isinstance(account.channel, EmailChannel)
    account.channel._find_key = keys.get
    async with account.running():
        await mail.deliver_mail(ada.sign(raw("changed")).replace(b"changed", b"chanted"), results="")
        await mail.deliver_mail(eve.sign(raw("of another")), results="")
        await mail.deliver_mail(eve.sign(raw("of another domain"), b"evil.example"), results="")
        await mail.deliver_mail(ada.sign(raw("part\r\n"), length=True) + b"and more", results="")
        await mail.deliver_mail(raw("unsigned"), results="")
        await mail.deliver_mail(ada.sign(raw("signed")), results="")
        assert [message.text for message in await received(account)] == ["signed"]


# --- what is read


async def test_only_mail_that_arrives_from_now_on_is_read(mail: FakeMail) -> None:
    await mail.write("old")
    async with Account(mail).running() as account:
        await only_the_last(account)


async def test_a_renumbered_mailbox_is_read_from_what_is_new(
    mail: FakeMail, account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    await mail.write("one")
    await received(account)
    await mail.renumber()
    await until(lambda: account.inbox.cursor.startswith("8:"))
    assert "anew" in caplog.text
    await mail.write("two")
    assert [message.text for message in await received(account, 2)] == ["one", "two"]


async def test_mail_that_came_while_we_were_away_is_read_afterwards(mail: FakeMail) -> None:
    account = Account(mail)
    async with account.running():
        await mail.write("one")
        await received(account)
    account.inbox.ready.clear()
    await mail.write("two")
    async with account.running():
        assert [message.text for message in await received(account, 2)] == ["one", "two"]


async def test_a_server_without_idle_is_polled(mail: FakeMail) -> None:
    mail.capabilities = "IMAP4rev1"
    account = Account(mail)
    account.channel = account.make(pollSeconds=1)
    async with account.running():
        await only_the_last(account)


async def test_a_cut_idle_loses_no_mail(mail: FakeMail, account: Account) -> None:
    for number in range(5):
        await mail.disconnect()
        await mail.write(f"mail {number}")
        await received(account, number + 1)
    assert [message.text for message in account.inbox.messages] == [f"mail {number}" for number in range(5)]
    assert len({message.update for message in account.inbox.messages}) == 5


async def test_the_subject_of_a_mail_that_opens_a_thread_is_told(mail: FakeMail, account: Account) -> None:
    await mail.deliver_mail(raw("Please pay it.", Subject="=?utf-8?q?Invoice=0D=0A_33?="))
    await mail.deliver_mail(raw("Done?", Subject="Re: Invoice", In_Reply_To="<x@people.example>"))
    await mail.deliver_mail(raw("", Subject="Only a subject"))
    await mail.deliver_mail(raw("/status", Subject="hi"))
    texts = [message.text for message in await received(account, 4)]
    assert texts == ["Subject: Invoice 33\n\nPlease pay it.", "Done?", "Subject: Only a subject", "/status"]


async def test_html_is_read_as_text_and_alternatives_once(mail: FakeMail, account: Account) -> None:
    html = "<p>Hello <b>you</b></p><script>evil()</script><p style='display:none'>hidden</p>"
    await mail.deliver_mail(raw(html, Content_Type="text/html; charset=utf-8"))
    parts = f"--b\r\nContent-Type: text/plain\r\n\r\nplain\r\n--b\r\nContent-Type: text/html\r\n\r\n{html}\r\n--b--\r\n"
    await mail.deliver_mail(raw(parts, Content_Type='multipart/alternative; boundary="b"'))
    first, second = await received(account, 2)
    assert "Hello" in first.text
    assert "evil" not in first.text
    assert "hidden" not in first.text
    assert (second.text, second.files) == ("plain", ())


async def test_the_answered_mail_is_quoted_and_not_part_of_the_text(mail: FakeMail, account: Account) -> None:
    body = (
        "Yes.\r\n\r\n-- \r\nAda\r\n\r\nOn Tue, 17 Nov 2026, Pal\r\n<agent@pal.example> wrote:\r\n> Shall I?\r\n> Now?"
    )
    await mail.deliver_mail(raw(body, In_Reply_To="<q@pal.example>"))
    [message] = await received(account)
    assert message.text == "Yes."
    assert message.quoted is not None
    assert (message.quoted.id, message.quoted.text) == ("<q@pal.example>", "Shall I?\nNow?")
    assert not message.quoted.is_own  # anybody can write that we have said something


@pytest.mark.parametrize(
    ("text", "own", "quoted"),
    [
        ("Hello\n\nthere", "Hello\n\nthere", ""),
        ("Ja\n\nAm 17.11.2026 um 10:00 schrieb Pal <a@b>:\n> Soll ich?", "Ja", "Soll ich?"),
        ("Yes\n\nOn Tuesday Pal wrote:\nShall I?\nNow?", "Yes", "Shall I?\nNow?"),
        ("Yes\n-----Original Message-----\nFrom: Pal\nold", "Yes", "From: Pal\nold"),
        ("> Shall I?\n\nYes, do.", "> Shall I?\n\nYes, do.", ""),
        ("On Tue Pal wrote:\n> one\nyes\n> two\nno", "On Tue Pal wrote:\n> one\nyes\n> two\nno", ""),
        ("> nothing but this", "> nothing but this", ""),
        ("Sum:\n> 5", "Sum:", "5"),
    ],
)
def test_a_quoted_tail_is_told_from_the_answer(text: str, own: str, quoted: str) -> None:
    found = split_reply(text)
    assert (found.own, found.quoted) == (own, quoted)


def test_a_very_long_text_is_cut_and_says_so() -> None:
    found = split_reply("\n" * 10 + "On it wrote\n" * 200_000)
    assert len(found.own) < MAX_TEXT + 100
    assert found.own.endswith("[The rest of this mail is left out.]")


async def test_names_of_files_are_decoded_in_all_their_forms(mail: FakeMail, account: Account) -> None:
    names = {
        'attachment; filename="plain.txt"': "plain.txt",
        "attachment; filename*=utf-8''R%C3%A9sum%C3%A9.pdf": "Résumé.pdf",
        "attachment; filename*0=long; filename*1=er.txt": "longer.txt",
        'attachment; filename="=?utf-8?b?w6kudHh0?="': "é.txt",
        "attachment; filename*0*=nonsense''%; filename*x=y": "%",
    }
    parts = [f"--b\r\nContent-Type: text/x-a\r\nContent-Disposition: {each}\r\n\r\nx\r\n" for each in names]
    await mail.deliver_mail(raw("".join(parts) + "--b--\r\n", Content_Type='multipart/mixed; boundary="b"'))
    [message] = await received(account)
    assert [file.name for file in message.files] == list(names.values())


async def test_a_file_of_text_is_not_part_of_the_text(mail: FakeMail, account: Account) -> None:
    await mail.write("hello", files=(SentFile("notes.txt", b"some notes", "text/plain"),))
    [message] = await received(account)
    assert (message.text, [file.name for file in message.files]) == ("hello", ["notes.txt"])


@pytest.mark.parametrize("encoding", ["base64", "quoted-printable"])
@pytest.mark.parametrize("size", [1, 3, 5, 76, 1000])
def test_an_attachment_is_decoded_whole_however_it_is_cut(encoding: str, size: int) -> None:
    import quopri

    data = bytes(range(256)) * 12
    encoded = base64.encodebytes(data) if encoding == "base64" else quopri.encodestring(data)
    encoded = encoded.replace(b"\n", b"\r\n")
    decoder = TransferDecoder(encoding)
    decoded = b"".join(decoder.decode(encoded[at : at + size]) for at in range(0, len(encoded), size))
    decoded += decoder.decode(b"", is_last=True)
    assert decoded.replace(b"\r\n", b"\n") == data.replace(b"\r\n", b"\n")


async def test_a_large_attachment_is_fetched_in_pieces(mail: FakeMail, account: Account) -> None:
    data = bytes(range(256)) * 4096
    await mail.write("look", files=(SentFile("big.bin", data),))
    [message] = await received(account)
    assert not [each for each in mail.fetched if "[2]" in each]  # not before somebody wants it
    assert b"".join([piece async for piece in account.channel.fetch(message.files[0])]) == data
    assert len([each for each in mail.fetched if "[2]" in each]) > 4
    mail.validity += 1
    with pytest.raises(NotFound):
        async with aclosing(account.channel.fetch(message.files[0])) as pieces:  # type: ignore[type-var]
            await anext(pieces)


# --- hostile mail


def nested(depth: int) -> bytes:
    body = b"x"
    for _ in range(depth):
        body = b'Content-Type: multipart/mixed; boundary="b"\r\n\r\n--b\r\n' + body + b"\r\n--b--"
    return raw(body, Content_Type='multipart/mixed; boundary="a"').replace(b"\r\n\r\n", b"\r\n\r\n--a\r\n", 1)


HOSTILE = {
    "8-bit junk": bytes(range(256)) * 100,
    "no headers": b"",
    "header bomb": raw("x", **{f"X-{number}": "y" * 900 for number in range(300)}),
    "header of one line": raw("x", Subject="=?utf-8?q?" * 30_000),
    "100,000 parts": raw("--b\r\n\r\nx\r\n" * 100_000 + "--b--", Content_Type='multipart/mixed; boundary="b"'),
    "nested parts": nested(40),
    "unknown charset and encoding": raw(b"\xff\xfe", Content_Type="text/plain; charset=punycode"),
    "no such base64": raw("!!!=", Content_Transfer_Encoding="base64"),
    "a boundary that never comes": raw("text", Content_Type='multipart/mixed; boundary="b"'),
    "a message in a message": raw("From: x\r\n\r\ny", Content_Type="message/rfc822"),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_mail_stops_nothing(account: Account, mail: FakeMail, name: str) -> None:
    await mail.deliver_mail(HOSTILE[name])
    await mail.write("still there?")
    await until(lambda: any("still there?" in message.text for message in account.inbox.messages))


async def test_mail_that_the_server_fails_to_give_is_tried_again(
    account: Account, mail: FakeMail, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, refusals = mail._imap_uid_fetch, ["NO [SERVERBUG] try later", "NO [UNAVAILABLE] try later"]
    monkeypatch.setattr(mail, "_imap_uid_fetch", lambda command: ([], refusals.pop()) if refusals else answer(command))
    await only_the_last(account)


async def test_html_that_cannot_be_read_costs_only_itself(
    account: Account, mail: FakeMail, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(account.channel, EmailChannel)
    monkeypatch.setattr(account.channel._pages, "_seconds", 0.0)
    parts = "--b\r\nContent-Type: text/html\r\n\r\n<p>x\r\n--b\r\nContent-Type: a/b\r\n\r\nfile\r\n--b--\r\n"
    await mail.deliver_mail(raw(parts, Content_Type='multipart/mixed; boundary="b"'))
    [message] = await received(account)
    assert message.text == "[The HTML of this mail cannot be read.]"
    assert [file.mime_type for file in message.files] == ["a/b"]


async def test_an_answer_that_cannot_be_parsed_ends_the_connection_and_at_last_the_mail_is_skipped(
    account: Account, mail: FakeMail, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, bad = mail._fetched, len(mail.mails) + 1

    def garbled(number: int, *rest: Any) -> bytes:
        return b"\r\n".join([b"A1 OK"] * 3) if number == bad else answer(number, *rest)

    monkeypatch.setattr(mail, "_fetched", garbled)
    await mail.write("garbled")
    await only_the_last(account)
    assert sum("makes no sense" in trouble for trouble in account.inbox.troubles) == 3


def test_what_is_nested_too_deeply_or_too_long_is_refused() -> None:
    with pytest.raises(UnreadableMail):
        read_fetches([b"1 FETCH " + b"(" * 5_000 + b")" * 5_000])
    with pytest.raises(UnreadableMail):
        read_fetches([b'1 FETCH (BODYSTRUCTURE ("' + b"x" * 2_000_000])
    with pytest.raises(UnreadableMail):
        list_parts(None)


def test_unbalanced_quotes_and_literals_are_read() -> None:
    lines = [b'1 FETCH (UID 5 X ("a)\\"(" NIL {3}', bytearray(b'")('), b') Y "never ends \\"\\" ']
    assert read_fetches(lines)[0] == {"UID": "5", "X": [b'a)"(', None, b'")('], "Y": b'never ends "" '}


@pytest.mark.parametrize(
    ("make", "amount"),
    [
        (lambda n: split_reply("On " * n + "wrote:\n" + "> " * n), 400_000),
        (lambda n: split_reply("\n> " * n), 400_000),
        (lambda n: decode_words("=?a?q?x" * n), 100_000),
        (lambda n: decode_part(MailPart("1", "text/plain", charset="punycode"), b"a-b" * n), 100_000),
        (lambda n: read_headers(b"a:\r\n " * n), 100_000),
        (lambda n: read_fetches([b"1 FETCH (" + b'"\\"' * n]), 100_000),
        (lambda n: is_vouched([("authentication-results", "(" * n)], "a.example", "b"), 1_000_000),
    ],
)
def test_hostile_text_takes_time_in_proportion(make: Callable[[int], object], amount: int, cpu_limit: Any) -> None:
    with cpu_limit(5):
        make(amount)


# --- threads and what is sent


async def test_each_thread_is_answered_in_the_thread(mail: FakeMail, account: Account) -> None:
    opening = raw("one", Subject="Sails", Message_ID="<a@people.example>")
    await mail.deliver_mail(opening)
    await mail.deliver_mail(raw("two", Subject="Masts", Message_ID="<b@people.example>"))
    answer = {"In_Reply_To": "<x@pal.example>", "References": "<a@people.example> <x@pal.example>"}
    await mail.deliver_mail(raw("three", Subject="Re: Sails", Message_ID="<c@people.example>", **answer))
    first, second, third = await received(account, 3)
    assert first.peer.id == second.peer.id == third.peer.id == ADA
    assert first.peer.thread == third.peer.thread != second.peer.thread
    await account.channel.send(ChatTarget(ADA, first.peer.thread), OutgoingPart("so", "so", "k"))
    sent = message_from_bytes(mail.sent[-1].raw)
    assert sent["Subject"] == "Re: Sails"
    assert sent["In-Reply-To"] == "<c@people.example>"
    assert sent["References"] == "<a@people.example> <c@people.example>"
    assert sent["Auto-Submitted"] == "auto-replied"
    assert (sent["From"], sent["To"]) == ("agent@pal.example", ADA)


async def test_a_thread_is_answered_by_a_process_that_has_not_received_it(mail: FakeMail, account: Account) -> None:
    await mail.deliver_mail(raw("one", Subject="Sails", Message_ID="<a@people.example>"))
    await mail.deliver_mail(raw("two", Subject="Masts", Message_ID="<b@people.example>"))
    first, _ = await received(account, 2)
    await Account(mail).channel.send(ChatTarget(ADA, first.peer.thread), OutgoingPart("so", "so", "k"))
    assert message_from_bytes(mail.sent[-1].raw)["References"] == "<a@people.example>"
    assert message_from_bytes(mail.sent[-1].raw)["Subject"] == "Re: Sails"


async def test_a_program_that_names_only_our_answer_goes_on_in_its_thread(mail: FakeMail, account: Account) -> None:
    await mail.deliver_mail(raw("one", Message_ID="<a@people.example>"))
    [first] = await received(account)
    sent = await account.channel.send(ChatTarget(ADA, first.peer.thread), OutgoingPart("so", "so", "k"))
    await mail.deliver_mail(raw("two", Message_ID="<b@people.example>", In_Reply_To=sent))
    _, second = await received(account, 2)
    assert second.peer == first.peer


async def test_no_header_can_be_injected(mail: FakeMail, account: Account) -> None:
    evil = "=?utf-8?q?Hi=0D=0ABcc=3A_eve=40evil=2Eexample=0D=0A=0D=0Abody?="
    await mail.deliver_mail(raw("one", Subject=evil, Message_ID="<a@people.example>"))
    [message] = await received(account)
    file = OutgoingFile('x"\r\nBcc: eve@evil.example\r\n.txt', "text/plain\r\nX: y", b"data")
    reply_to = "<a@people.example>\r\nBcc: eve@evil.example"
    target = ChatTarget(ADA, message.peer.thread)
    await account.channel.send(target, OutgoingPart("so", "so", "k\r\nX: y", reply_to=reply_to, file=file))
    sent = message_from_bytes(mail.sent[-1].raw)
    assert not [part for part in sent.walk() if part["Bcc"] or part["X"]]
    assert sent["In-Reply-To"] == "<a@people.example>"
    with pytest.raises(JobRefused):
        await account.channel.send(ChatTarget(f"{ADA}>\r\nRCPT TO:<eve@evil.example"), OutgoingPart("so", "so", "k"))


async def test_a_retried_message_has_the_same_id_and_another_one_has_not(mail: FakeMail, account: Account) -> None:
    ids = [
        await account.channel.send(ChatTarget(to), OutgoingPart("so", "so", idempotency_key=key))
        for to, key in ((ADA, "k"), (ADA, "k"), (ADA, "l"), ("eve@evil.example", "k"))
    ]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


async def test_text_arrives_as_html_and_plain_with_lines_that_begin_with_dots(mail: FakeMail, account: Account) -> None:
    await account.channel.send(ChatTarget(ADA), OutgoingPart("<p>.é</p>\n..", ".\n..\n.é", "k"))
    sent = message_from_bytes(mail.sent[-1].raw)
    assert sent.get_content_type() == "multipart/alternative"
    texts = [part.get_payload(decode=True) for part in sent.get_payload()]  # type: ignore[union-attr]
    assert [text.decode().split() for text in texts] == [[".", "..", ".é"], ["<p>.é</p>", ".."]]  # type: ignore[union-attr]


async def test_a_server_that_greylists_is_waited_for_as_long_as_it_says(mail: FakeMail, account: Account) -> None:
    mail.fail("long-rate-limit")
    with pytest.raises(JobFailed) as caught:
        await account.channel.send(ChatTarget(ADA), OutgoingPart("so", "so", "k"))
    assert caught.value.retry_after == 120
    assert mail.sent == []


async def test_a_letter_that_no_server_takes_is_refused_and_a_large_one_holds_up_nothing(
    mail: FakeMail, account: Account
) -> None:
    large = OutgoingFile("a.bin", "application/octet-stream", bytes(14 << 20))
    await account.channel.send(ChatTarget(ADA), OutgoingPart("so", "so", "k", file=large))
    assert [len(file.data) for file in mail.sent[-1].files] == [14 << 20]
    too_large = OutgoingFile("a.bin", "application/octet-stream", bytes(26 << 20))
    with pytest.raises(JobRefused):
        await account.channel.send(ChatTarget(ADA), OutgoingPart("so", "so", "k", file=too_large))


# --- config and encryption


@pytest.mark.parametrize(
    "changed",
    [
        {"address": ""},
        {"password": None},
        {"authservId": ""},
        {"imap": {"host": "imap.example", "security": "none"}},
        {"smtp": {"host": "smtp.example", "security": "none"}},
        {"smtp": {"host": "127.0.0.1.evil.example", "security": "none"}},
    ],
)
async def test_a_config_that_cannot_be_safe_is_refused(mail: FakeMail, changed: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        Account(mail).make(**changed)
    assert caught.value.hint


def secured(account: Account, security: str) -> None:
    servers = {name: {**account.config[name], "host": "localhost", "security": security} for name in ("imap", "smtp")}
    account.channel = account.make(**servers)


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    built = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
    built = built.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    built = built.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    signed = built.sign(key, hashes.SHA256()).public_bytes(form.Encoding.PEM)
    secret = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    (tmp_path / "server.pem").write_bytes(secret + signed)
    (tmp_path / "ca.pem").write_bytes(signed)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "server.pem")
    return context


async def test_starttls_encrypts_before_the_password_is_said(mail: FakeMail, certificate: ssl.SSLContext) -> None:
    mail.starttls = certificate
    account = Account(mail)
    secured(account, "starttls")
    async with account.running():
        await mail.write("hello")
        [message] = await received(account)
        await account.channel.send(ChatTarget(message.peer.id, message.peer.thread), OutgoingPart("so", "so", "k"))
    assert len(mail.sent) == 1
    assert mail.plain_logins == []


async def test_without_starttls_no_password_is_said(mail: FakeMail) -> None:
    account = Account(mail)
    secured(account, "starttls")
    with pytest.raises(ConfigError, match="encrypt"):
        await account.channel.run(account.inbox)
    with pytest.raises(JobFailed):
        await account.channel.send(ChatTarget(ADA), OutgoingPart("so", "so", "k"))
    assert mail.logins == []
    assert [check.ok for check in await account.channel.check()] == [False, False]


async def test_an_unknown_certificate_is_refused(mail: FakeMail, certificate: ssl.SSLContext, monkeypatch: Any) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    mail.starttls = certificate
    account = Account(mail)
    secured(account, "starttls")
    with pytest.raises(ssl.SSLCertVerificationError):
        await account.channel.run(account.inbox)
    with pytest.raises(JobFailed):
        await account.channel.send(ChatTarget(ADA), OutgoingPart("so", "so", "k"))
    assert mail.logins == []


async def test_a_check_finds_a_wrong_name_of_the_receiving_server(mail: FakeMail) -> None:
    await mail.write("hello")
    account = Account(mail)
    account.channel = account.make(authservId="mx.wrong.example")
    imap, smtp = await account.channel.check()
    assert (imap.ok, smtp.ok) == (False, True)
    assert AUTHSERV in imap.hint


def test_the_table_of_networks_loads_no_library() -> None:
    program = "import sys; import palinurus.extensions.channels.networks; sys.exit('aioimaplib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
