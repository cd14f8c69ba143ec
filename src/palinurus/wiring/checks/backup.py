"""Whether there is a backup, and whether it is of this month."""

from __future__ import annotations

from datetime import datetime

from palinurus.config.home import Home
from palinurus.domain.clock import SystemClock
from palinurus.migrate.backup.register import DAY_MS, Backups
from palinurus.wiring.checks.check import Check, ok, warning

LITTLE = 100  # entries of transcripts: a home with fewer has not much to lose yet
OLD_DAYS = 30
ADVICE = "`pal backup create` makes one while you talk"


def check_backup(home: Home, entries: int) -> Check:
    """`entries`: up to which the transcripts go."""
    backups = Backups(home.root)
    there = [known for known in backups.all() if not known.gone]
    if not there and entries <= LITTLE:
        return ok("backup", "none yet, and little to lose", backups.folder)
    if not there:
        return warning("backup", "there is none", backups.folder, ADVICE)
    newest = there[0]
    days = (SystemClock().now_ms() - newest.created_at) // DAY_MS
    at = f"{datetime.fromtimestamp(newest.created_at / 1000).astimezone():%Y-%m-%d %H:%M}"
    if days > OLD_DAYS:
        return warning("backup", f"the newest is {days} days old", newest.path, ADVICE)
    return ok("backup", f"{len(there)}, the newest of {at}", newest.path)
