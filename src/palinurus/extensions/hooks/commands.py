"""`pal hooks`: a list, a page for each, and enabling one after its code was shown."""

from __future__ import annotations

import sys

import click

from palinurus.cli.command import add_operation, call_operation
from palinurus.cli.shell import CommandGroup, Shell, echo, with_shell
from palinurus.domain.errors import NotConfirmed
from palinurus.domain.events import visible
from palinurus.extensions.hooks.folders import HookInfo
from palinurus.extensions.hooks.operations import (
    HookList,
    HookPage,
    disable_hook,
    enable_hook,
    list_hooks,
    show_hook,
)


@click.group(cls=CommandGroup)
def hooks() -> None:
    """List hooks; enable and disable them."""


def list_text(shell: Shell, found: HookList) -> str:
    width = max(len(each.name) for each in found.hooks)
    return "\n".join(_line(shell, each, width) for each in found.hooks)


def _line(shell: Shell, info: HookInfo, width: int) -> str:
    is_default = info.tier == "bundled" and len(info.reasons) == 1
    told = info.description if info.state == "on" or is_default else why_not(info)
    return f"{info.state:<8}  {visible(info.name):<{width}}  {info.tier:<9}  {shell.dim(visible(told))}"


def why_not(info: HookInfo) -> str:
    failed = f"failed {info.failures} times in a row: {info.trouble}" if info.state == "disabled" else ""
    return "; ".join(filter(None, (failed, *info.reasons)))


def page_text(_: Shell, page: HookPage) -> str:
    info = page.hook
    rows = {
        "what": info.description,
        "state": f"{info.state}{f': {why}' if (why := why_not(info)) else ''}",
        "events": ", ".join(info.events),
        "where": f"{info.folder or 'in Palinurus'} ({info.tier})",
        "agents": ", ".join(info.agents) or "all",
        "priority": str(info.priority) if info.priority else "",
        "digest": f"sha256:{info.digest}" if info.digest else "",
        "failed": f"{info.failures} times in a row: {info.trouble}" if info.failures else "",
        "dropped": f"{info.dropped} events" if info.dropped else "",
    }
    title = visible(f"{info.emoji} {info.name}".strip())
    lines = [title, *(f"  {key:<9} {visible(value)}" for key, value in rows.items() if value)]
    code = [visible(line) for line in page.handler.splitlines()]
    return "\n".join([*lines, *(["", "handler.py:", "", *code] if code else [])])


def changed_text(_: Shell, info: HookInfo) -> str:
    why = why_not(info)
    return f"{info.name} is {info.state}{f': {why}' if why and info.state != 'on' else ''}."


@hooks.command("enable")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_shell
def enable(shell: Shell, name: str, yes: bool) -> None:
    """Enable a hook. One in a workspace is shown first, and enabled exactly as it was shown.

    \b
    Examples:
      pal hooks enable boot-md
      pal hooks enable my-hook --yes
    """
    page = call_operation(shell, show_hook, name=name)
    if page.hook.tier == "workspace" and not yes:
        if shell.as_json or not sys.stdin.isatty():
            raise NotConfirmed(f"{page.hook.name} was not enabled: it is code that runs as you", hint="use --yes")
        echo(page_text(shell, page))
        click.confirm("\nThis code will run as you. Enable it?", abort=True)
    info = call_operation(shell, enable_hook, name=page.hook.folder or page.hook.name, digest=page.hook.digest)
    shell.show(info, lambda: changed_text(shell, info))


add_operation(hooks, list_hooks, list_text)
add_operation(hooks, show_hook, page_text)
add_operation(hooks, disable_hook, changed_text)
