"""`pal config`: read and change the config file."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from palinurus.cli.entrance import ground_of
from palinurus.cli.output import echo
from palinurus.cli.shell import Shell, with_json
from palinurus.config.include import read_text
from palinurus.config.source import SyntaxFault, parse
from palinurus.operations.config import config_get, config_schema, config_set, config_unset, config_validate
from palinurus.operations.config_changes import config_merge, text_hash


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
    echo(value if plain else json.dumps(value, indent=2, ensure_ascii=False))


@config.command("set")
@click.argument("path")
@click.argument("value")
@click.option("--string", "as_text", is_flag=True, help="Take the value as text, even if it reads as JSON.")
@click.option("--force", is_flag=True, help="Also under a key that nothing reads.")
@click.pass_obj
def set_(shell: Shell, path: str, value: str, as_text: bool, force: bool) -> None:
    """Set a value: JSON or JSON5 if it reads as that, else text. The file is checked before it is replaced.

    A key that nobody knows is refused, with the one that was probably meant.

    \b
    Examples:
      pal config set agents.defaults.model ollama/qwen3
      pal config set agents.defaults.bootstrapMaxChars 12000
      pal config set 'models.providers."my.host".baseUrl' http://127.0.0.1:8080/v1
    """
    ground = ground_of(shell)
    for line in config_set(ground, path, value if as_text else _value(value), force=force):
        shell.warn(line)
    if path.rpartition(".")[2] in ("model", "primary"):
        from palinurus.operations.catalog import choice_trouble  # the other keys need no table of models

        for line in choice_trouble(ground):
            shell.warn(line)


@config.command("patch")
@click.argument("patch")
@click.option("--force", is_flag=True, help="Also with keys that nothing reads.")
@click.option("--dry-run", is_flag=True, help="Check it and write nothing.")
@with_json
@click.pass_obj
def patch_(shell: Shell, patch: str, force: bool, dry_run: bool) -> None:
    """Merge PATCH, an object in JSON5, into the config; null takes a key out. With - it is read from standard input.

    \b
    Examples:
      pal config patch '{agents: {defaults: {model: "ollama/qwen3", timeoutSeconds: 300}}}'
      pal config patch - < changes.json5
    """
    ground = ground_of(shell)
    raw = sys.stdin.read() if patch == "-" else patch
    now = text_hash(read_text(ground.home.config_path))
    done = config_merge(ground, raw, now, lambda _, __: None, dry_run=dry_run, force=force)
    told = "Nothing changes." if done.noop else f"{done.path} {'would be' if dry_run else 'is'} changed."
    shell.show(done, lambda: told)


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
    for line in (*report.warnings, *report.unused):
        shell.warn(line)
    odd = len(report.warnings) + len(report.unused)
    well = f"can be used; {odd} worth a look." if odd else "is good."
    good = f"{report.file} {well}" if report.exists else f"{report.file} does not exist; the defaults hold."
    shell.show(report, lambda: good)


@config.command("schema")
def schema() -> None:
    """Print the JSON Schema of the config.

    \b
    Example:
      pal config schema > palinurus.schema.json
    """
    echo(json.dumps(config_schema(), indent=2, ensure_ascii=False))


@config.command("file")
@click.pass_obj
def file(shell: Shell) -> None:
    """Print where the config file is.

    \b
    Example:
      $EDITOR "$(pal config file)"
    """
    echo(str(shell.home.config_path))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:  # as people write it in the file; a word by itself is text all the same
        return parse(text) if text.lstrip().startswith(("{", "[")) else text
    except SyntaxFault:
        return text
