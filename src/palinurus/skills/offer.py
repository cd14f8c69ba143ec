"""The list of skills that a model reads: what there is, when to use it, and where it stands.

The bodies are read on demand. The list has a budget: when it is too long, descriptions go first, then the last
names, and a note says that something is missing. The bundled ones share a folder and a block, which names it once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from palinurus.config.offering import SkillLimit
from palinurus.skills.skill import Skill

MAX_DESCRIPTION = 1_024
INTRODUCTION = (
    "Know-how for particular tasks. When one clearly fits, first `read` it (its location, or `skill:NAME`), then follow"
    " it; at most one up front. Paths in it start at its own folder."
)
_OPEN, _CLOSE = "<available_skills>", "</available_skills>"

Form = Literal["full", "names", "cut"]


class Offer(Struct, frozen=True):
    text: str = ""  # empty: there is nothing to offer
    digest: str = ""
    form: Form = "full"
    listed: int = 0
    total: int = 0


def offer(skills: Sequence[Skill], limits: SkillLimit, user_home: str) -> Offer:
    """Pure. `skills` are those that a model may choose."""
    if not skills or not limits.listed or not limits.characters:
        return Offer(total=len(skills))
    first = sorted(skills, key=_is_ours)[: limits.listed]  # ours last: they are the first to go
    missing = len(skills) - len(first)
    full = _text(first, missing, user_home, described=True)
    if len(full) <= limits.characters:
        return _made(full, "full", len(first), len(skills))
    brief = _text(first, missing, user_home)
    if len(brief) <= limits.characters:
        return _made(brief, "names", len(first), len(skills))
    while first:
        first.pop()
        cut = _text(first, len(skills) - len(first), user_home)
        if len(cut) <= limits.characters:
            return _made(cut, "cut", len(first), len(skills))
    return Offer(total=len(skills), form="cut")


def shortened(path: str, user_home: str) -> str:
    """A path with `~` for the person's home, as the list shows it."""
    home = user_home.rstrip("/")
    return f"~{path[len(home) :]}" if home and path.startswith(f"{home}/") else path


def escape(text: str) -> str:
    """For XML; the standard library's own brings half of its network code along."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _made(text: str, form: Form, listed: int, total: int) -> Offer:
    return Offer(text, hashlib.sha256(text.encode()).hexdigest()[:16], form, listed, total)


def _text(skills: Sequence[Skill], missing: int, user_home: str, *, described: bool = False) -> str:
    """Ours stand last, in a block of their own."""
    others = [_element(skill, user_home, described) for skill in skills if not _is_ours(skill)]
    ours = _bundled([skill for skill in skills if _is_ours(skill)], user_home, described)
    note = [f"[{missing} more are not listed: `pal skills check` shows them]"] if missing else []
    return "\n".join([INTRODUCTION, _OPEN, *others, *ours, _CLOSE, *note])


def _is_ours(skill: Skill) -> bool:
    return skill.tier == "bundled"


def _bundled(skills: Sequence[Skill], user_home: str, described: bool) -> list[str]:
    """A line each, and the folder once: a fresh home has a dozen of them, and pays for each character every time."""
    if not skills:
        return []
    if not described:
        return [f"<bundled>{', '.join(escape(skill.name) for skill in skills)}</bundled>"]
    above = skills[0].folder.rpartition("/")[0]
    where = escape(shortened(f"{above}/NAME/SKILL.md", user_home))
    return [f'<bundled location="{where}">', *map(_line, skills), "</bundled>"]


def _line(skill: Skill) -> str:
    return f"{escape(skill.name)}: {escape(_short(skill.about.description))}"


def _short(about: str) -> str:
    return about if len(about) <= MAX_DESCRIPTION else f"{about[: MAX_DESCRIPTION - 1]}…"


def _element(skill: Skill, user_home: str, described: bool) -> str:
    """On one line: line breaks and indentation are paid for in every request."""
    about = f"<description>{escape(_short(skill.about.description))}</description>" if described else ""
    where = escape(shortened(skill.location, user_home))
    return f"<skill><name>{escape(skill.name)}</name>{about}<location>{where}</location></skill>"
