"""What somebody may have meant who typed a name that is none."""

from __future__ import annotations

from collections.abc import Iterable

LONGEST = 64  # of a name that is compared: the comparison takes longer than the text grows
CLOSE = 0.6


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that comes nearest; empty when none comes near."""
    import difflib  # takes longer to import than most modules, and most names are right

    wanted = name.strip().lower()[:LONGEST]
    by_name = {each.lower()[:LONGEST]: each for each in known}
    close = difflib.get_close_matches(wanted, by_name, 1, CLOSE) if wanted else []
    return by_name[close[0]] if close else ""
