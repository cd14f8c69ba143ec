"""`pal tools` and `pal sandbox`: who may use which tools, and where commands run."""

from __future__ import annotations

import click

from palinurus.cli.command import add_operation
from palinurus.cli.shell import CommandGroup, Shell, columns
from palinurus.operations import tools as operations
from palinurus.operations.tools import Explanation, SandboxExplanation, SandboxReport, ToolList
from palinurus.tools.tool_names import BUILT_IN


@click.group(cls=CommandGroup)
def tools() -> None:
    """List tools and who may use them."""


def _list_text(shell: Shell, listed: ToolList) -> str:
    if not listed.tools:
        return "There are no tools."
    rows = [
        ("yes" if tool.allowed else "no ", tool.name, tool.group, tool.layer, shell.dim(tool.why))
        for tool in listed.tools
    ]
    return "\n".join([_headline(listed.session_key, listed.model, listed.sandboxed), *columns(rows)])


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


add_operation(tools, operations.list_tools, _list_text)
add_operation(tools, operations.explain_tool, _explain_text)


_RUNS = {
    "sandbox": "Commands run in a sandbox",
    "host": "Commands run on the host, without a sandbox",
    "nowhere": "Commands do not run at all",
}


@click.group(cls=CommandGroup)
def sandbox() -> None:
    """Show where commands run; test the sandbox."""


def _sandbox_text(shell: Shell, told: SandboxExplanation) -> str:
    name = f" ({told.walls.name})" if told.runs == "sandbox" else ""
    lines = [f"{told.session_key}: {_RUNS[told.runs]}{name}."]
    lines += [shell.dim(f"  {reason}") for reason in told.why]
    if told.runs == "sandbox":
        lines += _walls(told)
    elif told.runs == "host":
        lines.append("The config section tools.exec decides what may run there; see `pal tools explain exec`.")
    lines += [shell.dim(f"  note: {remark}") for remark in told.walls.remarks if told.runs == "sandbox"]
    return "\n".join(lines)


def _walls(told: SandboxExplanation) -> list[str]:
    width = max(len(seen.path) for seen in told.seen)
    access = {True: "read-write", False: "read-only"}
    rows = [f"{seen.path:<{width}}  {access[seen.writable]:<10}  {seen.what}" for seen in told.seen]
    rows.append(f"network: {'the whole network of this machine, loopback included' if told.network else 'none'}")
    rows.append(f"each process: at most {told.cpu_seconds:,} s of CPU, {told.file_mb:,} MiB a file")
    most = f"{told.memory_mb:,} MiB of memory, {told.processes} processes, {told.disk_mb:,} MiB written"
    rows.append(f"a command in all: at most {most}")
    rows.append(f"scope: {told.scope} shares one private workspace" if told.access == "none" else "")
    rows.append(f"variables of the config: {', '.join(told.env)}" if told.env else "")
    return [f"  {row}" for row in rows if row]


def _sandbox_report_text(shell: Shell, tested: SandboxReport) -> str:
    if not tested.walls.works:
        return f"{_sign(shell, False)} {tested.walls.name} does not work here: {tested.walls.why}"
    if not tested.probes:
        return f"{_sign(shell, False)} there is no sandbox to test on the {tested.walls.name}."
    width = max(len(probe.name) for probe in tested.probes)
    lines = [f"{tested.walls.name}:"]
    for probe in tested.probes:
        took = shell.dim(f"{probe.milliseconds:>6,} ms")
        lines.append(f"{_sign(shell, probe.passed)} {probe.name:<{width}}  {took}  {probe.what}".rstrip())
    failed = sum(not probe.passed for probe in tested.probes)
    lines.append(f"{failed} of {len(tested.probes)} sandbox tests failed." if failed else "All sandbox tests passed.")
    lines += [shell.dim(f"  note: {remark}") for remark in tested.walls.remarks]
    return "\n".join(lines)


def _sign(shell: Shell, passed: bool) -> str:
    sign = "✓" if passed else "✗"
    return click.style(sign, fg="green" if passed else "red") if shell.color else sign


add_operation(sandbox, operations.explain_sandbox, _sandbox_text)
add_operation(sandbox, operations.try_sandbox, _sandbox_report_text, exit_code=lambda tested: 0 if tested.ok else 1)
