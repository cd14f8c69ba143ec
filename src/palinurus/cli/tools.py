"""`pal tools`: which tools there are, and who may use them where."""

from __future__ import annotations

import click

from palinurus.cli.derived import command_of
from palinurus.cli.shell import Shell
from palinurus.operations.tools import Explanation, ToolList, explain_tool, list_tools
from palinurus.tools.policy.names import BUILT_IN


@click.group()
def tools() -> None:
    """Show which tools there are and who may use them."""


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


tools.add_command(command_of(list_tools, _list_text))
tools.add_command(command_of(explain_tool, _explain_text))
