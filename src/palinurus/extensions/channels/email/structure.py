"""What an IMAP server says of a mail: its answers to FETCH as trees, and the parts of a mail from its BODYSTRUCTURE.

The server has taken the mail apart, so a hostile one costs us nothing but these lists, and those are bounded.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator, Sequence
from email.errors import HeaderParseError
from email.header import decode_header
from email.utils import collapse_rfc2231_value, decode_params, unquote
from itertools import islice
from typing import Any

from msgspec import Struct

from palinurus.dispatch.channels import ReceivedFile
from palinurus.extensions.channels.intake import file_kind
from palinurus.tools.web.fetch import decode

MAX_TEXT = 100_000  # characters of a mail that are passed on
_REPEATED = re.compile(
    r"(on|am|le|el|il|op|em|den) .{0,300}(wrote|schrieb|a écrit|escribió|ha scritto|schreef|escreveu|skrev)\s?.{0,80}:",
    re.IGNORECASE,
)
_DELIMITER = re.compile(r"-{2,}\s?(original message|ursprüngliche nachricht|message d'origine)\s?-{2,}", re.IGNORECASE)
_SIGNATURE = "-- "
_ATTRIBUTION_LINES = 3


class MailText(Struct, frozen=True):
    own: str
    quoted: str = ""


class TransferDecoder:
    """Decodes a part's transfer encoding piece by piece."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._rest = b""

    def decode(self, piece: bytes, *, is_last: bool = False) -> bytes:
        data = self._rest + piece
        self._rest = b""
        if self._encoding == "base64":
            data = data.translate(None, b"\r\n\t =")
            data, self._rest = data[: len(data) // 4 * 4], data[len(data) // 4 * 4 :]
            if is_last and len(self._rest) > 1:
                data += self._rest + b"=" * (4 - len(self._rest))
            return binascii.a2b_base64(data)
        if self._encoding == "quoted-printable":
            cut = len(data) if is_last or (found := data.rfind(b"=", -2)) < 0 else found
            data, self._rest = data[:cut], data[cut:]
            return binascii.a2b_qp(data)
        return data


def decode_part(part: MailPart, raw: bytes) -> str:
    """Never fails: what cannot be decoded is left out or becomes the replacement character."""
    try:
        return decode(TransferDecoder(part.encoding).decode(raw, is_last=True), part.charset).replace("\r\n", "\n")
    except binascii.Error:  # base64 that is none
        return decode(raw, part.charset)


def split_reply(text: str) -> MailText:
    """Cuts off the mail that is answered, where it stands below the answer, and the signature. Where nothing is left,
    or the answer stands between the lines, all of it counts."""
    lines = text[:MAX_TEXT].split("\n")
    end, start = _find_tail(lines)
    own = lines[:end]
    if _SIGNATURE in own:
        own = own[: own.index(_SIGNATURE)]
    if not "".join(own).strip():
        own, start = lines, len(lines)
    left_out = "\n[The rest of this mail is left out.]" if len(text) > MAX_TEXT else ""
    quoted = "\n".join(line[1:].removeprefix(" ") if line.startswith(">") else line for line in lines[start:])
    return MailText("\n".join(own).strip("\n").rstrip() + left_out, quoted.strip())


def _find_tail(lines: list[str]) -> tuple[int, int]:
    """Where the answer ends, and where the mail begins that is answered."""
    tail = len(lines)
    while tail and (not lines[tail - 1].strip() or lines[tail - 1].startswith(">")):
        tail -= 1
    if any(line.startswith(">") for line in lines[tail:]):
        starts = range(max(tail - _ATTRIBUTION_LINES, 0), tail)
        return next((at for at in starts if _repeats(lines[at:tail])), tail), tail
    if not any(line.startswith(">") for line in lines):  # else the answer stands below or between the lines
        for at, line in enumerate(lines):  # some programs repeat the mail without marking its lines
            if _DELIMITER.fullmatch(line.strip()[:200]) or _repeats([line]):
                return at, at + 1
    return len(lines), len(lines)


def _repeats(lines: list[str]) -> bool:
    return _REPEATED.fullmatch(" ".join(line.strip()[:300] for line in lines).strip()) is not None


MAX_DEPTH = 10  # of parts in parts
MAX_PARTS = 50
MAX_NESTING = 60  # of lists in an answer
MAX_ANSWER = 1024 * 1024  # bytes of one mail's structure
MAX_NAME = 200  # characters of a file's name
MAX_WORDS = 2_000  # characters of a header that are decoded
_TOKEN = re.compile(rb'[()]|"((?:[^"\\]|\\.)*+)"?|[\w.]+\[[^\]]*\](?:<\d+>)?|[^\s()"]+', re.DOTALL)
_LITERAL = re.compile(rb"~?\{\d+\}$")
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)


class UnreadableMail(Exception):
    """A mail that cannot be understood, and why: it is skipped."""


class MailPart(Struct, frozen=True):
    section: str  # its number in the mail, such as 1.2
    mime_type: str
    encoding: str = ""
    charset: str = ""
    name: str = ""
    size: int = 0  # as it is encoded
    is_attached: bool = False

    def as_file(self, place: str) -> ReceivedFile:
        size = self.size * 3 // 4 if self.encoding == "base64" else self.size
        return ReceivedFile(
            file_kind(self.mime_type), f"{place}:{self.section}:{self.encoding}", self.name, self.mime_type, size
        )


def read_fetches(lines: Sequence[bytes | bytearray]) -> list[dict[str, Any]]:
    """The items of each mail by their names: atoms are str, strings are bytes, NIL is None. Raises UnreadableMail."""
    if sum(len(line) for line in lines if isinstance(line, bytes)) > MAX_ANSWER:
        raise UnreadableMail("it has too many parts")
    lists = [each for each in _read_tree(lines) if isinstance(each, list)]
    return [{str(name).upper(): value for name, value in zip(each[::2], each[1::2], strict=False)} for each in lists]


def _read_tree(lines: Sequence[bytes | bytearray]) -> list[Any]:
    stack: list[list[Any]] = [[]]
    for line in lines:
        if isinstance(line, bytearray):  # a literal
            stack[-1].append(bytes(line))
            continue
        for token in _TOKEN.finditer(_LITERAL.sub(b"", line)):
            if token[0] == b"(":
                stack.append([])
                stack[-2].append(stack[-1])
            elif token[0] == b")":
                stack.pop()
            else:
                stack[-1].append(_value(token))
            if not 0 < len(stack) <= MAX_NESTING:
                raise UnreadableMail("its parts are nested too deeply")
    return stack[0]


def _value(token: re.Match[bytes]) -> str | bytes | None:
    if token[1] is not None:
        return _ESCAPED.sub(rb"\1", token[1])
    return None if token[0].upper() == b"NIL" else token[0].decode("ascii", "replace")


def list_parts(structure: Any) -> tuple[list[MailPart], list[MailPart]]:
    """The parts that make up the text, and the files. Of alternatives only one is taken, plain text if there is."""
    if not isinstance(structure, list):
        raise UnreadableMail("the server does not say what is in it")
    parts = list(islice(_walk(structure, "", 0), MAX_PARTS + 1))
    if len(parts) > MAX_PARTS:
        raise UnreadableMail(f"it has more than {MAX_PARTS} parts")
    words = [each for each in parts if each.mime_type in ("text/plain", "text/html") and not each.is_attached]
    plain = [each for each in words if each.mime_type == "text/plain"]
    return plain or words[:1], [each for each in parts if each not in words]


def _walk(node: list[Any], section: str, depth: int) -> Iterator[MailPart]:
    if not node or depth > MAX_DEPTH:
        return
    if not isinstance(node[0], list):
        yield _read_part(node, section or "1")
        return
    for number, child in enumerate(node, 1):
        if not isinstance(child, list):
            return
        yield from _walk(child, f"{section}.{number}" if section else str(number), depth + 1)


def _read_part(node: list[Any], section: str) -> MailPart:
    kind, subtype, params, _, _, encoding, size = (*node[:7], *(None,) * 7)[:7]
    shown = next((each for each in node[8:] if _is_disposition(each)), [b"", None])
    name = _parameter(shown[1], "filename") or _parameter(params, "name")
    return MailPart(
        section,
        f"{_word(kind)}/{_word(subtype)}",
        _word(encoding),
        _parameter(params, "charset"),
        name,
        int(size) if isinstance(size, str) and size.isdigit() and len(size) < 12 else 0,
        bool(name) or _word(shown[0]) == "attachment",
    )


def _is_disposition(node: Any) -> bool:
    return isinstance(node, list) and len(node) == 2 and isinstance(node[0], bytes) and isinstance(node[1], list | None)


def _word(value: Any) -> str:
    return (
        re.sub(r"[^a-z0-9.+_-]", "", value[:100].decode("ascii", "replace").lower()) if isinstance(value, bytes) else ""
    )


def _parameter(pairs: Any, name: str) -> str:
    """One parameter, also when it is in pieces or encoded (RFC 2231), or encoded as it should not be (RFC 2047)."""
    if not isinstance(pairs, list):
        return ""
    texts = [each.decode("utf-8", "replace") if isinstance(each, bytes) else "" for each in pairs]
    if sum(map(len, texts)) > MAX_WORDS:
        return ""
    named = [(key.lower(), f'"{value}"') for key, value in zip(texts[::2], texts[1::2], strict=False)]
    try:
        found = dict(decode_params([("", ""), *named])[1:]).get(name, "")
        found = (*found[:2], unquote(found[2])) if isinstance(found, tuple) else found
        return decode_words(collapse_rfc2231_value(found))[:MAX_NAME]
    except (ValueError, TypeError, LookupError):  # numbers, quotes or a charset that make no sense
        return ""


def decode_words(value: str) -> str:
    """A header for people: encoded words (RFC 2047) decoded, on one line, without control characters."""
    value = value[:MAX_WORDS]
    try:
        pieces = decode_header(value) if "=?" in value else [(value, None)]
    except (HeaderParseError, ValueError):  # base64 that is none
        pieces = [(value, None)]
    texts = (each if isinstance(each, str) else decode(each, charset or "") for each, charset in pieces)
    return " ".join("".join(letter if letter.isprintable() else " " for letter in "".join(texts)).split())
