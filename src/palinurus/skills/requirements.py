"""Whether a skill can be used here and now, and if not, everything that stands in the way.

In this order: switched off, a bundled one that is not wanted, another operating system; then, unless the skill says
`always`, programs, variables and places of the config that it requires. The agent's own list of skills comes last.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from palinurus.config.offering import SkillsSettings, SkillWord
from palinurus.skills.discovery import Mark, mark_of
from palinurus.skills.skill import Skill

_PROGRAM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
NOTHING_SAID = SkillWord()


class Missing(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    bins: tuple[str, ...] = ()
    any_bins: tuple[str, ...] = ()  # none of these is there, and one should be
    env: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    os: tuple[str, ...] = ()  # it works on these only

    def __bool__(self) -> bool:
        return self != Missing()


class Verdict(Struct, frozen=True, gc=False):
    """`reasons` is empty when the skill can be used."""

    reasons: tuple[str, ...] = ()
    missing: Missing = Missing()

    @property
    def usable(self) -> bool:
        return not self.reasons


class Programs:
    """Which programs there are. Looks again only when a folder of the path has changed."""

    def __init__(self, path: str, more: Sequence[str] = ()) -> None:
        self._folders = [each for each in (*path.split(os.pathsep), *more) if each.startswith("/")]
        self._marks: tuple[Mark, ...] | None = None
        self._found: dict[str, bool] = {}

    def renew(self) -> bool:
        """Whether something may have changed since the last time."""
        marks = tuple(mark_of(folder) for folder in self._folders)
        if marks == self._marks:
            return False
        self._marks, self._found = marks, {}
        return True

    def seen(self) -> Iterator[str]:
        """The folders, and each file that has the name of a program that was asked for."""
        yield from self._folders
        for name in self._found:
            yield from filter(os.path.lexists, (f"{folder}/{name}" for folder in self._folders))

    def has(self, name: str) -> bool:
        if name not in self._found:
            self._found[name] = bool(_PROGRAM.fullmatch(name)) and any(
                _runs(f"{folder}/{name}") for folder in self._folders
            )
        return self._found[name]


class Surroundings(Struct, frozen=True):
    """What a skill can find here."""

    platform: str  # as sys.platform says it
    env: Mapping[str, str]
    programs: Programs

    def present(self, names: Iterable[str]) -> frozenset[str]:
        """Those variables among them that are set."""
        return frozenset(name for name in names if self.env.get(name))


def judge(
    skill: Skill, settings: SkillsSettings, here: Surroundings, present: Collection[str] | None = None
) -> Verdict:
    """`present` are the variables that are set, if they were looked up before, for many skills at once."""
    word = settings.entries.get(skill.key) or settings.entries.get(skill.name) or NOTHING_SAID
    reasons = list(_unwanted(skill, settings, word))
    found = here.present(skill.about.requires.env) if present is None else present
    missing = _missing(skill, settings, word, here, found)
    return Verdict((*reasons, *_told(missing)), missing)


def _unwanted(skill: Skill, settings: SkillsSettings, word: SkillWord) -> Iterator[str]:
    if not word.enabled:
        yield f"switched off (skills.entries.{skill.key}.enabled)"
    bundled = settings.allow_bundled
    if skill.tier == "bundled" and bundled is not None and not {skill.name, skill.key} & set(bundled):
        yield "not among skills.allowBundled"
    if settings.allow is not None and not {skill.name, skill.key} & set(settings.allow):
        yield "not among the agent's skills"


def _missing(
    skill: Skill, settings: SkillsSettings, word: SkillWord, here: Surroundings, present: Collection[str]
) -> Missing:
    about, needs = skill.about, skill.about.requires
    systems = about.os if about.os and here.platform not in about.os else ()
    if about.always:
        return Missing(os=systems)
    has = here.programs.has
    given = {*word.env, *settings.variables, *((about.primary_env,) if word.has_key else ())}
    return Missing(
        bins=tuple(name for name in needs.bins if not has(name)),
        any_bins=() if not needs.any_bins or any(map(has, needs.any_bins)) else needs.any_bins,
        env=tuple(name for name in needs.env if name not in present and name not in given),
        config=tuple(path for path in needs.config if path not in settings.said),
        os=systems,
    )


def _told(missing: Missing) -> Iterator[str]:
    if missing.os:
        yield f"only for {', '.join(missing.os)}"
    if missing.bins:
        yield f"programs that are not there: {', '.join(missing.bins)}"
    if missing.any_bins:
        yield f"none of these programs is there: {', '.join(missing.any_bins)}"
    if missing.env:
        yield f"variables that are not set: {', '.join(missing.env)}"
    if missing.config:
        yield f"the config does not say {', '.join(missing.config)}"


def _runs(path: str) -> bool:
    return os.access(path, os.X_OK) and not os.path.isdir(path)  # noqa: PTH112  many of these in a row
