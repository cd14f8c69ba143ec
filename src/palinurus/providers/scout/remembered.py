"""What memory's tools have found, told in its own words.

Results are taken apart into lines with their places; the lines worth quoting are quoted, with what "yesterday" meant
on the day it was written. Where nothing fits, that is said, and so is a search that could not look everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache

import msgspec
from msgspec import Struct

from palinurus.domain.days import resolved
from palinurus.domain.messages import ToolResult
from palinurus.providers.scout.asked import Asked
from palinurus.providers.scout.patterns import later
from palinurus.providers.scout.quoting import Line, quotes
from palinurus.providers.scout.smalltalk import is_small_talk
from palinurus.providers.scout.words import stems_of
from palinurus.workspace.seed import template

MAX_DAY = 12  # lines of a day, or of what is known about somebody
MAX_QUOTE = 400  # characters
MORE = "(More lines match than I can look through; a rarer word finds more.)"
_NEW_UNIT = later(
    r"\s*(?:[-*+]\s|\d+[.)]\s|>|\||#|```|---)|[^\s:：]{1,24}(?: [^\s:：]{1,24})?[:：]\s|\[?\d{1,4}[-:.]\d\d"
)
_SENTENCE = later(r"(?<=[.!?])\s+|(?<=[。！？])")
_MINE = later(
    r"\b(?:i|i'm|me|my|mine|we|our|us|user|owner|ich|mein\w*|wir|je|mon|ma|yo|mi)\b|我|私|僕|나|내", re.IGNORECASE
)
_SAID_BY = re.compile(r"^(?:\d{4}-\d\d-\d\d )?user: ")
_OF_OURS = re.compile(r"\s*- (?:(?:\d{4}-\d\d-\d\d )?assistant\b[^:]{0,60}: |Identifiers\b[^:]{0,40}: )")
_WRAPPED = 50  # a shorter line ends where its writer wanted it to


class Hit(Struct, frozen=True, rename="camel"):
    path: str
    start_line: int
    end_line: int
    snippet: str
    score: float = 0.0
    citation: str = ""
    under: str = ""  # headings


class Freshness(Struct, frozen=True, rename="camel"):
    state: str = "fresh"
    behind: tuple[str, ...] = ()
    behind_count: int = 0
    vectors: str = "off"
    why: str = ""


class Searched(Struct, frozen=True, rename="camel"):
    results: tuple[Hit, ...]
    freshness: Freshness = Freshness()
    left_out: int = 0
    refused: str = ""


class Read(Struct, frozen=True):
    path: str
    text: str
    from_: int = msgspec.field(default=1, name="from")


class _Found(Struct):
    """Everything that a turn has found."""

    lines: list[Line] = []
    freshness: Freshness = Freshness()
    left_out: int = 0
    refused: str = ""


def tell(asked: Asked, results: Sequence[ToolResult]) -> str:
    """The answer to a question, out of nothing but these results."""
    found = _gather(results)
    if found.refused:
        return f"I may not look there: {found.refused}."
    if asked.mine:
        return _about_the_person(found.lines) or "My notes say nothing about you yet."
    told = _about_days(asked, found.lines) if asked.period else about(asked, found.lines)
    if told:
        return "\n".join([told, *_remarks(found.freshness)])
    more = [MORE] if found.left_out else []
    return "\n".join([nothing(asked), *_remarks(found.freshness, found=False), *more])


def about(asked: Asked, lines: Sequence[Line]) -> str:
    """The best of these lines, quoted; empty when none is worth it."""
    best = quotes(asked, lines)
    intro = "From my notes:" if best.how == "answers" else "I find no line that says it outright. The nearest:"
    return _told(intro, best.lines, asked)


def _about_days(asked: Asked, lines: Sequence[Line]) -> str:
    """Lines of the days that are asked about; of other days only when they speak of the same, and with a warning."""
    period = asked.period
    assert period is not None  # noqa: S101
    then = [line for line in lines if line.speaks_of(period)]
    if asked.subject or asked.topics:
        if told := about(asked, then):
            return told
        elsewhere = quotes(asked, lines)
        return _told(f"I find nothing of {period}. Of other days:", elsewhere.lines, asked)
    telling = [line for line in then if set(asked.attributes) & stems_of(line.words)] or then
    telling = sorted((line for line in telling if not line.is_label), key=lambda line: (line.path, line.number))
    rest = len(telling) - MAX_DAY
    more = f"\n… and {rest} more lines" if rest > 0 else ""
    return _told(f"From my notes of {period}:", telling[:MAX_DAY]) + more


def _about_the_person(lines: Sequence[Line]) -> str:
    """What their own files and the newest days say; of what was only searched for, what speaks of them."""
    telling = [line for line in lines if not line.is_label and not _is_talk(line)]
    telling = [line for line in telling if not line.score or _MINE().search(line.words)]
    rest = len(telling) - MAX_DAY
    more = f"\n… and {rest} more lines" if rest > 0 else ""
    return _told("From my notes about you:", telling[:MAX_DAY]) + more


def _is_talk(line: Line) -> bool:
    """A question or a greeting that was noted tells nothing."""
    words = _SAID_BY.sub("", line.words)
    return words.endswith(("?", "？")) or is_small_talk(words)


def nothing(asked: Asked) -> str:
    about = f" about {', '.join(asked.shown)}" if asked.shown and (asked.subject or asked.topics) else ""
    days = f" of {asked.period}" if asked.period else ""
    return f"I find nothing{about}{days} in my notes."


def _told(intro: str, lines: Sequence[Line], asked: Asked | None = None) -> str:
    return "\n".join([intro, *(_quoted(line, asked) for line in lines)]) if lines else ""


def _quoted(line: Line, asked: Asked | None = None) -> str:
    words = resolved(_shortened(line.words, asked), line.day)
    return f"> {words} ({line.place}{_under(line, asked)})" if line.cited else f"> {words}"


def _under(line: Line, asked: Asked | None) -> str:
    """The heading, where it says what the line is about and the line itself does not."""
    wanted = set(asked.words) if asked else set()
    told = wanted & stems_of(line.around) - stems_of(line.words)
    return f", under {line.around}" if told else ""


def _shortened(words: str, asked: Asked | None) -> str:
    """A long paragraph by the sentence that holds the most of the question."""
    if len(words) <= MAX_QUOTE:
        return words
    wanted = set(asked.words) if asked else set()
    sentences = [part for part in _SENTENCE().split(words) if part]
    at = max(range(len(sentences)), key=lambda n: (len(wanted & stems_of(sentences[n])), -n))
    chosen = sentences[at]
    if len(chosen) > MAX_QUOTE:
        chosen, cut = chosen[:MAX_QUOTE].rstrip(), True
    else:
        cut = at < len(sentences) - 1
    return f"{'… ' if at else ''}{chosen}{' …' if cut else ''}"


def _remarks(freshness: Freshness, *, found: bool = True) -> list[str]:
    said: list[str] = []
    why = f": {freshness.why}" if freshness.why else ""
    if freshness.state == "stale":
        count = freshness.behind_count or len(freshness.behind)
        some = f" ({', '.join(freshness.behind[:3])})" if freshness.behind else ""
        said.append(f"(Not fresh: {count} changed files{some} could not be read in time{why})")
    elif freshness.state != "fresh":
        said.append(f"(Not fresh: there was no time to see what has changed{why})")
    elif not found and freshness.vectors in ("partial", "down"):
        said.append(f"(Searched by words; what only means the same may have been missed{why})")
    return said


def _gather(results: Iterable[ToolResult]) -> _Found:
    found = _Found(lines=[])
    seen: set[tuple[str, int]] = set()
    for result in results:
        if result.is_error:
            continue
        lines = _searched(result.text, found) if result.tool_name == "memory_search" else _read(result.text)
        for line in lines:
            if (line.path, line.number) not in seen and not _is_our_own(line):
                seen.add((line.path, line.number))
                found.lines.append(line)
    return found


def _searched(text: str, found: _Found) -> list[Line]:
    try:
        told = msgspec.json.decode(text, type=Searched)
    except msgspec.DecodeError:  # cut off on its way, or of another tool of that name
        found.freshness = Freshness("unreadable", why="the search gave an answer that I cannot read")
        return []
    found.freshness, found.left_out, found.refused = told.freshness, told.left_out, told.refused
    return [
        msgspec.structs.replace(line, score=min(max(hit.score, 0.0), 1.0), cited=bool(hit.citation))
        for hit in told.results
        for line in _lines_of(hit)
    ]


def _lines_of(hit: Hit) -> list[Line]:
    if hit.snippet.startswith("…"):  # cut out of a long text: nobody can tell on which line it begins
        return [Line(hit.path, hit.start_line, " ".join(hit.snippet.split()), hit.end_line, around=hit.under)]
    return units(hit.path, hit.start_line, hit.snippet, hit.under)


def _read(text: str) -> list[Line]:
    try:
        told = msgspec.json.decode(text, type=Read)
    except msgspec.DecodeError:
        return []
    return units(told.path, told.from_, told.text)


def units(path: str, first: int, text: str, heading: str = "") -> list[Line]:
    """The list items, lines and wrapped paragraphs of a text, each with the heading that it stands under."""
    found: list[Line] = []
    open_ = False
    for number, raw in enumerate(text.split("\n"), first):
        line = raw.strip()
        if not line or line.startswith(("#", "```", "---")):
            heading, open_ = (line.strip("# ") if line.startswith("#") else heading), False
        elif open_ and _goes_on(found[-1].text, raw):
            found[-1] = msgspec.structs.replace(found[-1], text=f"{found[-1].text} {line}", last=number)
        else:
            found.append(Line(path, number, raw, around=heading))
            open_ = True
    return found


def _goes_on(before: str, raw: str) -> bool:
    """Whether a line is the rest of a sentence that its writer has wrapped."""
    if _NEW_UNIT().match(raw):
        return False
    indented = raw[:2].isspace() and len(before) > 0
    return indented or (len(before) > _WRAPPED and not before.rstrip().endswith((".", "!", "?", "。", "！", "？")))


def _is_our_own(line: Line) -> bool:
    """What we wrote ourselves: into every new workspace, and what older versions noted of our own replies."""
    noted = line.path.startswith("memory/") and _OF_OURS.match(line.text) is not None
    return noted or line.text.strip() in _template_lines()


@cache
def _template_lines() -> frozenset[str]:
    """What we wrote ourselves into every new workspace says nothing of the person."""
    return frozenset(line.strip() for line in template("USER.md").splitlines() if line.strip())
