"""Which stored lines speak about a question: content words, a pattern for grep, and a ranking of what it finds.

Deliberately small: words without their endings, runs of Chinese, Japanese and Korean as pairs of characters, rare words
before common ones, new notes before old ones. The pattern is broad, the ranking exact.
"""

from __future__ import annotations

import math
import re

from msgspec import Struct

CJK = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_CJK_RUN = re.compile(f"[{CJK}]+")
_TOKEN = re.compile(rf"[{CJK}]+|(?:(?![{CJK}])[^\W_])+")
_POSSESSIVE = re.compile(r"['’]s?\b", re.IGNORECASE)
_CITED = re.compile(r"(?P<path>\S.*?)#L(?P<line>\d+): ?(?P<text>.*)")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_OR = re.compile(r"(?<!o)or")  # colour and color, but no doour
_BULLET = re.compile(r"\s*(?:[-*+]|\d+[.)]|>)\s+")

MAX_PATTERN = 480  # the grep tool takes 500 characters
MAX_QUOTES = 3
WORTH_QUOTING = 0.6  # of the best line's score

STOP_WORDS = frozenset(
    """
    a about after again all also am an and any anyone anything are as at be because been before being but by can could
    did do does doing don else ever everything find for from gave get give got had has have he her hers him his how i if
    in into is isn it its just kind know let ll look many me mean mentioned mine more most much my no not now
    of off on once one only or our out over please re recall remember remind said say says search she should show so
    some something tell than thank thanks that the their them then there these they thing things think this those to
    told too up us ve very was we were what whats when where which who whom whose why will with would you
    your yours write wrote note noted notes
    什么 怎么 哪里 我的 你的 他的 她的 是什 么是 的是 是不 请问 告诉 诉我 的吗 です ます だっ
    """.split()  # noqa: SIM905  a list of quoted words is harder to read and to mend
)


class Line(Struct, frozen=True):
    """A line of a file, as the grep tool cites it."""

    path: str
    number: int
    text: str

    @property
    def place(self) -> str:
        return f"{self.path}#L{self.number}"

    @property
    def words(self) -> str:
        """The line without the mark of its list."""
        return _BULLET.sub("", self.text, count=1).strip()

    @property
    def is_label(self) -> bool:
        return self.words.rstrip("*_ ").endswith((":", "："))


class Query(Struct, frozen=True):
    """A question's content words: as they were typed, and as stems."""

    shown: tuple[str, ...]
    stems: tuple[str, ...]

    def pattern(self) -> str:
        """For grep: any of the words, by its beginning. No groups or repetitions, which the tool runs more slowly."""
        alternatives: list[str] = []
        for stem in self.stems:
            spellings = dict.fromkeys((stem, _OR.sub("our", stem)))
            alternatives += [re.escape(each) if _CJK_RUN.match(each) else rf"\b{re.escape(each)}" for each in spellings]
        while len("|".join(alternatives)) > MAX_PATTERN:
            alternatives.pop()
        return "|".join(alternatives)


def query_of(text: str) -> Query:
    shown: dict[str, None] = {}
    stems: dict[str, None] = {}
    for token in _tokens(text):
        found = [unit for unit in _units(token) if unit not in STOP_WORDS and len(unit) > 1]
        if found:
            shown[token] = None
            stems.update(dict.fromkeys(map(stem, found)))
    return Query(tuple(shown), tuple(stems))


def cited_lines(result: str) -> list[Line]:
    """The lines that a grep result cites; its remarks are no lines."""
    found = (_CITED.fullmatch(line) for line in result.splitlines())
    return [Line(match["path"].removeprefix("./"), int(match["line"]), match["text"]) for match in found if match]


def best_lines(query: Query, lines: list[Line]) -> list[Line]:
    """At most three lines that hold the most of the question; rarer words weigh more, newer lines win ties."""
    wanted = set(query.stems)
    held = [(line, wanted & (found := _stems(line.text)), found) for line in lines]
    # A label without its value, and a line of nothing but the question's own words, answer nothing.
    candidates = [(line, common) for line, common, found in held if common and found - wanted and not line.is_label]
    counts = {stem: sum(stem in common for _, common in candidates) for stem in wanted}
    weights = {stem: math.log(1 + len(candidates) / count) for stem, count in counts.items() if count}
    scored = {line: sum(weights[stem] for stem in sorted(common)) for line, common in candidates}
    ranked = sorted(scored, key=lambda line: (scored[line], _date(line.path), line.number), reverse=True)
    quoted: dict[str, Line] = {}
    for line in ranked:
        if scored[line] >= WORTH_QUOTING * scored[ranked[0]]:
            quoted.setdefault(line.words, line)
    return list(quoted.values())[:MAX_QUOTES]


def stem(word: str) -> str:
    """A word without its ending, in one spelling. Rough: it may join two words, and seldom parts one."""
    word = word.replace("our", "or") if len(word) > 3 else word
    for ending in ("ing", "ed"):
        root = word.removesuffix(ending)
        if root != word and len(root) >= 3 and not word.endswith("eed"):
            return root[:-1] if len(root) > 3 and root[-1] == root[-2] and root[-1] not in "aeiouslz" else root
    for ending in ("ies", "es"):
        if word.endswith(ending) and len(word) >= len(ending) + 3:
            return word.removesuffix(ending)
    if word.endswith("s") and not word.endswith("ss") and len(word) > 3:
        word = word[:-1]
    if len(word) > 3 and (word[-1] == "e" or (word[-1] == "y" and word[-2] not in "aeiou")):
        return word[:-1]
    return word


def _stems(text: str) -> set[str]:
    return {stem(unit) for token in _tokens(text) for unit in _units(token)}


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(_POSSESSIVE.sub(" ", text).lower())


def _units(token: str) -> list[str]:
    if _CJK_RUN.match(token) and len(token) > 2:
        return [token[at : at + 2] for at in range(len(token) - 1)]
    return [token]


def _date(path: str) -> str:
    found = _DATE.search(path)
    return found[0] if found else ""
