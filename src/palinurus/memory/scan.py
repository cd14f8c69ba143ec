"""What there is to remember: the markdown of the workspace and of the owner's collections, found and read.

A scan looks at names and stamps only, a few milliseconds for a thousand files, so that every question can afford one.
Links, FIFOs and devices are never opened; what is left out although its name would fit is told in `skipped`. A file
is read through the workspace's boundary (promise 14), whole or not at all.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from palinurus.config.remembering import Collection
from palinurus.domain.errors import NotFound, WorkspaceError
from palinurus.memory.document import MEMORY, SESSIONS, Document, Place, Stamp
from palinurus.memory.report import Skipped
from palinurus.memory.walk import SYSTEM_NOW, Listing, Mask, NowNs, Raw, Walk, is_not_there, is_settled, raw, why
from palinurus.workspace.boundary import MAX_BYTES, Boundary

NAMES = ("MEMORY.md", "memory.md", "USER.md")
FOLDER = "memory"
_ALL = "**/*.md"


class Scan(Struct, frozen=True):
    """What was there: stamps by path, as it is cited."""

    stamps: dict[str, Raw]
    skipped: tuple[Skipped, ...]
    unseen: dict[str, str] = {}  # beginnings of paths that could not be looked at just now, and why
    missing: str = ""  # a root that is not there


class Scanner:
    """Looks at one agent's roots. `scan` and `read` block: they are called in threads, and may overlap."""

    def __init__(
        self,
        workspace: Path,
        collections: Sequence[Collection] = (),
        *,
        sources: Sequence[str],
        now_ns: NowNs = SYSTEM_NOW,
    ) -> None:
        """`now_ns` is compared with the stamps of files, so it is the system's clock but in tests."""
        self.workspace = workspace
        self.collections = tuple(each for each in collections if each.name.lower() not in (MEMORY, SESSIONS, ""))
        self._with_memory = MEMORY in sources
        self._now_ns = now_ns
        self._masks = {each.name: mask_of(each) for each in self.collections}
        self._boundaries = {each.name: Boundary(each.path) for each in self.collections}
        self._boundaries[MEMORY] = Boundary(workspace)
        self._listings: dict[str, Listing] = {}
        self._stopped = False

    def stop(self) -> None:
        """Nobody waits for a scan any more: one that is under way ends early, and it raises WorkspaceError."""
        self._stopped = True

    def scan(self) -> Scan:
        walk, missing = Walk(self._listings, self._now_ns, lambda: self._stopped), list[str]()
        if self._with_memory:
            with _root(self.workspace, walk, missing, (*NAMES, f"{FOLDER}/")) as roots:
                for root in roots:
                    walk.take_names(root, NAMES)
                    walk.descend(root, FOLDER, f"{FOLDER}/", None)
        for each in self.collections:
            with _root(each.path, walk, missing, (f"{each.name}/",)) as roots:
                for root in roots:
                    walk.enter(root, f"{each.name}/", self._masks[each.name])
        if self._stopped:
            raise WorkspaceError("the files were not looked at: the index was closed meanwhile", hint="ask again")
        return Scan(walk.stamps, tuple(walk.skipped), walk.unseen, ", ".join(missing))

    def place(self, path: str) -> Place:
        """Whose a path is."""
        name = path.partition("/")[0]
        return Place(name if name in self._masks else MEMORY, path)

    def read(self, path: str) -> Document | Skipped | None:
        """The text as it is now; None when there is none any more."""
        place = self.place(path)
        inside = path if place.source == MEMORY else path.partition("/")[2]
        try:
            return self._read(place, inside)
        except NotFound:
            return None
        except WorkspaceError as error:
            return Skipped(path, error.message)

    def folders(self) -> tuple[list[Path], list[Path]]:
        """What a watcher watches: folders alone, and folders with all that is below them."""
        deep = [each.path for each in self.collections]
        if not self._with_memory:
            return [], deep
        return [self.workspace], [self.workspace / FOLDER, *deep]

    def _read(self, place: Place, inside: str) -> Document | Skipped:
        with self._boundaries[place.source].open_file(inside) as file:
            if file.path != inside:  # a link was put in its place
                return Skipped(place.path, "it is a link")
            data = file.read(MAX_BYTES)
            now, after = self._now_ns(), os.fstat(file.fd)
        same = raw(after) == raw(file.stat) and is_settled(after, now)
        # A stamp that no file can have: next time it is read again.
        stamp = Stamp(*raw(after)) if same else Stamp(after.st_size, after.st_mtime_ns)
        return Document(place, stamp, sha256(data).digest(), decoded(data))


def decoded(data: bytes) -> str:
    """As text, whatever it is: a stray byte costs one character and not the file."""
    coding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return data.decode(coding, errors="replace").replace("\0", "\ufffd")


@contextmanager
def _root(path: Path, walk: Walk, missing: list[str], holds: tuple[str, ...]) -> Iterator[list[int]]:
    """Its descriptor, or none and a word about it. A root may be a link: the owner has named it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        walk.skip(str(path), why(error))
        if is_not_there(error):
            missing.append(str(path))
        else:
            walk.unseen |= dict.fromkeys(holds, why(error))
        yield []
        return
    try:
        yield [fd]
    finally:
        os.close(fd)


def mask_of(collection: Collection) -> Mask | None:
    """A glob as a pattern: `*` and `?` stay inside a folder, `**/` is any number of folders, `{a,b}` is either."""
    if collection.mask == _ALL:
        return None
    try:
        pattern = re.compile("".join(_translated(collection.mask)), re.IGNORECASE)
    except re.error:  # braces that do not close
        pattern = re.compile(re.escape(collection.mask), re.IGNORECASE)
    return Mask(pattern, len(collection.name) + 1)


def _translated(mask: str) -> Iterator[str]:
    depth = 0
    for sign in re.findall(r"\*\*/?|.", mask, re.DOTALL):
        if sign in ("{", "}") or (sign == "," and depth):
            depth += {"{": 1, "}": -1}.get(sign, 0)
            yield {"{": "(?:", "}": ")", ",": "|"}[sign]
        else:
            yield {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(sign) or re.escape(sign)
