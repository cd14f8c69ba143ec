"""`pal backup`: a home in one file, verified, restored into a fresh place, and old ones thrown away."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import click

from palinurus.cli.bar import Bar
from palinurus.cli.entrance import ground_of, open_door
from palinurus.cli.shell import Shell, run_async, with_json
from palinurus.domain.clock import SystemClock, random_id
from palinurus.domain.errors import BadRequest
from palinurus.migrate.backup.manifest import Made, Restored, Verified
from palinurus.migrate.backup.register import Backups, Known
from palinurus.migrate.backup.unpacking import is_sealed
from palinurus.operations.backup import CreateBackup, create_backup, restore_backup, verify_backup
from palinurus.providers.keys.sealed import PASSPHRASE_ENV
from palinurus.storage.snapshot import fault_of

MOST_LEFT_OUT = 10


@click.group()
def backup() -> None:
    """Make, verify and restore backups of the home.

    A backup is one file. It is taken while the home is lived in, holds the conversations, the config and the workspaces
    of all agents, and what can be made again (indexes, logs) is left out.
    """


@backup.command("create")
@click.option("--to", type=click.Path(path_type=Path), metavar="PATH", help="The file, or a folder for it.")
@click.option("--seal", is_flag=True, help=f"Encrypt it with a passphrase: asked for, or in {PASSPHRASE_ENV}.")
@click.option("--credentials", is_flag=True, help="Also the stored keys. Better with --seal.")
@with_json
@click.pass_obj
def create(shell: Shell, to: Path | None, seal: bool, credentials: bool) -> None:
    """Make a backup. Nobody has to stop for it.

    \b
    Examples:
      pal backup create
      pal backup create --to /mnt/stick --seal --credentials
    """
    if not (shell.home.root / "home.sqlite").exists():
        raise BadRequest(f"there is no home in {shell.home.root} yet", hint="`pal chat` makes one")
    passphrase = _new_passphrase() if seal else ""
    made = run_async(_create(shell, CreateBackup(to, passphrase, credentials)))
    shell.show(made, lambda: _made_text(made))


async def _create(shell: Shell, wanted: CreateBackup) -> Made:
    bar = Bar()
    try:
        async with open_door(shell) as door:
            return await create_backup(door, ground_of(shell), wanted, SystemClock(), random_id, bar.show)
    finally:
        bar.close()


@backup.command("verify")
@click.argument("which", metavar="BACKUP")
@with_json
@click.pass_obj
def verify(shell: Shell, which: str) -> None:
    """Read all of a backup and compare it with its digests. One changed byte is enough to fail.

    BACKUP is a file, or the beginning of an id that `pal backup list` shows.

    \b
    Examples:
      pal backup verify 3f2a
      pal backup verify /mnt/stick/pal-20261116-060504-3f2a9c11.tar.gz
    """
    passphrase, bar = _passphrase_for(shell, which), Bar()
    try:
        found = verify_backup(ground_of(shell), which, passphrase, fault_of, lambda *at: bar.show("verifying", *at))
    finally:
        bar.close()
    shell.show(found, lambda: _verified_text(found))


@backup.command("restore")
@click.argument("which", metavar="BACKUP")
@click.option("--to", type=click.Path(path_type=Path), metavar="DIR", help="Where the home shall be. Must be fresh.")
@with_json
@click.pass_obj
def restore(shell: Shell, which: str, to: Path | None) -> None:
    """Make a home of a backup, in a place where nothing is.

    Without --to it is the home that this command would use, if there is none yet. Nothing is ever restored over a home.

    \b
    Examples:
      pal backup restore pal-20261116-060504-3f2a9c11.tar.gz
      pal backup restore 3f2a --to ~/looked-at     then: PALINURUS_HOME=~/looked-at pal chat
    """
    passphrase, bar = _passphrase_for(shell, which), Bar()
    place = to.absolute() if to else shell.home.root
    try:
        done = restore_backup(
            ground_of(shell), which, place, passphrase, fault_of, lambda *at: bar.show("restoring", *at)
        )
    finally:
        bar.close()
    shell.show(done, lambda: _restored_text(done))


@backup.command("list")
@with_json
@click.pass_obj
def list_(shell: Shell) -> None:
    """Show the backups that are known, newest first.

    \b
    Examples:
      pal backup list
      pal backup list --json
    """
    known = Backups(shell.home.root).all()
    shell.show(known, lambda: "\n".join(map(_line, known)) or "There is no backup yet. `pal backup create` makes one.")


@backup.command("prune")
@click.option("--keep", type=click.IntRange(1), default=5, show_default=True, help="The newest stay, this many.")
@click.option("--days", type=click.FloatRange(0), help="And those that are no older than this.")
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@with_json
@click.pass_obj
def prune(shell: Shell, keep: int, days: float | None, dry_run: bool) -> None:
    """Throw old backups away.

    \b
    Examples:
      pal backup prune --keep 3 --dry-run
      pal backup prune --keep 3 --days 30
    """
    now = SystemClock().now_ms()
    gone = Backups(shell.home.root).prune(now, keep=keep, days=days, apply=not dry_run)
    verb = "would go" if dry_run else "removed"
    shell.show(gone, lambda: "\n".join(f"{verb}: {each.path}" for each in gone) or "Nothing to remove.")


def _new_passphrase() -> str:
    if given := os.environ.get(PASSPHRASE_ENV):
        return given
    typed: str = click.prompt("Passphrase", hide_input=True, confirmation_prompt=True, err=True)
    return typed


def _passphrase_for(shell: Shell, which: str) -> str:
    if not is_sealed(Backups(shell.home.root).find(which)):
        return ""
    if given := os.environ.get(PASSPHRASE_ENV):
        return given
    typed: str = click.prompt("Passphrase", hide_input=True, err=True)
    return typed


def _made_text(made: Made) -> str:
    how = "sealed" if made.sealed else "not sealed"
    keys = "with stored keys" if made.credentials else "without stored keys"
    lines = [
        made.path,
        f"{_size(made.bytes)} ({_size(made.content)} in {made.parts:,} parts), {how}, {keys}, {made.seconds} s",
    ]
    lines += [f"left out: {left.path}: {left.why}" for left in made.left_out[:MOST_LEFT_OUT]]
    if len(made.left_out) > MOST_LEFT_OUT:
        lines.append(f"left out: {len(made.left_out) - MOST_LEFT_OUT} more; --json names them")
    return "\n".join(lines)


def _verified_text(found: Verified) -> str:
    return f"whole: {found.path}\n{found.parts:,} parts, {_size(found.content)}, taken {_when(found.created_at)}"


def _restored_text(done: Restored) -> str:
    return "\n".join([f"restored: {done.home} ({done.parts:,} parts, {_size(done.content)})", *done.notes])


def _line(known: Known) -> str:
    marks = [
        word for word, on in (("sealed", known.sealed), ("with keys", known.credentials), ("GONE", known.gone)) if on
    ]
    if known.forgotten:
        marks.append("holds words that were forgotten since")
    said = f"  {', '.join(marks)}" if marks else ""
    return f"{known.id[:8]}  {_when(known.created_at)}  {_size(known.bytes):>9}  {known.path}{said}"


def _when(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000).astimezone():%Y-%m-%d %H:%M}"


def _size(count: int) -> str:
    return f"{count / 1024:.0f} kB" if count < 1024 * 1024 else f"{count / 1024 / 1024:.1f} MB"
