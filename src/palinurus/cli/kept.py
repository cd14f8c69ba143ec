"""An answer of `pal skills list` that still holds, given before anything else is imported.

Importing what works the answer out takes longer than the working out. So the answer is kept with all that it rests on:
how every file and folder looked that had a say in it (skills, config, programs, our own code), and which variables were
set. As long as all of that is as it was, the answer is the same. One stat for each; anything else, and anything odd,
sends the caller the ordinary way. The kept file is derived and holds no secret: of variables it has only whether they
are set, but for those that say where the home is.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False  # importing it from typing would take as long as the rest of this
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ASKED = (["skills", "list"], ["skills", "list", "--json"])
PLACES = ("HOME", "PATH", "PALINURUS_HOME", "PALINURUS_PROFILE", "PALINURUS_CONFIG_PATH")
FORMAT = "pal kept answer 1"
SETTLED_NS = 50_000_000  # what changed so recently may change again and look the same
GONE = "-"


def kept_answer(argv: Sequence[str], env: Mapping[str, str]) -> str | None:
    """What `argv` is answered with, if that is known and still true."""
    place = _place(argv, env)
    if place is None:
        return None
    try:
        with open(place, encoding="utf-8", newline="") as file:  # noqa: PTH123  pathlib is not imported here
            head, _, answer = file.read().partition("\n\n")
    except (OSError, ValueError):
        return None
    told, _, marks = head.partition("\n\t")
    if told != _circumstances(argv, env, _names(told)):
        return None
    for mark in marks.split("\n\t"):
        path, _, looks = mark.partition("\t")
        if _look(path) != looks:
            return None
    return answer


def keep_answer(
    argv: Sequence[str], env: Mapping[str, str], answer: str, paths: Mapping[str, str | None], variables: Iterable[str]
) -> bytes | None:
    """What to keep of an answer that rests on these paths (as `look` saw them) and on these variables being set.

    None when it cannot be kept: something changed a moment ago, or a name is of a kind that the file cannot hold.
    """
    looks = {**paths, **{path: look(path) for path in _our_code()}}
    names = sorted(set(variables))
    if any(value is None for value in looks.values()):
        return None
    if any(not text.isprintable() for text in (*looks, *names, *(env.get(name, "") for name in PLACES))):
        return None
    lines = [_circumstances(argv, env, names), *(f"\t{path}\t{seen}" for path, seen in looks.items())]
    return "\n".join((*lines, "", answer)).encode()


def look(path: str) -> str | None:
    """How it looks now; None when it changed so recently that this says little."""
    seen = _look(path)
    changed = int(seen.rsplit(" ", 1)[1]) if seen != GONE else 0
    return seen if time.time_ns() - changed > SETTLED_NS else None


def kept_place(argv: Sequence[str], env: Mapping[str, str], root: str) -> str | None:
    """Where the answer is kept; None when this home would not be found again without asking more."""
    place = _place(argv, env)
    return place if place == _in_root(root, argv) else None


def columns(env: Mapping[str, str]) -> int:
    """How wide the terminal is. What `shutil` would say, without the archives that it brings along."""
    try:
        return int(env.get("COLUMNS", "0")) or os.get_terminal_size().columns or 100
    except (OSError, ValueError):
        return 100


def colourful(env: Mapping[str, str]) -> bool:
    return not env.get("NO_COLOR") and sys.stdout.isatty()


def _place(argv: Sequence[str], env: Mapping[str, str]) -> str | None:
    if argv not in ASKED:
        return None
    root = env.get("PALINURUS_HOME", "") or (f"{env['HOME']}/.palinurus" if env.get("HOME") else "")
    return _in_root(root, argv) if root.startswith("/") and not env.get("PALINURUS_PROFILE") else None


def _in_root(root: str, argv: Sequence[str]) -> str:
    return f"{root}/derived/{'.'.join(word.strip('-') for word in argv)}.kept"


def _circumstances(argv: Sequence[str], env: Mapping[str, str], names: Sequence[str]) -> str:
    shown = f"{' '.join(argv)} {columns(env)} {colourful(env)} {sys.platform}"
    told = [f"={name}={env.get(name, '')}" for name in PLACES]
    return "\n".join((FORMAT, shown, *told, *(f"?{name}={bool(env.get(name))}" for name in names)))


def _names(told: str) -> list[str]:
    """The variables that an answer asked for."""
    return [line[1:].rpartition("=")[0] for line in told.split("\n") if line.startswith("?")]


def _look(path: str) -> str:
    try:
        seen = os.stat(path)  # noqa: PTH116  a thousand of these in a row
    except OSError:
        return GONE
    return f"{seen.st_ino} {seen.st_size} {seen.st_mtime_ns} {seen.st_ctime_ns}"


def _our_code() -> list[str]:
    """The files of this package that are loaded: the answer is theirs too."""
    return [
        file
        for name, module in tuple(sys.modules.items())
        if name.partition(".")[0] == __name__.partition(".")[0] and (file := getattr(module, "__file__", None))
    ]
