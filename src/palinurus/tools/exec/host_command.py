"""Finds out what a command would start outside the sandbox, and whether all of it is allowed."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, structs

from palinurus.domain.errors import BadRequest, SandboxError
from palinurus.domain.events import Invocation
from palinurus.tools.commands.hazards import runs_scripts
from palinurus.tools.commands.judge import Allowances, CommandLocation, Judgement, judge
from palinurus.tools.commands.programs import ANYBODY_WRITES, Astray, find_astray, resolve_program
from palinurus.tools.commands.shell import Expand, Opaque, Script, parse_argv, parse_shell, render_script
from palinurus.tools.exec.context import ExecCall
from palinurus.tools.exec.permission import deciding_variables
from palinurus.tools.exec.pipelines import Step, helper_argv
from palinurus.tools.exec.snapshot import Snapshot, expand, stat_path, take_snapshot
from palinurus.tools.grants import Grant

_WHEN = {"": "always", ";": "always", "&&": "and", "||": "or"}
MOST_EXPANDED = 1_000  # names in one command that patterns match

Folder: TypeAlias = tuple[int, int]  # device and inode


class InspectedCommand(Struct, frozen=True):
    """An inspected command. `programs` are the files that we start ourselves; empty if a shell is needed."""

    judgement: Judgement
    summary: str
    argv: tuple[str, ...]  # for a person
    started: tuple[str, ...]  # for the kernel
    where: CommandLocation
    allowed: Allowances
    folder: Folder | None  # the folder where it starts
    programs: tuple[Invocation, ...] = ()
    deciding: tuple[str, ...] = ()  # files that decide what it does
    astray: frozenset[Astray] = frozenset()  # arguments that lead out of the workspace, as shown to the person
    script: Script | None = None
    steps: tuple[Step, ...] = ()  # for a command line of several programs

    def take_snapshot(self, call: ExecCall, home: str, *, asked: bool) -> Snapshot:
        """Records what the command names. `asked`: a person will be shown the command; then everything it names counts,
        not only what decides its effect and the paths to that. Raises BadRequest if it is too much to watch."""
        variables = {"HOME": home, "PWD": self.where.cwd, **call.env}
        text = (call.command or shlex.join(call.argv)) if asked or self.judgement.covered else ""
        return take_snapshot(self.deciding, text, self.where, variables, shown=asked, shell=self.script is None)

    def check_unchanged(self, snapshot: Snapshot) -> None:
        """Raises SandboxError if a name now means another program, an argument leads elsewhere, or a watched file
        changed."""
        changed = self._moved()
        if not changed and (led := _astray(self.judgement, self.where) - self.astray):
            changed = f"{min(led).arg} now leads elsewhere"
        if changed := changed or snapshot.change():
            raise SandboxError(changed, hint="check it and send the call again")

    def refuse_step(self, number: int, grants: Sequence[Grant]) -> str:
        """Returns why the grants do not cover this step now; empty if they do."""
        if self.script is None:
            return "it was not understood"
        script = Script((structs.replace(self.script.pipelines[number], connector=""),))
        judgement = _judge(script, self.where, structs.replace(self.allowed, grants=grants))
        return self._moved() or ("" if judgement.covered else judgement.why)

    def _moved(self) -> str:
        if folder_of(self.where.cwd) != self.folder:
            return f"{self.where.cwd} is not the folder that was inspected"
        away = (each for each in self.programs if os.path.realpath(each.binary) != each.resolved)
        return next((f"{each.binary} is no longer {each.resolved}" for each in away), "")


def host_location(call: ExecCall, cwd: str, workspace: str, path: str) -> CommandLocation:
    return CommandLocation(cwd, path, (workspace, *ANYBODY_WRITES), workspace, tuple(deciding_variables(call.env)))


def inspect_command(call: ExecCall, where: CommandLocation, allowed: Allowances, *, shell: bool) -> InspectedCommand:
    """Inspects a command. Reads the file system and changes nothing. Raises BadRequest for a missing program.

    `shell`: everything is allowed, so a shell may read the string.
    """
    script = parse_argv(call.argv) if call.argv else parse_shell(call.command)
    summary = render_script(script) if isinstance(script, Script) else call.shown
    if isinstance(script, Opaque) and not (shell or call.argv):
        found = parse_shell(call.command, _expander(where.cwd))  # with file name patterns it may be understood
        script = found if isinstance(found, Script) else script
    judgement, folder = _judge(script, where, allowed), folder_of(where.cwd)
    if isinstance(script, Opaque) or (shell and not call.argv):
        return InspectedCommand(judgement, call.shown, call.started, call.started, where, allowed, folder)
    programs = tuple(resolve_program(segment.argv, cwd=where.cwd, path=where.path) for segment in script.segments)
    if missing := [each.name for each in programs if not each.binary]:
        raise BadRequest(f"there is no program {missing[0]!r}", hint="is it installed, and on the PATH?")
    deciding = tuple(dict.fromkeys(_deciding(judgement, programs, where.cwd)))
    steps = _steps(script, programs)
    started = helper_argv(steps) if steps else (programs[0].binary, *programs[0].args)
    plan = judgement, summary, _words(script), started, where, allowed, folder
    return InspectedCommand(*plan, programs, deciding, _astray(judgement, where), script, steps)


def folder_of(path: str) -> Folder | None:
    found = stat_path(path)
    return (found.st_dev, found.st_ino) if found and stat.S_ISDIR(found.st_mode) else None


def _expander(cwd: str) -> Expand:
    """Returns a function that expands patterns like /bin/sh. Patterns with no match or too many are left to the
    shell."""
    left = MOST_EXPANDED

    def expand_pattern(pattern: str) -> list[str]:
        nonlocal left
        try:
            names = sorted(expand(cwd, pattern))
            "".join(names).encode()
        except (BadRequest, UnicodeEncodeError):
            return []
        left -= len(names)
        return names if left >= 0 else []

    return expand_pattern


def _astray(judgement: Judgement, where: CommandLocation) -> frozenset[Astray]:
    args = (find_astray(found.args, cwd=where.cwd, workspace=where.workspace) for found in judgement.invocations)
    return frozenset(chain.from_iterable(args))


def _deciding(judgement: Judgement, programs: Sequence[Invocation], cwd: str) -> Iterator[str]:
    """Returns the programs, and for each that runs a script its first argument that is a file."""
    for each in (*programs, *judgement.invocations):
        if each.resolved:
            yield each.resolved
        if runs_scripts(each.binary) or runs_scripts(each.resolved):
            files = (os.path.join(cwd, arg) for arg in each.args)  # noqa: PTH118
            yield from islice(filter(os.path.isfile, files), 1)


def _judge(script: Script | Opaque, where: CommandLocation, allowed: Allowances) -> Judgement:
    judgement = judge(script, allowed, where)
    if judgement.covered and not Path(where.cwd).is_relative_to(os.path.realpath(where.workspace)):
        # A grant does not name a directory, and a program's effect may depend on it.
        return Judgement(False, f"it runs outside the workspace, in {where.cwd}", invocations=judgement.invocations)
    return judgement


def _words(script: Script) -> tuple[str, ...]:
    """Returns all words with the operators between them. The quotes in the summary tell them apart."""
    words: list[str] = []
    for pipeline in script.pipelines:
        for place, segment in enumerate(pipeline.segments):
            words += (pipeline.connector if place == 0 else "|", *segment.argv)
    return tuple(words[1:])  # the first has no connector


def _steps(script: Script, programs: Sequence[Invocation]) -> tuple[Step, ...]:
    if len(programs) == 1:
        return ()
    todo = ((each.binary, (each.name, *each.args)) for each in programs)
    return tuple((_WHEN[each.connector], tuple(islice(todo, len(each.segments)))) for each in script.pipelines)
