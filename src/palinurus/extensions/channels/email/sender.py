"""Who wrote a mail. Anybody can write any From, so it counts only with proof:

- the receiving server says so in its Authentication-Results (RFC 8601), of which the topmost is its own: DMARC passed,
  or DKIM or SPF for the domain of From;
- or we check the DKIM signature ourselves (`verifyDkim`), in a process that is killed when it takes too long.

A domain vouches for itself and for its subdomains; a subdomain does not vouch for what is above it, as that may belong
to somebody else. Whatever a program has sent is refused, so that two programs never answer each other for ever.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import idna
from msgspec import Struct

from palinurus.domain.worker import WorkerFailed, run_program
from palinurus.extensions.channels.email.structure import UnreadableMail, decode_words

Headers = list[tuple[str, str]]
"""Names in lower case and unfolded values, in the order of the mail."""
FindKey = Callable[[str], bytes | None]
"""The TXT record of a name in the DNS. It may block, and raise anything."""

MAX_SIGNATURES = 3
DKIM_SECONDS = 20.0
_LOCAL = r"[a-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}"
_MAILBOX = re.compile(
    rf"(?:(?P<name>[^<>()\",;:@]*)<)?(?P<local>{_LOCAL})@(?P<domain>[^\s<>@,;:()\"]{{1,253}})>?", re.IGNORECASE
)
_ADDRESS = re.compile(rf"{_LOCAL}@[a-z0-9.-]{{1,253}}")
_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*+)"|([();=])|([^\s"();=]+)')
_TAG = re.compile(r"\s*([a-z]+)\s*=\s*([^;]*)")
_PROGRAMS = ("mailer-daemon", "postmaster")


class MailSender(Struct, frozen=True):
    address: str  # in lower case, the domain in its ASCII form: no letter that looks like another one
    name: str = ""

    @property
    def domain(self) -> str:
        return self.address.rpartition("@")[2]


def read_headers(raw: bytes) -> Headers:
    lines = re.split(r"\r?\n(?![ \t])", raw.decode("utf-8", "replace"))
    pairs = [line.partition(":") for line in lines]
    return [(name.strip().lower(), " ".join(value.split())) for name, colon, value in pairs if colon]


def values_of(headers: Headers, name: str) -> list[str]:
    return [value for each, value in headers if each == name]


def is_address(text: str) -> bool:
    return _ADDRESS.fullmatch(text) is not None


def find_sender(headers: Headers) -> MailSender:
    """The one address of From, which proves nothing yet. Raises UnreadableMail."""
    if len(found := values_of(headers, "from")) != 1 or len(found[0]) > 1_000:
        raise UnreadableMail("it does not have one From")
    # Names may hold anything, also what looks like another address: quoted ones and comments are left out first.
    quoted = [token[1] for token in _TOKEN.finditer(found[0]) if token[1] is not None]
    bare = re.sub(r'"(?:[^"\\]|\\.)*+"|\([^()]*\)', " ", found[0]).strip()
    mailbox = _MAILBOX.fullmatch(bare)
    if mailbox is None or (mailbox["name"] is None) == bare.endswith(">"):
        raise UnreadableMail("its From is not one address")
    try:
        domain = idna.encode(mailbox["domain"], uts46=True).decode("ascii").lower()
    except idna.IDNAError:
        raise UnreadableMail("its From has no valid domain") from None
    return MailSender(f"{mailbox['local'].lower()}@{domain}", decode_words(mailbox["name"] or " ".join(quoted))[:100])


def find_program(headers: Headers, sender: MailSender, own: str) -> str:
    """Why a program must have sent it: it is never answered. Empty: a person may have."""
    first = {name: value.lower() for name, value in reversed(headers)}
    if sender.address == own:
        return "it is from ourselves"
    if sender.address.partition("@")[0] in _PROGRAMS or first.get("return-path", "") == "<>":
        return "a mail server wrote it"
    if first.get("auto-submitted", "no").partition(";")[0].strip() != "no" or "x-autoreply" in first:
        return "it was sent automatically"
    if first.get("precedence", "") in ("bulk", "list", "junk", "auto_reply") or "list-id" in first:
        return "it is from a list"
    return "it is a report" if first.get("content-type", "").startswith("multipart/report") else ""


def vouches(authority: str, domain: str) -> bool:
    authority = authority.lower().rpartition("@")[2].rstrip(".")
    return "." in authority and (domain == authority or domain.endswith(f".{authority}"))


def is_vouched(headers: Headers, domain: str, server: str) -> bool:
    """Whether our receiving server has found that the mail is from the domain. Only the topmost results are its own."""
    name, *results = _topmost_results(headers)
    if not server or name[:1] != [server.lower()]:
        return False
    found = [(words[0], _properties(words)) for words in results if len(words) > 2]
    if any(method == "dmarc" and given.get("dmarc") == "fail" for method, given in found):
        return False
    return any(_proves(method, given, domain) for method, given in found)


def results_server(headers: Headers) -> str:
    """Who wrote the topmost results; empty: there are none."""
    return next(iter(_topmost_results(headers)[0]), "")


def _proves(method: str, given: dict[str, str], domain: str) -> bool:
    if given.get(method) != "pass":
        return False
    if method == "dmarc":
        return given.get("header.from", "") == domain
    if method == "dkim":
        return vouches(given.get("header.d") or given.get("header.i", ""), domain)
    return method == "spf" and vouches(given.get("smtp.mailfrom", ""), domain)


def _properties(words: Sequence[str]) -> dict[str, str]:
    """`dkim=pass header.d=a.example` by names. What is said twice is said by somebody who wants to confuse us."""
    found: dict[str, str] = {}
    for name, equals, value in zip(words, words[1:], words[2:], strict=False):
        if equals == "=":
            found[name] = "" if name in found else value
    return found


def _topmost_results(headers: Headers) -> list[list[str]]:
    """Words between semicolons in lower case, without comments. Quoted strings are one word each."""
    said = next(iter(values_of(headers, "authentication-results")), "")[:10_000]
    results: list[list[str]] = [[]]
    depth = 0
    for token in _TOKEN.finditer(said):
        quoted, mark, atom = token.groups()
        depth += {"(": 1, ")": -1}.get(mark or "", 0)
        if mark == ";" and depth == 0:
            results.append([])
        elif mark not in ("(", ")", ";") and depth == 0:
            results[-1].append(f"“{quoted}”" if quoted is not None else (mark or atom).lower())
    return results if depth == 0 else [[]]


def find_signatures(headers: Headers, domain: str) -> dict[str, str]:
    """The DNS names of the keys of DKIM signatures that could prove the domain, and what each signs for."""
    found: dict[str, str] = {}
    for value in values_of(headers, "dkim-signature")[:MAX_SIGNATURES]:
        tags = {name: "".join(text.split()) for name, text in _TAG.findall(value[:10_000])}
        authority, selector = tags.get("d", ""), tags.get("s", "")
        if vouches(authority, domain) and re.fullmatch(r"[\w.-]{1,100} [\w.-]{1,200}", f"{selector} {authority}"):
            found[f"{selector}._domainkey.{authority}"] = authority
    return found


def find_key(name: str) -> bytes | None:
    from dkim.dnsplug import get_txt

    found: bytes | None = get_txt(name.encode())
    return found


async def has_valid_signature(raw: bytes, keys: dict[str, str]) -> bool:
    """Whether one of the keys, by their DNS names, has signed the mail."""
    program = Path(__file__).parent / "dkim_program.py"
    try:
        answer = await run_program(
            ("-I", program), json.dumps(keys).encode() + b"\n" + raw, seconds=DKIM_SECONDS, env={}
        )
    except (TimeoutError, WorkerFailed):
        return False
    return answer == b"valid"
