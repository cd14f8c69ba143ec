"""`pal sandbox`: where commands run, and whether the walls hold."""

from __future__ import annotations

import click

from palinurus.cli.derived import command_of
from palinurus.cli.shell import Shell
from palinurus.operations.sandbox import Explained, Tested, explain_sandbox, try_sandbox

_RUNS = {
    "sandbox": "Commands run in a sandbox",
    "host": "Commands run on the host, without walls",
    "nowhere": "Commands do not run at all",
}


@click.group()
def sandbox() -> None:
    """Show where commands run, and try the walls."""


def _explained(shell: Shell, told: Explained) -> str:
    name = f" ({told.walls.name})" if told.runs == "sandbox" else ""
    lines = [f"{told.session_key}: {_RUNS[told.runs]}{name}."]
    lines += [shell.dim(f"  {reason}") for reason in told.why]
    if told.runs == "sandbox":
        lines += _walls(told)
    elif told.runs == "host":
        lines.append("What may run there is said by tools.exec; see `pal tools explain exec`.")
    lines += [shell.dim(f"  note: {remark}") for remark in told.walls.remarks if told.runs == "sandbox"]
    return "\n".join(lines)


def _walls(told: Explained) -> list[str]:
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


def _tested(shell: Shell, tested: Tested) -> str:
    if not tested.walls.works:
        return f"{_sign(shell, False)} {tested.walls.name} does not work here: {tested.walls.why}"
    if not tested.probes:
        return f"{_sign(shell, False)} there are no walls to try on the {tested.walls.name}."
    width = max(len(probe.name) for probe in tested.probes)
    lines = [f"{tested.walls.name}:"]
    for probe in tested.probes:
        took = shell.dim(f"{probe.milliseconds:>6,} ms")
        lines.append(f"{_sign(shell, probe.passed)} {probe.name:<{width}}  {took}  {probe.what}".rstrip())
    failed = sum(not probe.passed for probe in tested.probes)
    lines.append(f"{failed} of {len(tested.probes)} walls do not hold." if failed else "All walls hold.")
    lines += [shell.dim(f"  note: {remark}") for remark in tested.walls.remarks]
    return "\n".join(lines)


def _sign(shell: Shell, passed: bool) -> str:
    sign = "✓" if passed else "✗"
    return click.style(sign, fg="green" if passed else "red") if shell.color else sign


sandbox.add_command(command_of(explain_sandbox, _explained))
sandbox.add_command(command_of(try_sandbox, _tested, exit_code=lambda tested: 0 if tested.ok else 1))
