"""The paths inside a bundle: which are refused, each with its reason.

A bundle is unpacked on systems of all kinds, so what only some of them would take as it is meant is refused everywhere:
names that differ by case alone, names with characters nobody sees, names that some system takes for a device.
"""

from __future__ import annotations

import re
import unicodedata

from palinurus.domain.errors import BadRequest

MAX_PATH = 240  # bytes
MAX_SEGMENT = 120
MAX_DEPTH = 12
# Records of clients and of version control: a bundle that brings its own would lie about where it came from.
_OURS = frozenset({".clawhub", ".clawdhub", ".git", ".hg", ".svn"})
# Names that an operating system needs for itself.
RESERVED = frozenset({"con", "prn", "aux", "nul", *(f"{name}{n}" for name in ("com", "lpt") for n in range(1, 10))})
_DRIVE = re.compile(r"[A-Za-z]:")


class Paths:
    """Takes the paths of one bundle, one after the other. Raises BadRequest at the first that cannot stand."""

    def __init__(self) -> None:
        self._spelled: dict[str, str] = {}  # as a careless file system sees it -> as it was written
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def add(self, path: str) -> None:
        check_path(path)
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            place = "/".join(parts[:depth])
            seen = self._spelled.setdefault(_folded(place), place)
            if seen != place:
                raise BadRequest(f"it holds {_told(seen)} and {_told(place)}, which are one file on many systems")
            if place in self._files:
                raise BadRequest(
                    f"it holds {_told(place)} twice"
                    if depth == len(parts)
                    else f"{_told(place)} is a file and a folder"
                )
        if path in self._folders:
            raise BadRequest(f"{_told(path)} is a file and a folder")
        self._files.add(path)
        self._folders.update("/".join(parts[:depth]) for depth in range(1, len(parts)))


def check_path(path: str) -> None:
    """Raises BadRequest. A path that passes is relative, plain and stays where it is put."""
    for char in path:
        category = unicodedata.category(char)
        if category in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp"):
            raise BadRequest(
                f"it holds a name with the character U+{ord(char):04X}, which cannot be seen: {_told(path)}"
            )
    if not path:
        raise BadRequest("it holds a file without a name")
    if path.startswith(("/", "~")) or _DRIVE.match(path):
        raise BadRequest(f"it holds {_told(path)}, which is an absolute path")
    if "\\" in path or ":" in path:
        raise BadRequest(f"it holds {_told(path)}: \\ and : mean something else on other systems")
    if len(path.encode()) > MAX_PATH:
        raise BadRequest(f"it holds a path of {len(path.encode()):,} bytes; {MAX_PATH} are allowed")
    parts = path.split("/")
    if len(parts) > MAX_DEPTH:
        raise BadRequest(f"it holds {_told(path)}, more than {MAX_DEPTH} folders deep")
    for part in parts:
        _check_segment(part, path)


def _check_segment(part: str, path: str) -> None:
    if part in ("", ".", ".."):
        raise BadRequest(f"it holds {_told(path)}, which leads out of its folder or nowhere")
    if len(part.encode()) > MAX_SEGMENT:
        raise BadRequest(f"it holds a name of {len(part.encode()):,} bytes; {MAX_SEGMENT} are allowed")
    if part.lower() in _OURS:
        raise BadRequest(f"it holds {_told(path)}: {part} is written by programs here and not by a bundle")
    if part[-1] in " ." or part[0] == " " or part.partition(".")[0].lower() in RESERVED:
        raise BadRequest(f"it holds {_told(path)}, a name that some systems cannot have")


def _folded(path: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", path).casefold())


def _told(path: str) -> str:
    return ascii(path[:100])
