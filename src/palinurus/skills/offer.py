"""The list of skills that a model reads: what there is, when to use it, and where it stands.

The bodies are read on demand. The list has a budget: when it is too long, descriptions go first, then the last
names, and a note says that something is missing.
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
    full = _text([_described(skill, user_home) for skill in first if not _is_ours(skill)], first, missing)
    if len(full) <= limits.characters:
        return _made(full, "full", len(first), len(skills))
    lines = [_named(skill, user_home) for skill in first if not _is_ours(skill)]
    brief = _text(lines, first, missing)
    if len(brief) <= limits.characters:
        return _made(brief, "names", len(first), len(skills))
    while first:
        first.pop()
        cut = _text(lines[: len(first)], first, len(skills) - len(first))
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


def _text(lines: Sequence[str], skills: Sequence[Skill], missing: int) -> str:
    """`lines` are those of others; ours are named in one more."""
    ours = ", ".join(escape(skill.name) for skill in skills if _is_ours(skill))
    note = [f"[{missing} more are not listed: `pal skills check` shows them]"] if missing else []
    return "\n".join([INTRODUCTION, _OPEN, *lines, *([f"<bundled>{ours}</bundled>"] if ours else []), _CLOSE, *note])


def _is_ours(skill: Skill) -> bool:
    """The bundled ones have names that say what they are for: they cost a fresh home no more than these."""
    return skill.tier == "bundled"


def _described(skill: Skill, user_home: str) -> str:
    about = skill.about.description
    short = about if len(about) <= MAX_DESCRIPTION else f"{about[: MAX_DESCRIPTION - 1]}…"
    return _named(skill, user_home, f"<description>{escape(short)}</description>")


def _named(skill: Skill, user_home: str, more: str = "") -> str:
    """On one line: line breaks and indentation are paid for in every request."""
    where = escape(shortened(skill.location, user_home))
    return f"<skill><name>{escape(skill.name)}</name>{more}<location>{where}</location></skill>"
