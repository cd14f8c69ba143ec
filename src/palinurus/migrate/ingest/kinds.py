"""What kind of thing a sentence says, by the heading it stands under and by its words: decision, preference, rule.

The cues are those of English first, with the commonest words of German, Chinese and Japanese. A sentence that only asks
is none of them.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from palinurus.migrate.ingest.fact import Fact

Kind = Literal["decision", "preference", "pattern"]

_DECISION = re.compile(
    r"^\W*(?:decision|decided|entscheidung|beschluss)\b|\b(?:we|i|they|he|she|team) (?:have |has |had )?(?:decided|"
    r"agreed|settled|chose|opted)\b|\bdecided (?:to|on|that|against)\b|\bagreed (?:to|on|that)\b|\bgoing with\b"
    r"|\bwe(?:'ll| will) (?:use|go|keep|take|switch)\b|\bsettled on\b|\bchose .{2,60}\b(?:over|instead)\b"
    r"|\bentschieden\b|决定|決めた|決まり|選んだ"
)
_PREFERENCE = re.compile(
    r"\bprefer(?:s|red)?\b|\b(?:likes?|loves?|hates?|dislikes?|enjoys?|favou?rs?)\b(?! (?:this|that|it)\b)"
    r"|\bfavou?rite\b|\buses? .{1,40}\bover\b|\b(?:instead of|rather than)\b.{1,60}$|\bcalls? (?:me|them|her|him)\b"
    r"|\bwrites? dates\b|\b(?:can't|cannot) stand\b|\ballergic to\b|\b(?:mag|bevorzugt|lieblings\w+)\b"
    r"|喜欢|讨厌|好き|嫌い"
)
_PATTERN = re.compile(
    r"\b(?:always|never|whenever|every time|each time|from now on|make sure|must not|must|only ever|as a rule)\b"
    r"|^\W*(?:rule|lesson|pattern|habit|workflow|tip)s?\b ?:|\b(?:turned out|root cause|lesson learned)\b"
    r"|\b(?:immer|niemals|grundsätzlich)\b|必须|总是|必ず|決して"
)
_UNDER: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("decision", re.compile(r"\bdecisions?\b|\bentscheidungen?\b|决定|決定")),
    ("preference", re.compile(r"\bpreferences?\b|\blikes\b|\bvorlieben\b|偏好|好み")),
    ("pattern", re.compile(r"\bpatterns?\b|\brules?\b|\blessons?\b|\bhabits?\b|\bworkflows?\b|\bregeln\b|规则|ルール")),
)
_WORDS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("decision", _DECISION),
    ("preference", _PREFERENCE),
    ("pattern", _PATTERN),
)


# Of each cue the words without which it cannot match, where the script is no Chinese or Japanese.
_NEEDED = frozenset(
    (
        *("decision", "decided", "entscheidung", "beschluss", "agreed", "settled", "chose", "opted", "going", "ll"),
        *("will", "entschieden", "prefer", "prefers", "preferred", "like", "likes", "love", "loves", "hate", "hates"),
        *("dislike", "dislikes", "enjoy", "enjoys", "favor", "favors", "favour", "favours", "favorite", "favourite"),
        *("over", "instead", "rather", "call", "calls", "dates", "stand", "allergic", "mag", "bevorzugt", "always"),
        *("never", "whenever", "time", "now", "sure", "must", "ever", "rule", "rules", "lesson", "lessons", "pattern"),
        *("patterns", "habit", "habits", "workflow", "workflows", "tip", "tips", "out", "cause", "immer", "niemals"),
        "grundsätzlich",
    )
)
_WORD = re.compile(r"\w+")
_WITHOUT_SPACES = re.compile("[\u3040-\u9fff]")
_OWN = re.compile(r"^\W*(?:prefers?|likes?|loves?|hates?|dislikes?|enjoys?|uses|writes|wants|mag|bevorzugt)\b")
_I = re.compile(r"\b(?:i|i'm|my|me|we|our|ich|mein\w*|wir)\b|我|私")


def is_the_owners(fact: Fact) -> bool:
    """Whether a preference that names nobody is the owner's: under such a heading, without a subject, or with `I`."""
    small = fact.text.lower().replace("’", "'")
    if any(_UNDER[1][1].search(heading.lower()) for heading in fact.under) or _OWN.match(small):
        return True
    return fact.by_owner and bool(_I.search(small))


def kind_of(fact: Fact) -> Kind | None:
    """The nearest heading decides; then the words."""
    if fact.path or fact.text.endswith(("?", "？")):
        return None
    for heading in reversed(fact.under):
        if kind := _kind_under(heading):
            return kind
    return kind_by_words(fact.text)


@lru_cache(4096)
def _kind_under(heading: str) -> Kind | None:
    small = heading.lower()
    return next((kind for kind, cue in _UNDER if cue.search(small)), None)


def kind_by_words(text: str) -> Kind | None:
    small = text.lower().replace("’", "'")
    if not _may_match(small):  # most sentences: no pattern need be tried
        return None
    return next((kind for kind, cue in _WORDS if cue.search(small)), None)


def _may_match(small: str) -> bool:
    if not _NEEDED.isdisjoint(_WORD.findall(small)) or "lieblings" in small:
        return True
    return not small.isascii() and _WITHOUT_SPACES.search(small) is not None
