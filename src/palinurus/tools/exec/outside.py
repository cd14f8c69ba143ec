"""What a command would start outside the sandbox, and whether all of it has been allowed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from palinurus.config.handling import ExecSettings
from palinurus.domain.errors import BadRequest, SandboxError
from palinurus.domain.plan import Invocation
from palinurus.tools.commands.judge import Allowed, Judgement, Surroundings, judge
from palinurus.tools.commands.resolve import resolve
from palinurus.tools.commands.script import Opaque, Script, of_argv, render
from palinurus.tools.commands.shell import parse
from palinurus.tools.exec.call import Call
from palinurus.tools.exec.running import Step, helper_argv
from palinurus.tools.exec.variables import telling
from palinurus.tools.grants.grants import Grant

_WHEN = {"": "always", ";": "always", "&&": "and", "||": "or"}
_TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108  nothing is written there: it is what anybody could have written


class Grounds(Struct, frozen=True):
    """Where a command would run, and what has been allowed there."""

    cwd: str
    workspace: str
    path: str
    settings: ExecSettings
    grants: Sequence[Grant] = ()


class Outside(Struct, frozen=True):
    """A command, looked at. `programs` are the files that we start ourselves; none if a shell has to."""

    judgement: Judgement
    summary: str
    argv: tuple[str, ...]  # for a person
    started: tuple[str, ...]  # for the kernel
    programs: tuple[Invocation, ...] = ()

    def still_holds(self) -> None:
        """Raises SandboxError when a name has come to mean another program since it was looked at."""
        for program in self.programs:
            if os.path.realpath(program.binary) != program.resolved:
                raise SandboxError(f"{program.binary} is no longer {program.resolved}", hint="look at it and ask again")


def look_outside(call: Call, grounds: Grounds, *, shell: bool) -> Outside:
    """Reads the file system and changes nothing. Raises BadRequest for a program that is not there.

    `shell`: everything is allowed, so a string may as well be read by a shell.
    """
    script = of_argv(call.argv) if call.argv else parse(call.command)
    judgement = _judged(script, call, grounds)
    if isinstance(script, Opaque) or (shell and not call.argv):
        return Outside(judgement, call.shown, call.started, call.started)
    programs = tuple(resolve(segment.argv, cwd=grounds.cwd, path=grounds.path) for segment in script.segments)
    if missing := [each.name for each in programs if not each.binary]:
        raise BadRequest(f"there is no program {missing[0]!r}", hint="is it installed, and on the PATH?")
    return Outside(judgement, render(script), _words(script), _started(script, programs), programs)


def _judged(script: Script | Opaque, call: Call, grounds: Grounds) -> Judgement:
    settings = grounds.settings
    where = Surroundings(grounds.cwd, grounds.path, (grounds.workspace, *_TEMPORARY), tuple(telling(call.env)))
    judgement = judge(script, Allowed(grounds.grants, settings.allowlist, settings.safe_bins), where)
    if judgement.covered and not Path(grounds.cwd).is_relative_to(os.path.realpath(grounds.workspace)):
        # A grant does not name a directory, and what a program does may depend on where it is started.
        return Judgement(False, f"it runs outside the workspace, in {grounds.cwd}", invocations=judgement.invocations)
    return judgement


def _words(script: Script) -> tuple[str, ...]:
    """All words with the operators between them. Which is which the summary shows, by its quotes."""
    words: list[str] = []
    for pipeline in script.pipelines:
        words += [pipeline.connector] if pipeline.connector else []
        for place, segment in enumerate(pipeline.segments):
            words += ["|", *segment.argv] if place else segment.argv
    return tuple(words)


def _started(script: Script, programs: Sequence[Invocation]) -> tuple[str, ...]:
    if len(programs) == 1:
        return (programs[0].binary, *programs[0].args)
    steps: list[Step] = []
    todo = list(programs)
    for pipeline in script.pipelines:
        mine, todo = todo[: len(pipeline.segments)], todo[len(pipeline.segments) :]
        steps.append((_WHEN[pipeline.connector], tuple((each.binary, (each.name, *each.args)) for each in mine)))
    return helper_argv(steps)
