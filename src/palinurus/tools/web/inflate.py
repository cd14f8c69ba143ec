"""Undo a response's compression, a bounded piece at a time: a few kilobytes can claim to be gigabytes."""

from __future__ import annotations

import zlib

from palinurus.domain.errors import WebError

ACCEPTED = "gzip, deflate"
_GZIP, _ZLIB, _RAW = 31, 15, -15
_MAGIC = b"\x1f\x8b"


class Inflater:
    """Takes the bytes of one response in order. Raises WebError for an encoding that nobody asked for."""

    def __init__(self, encoding: str) -> None:
        named = encoding.strip().lower()
        if named not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise WebError(f"the server sends its answer as {named[:40]!r}, which was not asked for")
        self._wbits = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": _ZLIB}.get(named, 0)
        self._stream = zlib.decompressobj(self._wbits) if self._wbits else None
        self._fed = False

    def feed(self, data: bytes, most: int) -> bytes:
        """What the data holds, but no more than `most` bytes of it. Raises WebError for what is broken."""
        if self._stream is None:
            return data[:most]
        try:
            return self._feed(data, most)
        except zlib.error as error:
            raise WebError(f"the server's compressed answer is broken: {error}") from None

    def end(self) -> None:
        """Raises WebError when more was to come."""
        if self._stream is not None and self._fed and not self._stream.eof:
            raise WebError("the server's compressed answer breaks off")

    def _feed(self, data: bytes, most: int) -> bytes:
        if not self._fed and self._wbits == _ZLIB:
            self._choose(data)
        self._fed = True
        found = self._inflate(data, most)
        # A gzip body may consist of several, one after the other.
        while self._ended and len(found) < most and (rest := self._rest).startswith(_MAGIC):
            self._stream = zlib.decompressobj(self._wbits)
            found += self._inflate(rest, most - len(found))
        return found

    def _choose(self, data: bytes) -> None:
        """Servers say deflate and mean either of two things; the first bytes tell."""
        try:
            zlib.decompressobj(_ZLIB).decompress(data[:64], 1)
        except zlib.error:
            self._wbits = _RAW
            self._stream = zlib.decompressobj(_RAW)

    def _inflate(self, data: bytes, most: int) -> bytes:
        assert self._stream is not None  # noqa: S101  only called when there is compression
        return self._stream.decompress(data, most)

    @property
    def _ended(self) -> bool:
        return self._stream is not None and self._stream.eof

    @property
    def _rest(self) -> bytes:
        return self._stream.unused_data if self._stream else b""
