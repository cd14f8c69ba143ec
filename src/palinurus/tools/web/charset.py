"""Bytes to text, by what the server says, what the text itself says, or what it looks like."""

from __future__ import annotations

import codecs
import re

_KNOWN = re.compile(
    r"utf-?8|utf-?16([lb]e)?|(windows|cp)-?(125[0-8]|874|932|949)|iso-?8859-?\d{1,2}|latin-?1|(us-)?ascii|koi8-[ru]"
    r"|gbk|gb2312|gb18030|big5(-hkscs)?|euc-(jp|kr)|iso-2022-jp|shift[_-]?jis|sjis|ibm866|macintosh|mac-?roman|tis-620",
    re.IGNORECASE,
)
"""What texts on the web are written in. Python knows more, among them some that take forever."""

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_DECLARED = re.compile(rb"<\?xml[^>]{0,80}encoding=[\"']([A-Za-z0-9_-]{1,30})[\"']")
_WIDER = {"iso8859-1": "cp1252", "ascii": "cp1252"}  # what those who say so mean


def decode(data: bytes, declared: str = "") -> str:
    """The text. What cannot be decoded becomes the replacement character; raises nothing."""
    for mark, name in _BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(name, "replace")
    if name := _codec(declared) or _codec(_own_words(data)):
        return data.decode(name, "replace")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        cut_short = error.start > len(data) - 4  # the bytes end inside a character
        return data.decode("utf-8" if cut_short else "cp1252", "replace")


def _own_words(data: bytes) -> str:
    found = _DECLARED.match(data[:200])
    return found[1].decode("ascii") if found else ""


def _codec(name: str) -> str:
    if not _KNOWN.fullmatch(name):
        return ""
    try:
        found = codecs.lookup({"macintosh": "mac-roman", "windows-874": "cp874"}.get(name.lower(), name)).name
    except LookupError:
        return ""
    return _WIDER.get(found, found)
