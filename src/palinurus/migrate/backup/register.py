"""Which backups of a home there are: a small file in the home knows those that were made, wherever they were put.

It is a help and no truth: a file that is gone is shown as gone, and one that lies in `backups/` is shown although
nobody wrote it down.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from palinurus.config.atomic import write_atomic
from palinurus.domain.errors import BadRequest, PalinurusError, StorageError
from palinurus.migrate.backup.manifest import Made
from palinurus.migrate.backup.unpacking import is_sealed, read_label

FOLDER, NAME = "backups", "backups.json"
DAY_MS = 86_400_000


class Known(Struct, frozen=True, rename="camel", omit_defaults=True):
    id: str
    path: str
    created_at: int
    bytes: int = 0
    sealed: bool = False
    credentials: bool = False
    gone: bool = False  # the file is not where it was put
    forgotten: tuple[str, ...] = ()  # ids of forgettings whose words it still holds


class Backups:
    """Of one home."""

    def __init__(self, root: Path) -> None:
        self.folder = root / FOLDER
        self._file = root / NAME

    def all(self) -> list[Known]:
        """Newest first."""
        written = {known.path: known for known in self._read()}
        for path in sorted(self.folder.glob("[!.]*.tar.gz*")):  # one that is being made begins with a dot
            if str(path) not in written and (found := _looked_at(path)) is not None:
                written[str(path)] = found
        return sorted(map(_with_fate, written.values()), key=lambda known: -known.created_at)

    def add(self, made: Made) -> None:
        known = Known(made.id, made.path, made.created_at, made.bytes, made.sealed, made.credentials)
        self._write([known, *(each for each in self._read() if each.path != made.path)])

    def mark(self, forgetting: str, ids: Sequence[str]) -> None:
        """These still hold words that were forgotten."""
        self._write(
            [
                msgspec.structs.replace(each, forgotten=(*each.forgotten, forgetting)) if each.id in ids else each
                for each in self.all()
            ]
        )

    def find(self, which: str) -> Path:
        """A file by its path, or a backup by the beginning of its id. Raises BadRequest."""
        if Path(which).is_file():
            return Path(which).absolute()
        found = [known for known in self.all() if known.id.startswith(which) and not known.gone]
        if len(found) != 1:
            many = f"{len(found)} backups begin with {which!r}" if found else f"there is no backup {which!r}"
            raise BadRequest(many, hint="`pal backup list` shows them; a path of a file will do")
        return Path(found[0].path)

    def prune(self, now: int, *, keep: int, days: float | None, apply: bool) -> list[Known]:
        """Those that go: not among the newest `keep`, and older than `days`. One always stays."""
        there = [known for known in self.all() if not known.gone]
        old = [each for each in there[max(keep, 1) :] if days is None or now - each.created_at > days * DAY_MS]
        if apply:
            for each in old:
                _remove(each)
            self._sweep(now)
            gone = {each.path for each in old}
            self._write([each for each in self._read() if each.path not in gone and Path(each.path).exists()])
        return old

    def _sweep(self, now: int) -> None:
        """What a process has left that was ended while it made one."""
        for path in self.folder.glob(".*.tmp"):
            if now - path.stat().st_mtime * 1000 > DAY_MS:
                path.unlink(missing_ok=True)

    def _read(self) -> list[Known]:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=list[Known])
        except (OSError, msgspec.DecodeError):
            return []

    def _write(self, known: list[Known]) -> None:
        write_atomic(self._file, msgspec.json.format(msgspec.json.encode(known)) + b"\n")


def _looked_at(path: Path) -> Known | None:
    try:
        label = read_label(path)
        return Known(label.id, str(path), label.created_at, path.stat().st_size, is_sealed(path))
    except (PalinurusError, OSError):  # something else, or a damaged one: `verify` says so
        return None


def _with_fate(known: Known) -> Known:
    return msgspec.structs.replace(known, gone=not Path(known.path).is_file())


def _remove(known: Known) -> None:
    """Only when what lies there is that very backup."""
    path = Path(known.path)
    found = _looked_at(path)
    if found is None or found.id != known.id:
        raise StorageError(f"{path} is not the backup {known.id} any more", hint="look at it, and move it away")
    path.unlink()
