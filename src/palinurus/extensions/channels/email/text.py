"""The words of a mail: decoded, and what the person has written apart from what their program repeats below."""

from __future__ import annotations

import binascii
import re

from msgspec import Struct

from palinurus.extensions.channels.email.structure import MailPart
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
