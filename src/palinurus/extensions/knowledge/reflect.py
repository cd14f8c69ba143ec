"""Reflection: makes the pages of the bank from the facts, and proposes lines for MEMORY.md.

The order makes a kill harmless at each step: first it is recorded which pages will be written, then each page is
replaced as a whole, then it is recorded what stands on them, and last git is told. As long as pages are being written,
a missing line is not taken for one that the owner has deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, timedelta
from functools import partial

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palinurus.domain.clock import local_time
from palinurus.domain.errors import BadRequest, NotFound, PalinurusError
from palinurus.domain.messages import Origin
from palinurus.extensions.knowledge.bank import (
    BankPage,
    MergedBankPage,
    bank_pages,
    generated_lines,
    is_too_much,
    merge_page,
    statement_of,
)
from palinurus.extensions.knowledge.beliefs import BeliefChange, beliefs_of, changes_between
from palinurus.extensions.knowledge.facts import ALIASES, BANK, FactTrouble, line_digest
from palinurus.extensions.knowledge.knowledge import AgentKnowledge, Knowledge
from palinurus.extensions.knowledge.plain_notes import (
    NoteReading,
    has_model,
    model_question,
    plain_lines,
    read_plain_notes,
    with_bullets,
)
from palinurus.extensions.knowledge.settings import NO_MODEL, ReflectionSettings
from palinurus.extensions.knowledge.store import StoredFact
from palinurus.extensions.knowledge.topics import topics_of
from palinurus.memory.terms import date_in_path
from palinurus.operations.services import Services
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.history import WorkspaceHistory
from palinurus.workspace.write import keep_backup, loses, rewrite

RECORD = ".pal/bank.json"
MOST_OF_RECORD = 64 * 1024 * 1024  # bytes: it has every line of every page
AUTHOR = "pal memory reflect"
SURE = 0.8  # confidence of an opinion that is proposed for MEMORY.md
ASKED_OFTEN = 3  # different questions that have found a fact, which is then proposed
INDEPENDENT = 2  # sources of a fact that is proposed
MOST_PROPOSED = 20
log = logging.getLogger(__name__)


class BankProposal(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A line for MEMORY.md that waits for the owner."""

    id: str
    text: str
    why: str
    sources: tuple[str, ...] = ()


class BankRecord(Struct, rename="camel", omit_defaults=True):
    """What the last reflection has written. Without it nothing is lost: lines prove themselves by their digests."""

    pages: dict[str, dict[str, str]] = {}  # path -> digest -> line
    writing: list[str] = []  # pages that may be half old and half new
    refused: dict[str, str] = {}  # statements that the owner has deleted, and when that was seen
    proposals: list[BankProposal] = []
    settled: dict[str, str] = {}  # id of a proposal -> what became of it
    read: dict[str, list[str]] = {}  # digests of plain lines of notes from which facts were taken, by path


class PageReport(Struct, frozen=True, rename="camel"):
    path: str
    added: int = 0
    removed: int = 0
    edited: tuple[str, ...] = ()  # by the owner, since the last time
    deleted: tuple[str, ...] = ()
    left_alone: str = ""  # why it was not written


class Reflection(Struct, frozen=True, rename="camel"):
    since: str
    facts: int
    new_facts: int
    pages: tuple[PageReport, ...] = ()  # that have changed, or should have
    beliefs: tuple[BeliefChange, ...] = ()
    proposals: tuple[BankProposal, ...] = ()  # all that wait
    troubles: tuple[FactTrouble, ...] = ()
    commit: str = ""
    no_commit: str = ""  # why there is none
    model_calls: int = 0
    noted: tuple[str, ...] = ()  # facts that were found in plain notes, and put under `## Retain`
    dropped: int = 0  # those of a model that no note bears out
    model_trouble: str = ""  # then facts were taken by rule
    dry_run: bool = False


async def reflect(services: Services, agent: str, since: date, *, dry_run: bool, accept_loss: bool) -> Reflection:
    """One at a time for an agent. Raises NotFound for an unknown one, WorkspaceError where files cannot be written."""
    own = await services.keep(Knowledge).of(agent)
    async with own.reflecting:
        reading = NoteReading() if dry_run else await _read_notes(services, own, agent, since)
        done = await _reflect(services, own, since, dry_run=dry_run, accept_loss=accept_loss)
        if not dry_run and any(each.edited for each in done.pages):  # now with what was edited
            again = await _reflect(services, own, since, dry_run=False, accept_loss=accept_loss)
            done = replace(again, pages=_joined((*done.pages, *again.pages)), commit=again.commit or done.commit)
        noted = tuple(f"{path}: {bullet}" for path, bullets in reading.bullets.items() for bullet in bullets)
        return replace(
            done, model_calls=reading.calls, noted=noted, dropped=reading.dropped, model_trouble=reading.trouble
        )


async def _read_notes(services: Services, own: AgentKnowledge, agent: str, since: date) -> NoteReading:
    """Facts in plain lines of the daily notes since then, written into these notes. A kill between two notes leaves the
    others as they were; they are read again."""
    id_, settings = agent.strip().lower() or services.agents.default, services.config.section(ReflectionSettings)
    record = await asyncio.to_thread(read_record, own.boundary)
    notes = await asyncio.to_thread(_notes_since, own, since)
    if not any(plain_lines(path, text, record.read.get(path, ())) for path, text in notes.items()):
        return NoteReading()  # nothing new costs nothing
    asks = settings.model.strip().lower() != NO_MODEL and await has_model(services, id_, settings.model)
    ask = model_question(services, id_, settings.model) if asks else None
    reading = await read_plain_notes(notes, record.read, ask, services.agents.redact)

    def write() -> None:
        for path, bullets in reading.bullets.items():
            if bullets:
                rewrite(own.boundary, path, partial(_with_more, bullets), create=False)
        for path, digests in reading.read.items():
            record.read[path] = [*record.read.get(path, ()), *digests]
        write_record(own.boundary, record)

    await asyncio.to_thread(write)
    await own.sync()
    return reading


def _with_more(bullets: Sequence[str], _: str, before: bytes | None) -> bytes:
    return with_bullets((before or b"").decode("utf-8", "surrogateescape"), bullets).encode("utf-8", "surrogateescape")


def _notes_since(own: AgentKnowledge, since: date) -> dict[str, str]:
    """Daily notes of the owner, by path. Blocks."""
    try:
        files = own.boundary.walk("memory").files
    except NotFound:
        return {}
    paths = [each for each in files if each.endswith(".md") and (day := date_in_path(each)) and day >= since]
    texts = ((each, _text(own.boundary, each)) for each in paths if not own.is_outside(each))
    return {path: text for path, text in texts if text}


def _joined(reports: Iterable[PageReport]) -> tuple[PageReport, ...]:
    """One of each page."""
    joined: dict[str, PageReport] = {}
    for each in reports:
        before = joined.setdefault(each.path, each)
        if before is not each:
            added, removed = before.added + each.added, before.removed + each.removed
            joined[each.path] = replace(
                before,
                added=added,
                removed=removed,
                deleted=(*before.deleted, *each.deleted),
                left_alone=each.left_alone,
            )
    return tuple(joined[path] for path in sorted(joined))


async def _reflect(
    services: Services, own: AgentKnowledge, since: date, *, dry_run: bool, accept_loss: bool
) -> Reflection:
    today, boundary = local_time(services.clock).date(), own.boundary
    facts, listed = await own.store.all_facts(), await own.store.names()
    record = await asyncio.to_thread(read_record, boundary)
    merged = await asyncio.to_thread(_merge, boundary, record, facts, listed, today)
    reports = [_report(page, result, record, facts, accept_loss) for page, _, result in merged]
    changed = [
        (page, result)
        for (page, before, result), report in zip(merged, reports, strict=True)
        if not report.left_alone and before != result.text
    ]
    opinions = [each for each in facts if each.fact.kind == "opinion"]
    often = await own.store.often_recalled(ASKED_OFTEN)
    proposals = _proposals(boundary, record, facts, often, today)
    commit, no_commit = "", ""
    if not dry_run:
        waiting = [page.path for page, _ in changed]
        await asyncio.to_thread(_write, boundary, record, changed, merged, proposals, today)
        commit, no_commit = await asyncio.to_thread(_commit, services, boundary, waiting, since, reports)
        await own.sync()
    return Reflection(
        since.isoformat(), len(facts), sum(each.fact.said_on >= since.isoformat() for each in facts),
        tuple(each for each in reports if each.added or each.removed or each.left_alone or each.edited or each.deleted),
        tuple(await asyncio.to_thread(changes_between, opinions, since - timedelta(1), today)), tuple(proposals),
        tuple(await own.troubles()), commit, no_commit, dry_run=dry_run,
    )  # fmt: skip


def read_record(boundary: Boundary) -> BankRecord:
    """An empty one where there is none, or it cannot be read: then no line counts as deleted."""
    try:
        with boundary.open_file(RECORD) as file:
            return msgspec.json.decode(file.read(MOST_OF_RECORD), type=BankRecord)
    except NotFound:
        return BankRecord()
    except msgspec.MsgspecError as error:
        log.warning("%s is made anew: %s", RECORD, error)
        return BankRecord()


def write_record(boundary: Boundary, record: BankRecord) -> None:
    data = msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"
    rewrite(boundary, RECORD, lambda _, __: data, create=True, mode=0o600, most=MOST_OF_RECORD)


def settle_proposal(boundary: Boundary, id_: str, text: str, *, is_accepted: bool, heading: str) -> BankProposal:
    """Puts a proposal into MEMORY.md, perhaps with other words, or never proposes it again. Raises NotFound."""
    record = read_record(boundary)
    found = next((each for each in record.proposals if each.id == id_), None)
    if found is None:
        was = record.settled.get(id_)
        why = f": it was {was}" if was else ""
        raise NotFound(f"there is no open proposal {id_[:40]!r}{why}", hint="`pal memory proposals` shows them")
    words = " ".join((text or found.text).split())
    if is_accepted:
        rewrite(boundary, core_file(boundary), lambda _, before: _appended(before, heading, words), create=True)
    record.proposals = [each for each in record.proposals if each.id != id_]
    record.settled[id_] = "accepted" if is_accepted else "rejected"
    write_record(boundary, record)
    return replace(found, text=words)


def core_file(boundary: Boundary) -> str:
    """MEMORY.md, or memory.md where only that is there. Blocks."""
    upper, lower = boundary.stat_names(("MEMORY.md", "memory.md"))
    return "memory.md" if upper is None and lower is not None else "MEMORY.md"


def restore_page(boundary: Boundary, path: str, commit: str, now_ms: int) -> str:
    """Puts a page back as a commit has it; what stands on it now counts as written. What the page loses is kept as a
    backup. Raises NotFound, BadRequest."""
    if not path.startswith(BANK) or ".." in path:
        raise BadRequest(f"{path[:80]!r} is not a page of the bank", hint="such as bank/opinions.md")
    history = WorkspaceHistory(boundary.root)
    if not commit:
        commits = history.log(path, limit=2).commits
        if len(commits) < 2:
            raise NotFound(f"{path} has no earlier version", hint="`pal memory bank diff` shows what has changed")
        commit = commits[1].id
    data = history.content(commit, path)
    with suppress(NotFound):
        before = boundary.read_bytes(path)
        if loses(before, data):
            keep_backup(boundary, path, before, now_ms)
    record = read_record(boundary)
    lines = generated_lines(data.decode("utf-8", "replace"))
    record.writing = [*record.writing, path]
    write_record(boundary, record)
    _put(boundary, path, data)
    there = {statement_of(each) for each in lines.values()}
    record.pages[path], record.writing = lines, [each for each in record.writing if each != path]
    record.refused = {each: day for each, day in record.refused.items() if each not in there}
    write_record(boundary, record)
    return commit


def _merge(
    boundary: Boundary, record: BankRecord, facts: Sequence[StoredFact], listed: Mapping[str, str], today: date
) -> list[tuple[BankPage, str, MergedBankPage]]:
    """Each page, its text as it is and as it shall be. Blocks."""
    opinions = [each for each in facts if each.fact.kind == "opinion"]
    files = {each.casefold(): each for each in _pages(boundary)}
    ended = {number for topic in topics_of(facts, listed) for number in topic.ends("9999")}
    superseded = {each.fact.id for each in facts if each.number in ended}
    pages = {each.path: each for each in bank_pages(facts, beliefs_of(opinions, today), superseded, files)}
    for path in {*record.pages, *files.values()} - pages.keys():
        pages[path] = BankPage(path, path.rpartition("/")[2].removesuffix(".md").replace("-", " "), ())
    merged = []
    for path, page in sorted(pages.items()):
        before = _text(boundary, path)
        if before is None and not page.lines:
            continue
        known = record.pages.get(path, {})
        is_complete = before is not None and path not in record.writing
        result = merge_page(page, before or "", known, record.refused, today.isoformat(), complete=is_complete)
        merged.append((page, before or "", result))
    return merged


def _report(
    page: BankPage, result: MergedBankPage, record: BankRecord, facts: Iterable[StoredFact], accept_loss: bool
) -> PageReport:
    known = {each.fact.text.casefold() for each in facts}
    deleted = set(result.refused)
    lost = [
        each
        for each in result.removed
        if statement_of(each) not in deleted and statement_of(each).partition(": ")[2].casefold() not in known
    ]
    before = len(record.pages.get(page.path, {}))
    left_alone = ""
    if is_too_much(len(result.removed), len(lost), before) and not accept_loss:
        left_alone = f"{len(lost)} of {before} lines would vanish because no note has them any more"
    return PageReport(
        page.path, len(result.added), len(result.removed), result.edited, result.refused, left_alone
    )  # fmt: skip


def _write(
    boundary: Boundary,
    record: BankRecord,
    changed: Sequence[tuple[BankPage, MergedBankPage]],
    merged: Sequence[tuple[BankPage, str, MergedBankPage]],
    proposals: Sequence[BankProposal],
    today: date,
) -> None:
    record.writing = sorted({*record.writing, *(page.path for page, _ in changed)})
    for _, _, result in merged:
        record.refused |= dict.fromkeys(result.refused, today.isoformat())
    if changed:
        write_record(boundary, record)
    for page, result in changed:
        _put(boundary, page.path, result.text.encode("utf-8", "replace"))
        record.pages[page.path] = generated_lines(result.text)
    record.writing, record.proposals = [], list(proposals)
    write_record(boundary, record)


def _commit(
    services: Services, boundary: Boundary, paths: Collection[str], since: date, reports: Sequence[PageReport]
) -> tuple[str, str]:
    """The commit, or why there is none."""
    lines = [f"{each.path}: {each.added} lines more, {each.removed} less" for each in reports if each.path in paths]
    for each in reports:
        lines += [f"edited by hand: {words}" for words in each.edited]
        lines += [f"deleted by hand: {words}" for words in each.deleted]
    body = f"Reflection on the notes since {since.isoformat()}\n\n" + "\n".join(lines)
    redact = services.agents.redact
    try:
        done = WorkspaceHistory(boundary.root).commit_written(_pages(boundary), redact(body), AUTHOR, redact)
    except PalinurusError as error:
        return "", str(error)
    return (done.commit.id, "") if done.commit else ("", "nothing has changed")


def _proposals(
    boundary: Boundary, record: BankRecord, facts: Sequence[StoredFact], often: Mapping[str, int], today: date
) -> list[BankProposal]:
    """Opinions that are sure, facts that several notes have, and those that different questions have found, unless
    MEMORY.md has them. `often`: how many questions, by fact."""
    known = " ".join((_text(boundary, core_file(boundary)) or "").casefold().split())
    found: dict[str, BankProposal] = {}
    opinions = [each for each in facts if each.fact.kind == "opinion"]
    for belief in beliefs_of(opinions, today):
        if belief.confidence >= SURE and (belief.is_by_hand or len(belief.supporting) >= INDEPENDENT):
            _propose(
                found,
                record,
                known,
                belief.entities,
                belief.statement,
                f"confidence {belief.confidence:.2f}",
                belief.sources,
            )
    for each in facts:
        if each.fact.id in often and each.fact.origin == Origin.OWNER:
            why = f"{often[each.fact.id]} different questions have found it"
            _propose(found, record, known, each.entities, each.fact.text, why, (each.fact.source,))
    places: dict[str, list[StoredFact]] = {}
    for each in facts:
        if each.fact.kind == "world" and each.fact.origin == Origin.OWNER:
            places.setdefault(each.fact.text.casefold(), []).append(each)
    for group in places.values():
        sources = tuple(dict.fromkeys(each.fact.source for each in group))
        if len({each.fact.path for each in group}) >= INDEPENDENT or group[0].fact.is_by_hand:
            _propose(
                found,
                record,
                known,
                group[-1].entities,
                group[-1].fact.text,
                f"noted {len(sources)} times" if len(sources) > 1 else "written by you",
                sources,
            )
    return list(found.values())[:MOST_PROPOSED]


def _propose(
    found: dict[str, BankProposal], record: BankRecord, known: str, about: Sequence[str], text: str, why: str,
    sources: Sequence[str],
) -> None:  # fmt: skip
    words = " ".join(text.split())
    line = f"{', '.join(about)}: {words}" if about else words
    id_ = line_digest(line.casefold())
    if words.casefold() not in known and id_ not in record.settled:
        found.setdefault(id_, BankProposal(id_, line, why, tuple(sources[:5])))


def _put(boundary: Boundary, path: str, data: bytes) -> None:
    rewrite(boundary, path, lambda _, __: data, create=True, mode=0o600)


def _appended(before: bytes | None, heading: str, words: str) -> bytes:
    """MEMORY.md with one more line at its end; under a heading of its own the first time. A kill before the proposal
    was settled doubles nothing."""
    text = (before or b"").decode("utf-8", "surrogateescape")
    start = text.rstrip("\n") + "\n" if text.strip() else ""
    if before is not None and start.endswith(f"\n- {words}\n"):
        return before
    if f"\n{heading}\n" not in f"\n{start}":
        start += f"{chr(10) if start else ''}{heading}\n\n"
    return (start + f"- {words}\n").encode("utf-8", "surrogateescape")


def _pages(boundary: Boundary) -> tuple[str, ...]:
    try:
        return tuple(each for each in boundary.walk(BANK.rstrip("/")).files if each.endswith(".md") and each != ALIASES)
    except NotFound:
        return ()


def _text(boundary: Boundary, path: str) -> str | None:
    try:
        return boundary.read_bytes(path).decode("utf-8", "replace")
    except NotFound:
        return None
