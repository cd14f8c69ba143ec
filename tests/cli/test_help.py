"""What `pal` says about itself: help with examples that work, completion, and a quick answer to --version."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from palinurus import __version__
from palinurus.cli.shell import command_lines, pal

ROOT = click.Context(pal, info_name="pal", **pal.context_settings)  # click keeps the help it made first


def leaves(group: click.Group, context: click.Context, path: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, click.Context(command, info_name=name, parent=context), (*path, name))
        else:
            yield " ".join((*path, name)), command


LEAVES = dict(leaves(pal, ROOT, ("pal",)))
EXAMPLE = re.compile(r"(?:^\s*|\$\()(pal [^)\n]*)", re.MULTILINE)


def examples(command: click.Command) -> list[str]:
    return [re.split(r"\s{2,}", line.strip())[0] for line in EXAMPLE.findall(command.help or "")]


@pytest.mark.parametrize("path", LEAVES)
def test_the_help_of_every_command_has_an_example_of_it(path: str) -> None:
    words = path.split()
    assert any(set(words) <= set(shlex.split(example)) for example in examples(LEAVES[path])), LEAVES[path].help


@pytest.mark.parametrize("path", LEAVES)
def test_an_argument_that_is_missing_is_named(path: str) -> None:
    if any(isinstance(each, click.Argument) and each.required for each in LEAVES[path].params):
        with pytest.raises(click.MissingParameter):
            LEAVES[path].make_context(path, [], parent=ROOT)


def test_a_group_has_the_whole_first_sentence_of_each_command() -> None:
    memory = pal.get_command(ROOT, "memory")
    assert memory is not None
    told = memory.get_help(click.Context(memory, info_name="memory", parent=ROOT))
    assert "..." not in told.partition("Commands:")[2]


def test_a_command_made_of_an_operation_names_its_values_in_its_own_words() -> None:
    show, reset, get = (LEAVES[f"pal {name}"] for name in ("sessions show", "sessions reset", "memory get"))
    assert [each.make_metavar(ROOT) for each in (show.params[0], reset.params[0])] == ["[KEY|NAME|ID]", "KEY|NAME|ID"]
    assert [each.make_metavar(ROOT) for each in get.params if "--agent" in each.opts] == ["ID"]


@pytest.mark.parametrize("path", ["pal", *LEAVES])
def test_every_example_can_be_parsed(path: str) -> None:
    for example in examples(LEAVES.get(path, pal)):
        words = shlex.split(re.split(r"[<>|]|&&", example)[0])[1:]
        command: click.Command | None = pal
        context = ROOT
        while True:
            assert command is not None, example
            _, words, _ = command.make_parser(context).parse_args(words)
            if not isinstance(command, click.Group):
                break
            name, command, words = command.resolve_command(context, words)
            assert command is not None
            context = click.Context(command, info_name=name, parent=context)


def python(code: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | env, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


def test_the_version_is_answered_before_anything_heavy_is_imported() -> None:
    heavy = ["click", "asyncio", "apsw", "pydantic", "msgspec", "httpx2"]
    code = (
        "import sys; sys.argv = ['pal', '--version']; from palinurus.__main__ import main; main();"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    assert python(code).splitlines() == [f"pal {__version__}", "[]"]


def test_the_overview_imports_no_command() -> None:
    code = (
        "import sys; sys.argv = ['pal', '--help']; from palinurus.cli.shell import run\n"
        "try: run()\nexcept SystemExit: pass\n"
        "print([name for name in sys.modules if name in ('palinurus.cli.chat', 'palinurus.runtime.runtime', 'apsw')])"
    )
    shown = python(code).splitlines()
    assert shown[-1] == "[]"
    assert all(any(line.strip().startswith(name) for line in shown) for name in command_lines())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_completion_script(shell: str) -> None:
    script = python(
        f"import sys; sys.argv = ['pal', 'completion', '{shell}']; from palinurus.cli.shell import run; run()"
    )
    assert f"_PAL_COMPLETE={shell}_complete" in script
    assert "pal" in script


def test_commands_are_completed() -> None:
    code = "import sys; sys.argv = ['pal']; from palinurus.cli.shell import run; run()"
    found = python(code, _PAL_COMPLETE="bash_complete", COMP_WORDS="pal se", COMP_CWORD="1")
    assert {line.partition(",")[2] for line in found.splitlines()} == {"sessions", "setup"}
