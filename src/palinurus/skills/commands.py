"""Skills as slash commands: `/skill NAME words`, and each by its own name, as chat apps can spell it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from palinurus.domain.errors import NotFound
from palinurus.skills.catalog import same_name
from palinurus.skills.skill import Skill

LONGEST = 32
WORD = "skill"
_UNFIT = re.compile(r"[^a-z0-9_]+")


class Invoked(Struct, frozen=True):
    """Somebody asks for a skill by name."""

    skill: Skill
    command: str  # without the slash
    words: str = ""  # what stands behind it

    @property
    def arguments(self) -> dict[str, str]:
        """For the tool that the skill's command calls directly, as OpenClaw sends them."""
        return {"command": self.words, "commandName": self.command, "skillName": self.skill.name}


def command_names(skills: Sequence[Skill], taken: Collection[str] = ()) -> dict[str, Skill]:
    """A command for each skill that people may call. `taken` are the names of the house's own commands."""
    used = {WORD, *(name.lower().lstrip("/") for name in taken)}
    found: dict[str, Skill] = {}
    for skill in skills:
        if skill.about.user_invocable:
            name = _free(clean_command(skill.name), used)
            used.add(name)
            found[name] = skill
    return found


def clean_command(name: str) -> str:
    cleaned = re.sub("_+", "_", _UNFIT.sub("_", name.lower())).strip("_")[:LONGEST].rstrip("_")
    return cleaned or WORD


def parse_invocation(text: str, commands: Mapping[str, Skill]) -> Invoked | None:
    """None when the message asks for no skill. Raises NotFound for `/skill` with a name that nobody has."""
    if not text.startswith("/"):
        return None
    word, rest = _first(text[1:])
    if word.lower() != WORD:
        skill = commands.get(word.lower())
        return Invoked(skill, word.lower(), rest) if skill else None
    name, words = _first(rest)
    wanted = same_name(name)
    for command, skill in commands.items():
        if wanted in (same_name(skill.name), command):
            return Invoked(skill, command, words)
    raise NotFound(f"there is no skill {name!r}" if name else "which skill?", hint=_hint(commands))


def _first(text: str) -> tuple[str, str]:
    word, rest = (*text.split(maxsplit=1), "", "")[:2]
    return word, rest.strip()


def _hint(commands: Mapping[str, Skill]) -> str:
    names = sorted(skill.name for skill in commands.values())
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return f"there are {', '.join(names[:20])}{more}" if names else "there are none here"


def _free(name: str, used: Collection[str]) -> str:
    number = 1
    found = name
    while found in used:
        number += 1
        end = f"_{number}"
        found = f"{name[: LONGEST - len(end)].rstrip('_')}{end}"
    return found
