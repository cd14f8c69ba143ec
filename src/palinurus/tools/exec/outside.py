"""What a command would start outside the sandbox, and whether all of it has been allowed."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.handling import ExecSettings
from palinurus.domain.errors import BadRequest, SandboxError
from palinurus.domain.plan import Invocation
from palinurus.tools.commands.hazards import runs_scripts
from palinurus.tools.commands.judge import Allowed, Judgement, Surroundings, judge
from palinurus.tools.commands.resolve import Astray, leads_out, resolve
from palinurus.tools.commands.script import Opaque, Script, of_argv, render
from palinurus.tools.commands.shell import Expand, parse
from palinurus.tools.exec.call import Call
from palinurus.tools.exec.running import Step, helper_argv
from palinurus.tools.exec.snapshot import Ground, Snapshot, expand, take_snapshot
from palinurus.tools.exec.variables import telling
from palinurus.tools.grants.grants import Grant

_WHEN = {"": "always", ";": "always", "&&": "and", "||": "or"}
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  anybody can write there

MOST_EXPANDED = 1_000  # names in one command that patterns stand for

Folder: TypeAlias = tuple[int, int]  # device and inode


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
    grounds: Grounds | None = None
    programs: tuple[Invocation, ...] = ()
    deciding: tuple[str, ...] = ()  # files that decide what is done
    astray: frozenset[Astray] = frozenset()  # arguments that lead out of the workspace, as was told
    script: Script | None = None
    steps: tuple[Step, ...] = ()  # of a command line of several programs
    folder: Folder | None = None  # where it starts

    def take_snapshot(self, call: Call, grounds: Grounds, home: str, *, asked: bool) -> Snapshot:
        """`asked`: somebody will be shown the command. Then all that it names counts, not only what decides what is
        done and the ways to the rest. Raises BadRequest where that is more than can be watched."""
        variables = {"HOME": home, "PWD": grounds.cwd, **call.env}
        text = (call.command or shlex.join(call.argv)) if asked or self.judgement.covered else ""
        ground = Ground(grounds.cwd, grounds.path, (grounds.workspace, *_TEMPORARY), variables)
        return take_snapshot(self.deciding, text, ground, shown=asked, shell=self.script is None)

    def still_holds(self, snapshot: Snapshot) -> None:
        """Raises SandboxError when a name has come to mean another program since it was looked at, an argument leads
        elsewhere, or something else is not as it was."""
        changed = self._moved()
        if not changed and self.grounds and (led := _astray(self.judgement, self.grounds) - self.astray):
            changed = f"{min(led).arg} leads elsewhere by now"
        if changed := changed or snapshot.change():
            raise SandboxError(changed, hint="look at it and ask again")

    def refuse_step(self, place: int, call: Call, grants: Sequence[Grant]) -> str:
        """Why what was granted does not cover this step as things are now; empty when it does."""
        if self.script is None or self.grounds is None:
            return "it was not understood"
        script = Script((replace(self.script.pipelines[place], connector=""),))
        judgement = _judged(script, call, replace(self.grounds, grants=grants))
        return self._moved() or ("" if judgement.covered else judgement.why)

    def _moved(self) -> str:
        if self.grounds and folder_of(self.grounds.cwd) != self.folder:
            return f"{self.grounds.cwd} is another folder than the one that was looked at"
        away = (each for each in self.programs if os.path.realpath(each.binary) != each.resolved)
        return next((f"{each.binary} is no longer {each.resolved}" for each in away), "")


def look_outside(call: Call, grounds: Grounds, *, shell: bool) -> Outside:
    """Reads the file system and changes nothing. Raises BadRequest for a program that is not there.

    `shell`: everything is allowed, so a string may as well be read by a shell.
    """
    script = of_argv(call.argv) if call.argv else parse(call.command)
    summary = render(script) if isinstance(script, Script) else call.shown
    if isinstance(script, Opaque) and not (shell or call.argv):
        found = parse(call.command, _expander(grounds.cwd))  # with patterns for names of files it may be understood
        script = found if isinstance(found, Script) else script
    judgement = _judged(script, call, grounds)
    if isinstance(script, Opaque) or (shell and not call.argv):
        folder = folder_of(grounds.cwd)
        return Outside(judgement, call.shown, call.started, call.started, grounds, folder=folder)
    programs = tuple(resolve(segment.argv, cwd=grounds.cwd, path=grounds.path) for segment in script.segments)
    if missing := [each.name for each in programs if not each.binary]:
        raise BadRequest(f"there is no program {missing[0]!r}", hint="is it installed, and on the PATH?")
    deciding = tuple(dict.fromkeys(_deciding(judgement, programs, grounds.cwd)))
    astray = _astray(judgement, grounds)
    steps = _steps(script, programs)
    started = helper_argv(steps) if steps else (programs[0].binary, *programs[0].args)
    return Outside(
        judgement,
        summary,
        _words(script),
        started,
        grounds,
        programs,
        deciding,
        astray,
        script,
        steps,
        folder_of(grounds.cwd),
    )


def folder_of(path: str) -> Folder | None:
    try:
        found = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISDIR(found.st_mode) else None


def _expander(cwd: str) -> Expand:
    """Expands patterns as /bin/sh would. Those that stand for nothing, or for very much, are left to the shell."""
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


def _astray(judgement: Judgement, grounds: Grounds) -> frozenset[Astray]:
    place = {"cwd": grounds.cwd, "workspace": grounds.workspace}
    return frozenset(each for found in judgement.invocations for each in leads_out(found.args, **place))


def _deciding(judgement: Judgement, programs: Sequence[Invocation], cwd: str) -> Iterator[str]:
    """The programs, and of each that runs a script the first argument that is a file."""
    for each in (*programs, *judgement.invocations):
        yield from filter(None, (each.resolved,))
        if runs_scripts(each.binary) or runs_scripts(each.resolved):
            files = (os.path.join(cwd, arg) for arg in each.args)  # noqa: PTH118
            yield from islice(filter(os.path.isfile, files), 1)


def _judged(script: Script | Opaque, call: Call, grounds: Grounds) -> Judgement:
    settings = grounds.settings
    reach = (grounds.workspace, *_TEMPORARY)
    where = Surroundings(grounds.cwd, grounds.path, reach, grounds.workspace, tuple(telling(call.env)))
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


def _steps(script: Script, programs: Sequence[Invocation]) -> tuple[Step, ...]:
    if len(programs) == 1:
        return ()
    steps: list[Step] = []
    todo = list(programs)
    for pipeline in script.pipelines:
        mine, todo = todo[: len(pipeline.segments)], todo[len(pipeline.segments) :]
        steps.append((_WHEN[pipeline.connector], tuple((each.binary, (each.name, *each.args)) for each in mine)))
    return tuple(steps)
