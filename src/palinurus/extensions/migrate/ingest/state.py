"""The state of a wiki, a file in it: which sources were read, by their digests, and what was written from them.

It has the facts as the pages have them, without secrets. It may be deleted; then all sources are read again, and pages
that a person has changed stay as they are. A lock lets one process at a time write a wiki.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from palinurus.config.atomic import make_directory, write_atomic
from palinurus.domain.errors import BadRequest, StorageError
from palinurus.extensions.migrate.files import error_text, open_plain
from palinurus.extensions.migrate.ingest.facts import Role, SourceFact
from palinurus.runtime.lock import HomeLock

FILE = ".pal-ingest.json"
VERSION = 1  # with another one everything is read again


class KnownSource(Struct, frozen=True):
    digest: str
    agent: str
    role: Role
    found: tuple[SourceFact, ...]


class Prose(Struct, frozen=True):
    of: str  # a digest of its facts
    text: str
    model: str


class KnownPage(Struct, frozen=True, omit_defaults=True):
    digest: str  # of what we wrote
    keys: tuple[str, ...]  # of its lines
    removed: tuple[str, ...] = ()  # facts that a person has removed
    away: bool = False  # a person has deleted the page
    prose: Prose | None = None


class State(Struct):
    home: str = ""
    version: int = VERSION
    sources: dict[str, KnownSource] = {}
    pages: dict[str, KnownPage] = {}


def load(wiki: Path, home: str) -> State:
    """Raises BadRequest when the wiki belongs to another home, and StorageError when it cannot be read."""
    try:
        with open_plain(wiki / FILE) as file:
            state = msgspec.json.decode(file.read(), type=State)
    except (FileNotFoundError, msgspec.DecodeError):
        return State(home)  # damaged: as if there were none, because pages have marks of their own
    except OSError as error:
        raise StorageError(f"cannot read {wiki / FILE}: {error_text(error)}") from error
    if state.home != home:
        hint = f"name another folder; or, if the home was moved, delete {FILE} in it"
        raise BadRequest(f"{wiki} is the wiki of {state.home}", hint=hint)
    return state if state.version == VERSION else State(home, pages=state.pages)


def read_state(wiki: Path) -> State | None:
    """The state, whatever home it belongs to; None when there is none."""
    with suppress(OSError, msgspec.DecodeError), open_plain(wiki / FILE) as file:
        return msgspec.json.decode(file.read(), type=State)
    return None


def save(wiki: Path, state: State) -> None:
    """Raises StorageError."""
    write_atomic(wiki / FILE, msgspec.json.format(msgspec.json.encode(state, order="sorted"), indent=1))


LOCK_FILE = ".pal-ingest.lock"


@contextmanager
def wiki_lock(wiki: Path, command: str) -> Iterator[None]:
    """Raises StorageError when another process writes the wiki, or when it cannot be written."""
    make_directory(wiki)
    lock = HomeLock(wiki / LOCK_FILE)
    if not lock.acquire(command) or not lock.keep(command):  # the process before us may have removed the file
        raise StorageError(f"{wiki} is being written by {lock.holder()}", hint="wait until it is done")
    try:
        yield
    finally:
        (wiki / LOCK_FILE).unlink(missing_ok=True)  # while it is held
        lock.release()
