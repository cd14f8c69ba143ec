"""What a wiki knows of how it was made: which sources it has read, by their digests, and what it wrote from them.

It lies in the wiki and holds nothing that the pages do not: facts are in it as they are on pages, without secrets. It
may be deleted; then all is read anew, and a page that a person has changed is kept as it is.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from palinurus.config.atomic import write_atomic
from palinurus.domain.errors import BadRequest, StorageError
from palinurus.migrate.ingest.fact import Found, Role
from palinurus.migrate.openclaw.files import open_plain, why

FILE = ".pal-ingest.json"
VERSION = 1  # another one: everything is read anew


class KnownSource(Struct, frozen=True):
    digest: str
    agent: str
    role: Role
    found: tuple[Found, ...]


class Prose(Struct, frozen=True):
    of: str  # a digest of the facts that it tells
    text: str
    model: str


class KnownPage(Struct, frozen=True, omit_defaults=True):
    digest: str  # of what we wrote
    keys: tuple[str, ...]  # of its lines
    removed: tuple[str, ...] = ()  # facts that a person has thrown out
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
            data = file.read()
    except FileNotFoundError:
        return State(home)
    except OSError as error:
        raise StorageError(f"cannot read {wiki / FILE}: {why(error)}") from error
    try:
        state = msgspec.json.decode(data, type=State)
    except msgspec.DecodeError:
        return State(home)  # a damaged one is as good as none: pages know by themselves what is theirs
    if state.home != home:
        raise BadRequest(
            f"{wiki} is the wiki of {state.home}",
            hint=f"name another folder; or, if the home was moved, delete {FILE} in it",
        )
    return state if state.version == VERSION else State(home, pages=state.pages)


def known(wiki: Path) -> State | None:
    """As it is, whosever wiki it is; None when nobody knows how it was made."""
    try:
        with open_plain(wiki / FILE) as file:
            return msgspec.json.decode(file.read(), type=State)
    except (OSError, msgspec.DecodeError):
        return None


def save(wiki: Path, state: State) -> None:
    """Raises StorageError."""
    write_atomic(wiki / FILE, msgspec.json.format(msgspec.json.encode(state, order="sorted"), indent=1))
