"""`pal migrate sqlite-to-postgres` and `pal migrate postgres-to-sqlite`: by a process that holds the home meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import click

from palinurus.cli.command import Bar
from palinurus.cli.shell import Shell, run_async, with_json
from palinurus.config.atomic import make_directory
from palinurus.config.load import load_config
from palinurus.domain.errors import BadRequest, HomeHeld
from palinurus.extensions.postgres.engine import configured_url, load_engine
from palinurus.extensions.postgres.transfer_report import Tell, TransferReport
from palinurus.runtime.lock import HomeLock
from palinurus.storage.database import Database
from palinurus.storage.settings import StorageSettings

_DRY_RUN = click.option("--dry-run", is_flag=True, help="Only count what would be moved.")
_TENANT = click.option("--tenant", metavar="NAME", help="Whose rows they are there. Default: storage.tenant.")


@click.command("sqlite-to-postgres")
@click.argument("url", metavar="URL")
@_TENANT
@_DRY_RUN
@with_json
@click.pass_obj
def to_postgres(shell: Shell, url: str, tenant: str | None, dry_run: bool) -> None:
    """Copy this home's database to PostgreSQL. The file stays as it is.

    If a move is interrupted, call the command again: it continues. At the end the count and the hash of
    every table are compared. Then set storage.url and storage.tenant.

    \b
    Examples:
      pal migrate sqlite-to-postgres postgresql://pal@db/pal --dry-run
      pal migrate sqlite-to-postgres postgresql://pal@db/pal --tenant acme
    """
    path = shell.home.root / "home.sqlite"
    if not path.exists():
        raise BadRequest(f"there is no {path}", hint="`pal storage status` shows where the home is kept")
    settings = load_config(shell.home, os.environ).config.section(StorageSettings)
    named = tenant or settings.tenant
    with closing(Bar()) as bar, _held(shell.home.root):
        report = run_async(_fill(path, url, named, bar.show, dry_run=dry_run))
    shell.show(report, lambda: _text(report, f"now set storage.url, and storage.tenant to {named}"))


@click.command("postgres-to-sqlite")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@_DRY_RUN
@with_json
@click.pass_obj
def to_sqlite(shell: Shell, folder: Path, dry_run: bool) -> None:
    """Copy this home's database from PostgreSQL to DIR/home.sqlite. What is there stays.

    If a move is interrupted, call the command again: it continues. At the end the count and the hash of
    every table are compared. Then take storage.url out of the config of the home in DIR.

    \b
    Examples:
      pal migrate postgres-to-sqlite ~/.palinurus --dry-run
      pal migrate postgres-to-sqlite ~/.palinurus
    """
    loaded = load_config(shell.home, os.environ)
    url = configured_url(loaded)
    if not url:
        raise BadRequest("the config names no storage.url", hint="this home is in a file already")
    to = folder.absolute() / "home.sqlite"
    if to.exists():
        raise BadRequest(f"{to} is there already", hint="move it away, or choose another folder")
    tenant = loaded.config.section(StorageSettings).tenant
    with closing(Bar()) as bar, _held(shell.home.root):
        report = run_async(_leave(url, tenant, to, bar.show, dry_run=dry_run))
    shell.show(report, lambda: _text(report, f"now take storage.url out of the config of the home in {to.parent}"))


@contextmanager
def _held(root: Path) -> Iterator[None]:
    lock = HomeLock(root / "lock")
    if not lock.acquire("pal migrate"):
        raise HomeHeld(f"{lock.holder()} holds the home {root}", hint="end it first")
    try:
        yield
    finally:
        lock.release()


async def _fill(path: Path, url: str, tenant: str, tell: Tell, *, dry_run: bool) -> TransferReport:
    engine = load_engine()
    from palinurus.extensions.postgres import transfer

    source = Database(path, "home", exclusive=True)
    try:
        target = engine(url, tenant)  # a tenant that is in use is not taken from whoever writes for it
        try:
            tables = transfer.tables_of(target)
            if dry_run:
                return TransferReport(source.name, target.name, transfer.counted(source, tables), dry_run=True)
            transfer.check_target(target, source.name, tables)
        finally:
            await target.close()
        target = engine(url, tenant, exclusive=True, filling=True)
        try:
            await transfer.begin_transfer(target, source.name, tables)
            await transfer.copy_rows(source, target, tables, tell)
            found = transfer.compare_rows(source, target, tables, tell)
            await transfer.end_transfer(target, tables)
            return TransferReport(source.name, target.name, found)
        finally:
            await target.close()
    finally:
        await source.close()


async def _leave(url: str, tenant: str, to: Path, tell: Tell, *, dry_run: bool) -> TransferReport:
    engine = load_engine()
    from palinurus.extensions.postgres import transfer

    source = engine(url, tenant, exclusive=not dry_run)
    try:
        tables = transfer.tables_of(source)
        if dry_run:
            return TransferReport(source.name, str(to), transfer.counted(source, tables), dry_run=True)
        make_directory(to.parent)
        part = to.with_name(f"{to.name}.part")
        target = Database(part, "home")
        try:
            await transfer.copy_rows(source, target, tables, tell)
            found = transfer.compare_rows(source, target, tables, tell)
            await target.write(lambda tx: tx.execute(transfer.SHOW).fetchall())
        finally:
            await target.close()
        part.rename(to)
        return TransferReport(source.name, str(to), found)
    finally:
        await source.close()


def _text(report: TransferReport, then: str) -> str:
    lines = [f"{each.rows:>12,}  {each.table}" for each in report.tables if each.rows]
    rows = f"{report.rows:,} rows"
    if report.dry_run:
        return "\n".join([*lines, f"{rows} would go from {report.source} to {report.target}."])
    return "\n".join([*lines, f"{rows} of {report.source} are in {report.target}, the same on both sides; {then}."])
