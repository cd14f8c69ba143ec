"""`pal models auth`: keys of providers.

A key is read from a prompt without echo or from standard input, never from the command line, which others can see.
"""

from __future__ import annotations

import sys
import webbrowser
from datetime import datetime
from typing import Literal

import click

from palinurus.cli.entrance import ground_of
from palinurus.cli.shell import Shell, run_async, with_json
from palinurus.domain.clock import SystemClock
from palinurus.operations.credentials import (
    CredentialList,
    Stored,
    credential_add,
    credential_remove,
    credentials_list,
)
from palinurus.operations.login import sign_in

_agent = click.option("--agent", "agent_id", default="", help="For this agent alone; all agents share the main one's.")


@click.group()
def auth() -> None:
    """Store, list and remove keys of providers, and sign in."""


@auth.command("add")
@click.argument("provider")
@click.option("--name", default="default", show_default=True, help="Tells several keys of one provider apart.")
@click.option("--type", "kind", type=click.Choice(["api_key", "token"]), default="api_key", show_default=True)
@click.option("--keyring", is_flag=True, help="Keep it in the keychain of the desktop instead of the file.")
@_agent
@with_json
@click.pass_obj
def add(
    shell: Shell, provider: str, name: str, kind: Literal["api_key", "token"], keyring: bool, agent_id: str
) -> None:
    """Store a key for PROVIDER. It is asked for, or read from standard input.

    It goes to credentials.json in the home, mode 0600, and is sealed when PALINURUS_PASSPHRASE is set.

    \b
    Examples:
      pal models auth add openai
      pal models auth add anthropic --name work < key.txt
    """
    terminal = sys.stdin.isatty()
    secret = click.prompt("key", hide_input=True, err=True) if terminal else sys.stdin.readline()
    stored = credential_add(ground_of(shell), provider, secret, name=name, kind=kind, keychain=keyring, agent=agent_id)
    if stored.unheard:
        shell.warn(stored.unheard)
    shell.show(stored, lambda: _stored_text(stored))


@auth.command("login")
@click.argument("provider")
@click.option("--name", default="default", show_default=True, help="Tells several sign-ins of one provider apart.")
@click.option("--device", is_flag=True, help="With a code that you type in on another device.")
@click.option("--no-browser", is_flag=True, help="Only show the address; open it yourself, on this machine.")
@_agent
@with_json
@click.pass_obj
def login(shell: Shell, provider: str, name: str, device: bool, no_browser: bool, agent_id: str) -> None:
    """Sign in at PROVIDER instead of storing a key. It is renewed before it ends.

    The provider has to be in the config with a client id of your own: models.providers.<id>.oauth.

    \b
    Examples:
      pal models auth login google
      pal models auth login workshop --device
    """

    def show(where: str, code: str) -> None:
        with_code = f"\nand enter the code  {code}" if code else ""
        click.echo(f"To sign in at {provider}, open\n  {where}{with_code}", err=True)
        if not code and not no_browser:
            webbrowser.open(where)

    ground = ground_of(shell)
    stored = run_async(sign_in(ground, SystemClock(), provider, show, name=name, device=device, agent=agent_id))
    shell.show(stored, lambda: _stored_text(stored))


@auth.command("list")
@_agent
@with_json
@click.pass_obj
def list_keys(shell: Shell, agent_id: str) -> None:
    """List the keys that are known and where they come from. Never the keys themselves.

    \b
    Example:
      pal models auth list --json
    """
    found = credentials_list(ground_of(shell), agent_id)
    for trouble in found.troubles:
        shell.warn(trouble)
    shell.show(found, lambda: _list_text(found))


@auth.command("remove")
@click.argument("credential", metavar="ID")
@_agent
@with_json
@click.pass_obj
def remove(shell: Shell, credential: str, agent_id: str) -> None:
    """Forget a stored key: ID is what `list` shows, or the provider where it has one key.

    \b
    Examples:
      pal models auth remove openai
      pal models auth remove openai:work
    """
    gone = credential_remove(ground_of(shell), credential, agent_id)
    shell.show({"removed": gone.id, "path": gone.path}, lambda: f"{gone.id} is gone from {gone.path}.")


def _stored_text(stored: Stored) -> str:
    place = "the keychain" if stored.keychain else stored.path + (" (sealed)" if stored.sealed else "")
    return f"{stored.id} is {'replaced' if stored.replaced else 'stored'} in {place}."


def _list_text(found: CredentialList) -> str:
    if not found.credentials:
        return "No keys. `pal models auth add PROVIDER` stores one."
    width = max(len(known.id) for known in found.credentials)
    lines = []
    for known in found.credentials:
        until = ""
        if known.expires_at:
            until = f", until {datetime.fromtimestamp(known.expires_at / 1000).astimezone():%Y-%m-%d %H:%M}"
        lines.append(f"{known.id:<{width}}  {known.kind}, {known.source}{until}")
    return "\n".join(lines)
