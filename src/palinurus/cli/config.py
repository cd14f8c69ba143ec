"""`pal config`: read and change the config file."""

from __future__ import annotations

import json
from typing import Any

import click

from palinurus.cli.entrance import ground_of
from palinurus.cli.shell import Shell, with_json
from palinurus.operations.config import config_get, config_schema, config_set, config_unset, config_validate


@click.group()
def config() -> None:
    """Read and change the config."""


@config.command("get")
@click.argument("path")
@with_json
@click.pass_obj
def get(shell: Shell, path: str) -> None:
    """Print a value. Secrets are shown as ***.

    \b
    Example:
      pal config get agents.defaults.model
    """
    value = config_get(ground_of(shell), path)
    plain = isinstance(value, str) and not shell.as_json
    click.echo(value if plain else json.dumps(value, indent=2, ensure_ascii=False))


@config.command("set")
@click.argument("path")
@click.argument("value")
@click.option("--string", "as_text", is_flag=True, help="Take the value as text, even if it reads as JSON.")
@click.pass_obj
def set_(shell: Shell, path: str, value: str, as_text: bool) -> None:
    """Set a value: JSON if it reads as JSON, else text. The file is checked before it is replaced.

    \b
    Examples:
      pal config set agents.defaults.model ollama/qwen3
      pal config set agents.defaults.bootstrapMaxChars 12000
      pal config set 'models.providers."my.host".baseUrl' http://127.0.0.1:8080/v1
    """
    config_set(ground_of(shell), path, value if as_text else _value(value))


@config.command("unset")
@click.argument("path")
@click.pass_obj
def unset(shell: Shell, path: str) -> None:
    """Take a value out.

    \b
    Example:
      pal config unset agents.defaults.model
    """
    config_unset(ground_of(shell), path)


@config.command("validate")
@with_json
@click.pass_obj
def validate(shell: Shell) -> None:
    """Check the config and say what is wrong, with file, line and path.

    \b
    Example:
      pal config validate && echo good
    """
    report = config_validate(ground_of(shell))
    for warning in report.warnings:
        shell.warn(warning)
    good = f"{report.file} is good." if report.exists else f"{report.file} does not exist; the defaults hold."
    shell.show(report, lambda: good)


@config.command("schema")
def schema() -> None:
    """Print the JSON Schema of the config.

    \b
    Example:
      pal config schema > palinurus.schema.json
    """
    click.echo(json.dumps(config_schema(), indent=2, ensure_ascii=False))


@config.command("file")
@click.pass_obj
def file(shell: Shell) -> None:
    """Print where the config file is.

    \b
    Example:
      $EDITOR "$(pal config file)"
    """
    click.echo(str(shell.home.config_path))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
