"""What a sentence wants: a note, a file, a list, or an answer from memory. Pure.

What is no command is a question. It goes to the search of memory where that is offered, and to grep where it is not.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import date, timedelta
from typing import Any

from msgspec import Struct

from palinurus.providers.scout.asked import Asked, asked
from palinurus.providers.scout.patterns import later
from palinurus.providers.scout.words import script_of, spellings

MOST_MATCHES = 200
MAX_PATTERN = 480  # the grep tool takes 500 characters
LONGEST_COMMAND = 1_000
MOST_DAYS = 7  # that are read whole
MY_WORDS = "I me my we our"  # by which older lines about the person are found
WHO = "I am scout: I note what you tell me, find it again and quote it, without a language model."
ABOUT_YOU = ("USER.md", "MEMORY.md")

_POLITE = r"(?:(?:please|pal|ok|okay|hey|can you|could you|would you|will you)[\s,:]+)*"
_REMEMBER = later(
    rf"{_POLITE}(?:remember|(?:make|take) a note|note(?: down)?|write down|jot down|keep in mind"
    r"|(?:don['’]?t|do not) forget|merke? dir|recuerda|souviens-toi)(?![\w'’])[\s,:]*"
    r"(?P<that>(?:that|dass|que)\s+)?(?P<text>\S.*)",
    re.IGNORECASE | re.DOTALL,
)
_REMEMBER_CJK = later(
    r"[请請]?(?:[帮幫]我)?(?:[记記][住下得]|[记記]一下)[\s,:，：]*(?P<text>\S.*)(?P<that>)", re.DOTALL
)
_REMEMBER_JAPANESE = later(
    r"(?:ということ)?(?:を|と|って)?、?\s*(?:覚えて|メモして)(?:おいて)?(?:ください|ね)?[。！!]*$"
)
_FILES = later(
    rf"{_POLITE}(?:(?:list|show)(?: me)?(?: all)?(?: the| my| your)? files"
    r"|(?:what|which) files(?: (?:are there|are|exist|do you have|can you see))?|ls)"
    r"(?: (?:(?:in|of|under) )?(?:the )?(?P<path>[^\s?!]+))?[\s?.!]*",
    re.IGNORECASE,
)
_WORKSPACE = later(
    rf"{_POLITE}(?:(?:(?:have|take) a )?look (?:through|around(?: in)?|into|in|at)|go through|explore|list|show(?: me)?"
    r"|what(?:['’]s| is)(?: there)? in|see what(?:['’]s| is) in)(?: the| my| your| this)? (?:workspace|files|folder)"
    r"(?:(?:,| and)? (?:tell|show)(?: me)? what(?:(?:['’]s| is) (?:there|in it|inside)| you (?:see|find|have found)))?"
    r"[\s?.!]*",
    re.IGNORECASE,
)
_NOTES = later(
    rf"{_POLITE}(?:list|show)(?: me)?(?: all)?(?: the| my| your)? (?:notes|memory|memories)[.!?]*", re.IGNORECASE
)
_READ = later(
    rf"{_POLITE}(?:read|show|open|cat|print|display|what(?:['’]s| is) in)(?: me)?(?: the)?(?: file)?\s+"
    r"[`\"']?(?P<path>[^\s`\"'?]*[./][^\s`\"'?]*\w)[`\"']?\s*[?.!]*",
    re.IGNORECASE,
)
_GREETING = r"hi|hello|hey|hiya|good (?:morning|afternoon|evening|day)|greetings"
_ABOUT_SCOUT = (
    rf"/?help(?: me)?|{_GREETING}|what (?:can|do) you do(?: for me)?|who are you|what are you|how are you"
    r"|what can i (?:ask|say|do)(?: you| here)?|how does (?:this|it) work|(?:introduce|tell me about) yourself"
)
_HELP = later(
    rf"{_POLITE}(?:{_ABOUT_SCOUT})(?:[ ,]+(?:there|pal|scout))?"
    rf"(?:[\s,.!?]+(?:(?:and|so)[\s,]+)?(?:{_ABOUT_SCOUT})(?:[ ,]+(?:there|pal|scout))?){{0,3}}[\s?.!]*",
    re.IGNORECASE,
)
_WHO = later(r"\b(?:who|what) are you\b|yourself\b", re.IGNORECASE)
_THANKS = later(
    r"(?:ok(?:ay)?[\s,]+)?(?:thanks|thank you|thx)(?: (?:a lot|very much|so much|pal))?[\s.!]*", re.IGNORECASE
)


class Call(Struct, frozen=True):
    tool: str
    arguments: dict[str, Any] = {}


class Intent(Struct, frozen=True):
    """What the person wants: tools to call, or nothing but words."""

    calls: tuple[Call, ...] = ()
    answer: str = ""
    asked: Asked | None = None  # a question, which the results answer
    help: bool = False


def understand(text: str, offered: Collection[str], today: date) -> Intent:
    """What a sentence asks for."""
    text = text.strip()
    if not text or (len(text) <= LONGEST_COMMAND and _HELP().fullmatch(text)):
        return Intent(help=True, answer=WHO if _WHO().search(text) else "")
    if _THANKS().fullmatch(text):
        return Intent(answer="You are welcome.")
    if note := _to_remember(text):
        tool = "note" if "note" in offered and "memory_write" not in offered else "memory_write"
        return Intent((Call(tool, {"text": note}),))
    call = _about_files(text) if len(text) <= LONGEST_COMMAND else None
    return Intent((call,)) if call else _question(asked(text, today), offered, today)


def _about_files(text: str) -> Call | None:
    if found := _READ().fullmatch(text):
        return Call("read", {"path": found["path"]})
    if _NOTES().fullmatch(text):
        return Call("ls", {"path": "memory"})
    if _WORKSPACE().fullmatch(text):
        return Call("ls")
    if found := _FILES().fullmatch(text):
        return Call("ls", {"path": found["path"]} if found["path"] else {})
    return None


def _question(wanted: Asked, offered: Collection[str], today: date) -> Intent:
    if not wanted.words and not wanted.period and not wanted.mine:
        return Intent(answer="Ask me with a word that may stand in my notes, or say `help`.")
    if "memory_search" not in offered and "grep" in offered:
        return _grep(wanted, today)
    gets = tuple(Call("memory_get", {"path": path}) for path in _whole_files(wanted, today) if "memory_get" in offered)
    search = Call("memory_search", {"query": MY_WORDS if wanted.mine else wanted.query})
    return Intent((*gets, search) if wanted.mine else (search, *gets), asked=wanted)


def _grep(wanted: Asked, today: date) -> Intent:
    """Where memory cannot be searched: by words, or by reading the file that a question without words means."""
    if not wanted.subject and not wanted.topics and (files := _whole_files(wanted, today)):
        return Intent((Call("read", {"path": files[0]}),))
    return Intent((Call("grep", {"pattern": grep_pattern(wanted), "max": MOST_MATCHES}),), asked=wanted)


def _whole_files(wanted: Asked, today: date) -> list[str]:
    """Daily notes that are read whole: a day's notes need not hold a word of a question about the day.

    What will be was written down before: today, or on the day before. Of the person who asks the newest say the most.
    """
    if wanted.mine:
        return [*ABOUT_YOU, *(f"memory/{today - timedelta(back)}.md" for back in range(MOST_DAYS))]
    period = wanted.period
    if period is None or period.length > MOST_DAYS:
        return []
    before = [today, period.first - timedelta(1)] if period.last >= today else []
    return [f"memory/{day.isoformat()}.md" for day in sorted({*period.days, *before}) if day <= today]


def grep_pattern(wanted: Asked) -> str:
    """Any of the words, by its beginning. No groups or repetitions, which the tool runs more slowly."""
    words = [*wanted.shown, *([str(wanted.period)] if wanted.period else [])]
    found = dict.fromkeys(each for word in words for each in spellings(word))
    alternatives = [re.escape(each) if script_of(each[0]) else rf"\b{re.escape(each)}" for each in found]
    while len("|".join(alternatives)) > MAX_PATTERN:
        alternatives.pop()
    return "|".join(alternatives)


def _to_remember(text: str) -> str:
    found = _REMEMBER().fullmatch(text)
    if not found and not text.isascii():
        if told := _REMEMBER_JAPANESE().search(text):
            return text[: told.start()].strip()
        found = _REMEMBER_CJK().fullmatch(text)
    if not found:
        return ""
    note = found["text"].strip()
    asks = note.endswith(("?", "？", "吗", "嗎"))
    if asks and not found["that"]:  # "remember what colour it is?" asks, "can you remember that it is green?" tells
        return ""
    return note.rstrip("?？").rstrip()
