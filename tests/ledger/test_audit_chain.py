"""The chain: whatever was kept it is whole, and whatever is changed afterwards it is not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.ledger.audit import (
    BEGINNING,
    AuditEvent,
    AuditReport,
    ChainCheck,
    Link,
    digest_of,
    encode_details,
    linked,
    loose,
    random_salt,
    seal,
)

words = st.text(max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
events = st.builds(
    AuditEvent,
    kind=st.sampled_from(["call", "decision", "result"]),
    at=st.integers(-(2**62), 2**62),
    run_id=words,
    session_key=words,
    tool=words,
    call_id=words,
    outcome=words,
    details=st.dictionaries(words, json_values, max_size=3),
)
logs = st.lists(events, min_size=1, max_size=8)


def chain(kept: list[AuditEvent]) -> list[Link]:
    links: list[Link] = []
    for number, event in enumerate(kept, 1):
        previous = links[-1].hash if links else BEGINNING.encode()
        links.append(linked(loose(event, f"{number:032x}"), number, previous))
    return links


def verify(links: list[Link], expect: str = "") -> AuditReport:
    walk = ChainCheck(expect)
    walk.along(links)
    return walk.end()


def plain(**changes: Any) -> AuditEvent:
    fields = {"kind": "call", "at": 1, "run_id": "r", "session_key": "s", "tool": "t", "call_id": "c", "outcome": "o"}
    return AuditEvent(**{**fields, "details": {}, **changes})


@given(logs)
def test_any_log_is_whole(kept: list[AuditEvent]) -> None:
    links = chain(kept)
    report = verify(links)
    assert (report.ok, report.rows, report.trouble, report.erased) == (True, len(kept), "", 0)
    assert report.head == links[-1].hash.decode()
    assert all(verify(links, link.hash.decode()).ok for link in links)


@given(logs, st.data())
def test_a_log_of_which_one_field_was_changed_is_not(kept: list[AuditEvent], data: st.DataObject) -> None:
    links = chain(kept)
    place = data.draw(st.integers(0, len(links) - 1))
    field = data.draw(st.sampled_from(Link._fields))
    value = getattr(links[place], field)
    other = data.draw(
        (st.integers(-3, 12) if field == "seq" else st.binary(max_size=70)).filter(lambda new: new != value)
    )
    links[place] = links[place]._replace(**{field: other})
    report = verify(links)
    assert not report.ok
    assert 0 < report.broken <= place + 1 or report.broken == other
    if field != "seq":
        assert report.broken == place + 1


@given(st.lists(events, min_size=2, max_size=8), st.data())
def test_a_log_without_one_of_its_rows_or_with_two_exchanged_is_not_whole(
    kept: list[AuditEvent], data: st.DataObject
) -> None:
    links = chain(kept)
    place = data.draw(st.integers(0, len(links) - 2))
    report = verify(links[:place] + links[place + 1 :])
    assert (report.ok, report.broken, report.trouble) == (False, place + 1, f"row {place + 1} is missing")
    closed_up = [link._replace(seq=number) for number, link in enumerate(links[:place] + links[place + 1 :], 1)]
    assert not verify(closed_up).ok
    exchanged = links.copy()
    first, second = links[place], links[place + 1]
    exchanged[place : place + 2] = second._replace(seq=first.seq), first._replace(seq=second.seq)
    assert verify(exchanged).broken == place + 1


@given(logs, st.data())
def test_a_log_with_a_row_more_is_not_whole(kept: list[AuditEvent], data: st.DataObject) -> None:
    links = chain(kept)
    place = data.draw(st.integers(0, len(links)))
    seq = data.draw(st.integers(place, place + 1))
    extra = linked(loose(plain(), "5a17"), seq, b"f" * 64)
    report = verify([*links[:place], extra, *links[place:]])
    assert not report.ok
    assert report.broken == seq


@given(logs)
def test_an_end_that_was_cut_off_is_told_by_a_hash_that_was_kept_elsewhere(kept: list[AuditEvent]) -> None:
    links = chain(kept)
    shorter = links[:-1]
    assert verify(shorter).ok
    assert not verify(shorter, links[-1].hash.decode()).ok


def test_details_that_are_gone_need_an_erasure_that_names_them() -> None:
    events = [plain(details={"a": 1}), plain(), plain(kind="erase", details={"seqs": [2]})]
    links = chain(events)
    links[1] = links[1]._replace(salt=None, details=None)
    assert (verify(links).ok, verify(links).erased) == (True, 1)
    links[0] = links[0]._replace(salt=None, details=None)
    report = verify(links)
    assert (report.ok, report.broken) == (False, 1)
    assert report.trouble == "the details of row 1 are gone, and no erasure names it"


def test_an_erasure_covers_rows_before_it_and_must_keep_its_list() -> None:
    links = chain([plain(), plain(kind="erase", details={"seqs": [1, 3]}), plain()])
    links[2] = links[2]._replace(salt=None, details=None)
    assert verify(links).broken == 3
    links = chain([plain(), plain(kind="erase", details={"seqs": [1]})])
    links[0] = links[0]._replace(salt=None, details=None)
    links[1] = links[1]._replace(salt=None, details=None)
    assert verify(links).broken == 1


def test_what_stands_in_one_field_cannot_move_into_the_next() -> None:
    apart = [loose(plain(tool="ab", call_id="c"), "s"), loose(plain(tool="a", call_id="bc"), "s")]
    tricky = [loose(plain(tool="a", call_id="1:b"), "s"), loose(plain(tool="a1:1:b", call_id=""), "s")]
    seals = {seal(link) for link in (*apart, *tricky)}
    assert len(seals) == 4


@given(st.dictionaries(words, json_values, max_size=3))
def test_details_and_salt_can_be_divided_in_one_way_only(details: dict[str, Any]) -> None:
    text = encode_details(details)
    assert b"\n" not in text
    assert digest_of(b"a", text) != digest_of(b"b", text)


def test_salts_are_fresh_and_long() -> None:
    assert len({random_salt() for _ in range(100)}) == 100
    assert len(bytes.fromhex(random_salt())) == 16


@pytest.mark.parametrize("seed", [b"\xf0\xbf\xbd", b"\xff", b"\xed\xa0\x80"])
def test_a_field_that_is_no_text_any_more_is_a_change_and_can_still_be_judged(seed: bytes) -> None:
    links = chain([plain(outcome="�"), plain()])
    links[0] = links[0]._replace(outcome=seed)
    assert verify(links).trouble == "row 1 was changed"
