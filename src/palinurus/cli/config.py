"""`pal config`: read and change the config file."""

from __future__ import annotations

import json
from typing import Any

import click

from palinurus.cli.command import add_operation, services_of
from palinurus.cli.shell import CommandGroup, Shell, echo
from palinurus.config.schema import OptionExplanation, json_schema
from palinurus.operations import config as operations
from palinurus.operations.config import ConfigChange, ConfigEdit, ConfigReport


@click.group(cls=CommandGroup)
def config() -> None:
    """Read and change the config."""


@config.command("schema")
def schema() -> None:
    """Print the JSON Schema of the config.

    \b
    Example:
      pal config schema > palinurus.schema.json
    """
    echo(_json(json_schema(), indent=2))


@config.command("file")
@click.pass_obj
def file(shell: Shell) -> None:
    """Print where the config file is.

    \b
    Example:
      $EDITOR "$(pal config file)"
    """
    echo(str(shell.home.config_path))


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False)


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
    said = [f"  {_json(each.value)}  {each.path} ({each.where})" for each in found.said]
    if len(said) > 1:
        said[0] += ", which is used"
    default = _json(found.default) if found.default is not None else "not set"
    used = "" if said else ", which is used"
    return "\n".join([f"{found.key}: {found.about}", *said, f"  {default}  by default{used}"])


add_operation(
    config, operations.get_config_value, lambda _, value: value if isinstance(value, str) else _json(value, indent=2)
)
add_operation(config, operations.set_config_value, _edit_text)
add_operation(config, operations.patch_config, _change_text)
add_operation(config, operations.unset_config_value, lambda _, __: "")
add_operation(config, operations.validate_config, _report_text)
add_operation(config, operations.explain_config, _explanation_text)
