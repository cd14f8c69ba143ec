"""The home itself: who may read it, who holds it, whether its databases are whole, whether there is room."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

from palinurus.config.home import Home
from palinurus.domain.errors import HolderLost, HolderRefused, StorageError
from palinurus.operations.remote import Hello, HomeIdentity, RemoteCaller
from palinurus.runtime.checks.check import Check, bad, mended, ok, warning
from palinurus.runtime.lock import HomeLock
from palinurus.sessions.index import read_up_to
from palinurus.sessions.store import last_position
from palinurus.storage.database import Database
from palinurus.storage.files import check_not_emptied
from palinurus.storage.jobs import RUN, count_open
from palinurus.storage.migrations import newest_form

ANSWER_SECONDS = 3.0
LITTLE, VERY_LITTLE = 500 * 1024 * 1024, 20 * 1024 * 1024
FOLDERS = ("derived", "logs", "agents")  # of ours; the workspace belongs to its people


def check_modes(home: Home, *, fix: bool) -> Iterator[Check]:
    """Nobody else may read the home: it holds keys and conversations."""
    if not home.root.is_dir():
        yield warning("home", "there is none yet", home.root, "`pal setup` makes it")
        return
    if not os.access(home.root, os.W_OK, effective_ids=True):
        yield bad("home", "it cannot be written, so nothing new is kept", home.root, "check who owns it, and its mode")
    for name in FOLDERS:
        if (home.root / name).exists() and not (home.root / name).is_dir():
            yield bad("home", f"{name} is not a folder", home.root / name, "move it aside")
    open_to_others = [(path, mode) for path, mode in _ours(home) if mode & 0o077]
    if not open_to_others:
        yield ok("home", "only you can read it", home.root)
    for path, mode in open_to_others:
        wanted = 0o700 if path.is_dir() else 0o600
        told = f"others may read it (mode {mode:03o})"
        if fix and _changed(path, wanted):
            yield mended("modes", f"{told}; it is {wanted:03o} now", path)
        else:
            yield bad("modes", told, path, f"chmod {wanted:03o} it, or `pal doctor --fix`")


def _ours(home: Home) -> Iterator[tuple[Path, int]]:
    root = home.root
    folders = [root, *(root / name for name in FOLDERS), *(root / "agents").glob("*")]
    for folder in folders:
        if folder.is_dir() and not folder.is_symlink():
            yield folder, stat.S_IMODE(folder.stat().st_mode)
            for path in sorted(folder.iterdir()):
                if path.is_symlink() or not (path.is_file() or path.is_socket()):
                    continue
                yield path, stat.S_IMODE(path.stat().st_mode)


def _changed(path: Path, mode: int) -> bool:
    try:
        path.chmod(mode)
    except OSError:
        return False
    return True


async def check_holder(home: Home) -> Check:
    """Whether a process holds the home, and whether it answers."""
    path = home.root / "lock"
    if not _is_held(path):
        return ok("lock", "no process holds the home", path)
    holder = HomeLock(path).holder()
    workspace = str(home.workspace_override or "")
    hello = Hello(HomeIdentity(str(home.config_path), workspace), os.getpid(), "pal doctor")
    try:
        caller = await RemoteCaller.connect(home.root / "pal.sock", hello, timeout=ANSWER_SECONDS)
    except HolderRefused as error:
        return warning("lock", error.message, path, error.hint)
    except (OSError, HolderLost):
        return bad("lock", f"{holder} holds the home and does not answer", path, "end that process")
    await caller.close()
    return ok("lock", f"{holder} holds the home and answers", path)


def _is_held(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


async def check_database(home: Home) -> tuple[list[Check], int]:
    """The checks, and up to which entry the transcripts go."""
    path = home.root / "home.sqlite"
    try:
        check_not_emptied(path)
        if not path.exists():
            return [ok("database", "there is none yet", path)], 0
        async with open_database(path, "home") as database:
            return await _check_rows(path, database)
    except StorageError as error:
        return [bad("database", error.message, path, error.hint)], 0


async def _check_rows(path: Path, database: Database) -> tuple[list[Check], int]:
    faults, form = await database.examine()
    newest = newest_form("home")
    if faults:
        return [bad("database", f"damaged: {faults[0]}", path, "restore a backup; keep the file")], 0
    if form > newest:
        what = f"has form {form}, this release knows forms up to {newest}"
        return [bad("database", what, path, "use the newer release of pal")], 0
    entries = await database.read(last_position) if form else 0
    checks = [ok("database", f"intact, {entries:,} entries", path)]
    pending, first = await database.read(lambda tx: count_open(tx, RUN)) if form == newest else (0, 0)
    if pending:
        since = datetime.fromtimestamp((first or 0) / 1000).astimezone()
        what = f"{pending} accepted and not answered, the first since {since:%Y-%m-%d %H:%M}"
        checks.append(warning("messages", what, path, "the next `pal chat` takes them up"))
    return checks, entries


@asynccontextmanager
async def open_database(path: Path, file: str) -> AsyncIterator[Database]:
    """To read it. Raises StorageError when it cannot be opened, StorageDamaged when it is no database."""
    database = Database(path, file, readonly=True)
    try:
        yield database
    finally:
        await database.close()


async def check_index(home: Home, entries: int, *, fix: bool) -> Check:
    """It may be deleted at any time, so a damaged one is no loss."""
    path = home.root / "derived" / "transcripts.sqlite"
    if not path.exists():
        return ok("index", "not made yet; the first search makes it", path)
    try:
        async with open_database(path, "transcripts") as database:
            faults, _ = await database.examine()
            position = 0 if faults else (await database.read(read_up_to))[0]
    except StorageError as error:
        faults, position = (error.message,), 0
    if faults and fix:
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        return mended("index", "was damaged and is gone; the next search makes it anew", path)
    if faults:
        return warning("index", f"damaged: {faults[0]}", path, "delete it, or `pal doctor --fix`; nothing is lost")
    behind = max(0, entries - position)
    return ok("index", f"{behind:,} entries behind; the next search reads them" if behind else "up to date", path)


async def check_memory(home: Home) -> AsyncIterator[Check]:
    """Of the indexes of notes only what is wrong: whoever searches next makes a damaged one anew."""
    for path in sorted((home.root / "derived" / "memory").glob("*.sqlite")):
        try:
            async with open_database(path, "memory") as database:
                faults, _ = await database.examine()
        except StorageError as error:
            faults = (error.message,)
        if faults:
            what = f"the index is damaged: {faults[0]}"
            yield warning("memory", what, path, "nothing is lost; a search makes it anew")


def check_room(home: Home) -> Check:
    folder = next(path for path in (home.root, *home.root.parents) if path.exists())
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return warning("disk", f"cannot be checked: {error.strerror}", folder)
    told = f"{free / 1024**3:.1f} GB free"
    if free < VERY_LITTLE:
        return bad("disk", f"{free / 1024**2:.0f} MB free: nothing more can be stored soon", folder, "free some space")
    return warning("disk", told, folder, "free some space") if free < LITTLE else ok("disk", told, folder)


def check_git() -> Check:
    found = shutil.which("git")
    if found:
        return ok("git", "present", found)
    return warning("git", "not found", "", "install it to keep a history of the workspace")
