"""The files of skills, by whatever name a call gives them: for reading one, and for noticing that one is in use.

A location may be spelled `~/…`, whole, from the workspace, or `skill:NAME/…`. Most skills lie outside the workspace,
where file tools do not reach; they are read here, and nothing but what lies in a skill's own folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import Struct

from palinurus.domain.errors import NotFound, WorkspaceError
from palinurus.domain.messages import Origin
from palinurus.skills.catalog import same_name
from palinurus.skills.skill import SKILL_FILE, Skill
from palinurus.workspace.boundary import Boundary

BASE = "{baseDir}"
SCHEME = "skill:"
MAX_BYTES = 512 * 1024
# Tools that show what is in a file, by the name of the argument that says which.
_SHOWS = {"read": "path", "grep": "path", "edit": "path", "apply_patch": "path", "image": "path", "view_image": "path"}
_BREAKS = re.compile(r"[\s'\"`;|&<>()=,]+")


class SkillPlace(Struct, frozen=True):
    skill: Skill
    inner: str  # inside its folder; "." is the folder itself


class SkillFiles:
    """Where the folders of some skills are."""

    def __init__(self, skills: Iterable[Skill], workspace: str, user_home: str) -> None:
        self._folders = {os.path.normpath(skill.folder): skill for skill in skills}
        self._longest = max(map(len, self._folders), default=0)
        self._workspace = workspace
        self._home = user_home

    @cached_property
    def _named(self) -> Mapping[str, str]:
        return {same_name(skill.name): folder for folder, skill in self._folders.items()}

    def find(self, path: str) -> SkillPlace | None:
        """Which skill's file that is. Nothing is looked up on disk."""
        if "\0" in path:
            return None
        whole = os.path.normpath(os.path.join(self._workspace, self._expanded(path)))  # noqa: PTH118
        whole = f"/{whole.lstrip('/')}"  # `//` is a root of its own to normpath, and above it comes nothing else
        place = whole if len(whole) <= self._longest else whole[: whole.rfind("/", 0, self._longest + 1)]
        while len(place) > 1:
            if skill := self._folders.get(place):
                return SkillPlace(skill, os.path.relpath(whole, place))
            place = os.path.dirname(place)  # noqa: PTH120  of a text, not of a file
        return None

    def used_by(self, tool: str, arguments: Mapping[str, Any]) -> tuple[Skill, ...]:
        """The skills whose files this call shows or runs."""
        found = (self.find(path) for path in _paths(tool, arguments))
        return tuple(dict.fromkeys(place.skill for place in found if place is not None))

    def _expanded(self, path: str) -> str:
        if path.startswith(SCHEME):
            name, _, inner = path.removeprefix(SCHEME).partition("/")
            folder = self._named.get(same_name(name))
            return os.path.join(folder, inner or SKILL_FILE) if folder else path  # noqa: PTH118  as above
        return f"{self._home}{path[1:]}" if path.startswith("~/") else path


class SkillText(Struct, frozen=True):
    """What a model reads of a skill, and whose words these are."""

    path: str
    text: str
    origin: Origin
    source: str


def read_file(place: SkillPlace) -> SkillText:
    """A skill's file, with its folder put in for `{baseDir}`. Raises NotFound or WorkspaceError."""
    shown = f"{place.skill.name}/{place.inner}"
    with Boundary(Path(place.skill.folder)).open_file(place.inner) as file:
        data = file.read(MAX_BYTES)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise WorkspaceError(f"{shown} is no text", hint="a script of the skill may know how to read it") from None
    return SkillText(shown, text.replace(BASE, place.skill.folder), origin_of(place.skill), source_of(place.skill))


def instructions(skill: Skill) -> str:
    """All of a SKILL.md as a model reads it. Raises NotFound when it has gone since it was found."""
    try:
        return read_file(SkillPlace(skill, SKILL_FILE)).text
    except WorkspaceError as error:
        raise NotFound(f"the skill {skill.name} cannot be read: {error.message}") from None


def origin_of(skill: Skill) -> Origin:
    """What came from a registry was written by somebody else, whoever installed it (promise 18)."""
    return Origin.OUTSIDE if skill.registry else Origin.OWNER


def source_of(skill: Skill) -> str:
    return f"skill:{skill.name}"


def _paths(tool: str, arguments: Mapping[str, Any]) -> Iterator[str]:
    if tool == "exec":
        yield from _words(arguments)
    elif argument := _SHOWS.get(tool):
        value = arguments.get(argument)
        if isinstance(value, str):
            yield value.partition("#")[0]


def _words(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Everything in a command that could be a path, also seen from the folder that the command runs in."""
    folder = arguments.get("workdir")
    start = folder if isinstance(folder, str) else ""
    argv = arguments.get("argv")
    texts = [arguments.get("command"), *(argv if isinstance(argv, list | tuple) else ())]
    for text in texts:
        for word in _BREAKS.split(text) if isinstance(text, str) else ():
            if word:
                yield word if word.startswith("~/") else os.path.join(start, word)  # noqa: PTH118
    if start:
        yield start
