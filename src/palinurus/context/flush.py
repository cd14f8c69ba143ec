"""Makes durable notes before history leaves the window.

A model writes better notes than a rule, so it is called when there is time and something to note: on a private copy of
the session, of which nothing enters the transcript. Each of its lines is checked against the messages, and refused if
they do not support it; what the user asked to remember and the model left out is added. If the model fails, times out
or returns nonsense, the notes are made by rule, which are often none.

A note is checked by its content words, names and numbers: they must occur in the messages. A model may chat, guess, or
repeat what it knows from elsewhere, and none of that is memory. A note may be phrased differently as long as nearly all
of its words occur; a number or a name that does not occur is refused.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import UTC, tzinfo
from itertools import chain

from msgspec import Struct

from palinurus.context.budget import run_off_loop
from palinurus.context.extract import FROM_OUTSIDE
from palinurus.context.notes import Weight, extract_notes, is_worth_asking, statements
from palinurus.context.view import Line
from palinurus.domain.clock import Clock, NewId, local_time
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, texts_in
from palinurus.sessions.extraction import Extraction
from palinurus.sessions.session import Session
from palinurus.text.sentences import identifiers
from palinurus.text.words import QUESTION_WORDS, root

ONE_NEW_IN = 5  # share of content words that may be new: notes rephrase
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


log = logging.getLogger(__name__)
SILENT = "NO_REPLY"
MOST = 12_000  # characters of notes that a model may write
LONGEST = 1_000  # of one note
AT_LEAST = 1_500  # characters that are always allowed, however short the text
QUESTION = f"""[This is not from the user, and nobody will read an answer to it in the conversation.]
Older parts of this conversation will soon be out of sight. Write down what should be remembered of it for good: what \
the user asked to remember, prefers, decided or still wants, facts about people and things, open tasks, and what was \
found out. Only what was said here, in its own words and language: a line with other names, numbers or words is \
thrown away. One note a line, each beginning with "- " and understandable without the conversation: with names, \
absolute dates, numbers, paths and ids exactly as they were said. Leave out questions, commands, small talk, what you \
said of yourself, and what MEMORY.md or an earlier summary says already. Do not call a tool. Answer with the notes \
alone, or with {SILENT} when there is nothing to remember."""
ADDED = "\n\nThe owner of this home adds (still without tools, and in notes): "
AskSilently = Callable[[str], Awaitable[str | None]]
"""Sends a prompt to the session's model after a private copy of the session, and returns its reply.

None if it did not answer in time or at all. Must not raise, and has its own time limit.
"""

_ITEM = re.compile(r"^\s*(?:[-*+•]|\d+[.)])\s+")
_REFUSAL = re.compile(
    r"\b(i('m| am) (sorry|unable)|i (can(no|')t|won't|am not able)|as an ai)\b"
    r"|es tut mir leid|ich kann (das |dabei )?nicht|抱歉|对不起|申し訳",
    re.IGNORECASE,
)


class Flush:
    """Makes the notes: by a model if one may be called, else by rule."""

    def __init__(self, clock: Clock, new_id: NewId) -> None:
        self._clock = clock
        self._new_id = new_id

    async def extracted(
        self,
        session: Session,
        key: SessionKey,
        lines: Sequence[Line],
        *,
        silent: AskSilently | None = None,
        added: str = "",
        outside: bool = False,
    ) -> Extraction:
        """Notes of these lines, of which there is at least one; none if nothing is worth storing.

        `added`: additional instructions from the config; `outside`: the model reads outside text, in these lines or in
        older ones.
        """
        notes = ""
        # Notes that will not be searched are not worth a call, and neither is a session without news.
        if silent is not None and key.is_private and await run_off_loop(lines, lambda: is_worth_asking(lines)):
            written = await silent(f"{QUESTION}{ADDED}{added}" if added else QUESTION) or ""
            checked = await run_off_loop(lines, lambda: check_notes(written, lines, self._clock.zone, outside=outside))
            notes = checked.notes
            if checked.refused:
                log.info(
                    "%s: %d of the model's notes were refused: the messages do not support them", key, checked.refused
                )
        return Extraction(
            id=self._new_id(),
            session_id=session.id,
            up_to=lines[-1].id,
            notes=notes or await run_off_loop(lines, lambda: extract_notes(lines, zone=self._clock.zone)),
            made_by="model" if notes else "extractor",
            private=key.is_private,
            day=f"{local_time(self._clock):%Y-%m-%d}",
            at=self._clock.now_ms(),
            key=str(key),
        )


class NoteCheck(Struct, frozen=True):
    """The notes of a model as stored, one bullet per line; empty if they cannot be used."""

    notes: str = ""
    refused: int = 0  # lines that the session does not support


def check_notes(text: str, lines: Sequence[Line], zone: tzinfo = UTC, *, outside: bool = False) -> NoteCheck:
    written = _bullets(text)
    texts = [line.message.text for line in lines]
    size = sum(map(len, texts))
    if not written or _REFUSAL.search(written[0]):
        return NoteCheck()
    if sum(map(len, written)) > min(MOST, max(AT_LEAST, size // 2)) or max(map(len, written)) > LONGEST:
        return NoteCheck(refused=len(written))
    said = TextVocabulary.of(texts)
    by_others = TextVocabulary.of(line.message.text for line in lines if not isinstance(line.message, AssistantMessage))
    notes = [note for note in written if said.supports(note) and by_others.meets(note)]
    refused = len(written) - len(notes)
    if not notes:
        return NoteCheck(refused=refused)
    # The model has read all of it: each of its notes may come from outside (promise 18).
    if outside or any(texts_in(line.message) for line in lines):
        notes = [note if FROM_OUTSIDE in note else f"{note} {FROM_OUTSIDE}" for note in notes]
    return NoteCheck("\n".join([*notes, *_left_out(notes, lines, zone, refused)]), refused)


def _left_out(notes: Sequence[str], lines: Sequence[Line], zone: tzinfo, refused: int) -> Iterator[str]:
    """What the user asked to remember, or stated with an identifier, and the notes lack.

    And more if some of the notes were refused: those may have been about it.
    """
    noted, text = TextVocabulary.of(notes), "\n".join(notes)
    least = Weight.OWN if refused else Weight.ASKED
    for each in statements(lines, zone):
        lacks = not noted.supports(each.text) if each.weight >= least else False
        if lacks or any(exact not in text for exact in identifiers(each.text)):
            yield each.line


def _bullets(text: str) -> list[str]:
    """Each line as one bullet. Headings and fences would change the file that holds the notes."""
    found: dict[str, None] = {}
    for line in text.splitlines():
        words = " ".join(_ITEM.sub("", line).replace("<!--", "").replace("-->", "").split())
        is_frame = words.startswith(("#", "```", "~~~", "---")) or words.endswith((":", "：")) or SILENT in words
        if words and not is_frame:
            found.setdefault(f"- {words}")
    return list(found)
