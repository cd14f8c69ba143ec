"""`pal gateway token`: credentials that may do less than everything, made and taken away."""

from __future__ import annotations

from datetime import datetime

import click

from palinurus.cli.derived import ask, command_of
from palinurus.cli.shell import Shell, with_json
from palinurus.domain.errors import BadRequest
from palinurus.operations.gateway import (
    TokenList,
    TokenShown,
    create_token,
    list_tokens,
    revoke_token,
    rotate_token,
)
from palinurus.operations.scopes import SCOPES, Scope


@click.group()
def token() -> None:
    """Make and take away tokens for programs that may do less than everything."""


def parse_scopes(text: str) -> tuple[Scope, ...]:
    """`read,write` as scopes. Raises BadRequest."""
    named = [name.strip().removeprefix("operator.") for name in text.split(",") if name.strip()]
    if unknown := [name for name in named if name not in SCOPES]:
        raise BadRequest(f"there is no scope {unknown[0]!r}", hint=f"there are {', '.join(SCOPES)}")
    return tuple(scope for scope in SCOPES if scope in named)


@token.command()
@click.option("--name", required=True, help="What it is for.")
@click.option("--scope", "scopes", default="read,write", show_default=True, help="What it may do, by commas.")
@click.option("--days", type=float, help="How long it lives. Default: until it is revoked.")
@with_json
@click.pass_obj
def create(shell: Shell, name: str, scopes: str, days: float | None) -> None:
    """Make a token. It is shown this once; only its hash is kept.

    read looks, write talks with agents too, approvals decides about what waits, admin is everything.

    \b
    Examples:
      pal gateway token create --name phone
      pal gateway token create --name dashboard --scope read --days 90
    """
    made = ask(shell, create_token, create_token.params(name, parse_scopes(scopes), days))
    shell.show(made, lambda: _secret_text(shell, made))


def _secret_text(_: Shell, made: TokenShown) -> str:
    until = f", until {day(made.expires_at)}" if made.expires_at else ""
    return f"{made.secret}\n{made.name} ({', '.join(made.scopes)}{until}). It is not shown again."


def _list_text(_: Shell, listed: TokenList) -> str:
    if not listed.tokens:
        return "There are no tokens besides the owner's."
    rows = [(each.name, ", ".join(each.scopes), _state(each)) for each in listed.tokens]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(f"{name:<{widths[0]}}  {scopes:<{widths[1]}}  {state}" for name, scopes, state in rows)


def _state(each: TokenShown) -> str:
    if each.revoked_at:
        return f"revoked {day(each.revoked_at)}"
    used = f"used {day(each.last_used_at)}" if each.last_used_at else "never used"
    return f"{used}, until {day(each.expires_at)}" if each.expires_at else used


def day(milliseconds: int | None) -> str:
    return datetime.fromtimestamp((milliseconds or 0) / 1000).astimezone().strftime("%Y-%m-%d %H:%M")


token.add_command(command_of(list_tokens, _list_text))
token.add_command(command_of(rotate_token, _secret_text))
token.add_command(command_of(revoke_token, lambda _, gone: f"The token {gone.name} is dead."))
