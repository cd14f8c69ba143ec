"""Chooses the lines of memory that scout quotes, each with its place. Pure.

A search ranks, and so always has a best line. Whether a line is worth quoting depends on the words of the question that
it holds: every name in it, and most of its other words. Relative dates are followed by their meaning. If no line
passes, the answer says so, and it also reports an incomplete search.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from datetime import date
from functools import cache

import msgspec
from msgspec import Struct

from palinurus.domain.messages import ToolResult
from palinurus.text.dates import Period, date_of, find_dates, resolved
from palinurus.text.fact_lines import FACT_HEAD
from palinurus.text.sentences import is_small_talk
from palinurus.text.words import QUESTION_WORDS, WordToken, content_runs, lazy_pattern, pairs, root, roots_of, tokens
from palinurus.workspace.seed import template

MAX_QUESTION = 2_000  # characters; the first words of a longer one show its subject
MAX_LINES = 3
MAX_BROAD = 6  # lines, if everything about a subject is requested
MAX_DAY = 12  # lines of a day, or of facts about the person
MAX_QUOTE = 400  # characters
NEAR = 2  # lines
WORTH_QUOTING = 0.6  # of the best line's score
MORE = "(More lines match than I can look through; a rarer word finds more.)"
_ATTRIBUTES = frozenset(
    map(
        root,
        """
        colour name called age birthday number size height weight price cost date time day year month week place city
        town country address password code email phone favourite best new old big small long far tall heavy expensive
        first live work visit happen start begin become meet go come take make use need want like love hate feel plan
        decide own keep belong mention talk speak do enjoy try put leave buy see die bear born marry married move
        颜色 顏色 名字 名前 生日 誕生 电话 電話 号码 番号 年龄 年齢 地址 住所 色 住 吃 食 行 去 買 买
        """.split(),  # noqa: SIM905  a list of quoted words is harder to read
    )
)
_QUESTION_ROOTS = frozenset(map(root, QUESTION_WORDS))
_PAST = lazy_pattern(r"\b(?:did|was|were|had|happened|said|went|ago|last)\b|了|过|過|した|たか|昨|前|上", re.IGNORECASE)
_BULLET = re.compile(r"\s*(?:[-*+](?: \[[ xX]\])?|\d+[.)]|>)\s+")
_LEADING_DATE = re.compile(r"\W*(\d{4}-\d{2}-\d{2})(?!\d)")
_SPEAKER = lazy_pattern(r"\*{0,2}([^\W\d_][\w.'’ -]{0,30})\*{0,2}[:：]\*{0,2} \S")
_NEW_UNIT = lazy_pattern(
    r"\s*(?:[-*+]\s|\d+[.)]\s|>|\||#|```|---)|[^\s:：]{1,24}(?: [^\s:：]{1,24})?[:：]\s|\[?\d{1,4}[-:.]\d\d"
)
_WRAPPED = 50  # characters; a shorter line was ended on purpose
_SENTENCE_END = lazy_pattern(r"(?<=[.!?])\s+|(?<=[。！？])")
_FIRST_PERSON = lazy_pattern(
    r"\b(?:i|i'm|me|my|mine|we|our|us|user|owner|ich|mein\w*|wir|je|mon|ma|yo|mi)\b|我|私|僕|나|내", re.IGNORECASE
)
_BY_USER = re.compile(r"^(?:\d{4}-\d\d-\d\d )?user: ")
_BY_ASSISTANT = re.compile(r"\s*- (?:(?:\d{4}-\d\d-\d\d )?assistant\b[^:]{0,60}: |Identifiers\b[^:]{0,40}: )")


class ScoutQuestion(Struct, frozen=True):
    """The words of a question, as roots, or as character pairs for scripts without spaces."""

    text: str
    shown: tuple[str, ...] = ()  # the content words as typed
    names: tuple[str, ...] = ()  # a line must hold these
    topics: tuple[str, ...] = ()  # and most of these
    attributes: tuple[str, ...] = ()  # colour, to live, to buy: answers often omit them, so they only rank
    period: Period | None = None
    broad: bool = False  # everything known is requested

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.names, *self.topics, *self.attributes)

    @property
    def subject(self) -> frozenset[str]:
        return frozenset((*self.names, *self.topics))

    @property
    def query(self) -> str:
        """For search: the words, and the dates."""
        text = " ".join(self.text.split())
        return f"{text} ({self.period})" if self.period and str(self.period) not in text else text


def parse_question(text: str, today: date, *, broad: bool = False) -> ScoutQuestion:
    """Parses the subject of a question. Dates are removed first."""
    text = text[:MAX_QUESTION].strip()
    mentions = find_dates(text, today, tense="past" if _PAST().search(text) else "future")
    rest = text
    for mention in reversed(mentions):
        rest = f"{rest[: mention.start]} {rest[mention.end :]}"
    words = list(tokens(rest))
    capitals_tell = len(words) < 3 or 2 * sum(word.capital for word in words) <= len(words)
    shown, names, topics, attributes = (dict[str, None]() for _ in range(4))
    for number, token in enumerate(words):
        for typed, word, owner in _telling_words(token):
            shown[typed] = None
            is_name = owner or (capitals_tell and token.capital and number > 0)
            kind = attributes if word in _ATTRIBUTES else names if is_name else topics
            kind[word] = None
    first = min((mention.period.first for mention in mentions), default=None)
    last = max((mention.period.last for mention in mentions), default=None)
    period = Period(first, last) if first and last else None
    return ScoutQuestion(text, tuple(shown), tuple(names), tuple(topics), tuple(attributes), period, broad)


def _telling_words(token: WordToken) -> Iterator[tuple[str, str, bool]]:
    """The typed word, the search word, and whether it is a possessor (Anna's, 小明的)."""
    if token.is_cjk:
        for run in content_runs(token.word):
            yield from ((run.text, pair, run.owner or run.foreign) for pair in pairs(run.text))
    elif token.word not in QUESTION_WORDS and (len(token.word) > 1 or token.word.isdigit()):
        yield token.word, root(token.word), token.owner


class QuotableLine(Struct, frozen=True):
    """Text of a file with its place."""

    path: str
    number: int
    text: str
    last: int = 0  # the last line, if there are several
    score: float = 0.0  # from the search
    heading: str = ""
    cited: bool = True

    @property
    def place(self) -> str:
        return f"{self.path}#L{self.number}" + (f"-L{self.last}" if self.last > self.number else "")

    @property
    def words(self) -> str:
        """The line without its list marker, and what it is noted as."""
        return FACT_HEAD.sub("", _BULLET.sub("", self.text, count=1).strip(), count=1)

    @property
    def is_label(self) -> bool:
        """Whether it is a heading or an empty field, which answers nothing."""
        return self.words.rstrip("*_ ").endswith((":", "：")) or self.words.startswith("#")

    @property
    def speaker(self) -> str:
        """The speaker: `Anna: …`, `User: …`."""
        found = _SPEAKER().match(self.words)
        return found[1] if found else ""

    @property
    def day(self) -> date | None:
        """Its date: its own if it begins with one, else that of its heading or its file."""
        if found := _LEADING_DATE.match(self.words):
            return date_of(found[1])
        return date_of(self.heading) or date_of(self.path)

    def is_about(self, period: Period) -> bool:
        day = self.day
        if day and Period(day, day).meets(period):
            return True
        mentions = find_dates(self.words, day or period.first)
        return any(mention.period.meets(period) for mention in mentions if day or not mention.relative)


def choose_lines(question: ScoutQuestion, lines: Sequence[QuotableLine]) -> list[QuotableLine]:
    """The lines that pass the threshold and are close to the best one, best first.

    Rarer words weigh more, neighbouring lines count half, and newer lines win ties.
    """
    nearby = _nearby_words(question, lines)
    held: dict[QuotableLine, tuple[frozenset[str], frozenset[str]]] = {}
    for line in lines:
        own = roots_of(line.words).intersection(question.words)
        around = roots_of(line.heading).intersection(question.words) | nearby.get((line.path, line.number), frozenset())
        around |= roots_of(line.path.removeprefix("memory/")) & question.subject
        if line.words.startswith("|") and not own:  # a heading describes a whole table, not one row
            continue
        if not line.is_label and _passes(question, own | around) and not _repeats_question(question, line.words):
            held[line] = own, own | around
    counts = Counter(word for _, common in held.values() for word in common)
    weights = {word: math.log(1 + len(held) / count) for word, count in counts.items()}
    whole = sum(weights.values()) or 1.0
    worth = {
        line: 2.0 * line.score + sum(weights[word] * (1 if word in own else 0.5) for word in sorted(common)) / whole
        for line, (own, common) in held.items()
    }
    ranked = sorted(worth, key=lambda line: (round(worth[line], 6), line.day or date.min, line.number), reverse=True)
    good = [line for line in ranked if question.broad or worth[line] >= WORTH_QUOTING * worth[ranked[0]]]
    unique = {line.words: line for line in reversed(good)}
    return list(reversed(unique.values()))[: MAX_BROAD if question.broad else MAX_LINES]


def _passes(question: ScoutQuestion, common: Collection[str]) -> bool:
    """The threshold: every name (two thirds of three or more), and most topics."""

    def share(words: Sequence[str]) -> float:
        return sum(word in common for word in words) / len(words) if words else 1.0

    wanted = 0.4 if len(question.topics) > 4 else 0.5 if question.names or question.broad else 0.6
    if not question.names and not question.topics:
        return bool(common) and share(question.attributes) >= 0.75
    return share(question.names) >= (2 / 3 if len(question.names) > 2 else 1) and share(question.topics) >= wanted


def _repeats_question(question: ScoutQuestion, words: str) -> bool:
    """Whether a line consists only of the question's own words."""
    telling = roots_of(words) - _QUESTION_ROOTS
    more = telling.difference(question.words)
    if words.endswith(("?", "？")):
        return len(more) < 2 or question.text.casefold() in words.casefold()
    return not more and len(telling) < 3  # "prefers trains to planes" does answer "do I prefer trains or planes"


def _nearby_words(question: ScoutQuestion, lines: Sequence[QuotableLine]) -> dict[tuple[str, int], frozenset[str]]:
    """The words of a question near each line of a dialogue, where a subject is not repeated in each line.

    In a list each line is a separate fact.
    """
    turns = Counter(line.speaker for line in lines if line.speaker)
    held = {
        (line.path, line.number): roots_of(line.words).intersection(question.words)
        for line in lines
        if turns[line.speaker] > 1  # a single one is a label, such as `Time zone:`
    }
    return {
        (path, number): frozenset[str]().union(
            *(held.get((path, near), ()) for near in range(number - NEAR, number + NEAR + 1) if near != number)
        )
        for path, number in held
    }


class _Passage(Struct, frozen=True, rename="camel"):
    """A result of memory_search."""

    path: str
    start_line: int
    end_line: int
    snippet: str
    score: float = 0.0
    citation: str = ""
    under: str = ""  # headings

    def lines(self) -> list[QuotableLine]:
        if self.snippet.startswith("…"):  # cut out of a long text, so its first line number is unknown
            text = " ".join(self.snippet.split())
            lines = [QuotableLine(self.path, self.start_line, text, self.end_line, heading=self.under)]
        else:
            lines = split_units(self.path, self.start_line, self.snippet, self.under)
        score, cited = min(max(self.score, 0.0), 1.0), bool(self.citation)
        return [msgspec.structs.replace(line, score=score, cited=cited) for line in lines]


class _IndexState(Struct, frozen=True, rename="camel"):
    state: str = "fresh"
    behind: tuple[str, ...] = ()
    behind_count: int = 0
    vectors: str = "off"
    why: str = ""


class _SearchReply(Struct, frozen=True, rename="camel"):
    results: tuple[_Passage, ...] = ()
    freshness: _IndexState = _IndexState()
    left_out: int = 0
    refused: str = ""


class _FileReply(Struct, frozen=True):
    """A result of memory_get."""

    path: str
    text: str
    from_: int = msgspec.field(default=1, name="from")


_UNREADABLE = _SearchReply(freshness=_IndexState("unreadable", why="the search gave an answer that I cannot read"))


def answer_question(question: ScoutQuestion, results: Sequence[ToolResult]) -> str:
    """The answer to a question, from these results only."""
    reply, lines = _read_results(results)
    if reply.refused:
        return f"I may not look there: {reply.refused}."
    answer = _answer_from_days(question, question.period, lines) if question.period else quote(question, lines)
    if answer:
        return "\n".join([answer, *_remarks(reply.freshness)])
    more = [MORE] if reply.left_out else []
    return "\n".join([nothing_found(question), *_remarks(reply.freshness, found=False), *more])


def answer_about_person(results: Sequence[ToolResult]) -> str:
    """The lines of the person's own files and the newest days, and search results about the person."""
    reply, lines = _read_results(results)
    if reply.refused:
        return f"I may not look there: {reply.refused}."
    own = [line for line in lines if not line.score or _FIRST_PERSON().search(line.words)]
    telling = [line for line in own if not line.is_label and not _is_talk(line)]
    return _render_all("From my notes about you:", telling) or "My notes say nothing about you yet."


def quote(question: ScoutQuestion, lines: Sequence[QuotableLine]) -> str:
    """The best of these lines; empty if none passes the threshold."""
    return _render("From my notes:", choose_lines(question, lines), question)


def nothing_found(question: ScoutQuestion) -> str:
    about = f" about {', '.join(question.shown)}" if question.subject else ""
    days = f" of {question.period}" if question.period else ""
    return f"I find nothing{about}{days} in my notes."


def _answer_from_days(question: ScoutQuestion, period: Period, lines: Sequence[QuotableLine]) -> str:
    """Lines of the requested days; of other days only if they hold the question's words."""
    then = [line for line in lines if line.is_about(period)]
    if question.subject:
        others = f"I find nothing of {period}. Of other days:"
        return quote(question, then) or _render(others, choose_lines(question, lines), question)
    telling = [line for line in then if roots_of(line.words).intersection(question.attributes)] or then
    telling = sorted((line for line in telling if not line.is_label), key=lambda line: (line.path, line.number))
    return _render_all(f"From my notes of {period}:", telling)


def _is_talk(line: QuotableLine) -> bool:
    """Whether it is a question or a greeting, which states no fact."""
    words = _BY_USER.sub("", line.words)
    return words.endswith(("?", "？")) or is_small_talk(words)


def _render_all(intro: str, lines: Sequence[QuotableLine]) -> str:
    rest = len(lines) - MAX_DAY
    return _render(intro, lines[:MAX_DAY]) + (f"\n… and {rest} more lines" if rest > 0 else "")


def _render(intro: str, lines: Sequence[QuotableLine], question: ScoutQuestion | None = None) -> str:
    wanted = frozenset(question.words if question else ())
    return "\n".join([intro, *(_render_line(line, wanted) for line in lines)]) if lines else ""


def _render_line(line: QuotableLine, wanted: frozenset[str]) -> str:
    words = resolved(_shorten(line.words, wanted), line.day)
    if not line.cited:
        return f"> {words}"
    telling_heading = wanted & roots_of(line.heading) - roots_of(line.words)
    return f"> {words} ({line.place}{f', under {line.heading}' if telling_heading else ''})"


def _shorten(words: str, wanted: frozenset[str]) -> str:
    """The sentence of a long paragraph that holds most of the question."""
    if len(words) <= MAX_QUOTE:
        return words
    sentences = [part for part in _SENTENCE_END().split(words) if part]
    at = max(range(len(sentences)), key=lambda n: (len(wanted & roots_of(sentences[n])), -n))
    chosen = sentences[at][:MAX_QUOTE].rstrip()
    more = at < len(sentences) - 1 or len(sentences[at]) > MAX_QUOTE
    return f"{'… ' if at else ''}{chosen}{' …' if more else ''}"


def _remarks(index: _IndexState, *, found: bool = True) -> list[str]:
    """Remarks on what the search could not read."""
    why = f": {index.why}" if index.why else ""
    if index.state == "stale":
        count = index.behind_count or len(index.behind)
        some = f" ({', '.join(index.behind[:3])})" if index.behind else ""
        return [f"(Not fresh: {count} changed files{some} could not be read in time{why})"]
    if index.state != "fresh":
        return [f"(Not fresh: there was no time to see what has changed{why})"]
    if not found and index.vectors in ("partial", "down"):
        return [f"(Searched by words only, so other words with the same meaning may be missing{why})"]
    return []


def _read_results(results: Sequence[ToolResult]) -> tuple[_SearchReply, list[QuotableLine]]:
    """The reply of the search, and the lines of all results, each once."""
    reply = _SearchReply()
    lines: dict[tuple[str, int], QuotableLine] = {}
    for result in results:
        found: list[QuotableLine] = []
        try:
            if result.is_error:
                continue
            if result.tool_name == "memory_search":
                reply = msgspec.json.decode(result.text, type=_SearchReply)
                found = [line for passage in reply.results for line in passage.lines()]
            else:
                file = msgspec.json.decode(result.text, type=_FileReply)
                found = split_units(file.path, file.from_, file.text)
        except msgspec.DecodeError:  # truncated, or from another tool of that name
            reply = _UNREADABLE if result.tool_name == "memory_search" else reply
        for line in found:
            if not _is_our_own(line):
                lines.setdefault((line.path, line.number), line)
    return reply, list(lines.values())


def split_units(path: str, first: int, text: str, heading: str = "") -> list[QuotableLine]:
    """The list items, lines and wrapped paragraphs of a text, each with its heading."""
    found: list[QuotableLine] = []
    is_open = False
    for number, raw in enumerate(text.split("\n"), first):
        line = raw.strip()
        if not line or line.startswith(("#", "```", "---", "<!--")):
            heading, is_open = (line.strip("# ") if line.startswith("#") else heading), False
        elif is_open and _continues(found[-1].text, raw):
            found[-1] = msgspec.structs.replace(found[-1], text=f"{found[-1].text} {line}", last=number)
        else:
            found.append(QuotableLine(path, number, raw, heading=heading))
            is_open = True
    return found


def _continues(before: str, raw: str) -> bool:
    """Whether a line continues a wrapped sentence."""
    if _NEW_UNIT().match(raw):
        return False
    ended = before.rstrip().endswith((".", "!", "?", "。", "！", "？"))
    return raw[:2].isspace() or (len(before) > _WRAPPED and not ended)


def _is_our_own(line: QuotableLine) -> bool:
    """Whether we wrote it: a template line, or a reply noted by an older version."""
    noted = line.path.startswith("memory/") and _BY_ASSISTANT.match(line.text) is not None
    return noted or line.text.strip() in _template_lines()


@cache
def _template_lines() -> frozenset[str]:
    return frozenset(map(str.strip, template("USER.md").splitlines()))
