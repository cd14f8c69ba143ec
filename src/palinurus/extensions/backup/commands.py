"""`pal backup`: make, verify, restore, list and remove backups."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import click

from palinurus.cli.command import Bar, open_home, services_of
from palinurus.cli.shell import CommandGroup, Shell, run_async, with_json
from palinurus.domain.clock import SystemClock, random_id
from palinurus.domain.errors import BadRequest
from palinurus.extensions.backup import restore as restoring
from palinurus.extensions.backup.backups import Backups, KnownBackup, minute
from palinurus.extensions.backup.operations import CreateBackup, create_backup
from palinurus.extensions.backup.pack import BackupReport
from palinurus.providers.keys.credential_file import PASSPHRASE_ENV

MOST_LEFT_OUT = 10


@click.group(cls=CommandGroup)
def backup() -> None:
    """Make, verify and restore backups of the home.

    A backup is one file with the sessions, the config and the workspaces of all agents. Indexes and logs are left
    out. The home stays in use while it is made.
    """


@backup.command("create")
@click.option("--to", type=click.Path(path_type=Path), metavar="PATH", help="The file, or a folder for it.")
@click.option("--seal", is_flag=True, help=f"Encrypt it with a passphrase: asked for, or in {PASSPHRASE_ENV}.")
@click.option("--credentials", is_flag=True, help="Also the stored keys. Better with --seal.")
@with_json
@click.pass_obj
def create(shell: Shell, to: Path | None, seal: bool, credentials: bool) -> None:
    """Make a backup. The home can be used meanwhile.

    \b
    Examples:
      pal backup create
      pal backup create --to /mnt/stick --seal --credentials
    """
    if not shell.home.is_used:
        raise BadRequest(f"there is no home in {shell.home.root} yet", hint="`pal chat` makes one")
    passphrase = _ask_passphrase(again=True) if seal else ""
    made = run_async(_create(shell, CreateBackup(to, passphrase, credentials)))
    shell.show(made, lambda: _made_text(made))


async def _create(shell: Shell, wanted: CreateBackup) -> BackupReport:
    with closing(Bar()) as bar:
        async with open_home(shell) as home:
            return await create_backup(home, services_of(shell), wanted, SystemClock(), random_id, bar.show)


@backup.command("verify")
@click.argument("which", metavar="BACKUP")
@with_json
@click.pass_obj
def verify(shell: Shell, which: str) -> None:
    """Read a whole backup and check its digests. One changed byte is an error.

    BACKUP is a file, or the beginning of an id from `pal backup list`.

    \b
    Examples:
      pal backup verify 3f2a
      pal backup verify /mnt/stick/pal-20261116-060504-3f2a9c11.tar.gz
    """
    path = Backups(shell.home.root).find(which)
    passphrase = _passphrase_for(path)
    with closing(Bar()) as bar, tempfile.TemporaryDirectory(prefix="pal-verify-") as scratch:
        found = restoring.verify(path, passphrase, Path(scratch), lambda *at: bar.show("verifying", *at))
    content = f"{found.parts:,} parts, {_size(found.content)}, taken {minute(found.created_at)}"
    shell.show(found, lambda: f"whole: {found.path}\n{content}")


@backup.command("restore")
@click.argument("which", metavar="BACKUP")
@click.option("--to", type=click.Path(path_type=Path), metavar="DIR", help="The new home: a new or empty folder.")
@with_json
@click.pass_obj
def restore(shell: Shell, which: str, to: Path | None) -> None:
    """Restore a backup to a new or empty folder.

    Without --to it becomes the home of this user, if there is none yet. A home is never overwritten.

    \b
    Examples:
      pal backup restore pal-20261116-060504-3f2a9c11.tar.gz
      pal backup restore 3f2a --to ~/looked-at     then: PALINURUS_HOME=~/looked-at pal chat
    """
    path = Backups(shell.home.root).find(which)
    passphrase = _passphrase_for(path)
    place = to.absolute() if to else shell.home.root
    with closing(Bar()) as bar:
        done = restoring.restore(path, place, passphrase, lambda *at: bar.show("restoring", *at))
    first = f"restored: {done.home} ({done.parts:,} parts, {_size(done.content)})"
    shell.show(done, lambda: "\n".join([first, *done.notes]))


@backup.command("list")
@with_json
@click.pass_obj
def list_(shell: Shell) -> None:
    """List the known backups, newest first.

    \b
    Examples:
      pal backup list
      pal backup list --json
    """
    known = Backups(shell.home.root).all()
    shell.show(known, lambda: "\n".join(map(_line, known)) or "There is no backup yet. `pal backup create` makes one.")


@backup.command("prune")
@click.option("--keep", type=click.IntRange(1), default=5, show_default=True, help="Number of newest backups to keep.")
@click.option("--days", type=click.FloatRange(0), help="Also keep those that are not older.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@with_json
@click.pass_obj
def prune(shell: Shell, keep: int, days: float | None, dry_run: bool) -> None:
    """Remove old backups.

    \b
    Examples:
      pal backup prune --keep 3 --dry-run
      pal backup prune --keep 3 --days 30
    """
    now = SystemClock().now_ms()
    gone = Backups(shell.home.root).prune(now, keep=keep, days=days, apply=not dry_run)
    verb = "would be removed" if dry_run else "removed"
    shell.show(gone, lambda: "\n".join(f"{verb}: {each.path}" for each in gone) or "Nothing to remove.")


def _passphrase_for(path: Path) -> str:
    return _ask_passphrase(again=False) if restoring.is_sealed(path) else ""


def _ask_passphrase(*, again: bool) -> str:
    if given := os.environ.get(PASSPHRASE_ENV):
        return given
    if not sys.stdin.isatty():
        raise BadRequest("the passphrase is missing", hint=f"set {PASSPHRASE_ENV}, or use a terminal")
    typed: str = click.prompt("Passphrase", hide_input=True, confirmation_prompt=again, err=True)
    return typed


def _made_text(made: BackupReport) -> str:
    how = "sealed" if made.sealed else "not sealed"
    keys = "with stored keys" if made.credentials else "without stored keys"
    size = f"{_size(made.bytes)} ({_size(made.content)} in {made.parts:,} parts)"
    lines = [made.path, f"{size}, {how}, {keys}, {made.seconds} s"]
    lines += [f"left out: {left.path}: {left.why}" for left in made.left_out[:MOST_LEFT_OUT]]
    if len(made.left_out) > MOST_LEFT_OUT:
        lines.append(f"left out: {len(made.left_out) - MOST_LEFT_OUT} more; --json names them")
    return "\n".join(lines)


def _line(known: KnownBackup) -> str:
    possible = {
        "sealed": known.sealed,
        "with keys": known.credentials,
        "GONE": known.gone,
        "contains text that was forgotten later": known.forgotten,
    }
    marks = ", ".join(mark for mark, is_so in possible.items() if is_so)
    line = f"{known.id[:8]}  {minute(known.created_at)}  {_size(known.bytes):>9}  {known.path}"
    return f"{line}  {marks}" if marks else line


def _size(count: int) -> str:
    return f"{count / 1024:.0f} kB" if count < 1024 * 1024 else f"{count / 1024 / 1024:.1f} MB"
