"""The files of the page, as they go over the wire: read and compressed once, kept in memory, named by their content.

A browser may keep them but asks each time whether they have changed, which costs a few bytes; so a new release is seen
at once and nothing has to be named after its version. A file that changes on the disk is read again.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.responses import Response

STATIC = Path(__file__).parent / "static"
INDEX = "index.html"
NAME = re.compile(r"(?:[a-z0-9_-]+/){0,3}[a-z0-9_-]+\.([a-z0-9]+)")  # no dots but one: nothing leads out of the folder
TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "webmanifest": "application/manifest+json",
}
PACKED = ("png",)  # compressed already
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'; report-uri /page/csp-report"
)
PART = {
    "cache-control": "no-cache",  # kept, and asked about each time
    "vary": "accept-encoding",
}
# A policy counts for what is shown by itself. On forty scripts and styles it would be a seventh of the first load.
HEADERS = {"content-security-policy": POLICY, "cross-origin-opener-policy": "same-origin", **PART}
NEVER_SHOWN = ("text/javascript", "text/css")


class File(Struct, frozen=True):
    seen: tuple[int, int, int]  # of the file on the disk: inode, size, time of change
    kind: str
    body: bytes
    packed: bytes  # empty where packing gains nothing
    tag: str


class Files:
    def __init__(self, root: Path = STATIC) -> None:
        self._root = root
        self._known: dict[str, File] = {}

    def answer(self, name: str, headers: Headers) -> Response | None:
        """The file, or that the browser has it already; None when there is no such file."""
        found = self._find(name)
        if found is None:
            return None
        packs = bool(found.packed) and _takes_gzip(headers.get("accept-encoding", ""))
        tag = f'"{found.tag}{"-gz" if packs else ""}"'
        told = {**(PART if found.kind.startswith(NEVER_SHOWN) else HEADERS), "etag": tag}
        if tag in (each.strip().removeprefix("W/") for each in headers.get("if-none-match", "").split(",")):
            return Response(status_code=304, headers=told)
        if packs:
            told["content-encoding"] = "gzip"
        return Response(found.packed if packs else found.body, headers=told, media_type=found.kind)

    def _find(self, name: str) -> File | None:
        named = NAME.fullmatch(name)
        if named is None or named[1] not in TYPES:
            return None
        path = self._root / name
        try:
            stat = path.stat()
            seen = stat.st_ino, stat.st_size, stat.st_mtime_ns
            known = self._known.get(name)
            if known is None or known.seen != seen:
                known = self._known[name] = _read(path, seen, named[1])
        except OSError:
            return None
        return known


def _read(path: Path, seen: tuple[int, int, int], suffix: str) -> File:
    body = path.read_bytes()
    packed = b"" if suffix in PACKED else gzip.compress(body, 9, mtime=0)
    if len(packed) >= len(body):
        packed = b""
    return File(seen, TYPES[suffix], body, packed, hashlib.sha256(body).hexdigest()[:20])


def _takes_gzip(accepted: str) -> bool:
    for each in accepted.lower().split(","):
        name, _, rest = each.partition(";")
        if name.strip() in ("gzip", "*"):
            return rest.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
