"""Filters that may always run, because all they can do is read their standard input and write their standard output.

Each has a profile of the options that keep it so. Every other option is a miss, also one that is only cut short: GNU
programs take `--out` for `--output`. So is every operand that could be a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from palinurus.domain.plan import Invocation
from palinurus.tools.commands.resolve import is_systems_own
from palinurus.tools.commands.script import base_name, names


class Profile(Struct, frozen=True):
    """Letters of switches and of options with a value; the same as long names; how many operands, none of them files.

    A value is whatever follows: none of these options names a file.
    """

    switches: str = ""
    valued: str = ""
    long: frozenset[str] = frozenset()
    long_valued: frozenset[str] = frozenset()
    operands: range = range(1)
    number: bool = False  # `-5` is an option


PROFILES: Mapping[str, Profile] = {
    "cat": Profile("AbEenstTuv", long=names("number number-nonblank show-all show-ends show-tabs squeeze-blank")),
    "cut": Profile(
        "nsz",
        "bcdf",
        names("complement only-delimited zero-terminated"),
        names("bytes characters delimiter fields output-delimiter"),
    ),
    "fold": Profile("bs", "w", names("bytes spaces"), names("width")),
    "grep": Profile(
        "EFGchinoqsvwxz",
        "mABC",
        names("count extended-regexp fixed-strings ignore-case invert-match line-number only-matching quiet"),
        names("max-count after-context before-context context"),
        range(1, 2),
    ),
    "head": Profile("qz", "cn", names("quiet silent zero-terminated"), names("bytes lines"), number=True),
    "nl": Profile("p", "bdfhilnsvw"),
    "rev": Profile(),
    "sort": Profile(
        "bcCdfgiMhnRrVmsuz",
        "kt",
        names("check ignore-case numeric-sort human-numeric-sort version-sort reverse stable unique zero-terminated"),
        names("key field-separator"),
    ),
    "tac": Profile("b", "s", names("before"), names("separator")),
    "tail": Profile("qz", "cn", names("quiet silent zero-terminated"), names("bytes lines"), number=True),
    "tr": Profile("cCdst", long=names("complement delete squeeze-repeats truncate-set1"), operands=range(1, 3)),
    "uniq": Profile(
        "cdDiuz",
        "fsw",
        names("count repeated ignore-case unique zero-terminated"),
        names("skip-fields skip-chars check-chars"),
    ),
    "wc": Profile("cmlLw", long=names("bytes chars lines max-line-length words")),
}


def is_safe(found: Invocation, safe_bins: Sequence[str]) -> bool:
    """Whether it is one of these filters, the system's own, and given only what its profile lists."""
    profile = PROFILES.get(base_name(found.binary))
    return profile is not None and is_systems_own(found, safe_bins) and _fits(profile, found.args)


def without_profile(safe_bins: Sequence[str]) -> list[str]:
    """Those of a config for which we have no profile: they are never taken for safe."""
    return [name for name in safe_bins if name not in PROFILES]


def _fits(profile: Profile, args: Sequence[str]) -> bool:
    operands = 0
    rest = iter(args)
    for arg in rest:
        if not arg.startswith("-"):
            operands += 1
            continue
        wants = _wants_value(profile, arg)
        if wants is None or (wants and next(rest, None) is None):
            return False
    return operands in profile.operands


def _wants_value(profile: Profile, arg: str) -> bool | None:
    """Whether the next argument is this option's value; None for what the profile does not list."""
    if arg.startswith("--"):
        name, equals, _ = arg[2:].partition("=")
        return False if name in (profile.long_valued if equals else profile.long) else None
    if profile.number and arg[1:].isascii() and arg[1:].isdigit():
        return False
    for place, letter in enumerate(arg[1:], start=2):
        if letter in profile.valued:
            return place == len(arg)
        if letter not in profile.switches:
            return None
    return False if len(arg) > 1 else None  # a lone dash names a file for some, a set for others
