"""`pal webhooks`: list webhooks, and try what a template makes of a payload."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from palinurus.cli.command import add_operation, call_operation
from palinurus.cli.shell import CommandGroup, Shell, with_shell
from palinurus.domain.events import visible
from palinurus.extensions.webhooks.operations import WebhookList, WebhookPreview, list_webhooks, render_webhook

NONE = "There are no webhooks: set hooks.token, then hooks.enabled (docs/webhooks.md)."
OFF = "They are switched off: pal config set hooks.enabled true"


@click.group(cls=CommandGroup)
def webhooks() -> None:
    """List webhooks; try their templates."""


@webhooks.command("test")
@click.argument("name")
@click.option(
    "--data",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    required=True,
    metavar="FILE|-",
    help="What a sender would send; -: standard input.",
)
@with_shell
def test(shell: Shell, name: str, data: str) -> None:
    """Show what an agent would get of a request, without a run.

    NAME is the path of a webhook after hooks.path, or its id.

    \b
    Examples:
      pal webhooks test github --data issue.json
      echo '{"title": "Disk full"}' | pal webhooks test alert --data -
    """
    content = sys.stdin.read() if data == "-" else Path(data).read_text(encoding="utf-8", errors="replace")
    found = call_operation(shell, render_webhook, name=name, data=content)
    shell.show(found, lambda: _preview_text(shell, found))


def _preview_text(shell: Shell, found: WebhookPreview) -> str:
    session = found.session or "a new session for each request"
    head = shell.dim(visible(f"{found.action}: agent {found.agent}, {session}"))
    missing = [shell.dim(f"Not in the data: {', '.join(found.missing)}")] if found.missing else []
    return "\n".join([head, *map(visible, found.text.split("\n")), *missing])


def _list_text(shell: Shell, found: WebhookList) -> str:
    rows = [(each.path, each.action, each.auth, each.agent, each.session, each.source) for each in found.webhooks]
    lines = ["  ".join(filter(None, row)) for row in rows]
    return "\n".join([*map(visible, lines or [NONE]), *([] if found.enabled or not lines else [OFF])])


add_operation(webhooks, list_webhooks, _list_text)
