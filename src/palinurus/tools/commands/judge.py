"""Judges a command: is every program that it would start allowed, with exactly these arguments?

Each segment of each pipeline is resolved to the programs that it starts. Each program must be a safe filter, or be
covered by a line of the config's allowlist or by a grant. If one is not, the whole command needs approval. It also does
if the agent could have changed what a grant means: a repository that the agent made, or a link out of the workspace.
Because one step of a command line may change this for the next, each step is judged again just before it starts.

Lines of the config's allowlist, such as `git status` or `git diff *`, are read as grants. The first word names a
program, by name or absolute path; the others are patterns, one per argument. A last `*` matches any number of further
arguments except flags, which must be named.

Safe filters may always run, because they only read standard input and write standard output. Each has a profile of the
options that keep it safe. Every other option is refused, including a shortened one (GNU programs accept `--out` for
`--output`), and so is every operand that could be a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

from palinurus.domain.errors import BadRequest
from palinurus.domain.events import Invocation
from palinurus.tools.commands.hazards import covers_by_name, find_unnamed_argument, reads_program
from palinurus.tools.commands.programs import (
    SHELLS,
    InnerPrograms,
    find_astray,
    is_systems_own,
    lies_within,
    resolve_program,
    unwrap_programs,
    why_never_covered,
)
from palinurus.tools.commands.repositories import uses_repository, why_repository_distrusted
from palinurus.tools.commands.shell import MAX_PROGRAMS, Opaque, Script, base_name, quote_word, too_many
from palinurus.tools.grants import EXEC, Grant, Patterns, covers, is_literal, rule_arguments, split_rule, unescape

CONFIG = "config:"


class FilterProfile(Struct, frozen=True):
    """Letters of switches and of options with a value; the same as long names; number of operands, none of them files.

    A value may be anything: none of these options names a file.
    """

    switches: str = ""
    valued: str = ""
    long: str = ""
    long_valued: str = ""
    operands: range = range(1)
    number: bool = False  # `-5` is an option


PROFILES: Mapping[str, FilterProfile] = {
    "cat": FilterProfile("AbEenstTuv", long="number number-nonblank show-all show-ends show-tabs squeeze-blank"),
    "cut": FilterProfile(
        "nsz", "bcdf", "complement only-delimited zero-terminated", "bytes characters delimiter fields output-delimiter"
    ),
    "fold": FilterProfile("bs", "w", "bytes spaces", "width"),
    "grep": FilterProfile(
        "EFGchinoqsvwxz",
        "mABC",
        "count extended-regexp fixed-strings ignore-case invert-match line-number only-matching quiet",
        "max-count after-context before-context context",
        range(1, 2),
    ),
    "head": FilterProfile("qz", "cn", "quiet silent zero-terminated", "bytes lines", number=True),
    "nl": FilterProfile("p", "bdfhilnsvw"),
    "rev": FilterProfile(),
    "sort": FilterProfile(
        "bcCdfgiMhnRrVmsuz",
        "kt",
        "check ignore-case numeric-sort human-numeric-sort version-sort reverse stable unique zero-terminated",
        "key field-separator",
    ),
    "tac": FilterProfile("b", "s", "before", "separator"),
    "tail": FilterProfile("qz", "cn", "quiet silent zero-terminated", "bytes lines", number=True),
    "tr": FilterProfile("cCdst", long="complement delete squeeze-repeats truncate-set1", operands=range(1, 3)),
    "uniq": FilterProfile(
        "cdDiuz", "fsw", "count repeated ignore-case unique zero-terminated", "skip-fields skip-chars check-chars"
    ),
    "wc": FilterProfile("cmlLw", long="bytes chars lines max-line-length words"),
}


def is_safe(found: Invocation, safe_bins: Sequence[str]) -> bool:
    """Returns whether it is one of the system's own filters and its arguments are all in its profile."""
    profile = PROFILES.get(base_name(found.binary))
    return profile is not None and is_systems_own(found, safe_bins) and _fits(profile, found.args)


def _fits(profile: FilterProfile, args: Sequence[str]) -> bool:
    operands = 0
    rest = iter(args)
    for arg in rest:
        if not arg.startswith("-"):
            operands += 1
            continue
        wants = _wants_value(profile, arg)
        if wants is None or (wants and next(rest, None) is None):
            return False
    return operands in profile.operands


def _wants_value(profile: FilterProfile, arg: str) -> bool | None:
    """Returns whether the next argument is this option's value; None for an option that is not in the profile."""
    if arg.startswith("--"):
        name, equals, _ = arg[2:].partition("=")
        return False if name in (profile.long_valued if equals else profile.long).split() else None
    if profile.number and arg[1:].isascii() and arg[1:].isdigit():
        return False
    for place, letter in enumerate(arg[1:], start=2):
        if letter in profile.valued:
            return place == len(arg)
        if letter not in profile.switches:
            return None
    return False if len(arg) > 1 else None  # a single dash is a file for some programs and a set for others


def config_grants(lines: Iterable[str], found: Invocation, *, cwd: str, path: str) -> Iterator[Grant]:
    """Returns the grants from the config's lines for a program. Unreadable lines give none: see `find_rule_problem`."""
    for line in lines:
        words = _words(line)
        if words and base_name(unescape(words[0])) == base_name(found.binary):
            program = resolve_program((unescape(words[0]),), cwd=cwd, path=path)
            rule = program.binary, program.resolved, rule_arguments(words)
            yield Grant(config_line_id(line), EXEC, "home", "", "", *rule, source="config")


def config_line_id(line: str) -> str:
    """Returns the id that the audit log uses for a line of the config."""
    return f"{CONFIG}{line}"


def find_rule_problem(line: str) -> str:
    """Returns why a line of the allowlist cannot be used; empty if it can."""
    try:
        words = split_rule(line)
    except BadRequest as error:
        return str(error)
    if not words:
        return "it is empty"
    name = unescape(words[0])
    if not is_literal(words[0]) or ("/" in name and not name.startswith("/")):
        return "its first word must be the name or the absolute path of a program"
    if any(word in ("|", "||", "&&", ";", "&") for word in words):
        return "it must be one command: programs of a pipeline or list are checked one by one"
    if base_name(name) in SHELLS and (not words[1:] or words[1].startswith("-")):
        return "a shell cannot be allowed: allow the command that it runs"
    return f"{base_name(name)} always needs approval: {why}" if (why := why_never_covered(base_name(name))) else ""


@lru_cache(maxsize=1024)
def _words(line: str) -> Patterns:
    return () if find_rule_problem(line) else split_rule(line)


class CommandLocation(Struct, frozen=True):
    """Where a command would run."""

    cwd: str
    path: str  # the clean PATH that the command gets
    writable: tuple[str, ...] = ()  # paths that the agent may write: the workspace, /tmp
    workspace: str = ""
    variables: tuple[str, ...] = ()  # variables set by the model that may change what a program does


class Allowances(Struct, frozen=True):
    """Everything that is allowed without approval."""

    grants: Sequence[Grant] = ()  # grants that are valid in this session now
    allowlist: Sequence[str] = ()  # lines of the config
    safe_bins: Sequence[str] = ()


class Judgement(Struct, frozen=True):
    """The decision about a command; `why` says why it is not allowed. Without invocations the command was not
    understood, and nothing can be granted for it."""

    covered: bool
    why: str = ""
    granted: tuple[str, ...] = ()  # ids of the grants and config lines that were needed
    invocations: tuple[Invocation, ...] = ()


def judge(script: Script | Opaque, allowed: Allowances, where: CommandLocation) -> Judgement:
    """Judges a script. Looks programs up in the file system and changes nothing. More grants never allow less."""
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


def invocations(script: Script, where: CommandLocation) -> tuple[Invocation, ...] | Opaque:
    """Returns every program that would be started, without wrappers."""
    found: list[Invocation] = []
    for segment in script.segments:
        inner = unwrap_programs(segment.argv)
        if isinstance(inner, Opaque):
            return inner
        for name in inner.wrappers:  # only the system's own program counts, since any file can be named `nice`
            if not is_systems_own(resolve_program((name,), cwd=where.cwd, path=where.path), (base_name(name),)):
                return Opaque(f"{quote_word(name)} is not the system's program of that name")
        if len(found) + len(inner.programs) > MAX_PROGRAMS:
            return too_many()
        found += [resolve_program(argv, cwd=where.cwd, path=where.path) for argv in inner.programs]
    return tuple(found)


def _judged_too_early(script: Script, where: CommandLocation) -> str:
    """Returns why one of its programs could change what another means without a check in between; empty if none could.

    Steps are judged one by one, each just before it starts. Programs started at the same time, or by a shell, cannot be
    judged so.
    """
    for pipeline in script.pipelines:
        inner = [
            each for segment in pipeline.segments if isinstance(each := unwrap_programs(segment.argv), InnerPrograms)
        ]
        if any(each.shell_list for each in inner):
            return "its shell would start several programs without a check between them: run them without `sh -c`"
        started = [resolve_program(argv, cwd=where.cwd, path=where.path) for each in inner for argv in each.programs]
        if sum(map(uses_repository, started)) > 1:
            return "its pipeline starts git twice at the same time, and one may change what the other does"
    return ""


def _cover(found: Invocation, allowed: Allowances, where: CommandLocation) -> list[str] | Opaque:
    """Returns the ids of the needed grants and config lines: none for a filter."""
    if not found.binary:
        return Opaque(f"{quote_word(found.name)} was not found")
    if lies_within(found, where.writable):
        return Opaque(f"{quote_word(found.name)} is in a directory that the agent can write")
    if is_safe(found, allowed.safe_bins):
        return []
    lines = list(config_grants(allowed.allowlist, found, cwd=where.cwd, path=where.path))
    covering = next((rule for rule in (*lines, *allowed.grants) if covers_by_name(rule, found)), None)
    astray = _astray(found, where)
    if covering is None:
        return Opaque(_miss(found, [*lines, *allowed.grants]) + (f"; {astray}" if astray else ""))
    # From here on: these words may have another effect here than the person who allowed them expected.
    if reads_program(found):
        return Opaque(f"{quote_word(found.name)} runs what its standard input says")
    why = why_repository_distrusted(found, cwd=where.cwd, workspace=where.workspace, writable=where.writable)
    return Opaque(astray or why) if astray or why else [covering.id]


def _astray(found: Invocation, where: CommandLocation) -> str:
    for arg, real in find_astray(found.args, cwd=where.cwd, workspace=where.workspace) if where.workspace else ():
        return f"{quote_word(arg)} leads out of the workspace through a link, to {quote_word(real)}"
    return ""


def _miss(found: Invocation, near: Sequence[Grant]) -> str:
    line = " ".join(map(quote_word, (found.name, *found.args)))
    command = line if len(line) <= 120 else f"{line[:119]}…"
    if word := next((find_unnamed_argument(grant, found) for grant in near if covers(grant, found)), ""):
        return f"{command} is not allowed: `*` does not match {quote_word(word)} here, a rule must name it"
    return f"{command} is not on the allowlist"
