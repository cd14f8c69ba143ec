"""The chain of the audit log: how a row is sealed, and how a whole log is checked.

A row's hash covers its fields and the hash of the row before it, so a row that is changed, removed, added or moved
breaks the chain at a place that can be named. The chain has no key: whoever may write to the file can compute all of
it anew, and can cut off its end. Against both helps a hash that is kept elsewhere.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from palinurus.domain.plan import Plan
from palinurus.ledger.audit import AuditEvent, AuditReport, AuditRow, PastCommand

NewSalt = Callable[[], str]
"""Gives 16 fresh random bytes as hex digits."""

BEGINNING = "0" * 64  # what the first row follows
FORM = b"palinurus-audit-1"
MAX_DETAILS = 64 * 1024  # bytes of JSON; callers clip before, this is the wall behind them
MAX_VALUE = 4 * 1024  # what is left of a value where the whole is too large
MAX_FIELD = 1000  # characters: a model may call a tool by any name
ERASED_AT_ONCE = 2000  # rows that one row of kind `erase` names: its list must fit into its details

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Link(NamedTuple):
    """A row as it lies in the store. Bytes, so that a damaged one can still be looked at."""

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
    """The event as it will be kept, not yet part of a chain."""
    details = encode_details(event.details)
    digest = digest_of(salt.encode(), details)
    return Link(
        seq=0,
        at=b"%d" % event.at,
        kind=event.kind.encode(),
        run_id=_field(event.run_id),
        session_key=_field(event.session_key),
        tool=_field(event.tool),
        call_id=_field(event.call_id),
        outcome=_field(event.outcome),
        digest=digest,
        previous=b"",
        hash=b"",
        salt=salt.encode(),
        details=details,
    )


def linked(link: Link, seq: int, previous: bytes) -> Link:
    """The link as row `seq`, behind the row with the hash `previous`."""
    placed = link._replace(seq=seq, previous=previous)
    return placed._replace(hash=seal(placed))


def seal(link: Link) -> bytes:
    """The hash of a row. Every field stands behind its length, so that nothing can move from one into the next."""
    fields = (FORM, b"%d" % link.seq, *link[1:10])
    return hashlib.sha256(b"".join(b"%d:%b" % (len(field), field) for field in fields)).hexdigest().encode()


def digest_of(salt: bytes, details: bytes) -> bytes:
    """Neither a salt nor JSON without spaces holds a line break, so they can be divided in one way only."""
    return hashlib.sha256(salt + b"\n" + details).hexdigest().encode()


def encode_details(details: Mapping[str, Any]) -> bytes:
    """Details as JSON that any store can hold, large values cut short."""
    text = _json(details)
    if len(text) > MAX_DETAILS:
        size = len(text)
        text = _json({key: _shortened(value) for key, value in details.items()} | {"clipped": size})
        if len(text) > MAX_DETAILS:
            text = _json({"clipped": size, "start": _readable(text[:MAX_VALUE])})
    return text


class Walk:
    """Goes along the chain from its first row and stops at the first one that is wrong."""

    def __init__(self, expect: str = "") -> None:
        self.reached = 0  # the last row that was good
        self._head = BEGINNING.encode()
        self._expect = expect.strip().lower().encode()
        self._met = self._expect in (b"", self._head)
        self._gone: set[int] = set()  # rows without details that no erasure has named so far
        self._erased = 0
        self._trouble = ""
        self._broken = 0

    def along(self, links: Iterable[Link]) -> bool:
        """Whether it makes sense to go on."""
        for link in links:
            if wrong := self._wrong_with(link):
                self._broken, self._trouble = wrong
                return False
            self._pass(link)
        return True

    def end(self, stray: int | None = None) -> AuditReport:
        """`stray` is the seq of details that belong to no row."""
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
            return 0, f"the chain does not hold {self._expect.decode()}: its end was cut off, or it was written anew"
        return 0, ""


def row_of(link: Link) -> AuditRow:
    """A row for people. What is damaged is shown as well as it can be; to judge it is the walk's part."""
    kind, run_id, session_key, tool, call_id, outcome, digest, previous, sealed = map(_readable, link[2:11])
    details = None if link.details is None else _details(link.details)
    return AuditRow(
        link.seq, int(link.at), kind, run_id, session_key, tool, call_id, outcome, digest, previous, sealed, details
    )


def past_commands(links: Iterable[Link], limit: int) -> list[PastCommand]:
    """Of calls and decisions, newest first: each command once, as it came out in the end."""
    seen: set[tuple[bytes, bytes]] = set()
    found: list[PastCommand] = []
    for link in links:
        call = (link.run_id, link.call_id)
        told = None if call in seen else _planned(link.details or b"")
        if told is None:
            continue
        seen.add(call)
        key, outcome = _readable(link.session_key), _readable(link.outcome)
        found.append(PastCommand(int(link.at), key, told.plan, outcome, told.grants))
        if len(found) == limit:
            break
    return found


def erasures(seqs: list[int], at: int) -> list[AuditEvent]:
    """What the chain says about rows whose details are being removed."""
    pieces = [seqs[start : start + ERASED_AT_ONCE] for start in range(0, len(seqs), ERASED_AT_ONCE)]
    return [AuditEvent("erase", at, "", "", "", "", f"{len(piece)} erased", {"seqs": piece}) for piece in pieces]


class _Erasure(Struct):
    seqs: list[int]


class _Planned(Struct):
    plan: Plan
    grants: tuple[str, ...] = ()


def erased_by(details: bytes) -> list[int]:
    """Which rows a row of kind `erase` names."""
    try:
        return msgspec.json.decode(details, type=_Erasure).seqs
    except UNREADABLE:
        return []


def _planned(details: bytes) -> _Planned | None:
    try:
        return msgspec.json.decode(details, type=_Planned)
    except UNREADABLE:
        return None


def _details(text: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except UNREADABLE:
        return {"unreadable": _readable(text[:MAX_VALUE])}


def _json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except UnicodeEncodeError:  # half of a surrogate pair: it can be written to no disk
        return msgspec.json.encode(_whole(value), enc_hook=str)
    except RecursionError:
        return b'{"clipped":"nested too deeply"}'


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return _readable(value.encode("utf-8", "replace"))
    if isinstance(value, Mapping):
        return {_whole(key): _whole(inner) for key, inner in value.items()}
    return [_whole(inner) for inner in value] if isinstance(value, list | tuple) else value


def _shortened(value: Any) -> Any:
    text = _json(value)
    return value if len(text) <= MAX_VALUE else _readable(text[:MAX_VALUE]) + "…"


def _field(text: str) -> bytes:
    return (text if len(text) <= MAX_FIELD else text[:MAX_FIELD] + "…").encode("utf-8", "replace")


def _readable(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
