"""Whether a skill can be used here and now, and if not, every reason.

Checked in this order: disabled, a bundled skill that is not allowed, another operating system; then, unless the skill
says `always`, the programs, variables and config values that it requires. The agent's own list of skills comes last.

Variables that the config has for a skill are given to commands while it is in use, and to nothing else. Variables that
the process already has win. In a sandbox only those are set that the skill declares and its entry in the config grants.
Names that make programs load other code are never set this way.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from palinurus.skills.discovery import Mark, mark_of
from palinurus.skills.settings import SkillEntrySettings, SkillsSettings
from palinurus.skills.skill import Requires, Skill

_PROGRAM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
NO_ENTRY = SkillEntrySettings()
_REASONS = {
    "os": "only for",
    "bins": "missing programs:",
    "any_bins": "none of these programs is installed:",
    "env": "variables that are not set:",
    "config": "the config does not set",
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_LOADS_CODE = re.compile(
    r"PATH|HOME|SHELL|IFS|ENV|BASH_\w*|LD_\w*|DYLD_\w*|GLIBC_TUNABLES|GCONV_PATH|MALLOC_\w*|PYTHON\w*|NODE_\w*|NPM_\w*"
    r"|PERL\w*|RUBY\w*|GIT_\w*|SSH_\w*|JAVA_TOOL_OPTIONS|PALINURUS_\w*|OPENCLAW_\w*",
    re.IGNORECASE,
)


class MissingRequirements(Requires, frozen=True):
    """Those that are not there. Of `any_bins` none exists, and one is needed."""

    os: tuple[str, ...] = ()  # it works on these only

    def __bool__(self) -> bool:
        return self != MissingRequirements()


class Eligibility(Struct, frozen=True, gc=False):
    """`reasons` is empty if the skill can be used."""

    reasons: tuple[str, ...] = ()
    missing: MissingRequirements = MissingRequirements()

    @property
    def usable(self) -> bool:
        return not self.reasons


class Programs:
    """The installed programs. Searches again only if a folder of the path has changed."""

    def __init__(self, path: str, more: Sequence[str] = ()) -> None:
        self._folders = [each for each in (*path.split(os.pathsep), *more) if each.startswith("/")]
        self._marks: tuple[Mark, ...] | None = None
        self._found: dict[str, bool] = {}

    def renew(self) -> bool:
        """Returns whether something may have changed since the last call."""
        marks = tuple(mark_of(folder) for folder in self._folders)
        if marks == self._marks:
            return False
        self._marks, self._found = marks, {}
        return True

    def has(self, name: str) -> bool:
        if name not in self._found:
            places = (f"{folder}/{name}" for folder in self._folders)
            self._found[name] = bool(_PROGRAM.fullmatch(name)) and any(map(_runs, places))
        return self._found[name]


class SkillEnvironment(Struct, frozen=True):
    """What a skill can use here."""

    platform: str  # as sys.platform says it
    env: Mapping[str, str]  # may be a live mapping
    programs: Programs
    values: Callable[[Skill], Mapping[str, str]] = lambda _: {}
    """Returns what the config has for a skill: secrets, resolved when needed. May raise ConfigError."""

    def present(self, names: Iterable[str]) -> frozenset[str]:
        """Returns those of the variables that are set."""
        return frozenset(name for name in names if self.env.get(name))


def judge(
    skill: Skill, settings: SkillsSettings, here: SkillEnvironment, present: Collection[str] | None = None
) -> Eligibility:
    """Checks one skill. `present` are the variables that are set, if they were looked up before for many skills at
    once."""
    entry = settings.entries.get(skill.key) or settings.entries.get(skill.name) or NO_ENTRY
    reasons = list(_unwanted(skill, settings, entry))
    found = here.present(skill.about.requires.env) if present is None else present
    missing = _missing(skill, settings, entry, here, found)
    return Eligibility((*reasons, *_reasons(missing)), missing)


def _unwanted(skill: Skill, settings: SkillsSettings, entry: SkillEntrySettings) -> Iterator[str]:
    if not entry.enabled:
        yield f"switched off (skills.entries.{skill.key}.enabled)"
    bundled = settings.allow_bundled
    if skill.tier == "bundled" and bundled is not None and not {skill.name, skill.key} & set(bundled):
        yield "not among skills.allowBundled"
    if settings.allow is not None and not {skill.name, skill.key} & set(settings.allow):
        yield "not among the agent's skills"


def _missing(
    skill: Skill, settings: SkillsSettings, entry: SkillEntrySettings, here: SkillEnvironment, present: Collection[str]
) -> MissingRequirements:
    about, needs = skill.about, skill.about.requires
    systems = about.os if about.os and here.platform not in about.os else ()
    if about.always:
        return MissingRequirements(os=systems)
    has = here.programs.has
    given = {*entry.env, *settings.variables, *((about.primary_env,) if entry.has_key else ())}
    return MissingRequirements(
        bins=tuple(name for name in needs.bins if not has(name)),
        any_bins=() if not needs.any_bins or any(map(has, needs.any_bins)) else needs.any_bins,
        env=tuple(name for name in needs.env if name not in present and name not in given),
        config=tuple(path for path in needs.config if path not in settings.config_paths),
        os=systems,
    )


def _reasons(missing: MissingRequirements) -> Iterator[str]:
    for name, reason in _REASONS.items():
        if names := getattr(missing, name):
            yield f"{reason} {', '.join(names)}"


def _runs(path: str) -> bool:
    return os.access(path, os.X_OK) and not os.path.isdir(path)  # noqa: PTH112  many of these in a row


def run_variables(
    used: Iterable[Skill], settings: SkillsSettings, here: SkillEnvironment, *, sandboxed: bool
) -> dict[str, str]:
    """Returns the additional variables of a command. The first skill in use with a value for a name provides it."""
    given: dict[str, str] = {}
    for skill in used:
        if skill.registry:  # Python's cache files in its folder would count as drift
            given.setdefault("PYTHONDONTWRITEBYTECODE", "1")
        entry = settings.entries.get(skill.key) or settings.entries.get(skill.name) or NO_ENTRY
        if not entry.env and not entry.has_key:
            continue
        declared = {*skill.about.requires.env, skill.about.primary_env}
        for name, value in here.values(skill).items():
            wanted = not sandboxed or (entry.sandbox_env and name in declared)
            if wanted and may_be_set(name) and not here.env.get(name):
                given.setdefault(name, value)
    return given


def may_be_set(name: str) -> bool:
    return bool(_NAME.fullmatch(name)) and not _LOADS_CODE.fullmatch(name)
