"""Checks the facts that a model has taken from a conversation, before they are stored. Pure.

A model may chat, guess, or repeat what it knows from elsewhere, and none of that is memory. So each fact quotes the
words it is taken from, and is dropped if they were not said; and its content words, names and numbers must occur in the
messages. It may be phrased differently as long as nearly all of its words occur. What the session itself has recalled
from memory is no source: a fact that is recalled a hundred times stays one fact.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, tzinfo
from itertools import chain
from typing import Final

import msgspec
from msgspec import Struct

from palinurus.context.extract import FROM_OUTSIDE
from palinurus.context.notes import Weight, statements
from palinurus.context.view import Line
from palinurus.domain.clock import day_of
from palinurus.domain.messages import AssistantMessage, Origin, ToolResult, UserMessage, texts_in
from palinurus.text.fact_lines import FactKind, NotedFact, mentionable
from palinurus.text.sentences import identifiers
from palinurus.text.words import QUESTION_WORDS, root

ONE_NEW_IN: Final = 5  # share of content words that may be new: notes rephrase
WIDE_SHARE = 0.7  # of the characters of a script without spaces
_ROOT = 5  # characters of a stem by which forms of a word are equal
_START = 4  # or of the word itself: stems join `lives` to `life`
_WORD = re.compile(r"[^\W\d_]{3,}")
_WIDE = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_DATE = re.compile(r"\b(?:19|20)\d\d-\d\d(?:-\d\d)?\b|\b(?:19|20)\d\d\b")  # a note says which day `tomorrow` is
_NAME = re.compile(r"(?<=\w[ ,;:])[A-Z][^\W\d_]{2,}")

# Common words of notes on any subject.
_FREE = """
user owner assistant person people want prefer ask like decide decision plan need mention state use note remember
remembered reminder should always never wish tell each other under own both new now currently today number name date
time place thing conversation session agreed confirm goal task todo open fact info information sure here okay
nutzer benutzer möchte soll usuario quiere prefiere utilisateur préfère souhaite usuário utente gebruiker und der die
das ist mit von für auf den dem ein eine que los las una por con les des une dans pour est sont
"""
_FREE_ROOTS = frozenset(root(word)[:_ROOT] for word in (*_FREE.split(), *QUESTION_WORDS))
_FREE_SIGNS = frozenset(
    "用户戶使用者的是在了和与有不也就都他她它会會要想已ユーザーはがをにでのとしたいますもへ사용자는은이가을를의에"
)


class TextVocabulary(Struct, frozen=True):
    """The content words of a text."""

    roots: frozenset[str]  # stems, and prefixes of words
    numbers: frozenset[str]
    signs: frozenset[str]

    @classmethod
    def of(cls, texts: Iterable[str]) -> TextVocabulary:
        texts = list(texts)
        words = set(chain.from_iterable(map(_words, texts)))
        numbers = frozenset(chain.from_iterable(map(_NUMBER.findall, texts)))
        signs = frozenset(chain.from_iterable(_WIDE.findall(text) for text in texts if not text.isascii()))
        return cls(frozenset(chain.from_iterable(map(_roots, words))), numbers, signs - _FREE_SIGNS)

    def supports(self, note: str) -> bool:
        """Whether every content word of the note occurs here. A note without content words is not supported."""
        words, signs = _words(note), set(_WIDE.findall(note)) - _FREE_SIGNS
        if set(_NUMBER.findall(_DATE.sub(" ", note))) - self.numbers:
            return False
        if not all(map(self._has, _words(" ".join(_NAME.findall(note))))):
            return False
        if signs:
            return len(signs & self.signs) >= WIDE_SHARE * len(signs)
        new = sum(not self._has(word) for word in words)
        return bool(words or _NUMBER.search(note)) and new * ONE_NEW_IN <= len(words)

    def meets(self, note: str) -> bool:
        """Whether one content word of the note occurs here."""
        return (
            any(map(self._has, _words(note)))
            or not self.numbers.isdisjoint(_NUMBER.findall(note))
            or not self.signs.isdisjoint(_WIDE.findall(note))
        )

    def _has(self, word: str) -> bool:
        return not self.roots.isdisjoint(_roots(word))


def _roots(word: str) -> tuple[str, str]:
    return root(word)[:_ROOT], word[:_START]


def _words(text: str) -> set[str]:
    """The content words."""
    found = set(_WORD.findall(text.lower()))
    return {word for word in found if not _WIDE.search(word) and root(word)[:_ROOT] not in _FREE_ROOTS}


MOST = 12_000  # characters of facts at once
LONGEST = 1_000  # of one fact
AT_LEAST = 1_500  # characters that are always allowed, however short the text
MEMORY = "memory_"  # tools whose results were noted before
OF_OUTSIDE = f" {FROM_OUTSIDE}"
_SHORTEST_QUOTE = 3  # characters of it that are no spaces
_THE_USER = frozenset({"", "i", "me", "user", "the user", "owner", "the owner", "nutzer"})


class FactDraft(Struct, frozen=True, forbid_unknown_fields=True):
    """A fact as a model writes it."""

    text: str
    quote: str
    kind: FactKind = "world"
    who: str = ""
    entities: tuple[str, ...] = ()
    occurred_start: str | None = ""
    occurred_end: str | None = ""


class FactCheck(Struct, frozen=True):
    facts: tuple[NotedFact, ...] = ()
    refused: int = 0  # that the session does not support


def read_drafts(answer: str) -> tuple[FactDraft, ...]:
    """The facts of a JSON array. Raises ValueError that says what is wrong."""
    text = answer[answer.find("[") : answer.rfind("]") + 1]
    if not text:
        raise ValueError("it has no JSON array")
    try:
        return msgspec.json.decode(text, type=tuple[FactDraft, ...])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None


def check_drafts(
    drafts: Sequence[FactDraft], lines: Sequence[Line], zone: tzinfo = UTC, *, outside: bool = False
) -> FactCheck:
    """Those that the lines support, and what the user asked to remember and the model has left out.

    `outside`: the model has read text from outside, in these lines or in older ones.
    """
    sources = [line for line in lines if not _is_recalled(line)]
    size, texts = sum(len(line.message.text) for line in sources), [each.text for each in drafts]
    if sum(map(len, texts)) > min(MOST, max(AT_LEAST, size // 2)) or max(map(len, texts), default=0) > LONGEST:
        return FactCheck(refused=len(drafts))
    # The model has read all of it: each of its facts may come from outside (promise 18).
    mark = OF_OUTSIDE if outside or any(texts_in(line.message) for line in lines) else ""
    support = _Support(sources, TextVocabulary.of(_recalled(lines)), zone)
    facts = {each.text: each for draft in drafts if (each := support.fact_of(draft, mark))}
    refused = len(drafts) - len(facts)
    if not facts:
        return FactCheck(refused=refused)
    told = tuple(_left_out(tuple(facts.values()), lines, zone, thorough=bool(refused or mark)))
    own = TextVocabulary.of(each.text for each in told) if mark else None
    # What the user has said himself needs no mark, so it is not noted a second time with one.
    kept = [each for each in facts.values() if own is None or not own.supports(each.text)]
    return FactCheck((*kept, *told), refused)


class _Support:
    """What the messages support."""

    def __init__(self, lines: Sequence[Line], recalled: TextVocabulary, zone: tzinfo) -> None:
        self._recalled, self._zone = recalled, zone
        self._said = TextVocabulary.of(line.message.text for line in lines)
        self._by_others = TextVocabulary.of(
            line.message.text for line in lines if not isinstance(line.message, AssistantMessage)
        )
        self._lines = [(_plain(line.message.text), line.message) for line in lines]

    def fact_of(self, draft: FactDraft, mark: str) -> NotedFact | None:
        """As it is stored; None if it is not supported."""
        text, quote = (
            " ".join(draft.text.replace("<!--", "").replace("-->", "").split()).lstrip(":@ "),
            _plain(draft.quote),
        )
        source = next((message for words, message in self._lines if quote in words), None)
        if source is None or len(quote.replace(" ", "")) < _SHORTEST_QUOTE:
            return None
        if not self._said.supports(text) or not self._by_others.meets(text):
            return None
        is_told = isinstance(source, UserMessage) and source.origin == Origin.OWNER
        if not is_told and self._recalled.supports(text):
            return None
        who = () if draft.who.strip().lower() in _THE_USER else (draft.who,)
        names = [name for name in (*who, *draft.entities) if name.strip().lower() not in _THE_USER]
        return NotedFact(
            text + _occurred(draft, text), draft.kind, mentionable(name for name in names if self._said.supports(name)),
            day_of(source.timestamp, self._zone), mark,
        )  # fmt: skip


def _occurred(draft: FactDraft, text: str) -> str:
    """The time it happened, if the text does not name it. A period stays one."""
    try:
        first = date.fromisoformat(draft.occurred_start or "")
        last = date.fromisoformat(draft.occurred_end or draft.occurred_start or "")
    except ValueError:
        return ""
    if first > last or first.isoformat() in text:
        return ""
    return f" ({first})" if first == last else f" ({first} to {last})"


def _plain(text: str) -> str:
    return " ".join(text.casefold().replace("’", "'").replace("“", '"').replace("”", '"').split())


def _is_recalled(line: Line) -> bool:
    return isinstance(line.message, ToolResult) and line.message.tool_name.startswith(MEMORY)


def _recalled(lines: Iterable[Line]) -> Iterator[str]:
    """What was attached to messages, or looked up in memory."""
    for line in lines:
        if _is_recalled(line):
            yield line.message.text
        elif isinstance(line.message, UserMessage):
            yield from (note.text for note in line.message.context)


def _left_out(
    facts: Sequence[NotedFact], lines: Sequence[Line], zone: tzinfo, *, thorough: bool
) -> Iterator[NotedFact]:
    """What the user asked to remember, or stated with an identifier, and the facts lack.

    `thorough`: and what else he has said of himself, as what the model wrote of it was refused or is marked.
    """
    unmarked = [each.text for each in facts if not each.mark]
    noted, text = TextVocabulary.of(unmarked), "\n".join(unmarked)
    least = Weight.OWN if thorough else Weight.ASKED
    for each in statements(lines, zone):
        lacks = not noted.supports(each.text) if each.weight >= least else False
        if lacks or any(exact not in text for exact in identifiers(each.text)):
            yield each.fact
