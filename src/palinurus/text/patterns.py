"""Find patterns of the config in text that anybody may have written, in time linear in the text.

Python's `re` tries alternatives one after the other, so a few nested repeats and a hostile text can take hours. Here
all alternatives are followed at the same time, one character after the other: the work per character is bounded by the
size of the patterns. What cannot be matched that way (look-around, back references) is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from re import _constants as sre  # type: ignore[attr-defined]  # the parser of `re`: there is no public one
from re import _parser  # type: ignore[attr-defined]
from typing import Any

from msgspec import Struct

MOST_PATTERNS = 50
LONGEST_PATTERN = 200
MOST_STATES = 500  # of all patterns together
LONGEST_TEXT = 8_000  # characters that are searched
MOST_KEPT = 5_000  # steps that are remembered


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


Accepts = Callable[[str], bool]
"""Whether a character fits."""
_CATEGORIES: dict[Any, Accepts] = {
    sre.CATEGORY_DIGIT: str.isdecimal,
    sre.CATEGORY_NOT_DIGIT: lambda char: not char.isdecimal(),
    sre.CATEGORY_SPACE: str.isspace,
    sre.CATEGORY_NOT_SPACE: lambda char: not char.isspace(),
    sre.CATEGORY_WORD: _is_word,
    sre.CATEGORY_NOT_WORD: lambda char: not _is_word(char),
}
_REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)
_EDGES = {
    sre.AT_BEGINNING,
    sre.AT_BEGINNING_STRING,
    sre.AT_END,
    sre.AT_END_STRING,
    sre.AT_BOUNDARY,
    sre.AT_NON_BOUNDARY,
}


class _State(Struct):
    """One state: it takes a character, or goes on without one."""

    to: tuple[int, ...]
    takes: Accepts | None = None
    edge: Any = None  # it goes on only at such a place


class _Gap(Struct, frozen=True):
    """What is around the place between two characters."""

    word_before: bool
    word_after: bool
    start: bool
    end: bool


class LinearPatterns:
    """Several patterns, regardless of case. Raises ValueError for one that cannot be used."""

    def __init__(self, patterns: Iterable[str]) -> None:
        listed = tuple(patterns)
        if len(listed) > MOST_PATTERNS:
            raise ValueError(f"should have at most {MOST_PATTERNS} patterns")
        self._states: list[_State] = [_State(())]  # the first is the end
        self._starts = frozenset(self._add(_parsed(each), 0) for each in listed)
        self._steps: dict[tuple[frozenset[int], bool, bool, str], frozenset[int]] = {}

    def found_in(self, text: str) -> bool:
        """Whether one of them matches anywhere in the first 8,000 characters."""
        if not self._starts:
            return False
        states: frozenset[int] = frozenset()
        before, start = False, True
        for char in text[:LONGEST_TEXT]:
            states = self._step(states, before, start, char)
            if 0 in states:
                return True
            before, start = _is_word(char), False
        return 0 in self._reached(states | self._starts, _Gap(before, False, start, True))

    def _step(self, states: frozenset[int], before: bool, start: bool, char: str) -> frozenset[int]:
        known = self._steps.get((states, before, start, char))
        if known is not None:
            return known
        reached = self._reached(states | self._starts, _Gap(before, _is_word(char), start, False))
        following = {0} if 0 in reached else set()
        for each in reached:
            state = self._states[each]
            if state.takes is not None and state.takes(char):
                following.update(state.to)
        if len(self._steps) >= MOST_KEPT:
            self._steps.clear()
        found = self._steps[states, before, start, char] = frozenset(following)
        return found

    def _reached(self, states: Iterable[int], gap: _Gap) -> set[int]:
        """All states that are reached without another character."""
        reached: set[int] = set()
        open_ = list(states)
        while open_:
            each = open_.pop()
            if each in reached:
                continue
            reached.add(each)
            state = self._states[each]
            if state.takes is None and (state.edge is None or _is_edge(state.edge, gap)):
                open_.extend(state.to)
        return reached

    def _add(self, tree: Iterable[tuple[Any, Any]], end: int) -> int:
        """Adds a sequence that goes on to `end`; returns its start."""
        for kind, value in reversed(list(tree)):
            end = self._add_one(kind, value, end)
        return end

    def _add_one(self, kind: Any, value: Any, end: int) -> int:
        if kind in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN):
            return self._new(_State((end,), _accepts(kind, value)))
        if kind is sre.AT and value in _EDGES:
            return self._new(_State((end,), edge=value))
        if kind is sre.SUBPATTERN:
            return self._add(value[-1], end)
        if kind is sre.ATOMIC_GROUP:
            return self._add(value, end)
        if kind is sre.BRANCH:
            return self._new(_State(tuple(self._add(each, end) for each in value[1])))
        if kind in _REPEATS:
            return self._repeat(value[0], value[1], value[2], end)
        raise ValueError("looks around or back, which cannot be searched for in bounded time")

    def _repeat(self, least: int, most: Any, tree: Any, end: int) -> int:
        if least > MOST_STATES:
            raise ValueError("repeats something too often")
        start = end
        if most is sre.MAXREPEAT:
            start = self._new(_State((end,)))
            self._states[start].to = (end, self._add(tree, start))
        else:
            for _ in range(most - least):
                start = self._new(_State((end, self._add(tree, start))))
        for _ in range(least):
            start = self._add(tree, start)
        return start

    def _new(self, state: _State) -> int:
        if len(self._states) >= MOST_STATES:
            raise ValueError("is too large a pattern; write a shorter one, or fewer repeats")
        self._states.append(state)
        return len(self._states) - 1


def _parsed(pattern: str) -> Any:
    if not 0 < len(pattern) <= LONGEST_PATTERN:
        raise ValueError(f"should have 1 to {LONGEST_PATTERN} characters")
    try:
        return _parser.parse(pattern, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is not a regular expression: {error}") from None


def _accepts(kind: Any, value: Any) -> Accepts:
    if kind is sre.ANY:
        return lambda char: char != "\n"
    if kind is not sre.IN:
        return _any_case([_equal(value)], kind is sre.NOT_LITERAL)
    negated = value[0][0] is sre.NEGATE
    return _any_case([_member(*each) for each in value[negated:]], negated)


def _any_case(members: list[Accepts], negated: bool) -> Accepts:
    def accepts(char: str) -> bool:
        forms = {char, char.lower(), char.upper()}
        return any(fits(form) for fits in members for form in forms) is not negated

    return accepts


def _member(kind: Any, value: Any) -> Accepts:
    if kind is sre.RANGE:
        return lambda char: len(char) == 1 and value[0] <= ord(char) <= value[1]
    return _CATEGORIES[value] if kind is sre.CATEGORY else _equal(value)


def _equal(value: int) -> Accepts:
    wanted = chr(value)
    return lambda char: char == wanted


def _is_edge(edge: Any, gap: _Gap) -> bool:
    if edge in (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING):
        return gap.start
    if edge in (sre.AT_END, sre.AT_END_STRING):
        return gap.end
    return (gap.word_before is not gap.word_after) is (edge is sre.AT_BOUNDARY)
