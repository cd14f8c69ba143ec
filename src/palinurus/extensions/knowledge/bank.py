"""The bank: pages made of facts, `bank/{world,experience,opinions}.md` and `bank/entities/<Name>.md`. Pure.

A page is made anew from the facts, around what the owner has written on it: text, bullets, and lines that the owner
has changed, which get the day on which that was seen. A line that the owner has deleted does not come back. What else
vanishes needs a reason; a page that would lose more than a tenth of its lines without one is left as it is.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from palinurus.domain.messages import Origin
from palinurus.extensions.knowledge.beliefs import Belief
from palinurus.extensions.knowledge.facts import BANK, line_digest, read_bank_bullet
from palinurus.extensions.knowledge.store import StoredFact
from palinurus.text.fact_lines import fact_line

OPINIONS, WORLD, EXPERIENCE = (f"{BANK}{name}.md" for name in ("opinions", "world", "experience"))
NOTICE = "<!-- Made by `pal memory reflect`. What you write or change here stays, and counts most. -->"
MOST_LINES = 500  # of a page
MOST_SOURCES = 4  # that a line names
LOSS = 0.1
_HEADING = re.compile(r"#{2,6}[ \t]+(.+)")
_BULLET = re.compile(r"[ \t]*[-*+][ \t]+(?=\S)")
_NO_FILE_NAME = re.compile(r"[^\w.-]+")


class BankLine(Struct, frozen=True):
    section: str
    words: str  # without `- ` and digest

    @property
    def text(self) -> str:
        return f"- {self.words} ^{line_digest(self.words)}"


class BankPage(Struct, frozen=True):
    path: str
    title: str
    lines: tuple[BankLine, ...]


class MergedBankPage(Struct, frozen=True):
    """A page as it shall be written, and what is new on it."""

    text: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()  # lines that the owner has changed or written since the last time
    refused: tuple[str, ...] = ()  # lines that the owner has deleted


def bank_pages(
    facts: Sequence[StoredFact], beliefs: Sequence[Belief], superseded: Collection[str], files: Mapping[str, str]
) -> list[BankPage]:
    """The pages that the facts make. `superseded`: facts in whose place others have come; `files`: paths of pages that
    there are, by their name in small letters."""
    own = [each for each in facts if each.fact.origin == Origin.OWNER]
    own.sort(key=lambda each: (each.fact.last_day or each.fact.said_on, each.number), reverse=True)
    once = {each.fact.text.casefold(): each for each in reversed(own)}
    newest = [each for each in own if once[each.fact.text.casefold()] is each]
    current = [each for each in newest if each.fact.id not in superseded]
    pages = [
        _opinions(beliefs),
        BankPage(WORLD, "World", tuple(_by_month(current, ("world", "observation"), WORLD))),
        BankPage(EXPERIENCE, "Experience", tuple(_by_month(newest, ("experience",), EXPERIENCE))),
    ]
    of_entity: dict[str, list[StoredFact]] = defaultdict(list)
    for each in newest:
        for name in each.entities:
            of_entity[name].append(each)
    for name, about in sorted(of_entity.items()):
        path = entity_path(name)
        path = files.get(path.casefold(), path)
        pages.append(_entity(name, path, about, [each for each in beliefs if name in each.entities], superseded))
    return [each for each in pages if each.lines]


def entity_path(name: str) -> str:
    return f"{BANK}entities/{_NO_FILE_NAME.sub('-', name).strip('-.')[:100] or 'unnamed'}.md"


def merge_page(
    page: BankPage, before: str, known: Mapping[str, str], refused: Iterable[str], today: str, *, complete: bool = True
) -> MergedBankPage:
    """`before`: the page as it is; `known`: digest -> words of the lines that were written last time. Unless that was
    `complete`, a line that is missing was not deleted by the owner."""
    title, sections = _read(before)
    kept, own = _own_lines(sections, known, today)
    deleted = [statement_of(words) for digest, words in known.items() if complete and digest not in own.digests]
    unwanted = {*refused, *deleted, *map(statement_of, own.words)}
    wanted = [each for each in page.lines if statement_of(each.words) not in unwanted]
    kept = {heading: kept.get(heading, []) for heading in ("", *(each.section for each in page.lines), *kept)}
    for each in wanted:
        kept[each.section].append(each.text)
    text = "\n".join([title or f"# {page.title}", NOTICE, *_written(kept)]).rstrip() + "\n"
    old, new = {statement_of(each) for each in known.values()}, {statement_of(each.words) for each in wanted}
    added = tuple(each.words for each in wanted if statement_of(each.words) not in old)
    removed = tuple(each for each in known.values() if statement_of(each) not in new)
    return MergedBankPage(text, added, removed, tuple(own.edited), tuple(deleted))


class _OwnLines(Struct):
    """What stands on a page, seen with the eyes of whoever writes it anew."""

    digests: set[str]  # of lines that a reflection has written, also of those that were edited since
    words: list[str]  # of the owner's bullets
    edited: list[str]  # those among them that are new


def _own_lines(
    sections: Iterable[tuple[str, Sequence[str]]], known: Mapping[str, str], today: str
) -> tuple[dict[str, list[str]], _OwnLines]:
    """The lines of the owner under each heading."""
    kept, own = dict[str, list[str]](), _OwnLines(set(), [], [])
    for heading, lines in sections:
        mine = kept.setdefault(heading, [])
        for line in lines:
            bullet = _BULLET.match(line)
            if bullet is None:
                mine.append(line)
                continue
            read = read_bank_bullet(line[bullet.end() :])
            own.digests.add(read.digest)
            if read.is_generated:
                continue
            own.words.append(read.words)
            if read.day:
                mine.append(line)
            else:
                own.edited.append(read.words)
                mine.append(_stamped(bullet[0], read.words, known.get(read.digest, ""), today))
    return kept, own


def generated_lines(text: str) -> dict[str, str]:
    """The lines of a page that a reflection has written, by their digest."""
    found = {}
    for line in text.splitlines():
        bullet = _BULLET.match(line)
        read = read_bank_bullet(line[bullet.end() :]) if bullet else None
        if read is not None and read.is_generated:
            found[read.digest] = read.words
    return found


def is_prose(line: str) -> bool:
    """Whether a line of a page is the owner's text: bullets are facts."""
    return bool(line.strip()) and line != NOTICE and not (line.startswith("#") or _BULLET.match(line))


def statement_of(words: str) -> str:
    """What a line says, whatever its confidence and its sources."""
    plain = words.rpartition(" [")[0] if words.endswith("]") else words
    return re.sub(r"^O\(c=[\d.]{1,8}\)", "O", plain)


def is_too_much(removed: int, unexplained: int, before: int) -> bool:
    """Whether a page would lose too many lines of which nobody knows why."""
    return bool(removed) and unexplained > max(LOSS * before, 1)


def _opinions(beliefs: Sequence[Belief]) -> BankPage:
    lines = []
    for each in beliefs[:MOST_LINES]:
        words = fact_line("opinion", each.statement, each.entities, each.confidence)[2:]
        lines.append(BankLine(each.entities[0] if each.entities else "", words + _evidence(each.sources)))
    return BankPage(OPINIONS, "Opinions", tuple(sorted(lines, key=lambda line: line.section)))


def _by_month(facts: Sequence[StoredFact], kinds: Sequence[str], path: str) -> Iterator[BankLine]:
    for each in [each for each in facts if each.fact.kind in kinds and each.fact.path != path][:MOST_LINES]:
        yield _line((each.fact.first_day or each.fact.said_on)[:7], each)


def _entity(
    name: str, path: str, facts: Sequence[StoredFact], beliefs: Sequence[Belief], superseded: Collection[str]
) -> BankPage:
    lines = []
    for each in facts[:MOST_LINES]:
        fact = each.fact
        if fact.path == path or fact.kind == "opinion":
            continue
        is_past = fact.id in superseded
        section = "Happened" if fact.kind == "experience" else "Before" if is_past else "Now"
        lines.append(_line(section, each))
    for belief in beliefs:
        words = fact_line("opinion", belief.statement, belief.entities, belief.confidence)[2:]
        lines.append(BankLine("Opinions", words + _evidence(belief.sources)))
    order = ("Now", "Opinions", "Happened", "Before")
    return BankPage(path, name, tuple(sorted(lines, key=lambda line: order.index(line.section))))


def _line(section: str, stored: StoredFact) -> BankLine:
    fact = stored.fact
    return BankLine(section, fact_line(fact.kind, fact.text, stored.entities)[2:] + _evidence((fact.source,)))


def _evidence(sources: Sequence[str]) -> str:
    shown = ", ".join(each.replace("[", "(").replace("]", ")") for each in sources[:MOST_SOURCES])
    more = f", {len(sources) - MOST_SOURCES} more" if len(sources) > MOST_SOURCES else ""
    return f" [{shown}{more}]" if shown else ""


def _stamped(start: str, words: str, before: str, today: str) -> str:
    """A line of the owner with the day on which it was first seen, and what it was before."""
    old = before.rpartition(" [")[0] if before.endswith("]") else before
    old = re.sub(r"[()]", "", old.partition(": ")[2] or old)[:500]
    return f"{start}{words} (yours, {today}{f', instead of: {old}' if old else ''})"


def _read(text: str) -> tuple[str, list[tuple[str, list[str]]]]:
    """The title, and the lines under each heading; without the notice and empty lines at the edges."""
    title, sections = "", [("", list[str]())]
    for line in text.splitlines():
        if line.startswith("# ") and not title and not any(lines for _, lines in sections):
            title = line
        elif line == NOTICE:
            continue
        elif heading := _HEADING.fullmatch(line.rstrip()):
            sections.append((heading[1], []))
        else:
            sections[-1][1].append(line)
    return title, sections


def _written(sections: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for heading, lines in sections.items():
        shown = "\n".join(lines).strip("\n").split("\n") if any(each.strip() for each in lines) else []
        if not shown:
            continue
        yield ""
        if heading:
            yield f"## {heading}"
        yield from shown
