"""The audit log: every tool call, every decision about one and every result, in a hash chain that shows tampering.

The chain covers digests only. Arguments and results are stored separately as details; each digest is salted with a salt
that is stored and erased together with them: erased details leave the chain intact and can no longer be guessed.

A row's hash covers its fields and the hash of the row before it, so a row that is changed, removed, added or moved
breaks the chain at a known row. The chain has no key: a process that may write to the file can recompute all of it, and
can cut off its end. A hash that is stored elsewhere detects both.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from palinurus.domain.events import Plan
from palinurus.domain.messages import encodable

T = TypeVar("T")
Kind = Literal["call", "decision", "result", "erase"]
"""erase: a person removed the details of earlier rows. The log writes it by itself."""


class AuditEvent(Struct, frozen=True, rename="camel"):
    """One event to record. `details` are JSON values, already without secrets."""

    kind: Kind
    at: int  # milliseconds
    run_id: str
    session_key: str
    tool: str
    call_id: str
    outcome: str  # call: started; decision: allowed, denied, ... and by which layer or person; result: ok, error
    details: dict[str, Any]


class AuditRow(Struct, frozen=True, rename="camel"):
    """A row of the chain. `details` is None if they were erased."""

    seq: int
    at: int
    kind: str
    run_id: str
    session_key: str
    tool: str
    call_id: str
    outcome: str
    digest: str  # of salt and details
    previous: str
    hash: str  # of all fields above and the previous row's hash
    details: dict[str, Any] | None = None


class AuditReport(Struct, frozen=True, rename="camel"):
    """Whether the chain is intact. `head` is the last hash: stored elsewhere, it shows whether the end was cut off."""

    ok: bool
    rows: int
    erased: int
    head: str
    trouble: str = ""  # the first broken row, and what is wrong with it
    broken: int = 0  # its seq; 0 if no single row is wrong


class PastCommand(Struct, frozen=True, rename="camel"):
    """A command of an earlier call, for testing grants against it."""

    at: int
    session_key: str
    plan: Plan
    outcome: str
    granted: tuple[str, ...] = ()  # ids of what allowed it without approval: grants, and lines of the config


NewSalt = Callable[[], str]
"""Returns 16 fresh random bytes as hex digits."""

BEGINNING = "0" * 64  # the previous hash of the first row
FORM = b"palinurus-audit-1"
MAX_DETAILS = 64 * 1024  # bytes of JSON; callers clip before, this is the hard limit
MAX_VALUE = 4 * 1024  # characters left of a value if the whole is too large
MAX_FIELD = 1000  # characters: a model may call a tool by any name
ERASED_AT_ONCE = 2000  # rows that one row of kind `erase` names: the list must fit into its details

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Link(NamedTuple):
    """A row as stored. Bytes, so that a damaged row can still be read."""

    seq: int
    at: bytes
    kind: bytes
    run_id: bytes
    session_key: bytes
    tool: bytes
    call_id: bytes
    outcome: bytes
    digest: bytes
    previous: bytes
    hash: bytes
    salt: bytes | None  # None: erased, together with the details
    details: bytes | None


def random_salt() -> str:
    return secrets.token_hex(16)


def loose(event: AuditEvent, salt: str) -> Link:
    """The event as stored, not yet part of a chain."""
    details = encode_details(event.details)
    digest = digest_of(salt.encode(), details)
    names = (event.kind, event.run_id, event.session_key, event.tool, event.call_id, event.outcome)
    kind, run_id, session_key, tool, call_id, outcome = map(_field, names)
    at, unknown = b"%d" % event.at, b""  # where it comes in the chain
    return Link(
        0, at, kind, run_id, session_key, tool, call_id, outcome, digest, unknown, unknown, salt.encode(), details
    )


def linked(link: Link, seq: int, previous: bytes) -> Link:
    """The row with number `seq`, after the row with the hash `previous`."""
    placed = link._replace(seq=seq, previous=previous)
    return placed._replace(hash=seal(placed))


def seal(link: Link) -> bytes:
    """The hash of a row. Every field is prefixed with its length, so that nothing can move from one to the next."""
    fields = (FORM, b"%d" % link.seq, *link[1:10])
    return hashlib.sha256(b"".join(b"%d:%b" % (len(field), field) for field in fields)).hexdigest().encode()


def digest_of(salt: bytes, details: bytes) -> bytes:
    """The digest of salt and details. Neither holds a line break, so they can be split in one way only."""
    return hashlib.sha256(salt + b"\n" + details).hexdigest().encode()


def encode_details(details: Mapping[str, Any]) -> bytes:
    """Details as JSON that any store can hold, with large values cut."""
    text = _json(details)
    if len(text) > MAX_DETAILS:
        size = len(text)
        text = _json({key: _shortened(value) for key, value in details.items()} | {"clipped": size})
        if len(text) > MAX_DETAILS:
            text = _json({"clipped": size, "start": _readable(text[:MAX_VALUE])})
    return text


class ChainCheck:
    """Checks the chain from its first row and stops at the first wrong one."""

    def __init__(self, expect: str = "") -> None:
        self.reached = 0  # the last valid row
        self._head = BEGINNING.encode()
        self._expect = expect.strip().lower().encode()
        self._met = self._expect in (b"", self._head)
        self._gone: set[int] = set()  # rows without details that no erasure has named so far
        self._erased = 0
        self._trouble = ""
        self._broken = 0

    def along(self, links: Iterable[Link]) -> bool:
        """Checks one row. Returns whether to continue."""
        for link in links:
            if wrong := self._wrong_with(link):
                self._broken, self._trouble = wrong
                return False
            self._pass(link)
        return True

    def end(self, stray: int | None = None) -> AuditReport:
        """Finishes the check. `stray` is the seq of details that belong to no row."""
        if not self._trouble:
            self._broken, self._trouble = self._wrong_at_the_end(stray)
        ok = not self._trouble
        return AuditReport(ok, self.reached, self._erased, self._head.decode(), self._trouble, self._broken)

    def _wrong_with(self, link: Link) -> tuple[int, str] | None:
        seq, due = link.seq, self.reached + 1
        if seq > due:
            return due, f"row {due} is missing"
        if seq < due:
            return seq, f"row {seq} does not belong here"
        if link.previous != self._head:
            return seq, f"row {seq} does not follow the row before it"
        if link.hash != seal(link):
            return seq, f"row {seq} was changed"
        if link.details is not None and digest_of(link.salt or b"", link.details) != link.digest:
            return seq, f"the details of row {seq} were changed"
        return None

    def _pass(self, link: Link) -> None:
        self.reached, self._head = link.seq, link.hash
        self._met = self._met or link.hash == self._expect
        if link.details is None:
            self._gone.add(link.seq)
        elif link.kind == b"erase":
            named = self._gone.intersection(erased_by(link.details))
            self._gone -= named
            self._erased += len(named)

    def _wrong_at_the_end(self, stray: int | None) -> tuple[int, str]:
        if self._gone:
            seq = min(self._gone)
            return seq, f"the details of row {seq} are gone, and no erasure names it"
        if stray is not None:
            return stray, f"there are details of row {stray}, and no such row"
        if not self._met:
            return 0, f"the chain does not hold {self._expect.decode()}: its end was cut off, or it was rewritten"
        return 0, ""


def row_of(link: Link) -> AuditRow:
    """A row for display. Damaged fields are shown as far as possible; ChainCheck judges them."""
    kind, run_id, session_key, tool, call_id, outcome, digest, previous, sealed = map(_readable, link[2:11])
    details = None if link.details is None else _details(link.details)
    return AuditRow(
        link.seq, int(link.at), kind, run_id, session_key, tool, call_id, outcome, digest, previous, sealed, details
    )


def past_commands(links: Iterable[Link], limit: int) -> list[PastCommand]:
    """Commands from calls and decisions, newest first, each once with its last outcome."""
    seen: set[tuple[bytes, bytes]] = set()
    found: list[PastCommand] = []
    for link in links:
        call = (link.run_id, link.call_id)
        told = None if call in seen else _decoded(link.details or b"", _PlannedCall)
        if told is None:
            continue
        seen.add(call)
        key, outcome = _readable(link.session_key), _readable(link.outcome)
        found.append(PastCommand(int(link.at), key, told.plan, outcome, told.grants))
        if len(found) == limit:
            break
    return found


def erasures(seqs: list[int], at: int) -> list[AuditEvent]:
    """The events that record which details are erased."""
    pieces = [seqs[start : start + ERASED_AT_ONCE] for start in range(0, len(seqs), ERASED_AT_ONCE)]
    return [AuditEvent("erase", at, "", "", "", "", f"{len(piece)} erased", {"seqs": piece}) for piece in pieces]


class _Erasure(Struct):
    seqs: list[int]


class _PlannedCall(Struct):
    plan: Plan
    grants: tuple[str, ...] = ()


def erased_by(details: bytes) -> list[int]:
    """The rows that a row of kind `erase` names."""
    erasure = _decoded(details, _Erasure)
    return erasure.seqs if erasure else []


def _details(text: bytes) -> dict[str, Any]:
    found = _decoded(text, dict[str, Any])
    return {"unreadable": _readable(text[:MAX_VALUE])} if found is None else found


def _decoded(details: bytes, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(details, type=kind)
    except UNREADABLE:
        return None


def _json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except UnicodeEncodeError:  # a lone surrogate cannot be encoded
        return msgspec.json.encode(encodable(value), enc_hook=str)
    except RecursionError:
        return b'{"clipped":"nested too deeply"}'


def _shortened(value: Any) -> Any:
    text = _json(value)
    return value if len(text) <= MAX_VALUE else _readable(text[:MAX_VALUE]) + "…"


def _field(text: str) -> bytes:
    return (text if len(text) <= MAX_FIELD else text[:MAX_FIELD] + "…").encode("utf-8", "replace")


def _readable(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
