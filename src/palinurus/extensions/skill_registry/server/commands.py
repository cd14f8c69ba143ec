"""`pal registry`: host a registry of skills, and look after who may publish there."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from palinurus.cli.shell import CommandGroup, Shell, run_async, with_json
from palinurus.domain.clock import SystemClock
from palinurus.domain.errors import BadRequest
from palinurus.extensions.skill_registry.client import is_near, read_address
from palinurus.extensions.skill_registry.server.app import RegistryServer
from palinurus.extensions.skill_registry.server.store import OwnerToken, OwnerTokens, RegistryStore

PORT = 18_795
folder_argument = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))


@click.group(cls=CommandGroup)
def registry() -> None:
    """Host a registry of skills that `pal skills` and the clawhub command can use."""


@registry.command()
@folder_argument
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0 takes any.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--url", default="", help="Its public address, when a proxy with TLS is before it.")
@with_json
@click.pass_obj
def serve(shell: Shell, folder: Path, port: int, host: str, url: str) -> None:
    """Serve the registry in DIR until Ctrl-C. Everything in it is plain files.

    Everybody who reaches it may search and download; publishing needs a token (`pal registry token create`). It uses
    plain HTTP: to serve other machines, put a proxy with TLS before it and give its address with --url.

    \b
    Examples:
      pal registry serve ~/skill-registry
      CLAWHUB_REGISTRY=http://127.0.0.1:18795 pal skills search notes
      pal registry serve /srv/skills --url https://skills.example.org
    """
    if not is_near(host) and not _is_address(host):
        raise BadRequest(f"{host[:80]!r} is not an address to listen at", hint="such as 127.0.0.1 or 0.0.0.0")
    if not is_near(host):
        shell.warn("listening on the network without TLS: tokens can be read on the way")
    run_async(_serve(shell, folder.absolute(), host, port, read_address(url) if url else ""))


@registry.group()
def token() -> None:
    """Create and revoke the tokens with which owners publish."""


@token.command()
@folder_argument
@click.option("--owner", required=True, help="For whom it publishes.")
@click.option("--name", default="", help="What it is for.")
@with_json
@click.pass_obj
def create(shell: Shell, folder: Path, owner: str, name: str) -> None:
    """Make a token for an owner. It is shown only once; the registry stores its digest.

    \b
    Example:
      pal registry token create ~/skill-registry --owner ada
    """
    made, secret = OwnerTokens(folder.absolute()).create(owner, name, SystemClock().now_ms())
    shown = {"id": made.id, "owner": made.owner, "secret": secret}
    shell.show(shown, lambda: f"{secret}\n{made.id} ({made.owner}). It is not shown again.")


@token.command("list")
@folder_argument
@with_json
@click.pass_obj
def list_(shell: Shell, folder: Path) -> None:
    """List the tokens, without their secrets.

    \b
    Example:
      pal registry token list ~/skill-registry
    """
    found = OwnerTokens(folder.absolute()).all()
    shell.show(
        [_token(each) for each in found],
        lambda: "\n".join(map(_row, found)) or "There are no tokens, so publishing is not possible.",
    )


@token.command()
@folder_argument
@click.argument("id_", metavar="ID")
@with_json
@click.pass_obj
def revoke(shell: Shell, folder: Path, id_: str) -> None:
    """Revoke a token. It stops working at once.

    \b
    Example:
      pal registry token revoke ~/skill-registry 1f2e3d4c
    """
    gone = OwnerTokens(folder.absolute()).revoke(id_, SystemClock().now_ms())
    shell.show(_token(gone), lambda: f"The token {gone.id} of {gone.owner} is revoked.")


@registry.command()
@folder_argument
@click.argument("slug")
@click.option(
    "--reason", default="", help="Shown to those who ask for it. Default: blocked by the host of this registry."
)
@click.option("--undo", is_flag=True, help="Let it be installed again.")
@with_json
@click.pass_obj
def block(shell: Shell, folder: Path, slug: str, reason: str, undo: bool) -> None:
    """Block a skill: it is not found, cannot be downloaded, and clients see it marked as malware.

    \b
    Example:
      pal registry block ~/skill-registry bear-notes --reason "reads ssh keys"
    """
    why = "" if undo else " ".join(reason.split())[:300] or "blocked by the host of this registry"
    RegistryStore(folder.absolute()).set_blocked(slug, why)
    shell.show(
        {"slug": slug, "blocked": why},
        lambda: f"{slug} can be installed again." if undo else f"{slug} is blocked: {why}.",
    )


async def _serve(shell: Shell, folder: Path, host: str, port: int, url: str) -> None:
    server = RegistryServer(folder, host, port, SystemClock(), url)
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await server.start()
    try:
        owners = sorted({each.owner for each in server.tokens.all() if each.revoked_at is None})
        skills = len(server.store.all())
        shown = {"url": server.url, "folder": str(folder), "skills": skills, "owners": owners}
        shell.show(shown, lambda: _started(server.url, str(folder), skills, owners))
        await ended.wait()
    finally:
        await server.close()


def _started(url: str, folder: str, skills: int, owners: list[str]) -> str:
    line = f"pal registry at {url} · {skills} skills in {folder}"
    if owners:
        return f"{line} · published by {', '.join(owners)}"
    return f"{line}\nno one can publish yet: `pal registry token create {folder} --owner NAME`"


def _is_address(host: str) -> bool:
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def _token(each: OwnerToken) -> dict[str, Any]:
    """Without its digest."""
    return {key: value for key, value in msgspec.to_builtins(each).items() if key != "digest"}


def _row(each: OwnerToken) -> str:
    state = f"revoked {_day(each.revoked_at)}" if each.revoked_at else f"made {_day(each.created_at)}"
    return f"{each.id}  {each.owner}  {state}{f'  {each.name}' if each.name else ''}"


def _day(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000).astimezone().strftime("%Y-%m-%d %H:%M")
