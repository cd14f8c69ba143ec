"""Words for a text index: OR queries without stop words, and bigrams where a script has no spaces.

Requiring every word finds 6 % of what natural questions ask for; any word, ranked, finds 90 % (measured on LoCoMo).
"""

from __future__ import annotations

import re

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_CJK_RUN = re.compile(f"[{_CJK}]+")
_WORD = re.compile(r"\w+")
_STOP = """a an and are as at be been but by can could did do does for from had has have he her his how i if in into
is it its me my of on or our she so than that the their them then there these they this to was we were what when where
which who why will with would you your"""
STOP_WORDS = frozenset(_STOP.split())


def _bigrams(run: str) -> str:
    return run if len(run) == 1 else " ".join(run[i : i + 2] for i in range(len(run) - 1))


def index_text(text: str) -> str:
    """What goes into the text index for this text."""
    return _CJK_RUN.sub(lambda match: f" {_bigrams(match.group())} ", text)


def match_query(text: str) -> str:
    """An FTS5 query that matches any of the words; empty when the text has none."""
    words = dict.fromkeys(_WORD.findall(index_text(text).lower()))
    useful = [word for word in words if word not in STOP_WORDS] or list(words)
    return " OR ".join(f'"{word}"' for word in useful[:64])
