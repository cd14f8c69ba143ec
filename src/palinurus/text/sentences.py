"""Sentences of a message: split, without code, tables and quote marks; and those that are nothing but small talk.

All of it is pure, and linear in the text. Small talk asks for no fact, so that a model that knows none may answer it. A
message counts as such only when every part of it is listed here. English only, because the small model speaks little
else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain

LONGEST = 320  # characters of one sentence
_ENDS = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_SHORT = re.compile(r"(?:^|[\s(])(?:[A-Za-z]|Mrs?|Ms|Dr|Prof|St|No|Nr|vs|etc|e\.g|i\.e|z\.B|bzw|ca|usw|Jan|Feb|Dec)\.$")
_AT_THE_END = 8  # characters in which an abbreviation is looked for
_MARKS = re.compile(r"^\s*(?:[-*+>•]|\d+[.)])\s+|^\s*#+\s+")
CODE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)


def split_sentences(text: str) -> Iterator[str]:
    """Sentences in order, without list markers; a very long one is split."""
    begun: list[str] = []
    for part in _ENDS.split(CODE.sub("", text)):
        begun.append(part)
        if not _SHORT.search(part[-_AT_THE_END:]):  # `Mr.` does not end a sentence
            yield from _wrapped(" ".join(_MARKS.sub("", " ".join(begun)).split()))
            begun = []
    yield from _wrapped(" ".join(" ".join(begun).split()))


def _wrapped(words: str) -> Iterator[str]:
    """Splits a long sentence, between words if possible."""
    start = 0
    while len(words) - start > LONGEST:
        at = words.rfind(" ", start + LONGEST // 2, start + LONGEST)
        at = at if at > 0 else start + LONGEST
        yield words[start:at]
        start = at + 1 if words[at] == " " else at
    if start < len(words):
        yield words[start:]


MOST = 400  # of one text
LONGEST_IDENTIFIER = 200  # characters of one identifier
_SPAN = re.compile(r"`([^`\n]{1,200})`")
_SHAPES = re.compile(
    r"""
    (?P<url>\b[a-z][a-z0-9+.-]{1,15}://[^\s<>"'`）】」]+)
  | (?P<email>(?<![A-Za-z0-9.+-])[A-Za-z0-9_.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64})+)
  | (?P<path>(?:(?<![\w/])(?:~|\.{1,2})?/(?:[\w.@+-]{1,80}/)*[\w.@+-]{1,80}) | \b[A-Za-z]:\\[\w.\\-]+
      | (?<![\w/@+-])(?:[\w@+-]{1,80}/)+[\w@+.-]{0,80}\.\w{1,8})
  | (?P<handle>(?<![\w/])[@\#][A-Za-z0-9_][\w-]{1,60})
  | (?P<word>[A-Za-z0-9][\w]*(?:[-.:_/][A-Za-z0-9_]+)*%?)
    """,
    re.VERBOSE,
)
_NAME_IN_CODE = re.compile(r"[a-z0-9]+_\w+|[A-Z0-9]+_[A-Z0-9_]+|[a-z]+[A-Z]\w*|[A-Z][a-z]+[A-Z]\w*")
_FILE = re.compile(r"[\w/-]+(?:\.[\w-]+)*\.[A-Za-z][A-Za-z0-9]{0,5}")
_ABBREVIATION = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]?")
_ID = re.compile(r"(?=\S*\d)(?=\S*[A-Za-z-])[\w.:-]{6,}|\d{6,}")
_TRAILING = ".,;:!?)]}'\"…。，、"

# Most words are plain. Runs of them are removed first, because looking at each takes ten times
# as long. No pattern matches across a space, so the rest is found as before.
_PLAIN = re.compile(r"(?<!\S)(?:[A-Za-z][a-z]*+[,;:!?.]*+(?:\s++|\Z))++")


def identifiers(text: str, most: int = MOST) -> tuple[str, ...]:
    """In the order of their first appearance, each once."""
    marked = (match.group(1) for match in _SPAN.finditer(text))  # as code
    return _unique(chain(_shaped(text, _is_exact), marked), most)


def addresses(text: str, most: int) -> tuple[str, ...]:
    """Only paths, addresses, handles and ids. For text of which little is worth storing."""
    return _unique(_shaped(text, lambda word: bool(_ID.fullmatch(word)) or _is_file(word)), most)


def _unique(words: Iterator[str], most: int) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for each in words:
        word = each.strip().rstrip(_TRAILING)
        if 1 < len(word) <= LONGEST_IDENTIFIER:
            found.setdefault(word)
            if len(found) >= most:
                break
    return tuple(found)


def _shaped(text: str, tells: Callable[[str], bool]) -> Iterator[str]:
    """Tokens of a special form, and those that are not plain words and of which `tells` is true."""
    for match in _SHAPES.finditer(_PLAIN.sub(" ", text)):
        word = match.group()
        if match.lastgroup != "word" or (not _is_plain(word) and tells(word)):
            yield word


def _is_exact(word: str) -> bool:
    """Whether a token is an identifier rather than a word."""
    if any(character.isdigit() for character in word):
        # A small plain number means little without its sentence; dates, versions and mixed tokens are exact.
        return not word.isdigit() or len(word) >= 4
    return bool(_NAME_IN_CODE.fullmatch(word)) or _is_file(word)


def _is_plain(word: str) -> bool:
    """Whether it is a plain word; faster than a pattern."""
    return word.isalpha() and (word[1:].islower() or len(word) == 1)


def _is_file(word: str) -> bool:
    return bool(_FILE.fullmatch(word)) and not _ABBREVIATION.fullmatch(word)


MAX_SMALL_TALK = 120  # characters
_PARTS = re.compile(r"[.,;:!?…\n]+|\s[-–—]\s")
_SPACES = re.compile(r"\s+")
_ORNAMENT = re.compile(r"[^\w\s'.,;:!?…–—-]+|(?<=[\s.,!?])[:;]-?[)(dp]+")  # emoji, and smileys such as :-)
_YOU = r"(?: (?:there|again|pal|scout|friend|my friend|buddy|mate|dear|everyone))?"
_HELLO = rf"(?:hi|hello|hey|hiya|heya|yo|howdy|greetings|good (?:morning|afternoon|evening|day)|morning|evening){_YOU}"
_PHRASES = (
    _HELLO,
    r"how (?:are you(?: doing| feeling)?|have you been|do you do|was your (?:day|night|weekend))",
    r"how(?:'s| is) (?:it going|life|everything|your day)|what'?s up|sup|are you (?:ok|okay|well|awake|there)",
    rf"(?:many )?thanks(?: a lot| so much| very much| again)?{_YOU}|thx|cheers|much appreciated",
    rf"thank you(?: so much| very much| again| kindly)?{_YOU}",
    rf"(?:bye|goodbye|bye bye|good night|farewell|cya|so long){_YOU}|see you(?: later| soon| tomorrow| around)?",
    r"take care|have a (?:nice|good|great|lovely) (?:day|evening|night|weekend|one)|sleep well",
    r"(?:can you |could you |please )*(?:tell|give) (?:me|us) (?:a|another|one more)(?: \w+)? joke(?: please)?",
    r"(?:a|another|one more) joke(?: please)?|make me (?:laugh|smile)|cheer me up|say something (?:funny|nice|kind)",
    r"(?:ha){2,}h?|(?:he){2,}|lol|rofl|funny|cool|nice|great|awesome|wonderful|amazing|good (?:one|job|work|bot)",
    r"well done|that(?:'s| is| was) (?:so |very |really )?(?:funny|nice|great|good|cool|sweet|kind|hilarious)",
    r"(?:you(?:'re| are)|ur) (?:so |very |really )?(?:funny|nice|great|sweet|kind|cute|awesome|the best|welcome)",
    r"(?:i )?(?:like|love) you|(?:nice|pleased|good|glad) to meet you|no worries|never mind",
    (
        r"(?:i(?:'m| am)|feeling) (?:so |very |really |a bit |a little )?"
        r"(?:bored|tired|sad|happy|lonely|excited|fine|good|well|great|ok|okay|sleepy|doing (?:well|fine|great))"
    ),
    r"happy (?:birthday|new year|holidays|easter|friday)|merry christmas|good luck|congratulations|welcome back",
)


@cache  # compiling takes some milliseconds, and most starts need none of it
def _talk() -> re.Pattern[str]:
    phrase = "|".join(_PHRASES)
    return re.compile(rf"(?:(?:{_HELLO}|ok|okay|and|oh|well|please) )*(?:{phrase})(?: (?:today|then|now|{phrase}))*")


def is_small_talk(text: str) -> bool:
    """Whether a message is nothing but small talk."""
    if len(text) > MAX_SMALL_TALK:
        return False
    plain = _ORNAMENT.sub(" ", f" {text} ".lower().replace("’", "'"))
    parts = [part for each in _PARTS.split(plain) if (part := _SPACES.sub(" ", each).strip())]
    return bool(parts) and all(_talk().fullmatch(part) for part in parts)
