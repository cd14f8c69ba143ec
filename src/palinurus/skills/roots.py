"""The places where skills are looked for, the one that wins first.

Those inside the workspace are guarded by this very list: see workspace/instructions.py and wiring/hands.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from palinurus.config.home import Home
from palinurus.config.offering import SkillsSettings
from palinurus.skills.skill import Tier
from palinurus.workspace.instructions import PROJECT_SKILLS, SKILLS

BUNDLED = Path(__file__).parent / "bundled"


class Root(Struct, frozen=True):
    tier: Tier
    path: str  # absolute


def skill_roots(
    workspace: Path, home: Home, settings: SkillsSettings, plugins: Sequence[Path] = (), bundled: Path = BUNDLED
) -> tuple[Root, ...]:
    """All of them, whether they exist or not. A folder that has two roles has the higher one."""
    return tuple(_once(_all(workspace, home, settings, plugins, bundled)))


def _all(
    workspace: Path, home: Home, settings: SkillsSettings, plugins: Sequence[Path], bundled: Path
) -> Iterator[tuple[Tier, Path]]:
    yield "workspace", workspace / SKILLS
    yield "project", workspace / PROJECT_SKILLS
    if not home.profile:  # another profile is another life
        yield "personal", home.user_home / ".agents" / "skills"
    yield "managed", home.root / "skills"
    yield "bundled", bundled
    yield from (("plugin", each) for each in plugins)
    yield from (("extra", each) for each in settings.extra_dirs)


def _once(found: Iterable[tuple[Tier, Path]]) -> Iterator[Root]:
    seen: set[str] = set()
    for tier, path in found:
        real = os.path.realpath(path)
        if real not in seen:
            seen.add(real)
            yield Root(tier, os.path.abspath(path))  # noqa: PTH100  the name that its owner knows
