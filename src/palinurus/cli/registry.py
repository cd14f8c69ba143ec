"""`pal registry`: host a registry of skills, and look after who may publish there."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
from datetime import datetime
from pathlib import Path

import click
from msgspec import Struct

from palinurus.cli.shell import Shell, run_async, with_json
from palinurus.domain.clock import SystemClock
from palinurus.domain.errors import BadRequest
from palinurus.gateway.registry.serving import RegistryServer
from palinurus.gateway.registry.shelf import Shelf
from palinurus.gateway.registry.tokens import OwnerToken, Tokens
from palinurus.skills.registry.client import is_near, read_address

PORT = 18_795
folder_argument = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))


class Serving(Struct, frozen=True):
    url: str
    folder: str
    skills: int
    owners: tuple[str, ...]


class TokenMade(Struct, frozen=True):
    id: str
    owner: str
    secret: str


class TokenListed(Struct, frozen=True, rename="camel"):
    id: str
    owner: str
    name: str
    created_at: int
    revoked_at: int | None = None


class BlockState(Struct, frozen=True):
    slug: str
    blocked: str


@click.group()
def registry() -> None:
    """Host a registry of skills that `pal skills` and the clawhub command speak to."""


@registry.command()
@folder_argument
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0 takes any.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--url", default="", help="What it is called from outside, when a proxy with TLS stands before it.")
@with_json
@click.pass_obj
def serve(shell: Shell, folder: Path, port: int, host: str, url: str) -> None:
    """Serve the registry in DIR until it is ended. Everything in it is plain files.

    Anybody who reaches it may search and download; publishing needs a token (`pal registry token create`). It speaks
    plain HTTP: for others than this machine put a proxy with TLS before it and name it with --url.

    \b
    Examples:
      pal registry serve ~/skill-registry
      CLAWHUB_REGISTRY=http://127.0.0.1:18795 pal skills search notes
      pal registry serve /srv/skills --url https://skills.example.org
    """
    if not is_near(host) and not _is_address(host):
        raise BadRequest(f"{host[:80]!r} is no address to listen at", hint="such as 127.0.0.1 or 0.0.0.0")
    if not is_near(host):
        shell.warn("listening on the network without TLS: whoever listens there can read tokens")
    run_async(_serve(shell, folder.absolute(), host, port, read_address(url) if url else ""))


@registry.group()
def token() -> None:
    """Make and take away tokens with which owners publish."""


@token.command()
@folder_argument
@click.option("--owner", required=True, help="For whom it publishes.")
@click.option("--name", default="", help="What it is for.")
@with_json
@click.pass_obj
def create(shell: Shell, folder: Path, owner: str, name: str) -> None:
    """Make a token for an owner. It is shown this once; only its digest is kept.

    \b
    Example:
      pal registry token create ~/skill-registry --owner ada
    """
    made, secret = Tokens(folder.absolute()).create(owner, name, SystemClock().now_ms())
    shown = TokenMade(made.id, made.owner, secret)
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
    found = tuple(map(_listed, Tokens(folder.absolute()).all()))
    shell.show(found, lambda: "\n".join(map(_row, found)) or "There are no tokens: nobody can publish.")


@token.command()
@folder_argument
@click.argument("id_", metavar="ID")
@with_json
@click.pass_obj
def revoke(shell: Shell, folder: Path, id_: str) -> None:
    """Take a token away. It is dead at once.

    \b
    Example:
      pal registry token revoke ~/skill-registry 1f2e3d4c
    """
    gone = _listed(Tokens(folder.absolute()).revoke(id_, SystemClock().now_ms()))
    shell.show(gone, lambda: f"The token {gone.id} of {gone.owner} is dead.")


@registry.command()
@folder_argument
@click.argument("slug")
@click.option("--reason", default="", help="Shown to whoever asks for it. Default: blocked by whoever hosts this.")
@click.option("--undo", is_flag=True, help="Let it be installed again.")
@with_json
@click.pass_obj
def block(shell: Shell, folder: Path, slug: str, reason: str, undo: bool) -> None:
    """Block a skill: it is not found and not handed out, and clients are told that it is malware.

    \b
    Example:
      pal registry block ~/skill-registry bear-notes --reason "reads ssh keys"
    """
    why = "" if undo else " ".join(reason.split())[:300] or "blocked by whoever hosts this"
    Shelf(folder.absolute()).set_blocked(slug, why)
    state = BlockState(slug, why)
    shell.show(state, lambda: f"{slug} can be installed again." if undo else f"{slug} is blocked: {why}.")


async def _serve(shell: Shell, folder: Path, host: str, port: int, url: str) -> None:
    server = RegistryServer(folder, host, port, SystemClock(), url)
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await server.start()
    try:
        owners = tuple(sorted({each.owner for each in server.tokens.all() if each.revoked_at is None}))
        shown = Serving(server.url, str(folder), len(server.shelf.all()), owners)
        shell.show(shown, lambda: _started(shown))
        await ended.wait()
    finally:
        await server.close()


def _started(shown: Serving) -> str:
    line = f"pal registry at {shown.url} · {shown.skills} skills in {shown.folder}"
    if shown.owners:
        return f"{line} · published by {', '.join(shown.owners)}"
    return f"{line}\nnobody can publish yet: `pal registry token create {shown.folder} --owner NAME`"


def _is_address(host: str) -> bool:
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def _listed(each: OwnerToken) -> TokenListed:
    return TokenListed(each.id, each.owner, each.name, each.created_at, each.revoked_at)


def _row(each: TokenListed) -> str:
    state = f"revoked {_day(each.revoked_at)}" if each.revoked_at else f"made {_day(each.created_at)}"
    return f"{each.id}  {each.owner}  {state}{f'  {each.name}' if each.name else ''}"


def _day(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000).astimezone().strftime("%Y-%m-%d %H:%M")
