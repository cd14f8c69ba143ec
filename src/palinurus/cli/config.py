"""`pal config`: read and change the config file."""

from __future__ import annotations

import json
from typing import Any

import click

from palinurus.cli.command import command_of, services_of
from palinurus.cli.shell import Shell, echo
from palinurus.config.schema import OptionExplanation, json_schema
from palinurus.operations.config import (
    ConfigChange,
    ConfigEdit,
    ConfigReport,
    explain_config,
    get_config_value,
    patch_config,
    set_config_value,
    unset_config_value,
    validate_config,
)


@click.group()
def config() -> None:
    """Read and change the config."""


@config.command("schema")
def schema() -> None:
    """Print the JSON Schema of the config.

    \b
    Example:
      pal config schema > palinurus.schema.json
    """
    echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))


@config.command("file")
@click.pass_obj
def file(shell: Shell) -> None:
    """Print where the config file is.

    \b
    Example:
      $EDITOR "$(pal config file)"
    """
    echo(str(shell.home.config_path))


def _value_text(_: Shell, value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def _edit_text(shell: Shell, edit: ConfigEdit) -> str:
    for line in edit.warnings:
        shell.warn(line)
    if edit.path.rpartition(".")[2] in ("model", "primary"):
        from palinurus.operations.models import model_problems  # other keys need no table of models

        for line in model_problems(services_of(shell)):
            shell.warn(line)
    return ""


def _change_text(_: Shell, change: ConfigChange) -> str:
    if change.noop:
        return "Nothing changes."
    return f"{change.path} {'is' if change.written else 'would be'} changed."


def _report_text(shell: Shell, report: ConfigReport) -> str:
    odd = (*report.warnings, *report.unused)
    for line in odd:
        shell.warn(line)
    if not report.exists:
        return f"{report.file} does not exist; the defaults are used."
    return f"{report.file} can be used; {len(odd)} warning(s)." if odd else f"{report.file} is valid."


def _explanation_text(_: Shell, found: OptionExplanation) -> str:
    said = [f"  {json.dumps(each.value, ensure_ascii=False)}  {each.path} ({each.where})" for each in found.said]
    if len(said) > 1:
        said[0] += ", which is used"
    default = json.dumps(found.default, ensure_ascii=False) if found.default is not None else "not set"
    used = "" if said else ", which is used"
    return "\n".join([f"{found.key}: {found.about}", *said, f"  {default}  by default{used}"])


config.add_command(command_of(get_config_value, _value_text))
config.add_command(command_of(set_config_value, _edit_text))
config.add_command(command_of(patch_config, _change_text))
config.add_command(command_of(unset_config_value, lambda _, __: ""))
config.add_command(command_of(validate_config, _report_text))
config.add_command(command_of(explain_config, _explanation_text))
