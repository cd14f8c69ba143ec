"""A draft as a SKILL.md. What a person reviews is all of it: nothing is hidden, and doubtful steps say so."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Struct

from palinurus.skills.drafting.general import FROM_OUTSIDE, seen
from palinurus.skills.drafting.outline import Outline, Pitfall, Step

MAX_WISH = 600
MAX_DESCRIPTION = 200
MAX_BODY = 20_000
_SLUG = re.compile(r"[^a-z0-9]+")
_LITTLE = re.compile("an?|the|and|or|of|to|in|on|for|from|with|by|my|me|our|your|please|can|could|you|i|it|is")
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]{0,20}://[^\s)>\]\"'`]+", re.IGNORECASE)


class Provenance(Struct, frozen=True):
    session: str
    date: str


def skill_name(wanted: str, wish: str) -> str:
    """A name that every folder and every registry takes."""
    words = [word for word in _SLUG.split(wish.lower()) if word and not _LITTLE.fullmatch(word)]
    slug = _SLUG.sub("-", wanted.lower()).strip("-") or "-".join(words[:4])
    return slug[:40].strip("-") or "drafted-skill"


def skill_text(name: str, found: Outline, origin: Provenance, *, description: str = "", body: str = "") -> str:
    """`description` and `body` are a model's, if one was asked."""
    about = description or f"Use when asked for something like: {seen(found.wishes[0] if found.wishes else name)}"
    needs: dict[str, tuple[str, ...]] = {"tools": found.tools}
    if found.hosts or found.strangers:
        needs["hosts"] = found.hosts
    head = {"name": name, "description": _short(about, MAX_DESCRIPTION), "version": "0.1.0", "capabilities": needs}
    lines = ["---", *(f"{key}: {msgspec.json.encode(value).decode()}" for key, value in head.items()), "---"]
    return "\n".join([*lines, *([body.strip()] if body else _body(name, found)), "", *_sources(found, origin), ""])


def fits(body: str, draft: str) -> str:
    """Why a model's wording is not taken; empty when it is. It may word things better, and add no place to go to."""
    if not body.strip() or len(body) > MAX_BODY:
        return "it was empty or too long"
    if any(line.strip() == "---" for line in body.splitlines()):
        return "it held front matter of its own"
    if foreign := [each for each in _ADDRESS.findall(body) if each.rstrip(".,") not in draft]:
        return f"it named an address that the session does not have: {seen(foreign[0])[:100]}"
    return ""


def review_notes(found: Outline) -> list[str]:
    """What whoever reviews the draft should look at."""
    notes = []
    if doubtful := sum(step.doubtful for step in found.steps):
        notes.append(f"{doubtful} of {len(found.steps)} steps were done after words from outside had been read")
    if any(FROM_OUTSIDE in value for step in found.steps for value in step.arguments.values()):
        notes.append(f"what came from outside was left out and stands as {FROM_OUTSIDE}")
    if found.strangers:
        notes.append(f"not among its hosts, because you never named them: {', '.join(found.strangers)}")
    return notes


def _body(name: str, found: Outline) -> Iterator[str]:
    yield f"# {name.replace('-', ' ').capitalize()}"
    if found.wishes:
        yield from ("", "What was asked for, in the owner's words:", "")
        yield from (f"> {_short(seen(wish), MAX_WISH)}" for wish in found.wishes)
    if found.inputs:
        yield from ("", "## Inputs", "")
        yield from (f"- {_code(blank)}: such as {_code(stood)}" for blank, stood in found.inputs.items())
    yield from ("", "## Steps", "")
    yield from (f"{number}. {_step(step)}" for number, step in enumerate(found.steps, 1))
    if found.pitfalls:
        yield from ("", "## Pitfalls", "")
        yield from (_pitfall(each) for each in found.pitfalls)


def _sources(found: Outline, origin: Provenance) -> Iterator[str]:
    yield from ("## Sources", "")
    yield f"- Drafted on {origin.date} from the session {_code(origin.session)}."
    if found.sources:
        yield "- Read then, and no part of these instructions:"
        yield from (f"  - {_code(each)}" for each in found.sources)


def _step(step: Step) -> str:
    doubt = " (decided after reading words from outside: check it)" if step.doubtful else ""
    return f"{_call(step.tool, step.arguments)}{doubt}"


def _pitfall(trouble: Pitfall) -> str:
    mended = f" What worked: {_call(trouble.mended.tool, trouble.mended.arguments)}" if trouble.mended else ""
    return f"- {_call(trouble.tool, trouble.arguments)}: {_code(trouble.why)}.{mended}"


def _call(tool: str, arguments: Mapping[str, str]) -> str:
    given = ", ".join(f"{name} {_code(value)}" for name, value in arguments.items() if value)
    return f"{_code(tool)}{f' with {given}' if given else ''}"


def _code(text: str) -> str:
    """As markdown shows it word for word; it cannot end before its end."""
    ticks = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
