"""The skills that lie in workspaces and in the home, with what their lock files say about where they came from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from palinurus.migrate.foreign import ForeignAgent
from palinurus.migrate.openclaw.files import folders, read_whole
from palinurus.migrate.report import FoundSkill, Losses

DEPTH = 6  # as OpenClaw looks
MAX_BYTES = 1024 * 1024
_NAME = re.compile(rb"^name:[ \t]*[\"']?([^\"'\r\n#]{1,100})", re.MULTILINE)
_LOCKS = (".clawhub", ".clawdhub")


def find_skills(root: Path, agents: list[ForeignAgent], losses: Losses) -> list[FoundSkill]:
    found: list[FoundSkill] = []
    for agent in agents:
        if agent.workspace is not None:
            lock = _lock(agent.workspace, losses)
            for place in ("skills", ".agents/skills"):
                found += _skills(root, agent.workspace / place, agent.id, lock, losses)
    found += _skills(root, root / "skills", "", {**_lock(root, losses), **_lock(root / "skills", losses)}, losses)
    unique = {skill.path: skill for skill in reversed(found)}  # two agents may share a workspace
    return sorted(unique.values(), key=lambda skill: skill.path)


def _skills(root: Path, folder: Path, agent: str, lock: dict[str, Any], losses: Losses) -> Iterator[FoundSkill]:
    waiting = [(folder, 0)]
    while waiting:
        place, depth = waiting.pop()
        shown = _shown(place, root)
        text = read_whole(place / "SKILL.md", f"{shown}/SKILL.md", losses, MAX_BYTES)
        if text is not None:
            yield _skill(place, f"{shown}/SKILL.md", text, agent, lock, losses)
        elif depth < DEPTH:
            waiting += [(place / name, depth + 1) for name in folders(place, shown, losses)]


def _skill(place: Path, shown: str, text: bytes, agent: str, lock: dict[str, Any], losses: Losses) -> FoundSkill:
    match = _NAME.search(text[:16_384])
    name = match[1].decode(errors="replace").strip() if match else place.name
    origin = _first(place, "origin.json", losses)
    slug = str(origin.get("slug") or place.name)
    locked = lock.get(slug)
    version = origin.get("installedVersion") or (locked.get("version") if isinstance(locked, dict) else "")
    known = bool(origin or locked)
    registry = str(origin.get("registry") or "")
    return FoundSkill(name, shown, agent, str(version or ""), registry, slug if known else "")


def _lock(folder: Path, losses: Losses) -> dict[str, Any]:
    skills = _first(folder, "lock.json", losses).get("skills")
    return skills if isinstance(skills, dict) else {}


def _first(folder: Path, name: str, losses: Losses) -> dict[str, Any]:
    for lock in _LOCKS:
        data = read_whole(folder / lock / name, f"{folder.name}/{lock}/{name}", losses, MAX_BYTES)
        if data is not None:
            try:
                value = json.loads(data)
            except (ValueError, RecursionError):
                losses.add(f"{folder.name}/{lock}/{name}", 0, "it is not JSON")
                continue
            if isinstance(value, dict):
                return value
    return {}


def _shown(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
