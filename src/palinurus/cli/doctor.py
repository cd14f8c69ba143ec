"""`pal doctor`: what is wrong with a home, where, and what to do about it."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from palinurus.cli.shell import Shell, run_async, with_json
from palinurus.wiring.checks.check import Check
from palinurus.wiring.doctor import examine

SIGNS = {"ok": ("✓", "green"), "mended": ("✓", "cyan"), "warning": ("!", "yellow"), "bad": ("×", "red")}


@click.command()
@click.option("--fix", is_flag=True, help="Mend what needs no decision: file modes, a damaged index.")
@click.option("--no-model", is_flag=True, help="Do not ask the model whether it answers.")
@with_json
@click.pass_obj
def doctor(shell: Shell, fix: bool, no_model: bool) -> int:
    """Look for what is wrong and say what to do. Exit code 1 when something is.

    Works with a broken config and while another process holds the home. The model is sent one tiny request.

    \b
    Examples:
      pal doctor
      pal doctor --fix --no-model
    """
    checks = run_async(examine(shell.home, os.environ, fix=fix, ask_model=not no_model))
    broken = any(check.state == "bad" for check in checks)
    shell.show({"ok": not broken, "checks": checks}, lambda: _text(shell, checks))
    return 1 if broken else 0


def _text(shell: Shell, checks: Sequence[Check]) -> str:
    width = max(len(check.name) for check in checks)
    lines: list[str] = []
    for check in checks:
        sign, color = SIGNS[check.state]
        mark = click.style(sign, fg=color) if shell.color else sign
        where = shell.dim(f"  {check.where}") if check.where and check.where not in check.what else ""
        lines.append(f"{mark} {check.name:<{width}}  {check.what}{where}")
        if check.todo and check.state in ("warning", "bad"):
            lines.append(f"  {'':<{width}}  → {check.todo}")
    bad = sum(check.state == "bad" for check in checks)
    odd = sum(check.state == "warning" for check in checks)
    lines.append(f"{bad} wrong, {odd} worth a look." if bad or odd else "All is well.")
    return "\n".join(lines)
