"""The known backups of a home: those listed in the file `backups.json`, and those in the folder `backups/`.

A listed file that is missing is shown as gone. The doctor checks here that there is a recent backup.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.atomic import write_atomic
from palinurus.config.home import Home
from palinurus.config.load import LoadedConfig
from palinurus.domain.clock import SystemClock
from palinurus.domain.errors import BadRequest, PalinurusError, StorageError
from palinurus.extensions.backup.pack import BackupReport
from palinurus.extensions.backup.restore import is_sealed, read_label
from palinurus.runtime.checks.check import Check, ok, warning
from palinurus.sessions.store import last_position
from palinurus.storage.files import looking_into

FOLDER, NAME = "backups", "backups.json"
DAY_MS = 86_400_000


class KnownBackup(Struct, frozen=True, rename="camel", omit_defaults=True):
    id: str
    path: str
    created_at: int
    bytes: int = 0
    sealed: bool = False
    credentials: bool = False
    gone: bool = False  # the file is missing
    forgotten: tuple[str, ...] = ()  # ids of forget runs whose text it still contains


class Backups:
    """The backups of one home."""

    def __init__(self, root: Path) -> None:
        self.folder = root / FOLDER
        self._file = root / NAME

    def all(self) -> list[KnownBackup]:
        """Returns all backups, newest first."""
        written = {known.path: known for known in self._read()}
        for path in sorted(self.folder.glob("[!.]*.tar.gz*")):  # an unfinished one begins with a dot
            if str(path) not in written and (found := _read_backup(path)) is not None:
                written[str(path)] = found
        known = [replace(each, gone=not Path(each.path).is_file()) for each in written.values()]
        return sorted(known, key=lambda known: -known.created_at)

    def add(self, made: BackupReport) -> None:
        known = KnownBackup(made.id, made.path, made.created_at, made.bytes, made.sealed, made.credentials)
        self._write([known, *(each for each in self._read() if each.path != made.path)])

    def mark(self, forgetting: str, ids: Sequence[str]) -> None:
        """Records that these backups still contain forgotten text."""
        known = self.all()
        self._write(
            [replace(each, forgotten=(*each.forgotten, forgetting)) if each.id in ids else each for each in known]
        )

    def find(self, which: str) -> Path:
        """Finds a file by its path, or a backup by the start of its id. Raises BadRequest."""
        if Path(which).is_file():
            return Path(which).absolute()
        found = [known for known in self.all() if known.id.startswith(which) and not known.gone]
        if len(found) != 1:
            many = f"{len(found)} backups begin with {which!r}" if found else f"there is no backup {which!r}"
            raise BadRequest(many, hint="`pal backup list` shows them; or name a file")
        return Path(found[0].path)

    def prune(self, now: int, *, keep: int, days: float | None, apply: bool) -> list[KnownBackup]:
        """Returns those to remove: not among the newest `keep`, and older than `days`. One always stays."""
        there = [known for known in self.all() if not known.gone]
        old = [each for each in there[max(keep, 1) :] if days is None or now - each.created_at > days * DAY_MS]
        if apply:
            for each in old:
                _remove(each)
            for path in self.folder.glob(".*.tmp"):  # unfinished, of processes that were killed
                if now - path.stat().st_mtime * 1000 > DAY_MS:
                    path.unlink(missing_ok=True)
            self._write([each for each in self._read() if Path(each.path).exists()])
        return old

    def _read(self) -> list[KnownBackup]:
        with suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode(self._file.read_bytes(), type=list[KnownBackup])
        return []

    def _write(self, known: list[KnownBackup]) -> None:
        write_atomic(self._file, msgspec.json.format(msgspec.json.encode(known)) + b"\n")


def _read_backup(path: Path) -> KnownBackup | None:
    with suppress(PalinurusError, OSError):  # another file, or a damaged backup, which `verify` reports
        label = read_label(path)
        return KnownBackup(label.id, str(path), label.created_at, path.stat().st_size, is_sealed(path))
    return None


def _remove(known: KnownBackup) -> None:
    """Only if the file is still that backup."""
    path = Path(known.path)
    found = _read_backup(path)
    if found is None or found.id != known.id:
        raise StorageError(f"{path} is no longer the backup {known.id}", hint="check the file, and move it away")
    path.unlink()


FEW_ENTRIES = 100  # a home with fewer does not need a backup yet
OLD_DAYS = 30
ADVICE = "`pal backup create` makes one; the home stays in use"


def check_backup(home: Home, _: LoadedConfig | None) -> list[Check]:
    backups = Backups(home.root)
    there = [known for known in backups.all() if not known.gone]
    if not there and _count_entries(home) <= FEW_ENTRIES:
        return [ok("backup", "none yet, and the home is nearly empty", backups.folder)]
    if not there:
        return [warning("backup", "there is none", backups.folder, ADVICE)]
    newest = there[0]
    days = (SystemClock().now_ms() - newest.created_at) // DAY_MS
    if days > OLD_DAYS:
        return [warning("backup", f"the newest is {days} days old", newest.path, ADVICE)]
    return [ok("backup", f"{len(there)}, the newest of {minute(newest.created_at)}", newest.path)]


def minute(ms: int) -> str:
    """A time for people."""
    return f"{datetime.fromtimestamp(ms / 1000).astimezone():%Y-%m-%d %H:%M}"


def _count_entries(home: Home) -> int:
    path = home.root / "home.sqlite"
    with suppress(StorageError):  # the check of the database reports it
        if path.is_file() and path.stat().st_size:
            with looking_into(path) as tx:
                return last_position(tx)
    return 0
