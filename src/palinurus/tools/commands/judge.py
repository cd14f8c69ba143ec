"""Judges a command: is every program that it would start allowed, with these very arguments?

Each segment of each pipeline is looked through to the programs that it starts. Each of those has to be a safe filter,
or covered by a line of the config's allowlist, or by a grant. One that is not makes the whole command ask. So does one
for which the agent could have changed what a grant means: a repository of its own making, a link out of the workspace.
As one step of a command line may change that for the next, each is judged again just before it starts.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from palinurus.domain.plan import Invocation
from palinurus.tools.commands.allowlist import configured
from palinurus.tools.commands.hazards import allows, reads_program, unnamed
from palinurus.tools.commands.repositories import distrust, uses_repository
from palinurus.tools.commands.resolve import is_systems_own, leads_out, lies_within, resolve
from palinurus.tools.commands.safe_bins import is_safe
from palinurus.tools.commands.script import MAX_PROGRAMS, Argv, Opaque, Script, base_name, quoted, too_many
from palinurus.tools.commands.wrappers import Unwrapped, unwrap
from palinurus.tools.grants.grants import Grant, covers


class Surroundings(Struct, frozen=True):
    """Where a command would run."""

    cwd: str
    path: str  # the clean PATH that it gets
    writable: tuple[str, ...] = ()  # where the agent may write: the workspace, /tmp
    workspace: str = ""
    variables: tuple[str, ...] = ()  # names that the model sets and that may change what a program does


class Allowed(Struct, frozen=True):
    """All that has been allowed for longer than once."""

    grants: Sequence[Grant] = ()  # those that hold in this session now
    allowlist: Sequence[str] = ()  # lines of the config
    safe_bins: Sequence[str] = ()


class Judgement(Struct, frozen=True):
    """`why` says why not. Without invocations the command was not understood; nothing can be granted for it."""

    covered: bool
    why: str = ""
    granted: tuple[str, ...] = ()  # ids of the grants and lines of the config that were needed
    invocations: tuple[Invocation, ...] = ()


def judge(script: Script | Opaque, allowed: Allowed, where: Surroundings) -> Judgement:
    """Looks programs up in the file system, and changes nothing. More grants never cover less."""
    found = script if isinstance(script, Opaque) else invocations(script, where)
    if isinstance(found, Opaque):
        return Judgement(False, found.reason)
    granted: list[str] = []
    for invocation in found:
        verdict = _cover(invocation, allowed, where)
        if isinstance(verdict, Opaque):
            return Judgement(False, verdict.reason, invocations=found)
        granted += verdict
    if isinstance(script, Script) and (why := _judged_too_early(script, where)):
        return Judgement(False, why, invocations=found)
    if where.variables:
        return Judgement(False, f"it sets variables ({', '.join(where.variables)})", invocations=found)
    return Judgement(True, "", tuple(dict.fromkeys(granted)), found)


def invocations(script: Script, where: Surroundings) -> tuple[Invocation, ...] | Opaque:
    """Every program that would be started, wrappers excepted."""
    found: list[Invocation] = []
    for segment in script.segments:
        inner = unwrap(segment.argv)
        if isinstance(inner, Unwrapped):
            inner = _own_wrappers(inner, where)
        if isinstance(inner, Opaque):
            return inner
        if len(found) + len(inner.programs) > MAX_PROGRAMS:
            return too_many()
        found += [resolve(argv, cwd=where.cwd, path=where.path) for argv in inner.programs]
    return tuple(found)


def _judged_too_early(script: Script, where: Surroundings) -> str:
    """Why one of its programs could change what another means, with nobody to look in between; empty if none could.

    Steps are judged one by one, each just before it starts. What is started at once, or by a shell, cannot be.
    """
    for pipeline in script.pipelines:
        inner = [each for segment in pipeline.segments if isinstance(each := unwrap(segment.argv), Unwrapped)]
        if any(each.shell_list for each in inner):
            return "its shell would start programs one after the other, unseen: give them without `sh -c`"
        started = [resolve(argv, cwd=where.cwd, path=where.path) for each in inner for argv in each.programs]
        if sum(map(uses_repository, started)) > 1:
            return "its pipeline starts git twice at once, and one may change what the other does"
    return ""


def _own_wrappers(inner: Unwrapped, where: Surroundings) -> Unwrapped | Opaque:
    """A wrapper is looked through only if it is the system's own: anybody can call a program `nice`."""
    for name in inner.wrappers:
        if not is_systems_own(resolve((name,), cwd=where.cwd, path=where.path), (base_name(name),)):
            return Opaque(f"{quoted(name)} is not the program of the system of that name")
    return inner


def _cover(found: Invocation, allowed: Allowed, where: Surroundings) -> list[str] | Opaque:
    """Ids of the grants and lines of the config that it takes: none for a filter."""
    if not found.binary:
        return Opaque(f"{quoted(found.name)} was not found")
    if lies_within(found, where.writable):
        return Opaque(f"{quoted(found.name)} lies where the agent can write")
    if is_safe(found, allowed.safe_bins):
        return []
    lines = list(configured(allowed.allowlist, found, cwd=where.cwd, path=where.path))
    covering = next((rule for rule in (*lines, *allowed.grants) if allows(rule, found)), None)
    if covering is None:
        astray = _astray(found, where)
        return Opaque(_miss(found, [*lines, *allowed.grants]) + (f"; {astray}" if astray else ""))
    if why := changed_meaning(found, where):
        return Opaque(why)
    return [covering.id]


def changed_meaning(found: Invocation, where: Surroundings) -> str:
    """Why these words may do something else here than whoever allowed them meant; empty when they do not."""
    if reads_program(found):
        return f"{quoted(found.name)} does what its standard input says"
    repository = distrust(found, cwd=where.cwd, workspace=where.workspace, writable=where.writable)
    return _astray(found, where) or repository


def _astray(found: Invocation, where: Surroundings) -> str:
    astray = next(leads_out(found.args, cwd=where.cwd, workspace=where.workspace), None) if where.workspace else None
    return f"{quoted(astray.arg)} leads out of the workspace by a link, to {quoted(astray.real)}" if astray else ""


def _miss(found: Invocation, near: Sequence[Grant]) -> str:
    command = _line((found.name, *found.args))
    if word := next((unnamed(grant, found) for grant in near if covers(grant, found)), ""):
        return f"{command} is not allowed: `*` does not stand for {quoted(word)} here, a rule has to name it"
    return f"{command} is not on the allowlist"


def _line(argv: Argv) -> str:
    line = " ".join(map(quoted, argv))
    return line if len(line) <= 120 else f"{line[:119]}…"
