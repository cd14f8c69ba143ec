"""`pal tools`: which tools there are, and who may use them where."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from palinurus.cli.entrance import open_door
from palinurus.cli.shell import Shell, run_async, with_json
from palinurus.operations.table import Operation, P, R
from palinurus.operations.tools import EXPLAIN, LIST, AskTools, ExplainTool, Explanation, ToolList
from palinurus.tools.policy.names import BUILT_IN

F = TypeVar("F", bound=Callable[..., object])


def where(command: F) -> F:
    """The options that say where, with which model and for whom."""
    for option in (
        click.option("--sender", default="", metavar="CHANNEL:ID", help="As if this person asked, not the owner."),
        click.option("--model", default="", metavar="PROVIDER/MODEL", help="With this model. Default: the session's."),
        click.option("--session-key", default="", help="In this session. Default: the agent's main one."),
        click.option("--agent", default="", help="Of this agent."),
    ):
        command = option(command)
    return command


@click.group()
def tools() -> None:
    """Show which tools there are and who may use them."""


@tools.command("list")
@where
@with_json
@click.pass_obj
def list_tools(shell: Shell, agent: str, session_key: str, model: str, sender: str) -> None:
    """List the tools, whether they may be used here, and what decided it.

    \b
    Examples:
      pal tools list
      pal tools list --session-key agent:main:telegram:group:-1001 --sender telegram:42
    """
    listed = _ask(shell, LIST, AskTools(agent, session_key, model, sender))
    shell.show(listed, lambda: _list_text(shell, listed))


@tools.command("explain")
@click.argument("name")
@where
@with_json
@click.pass_obj
def explain_tool(shell: Shell, name: str, agent: str, session_key: str, model: str, sender: str) -> None:
    """Show layer by layer why a tool may be used here or not.

    \b
    Examples:
      pal tools explain exec
      pal tools explain exec --session-key agent:main:telegram:group:-1001
    """
    told = _ask(shell, EXPLAIN, ExplainTool(name, agent, session_key, model, sender))
    shell.show(told, lambda: _explain_text(shell, told))


def _ask(shell: Shell, operation: Operation[P, R], params: P) -> R:
    async def ask() -> R:
        async with open_door(shell) as door:
            return await door.call(operation, params)

    return run_async(ask())


def _list_text(shell: Shell, listed: ToolList) -> str:
    if not listed.tools:
        return "There are no tools."
    names = max(len(tool.name) for tool in listed.tools)
    groups = max(len(tool.group) for tool in listed.tools)
    layers = max(len(tool.layer) for tool in listed.tools)
    lines = [_headline(listed.session_key, listed.model, listed.sandboxed)]
    for tool in listed.tools:
        row = f"{'yes' if tool.allowed else 'no':<3}  {tool.name:<{names}}  {tool.group:<{groups}}"
        lines.append(f"{row}  {tool.layer:<{layers}}  {shell.dim(tool.why)}")
    return "\n".join(lines)


def _explain_text(shell: Shell, told: Explanation) -> str:
    verdict = told.verdict
    answer = f"{told.name} {'may' if verdict.allowed else 'may not'} be used: {verdict.why} ({verdict.layer})"
    lines = [_headline(told.session_key, told.model, told.sandboxed)]
    signs = {"allows": "+", "denies": "-", "silent": " "}
    for step in verdict.chain:
        row = f"{signs[step.verdict]} {step.layer:<11}  {step.why}"
        lines.append(shell.dim(row) if step.verdict == "silent" else row)
    lines.append(answer)
    if not told.present:
        here = "the config leaves it out" if told.name in BUILT_IN else "this version has no such tool"
        lines.append(f"But there is no tool {told.name} here: {here}.")
    return "\n".join(lines)


def _headline(session_key: str, model: str, sandboxed: bool) -> str:
    return f"in {session_key}{f' with {model}' if model else ''}{', sandboxed' if sandboxed else ''}:"
