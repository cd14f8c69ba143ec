"""Skills on a disk, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from palinurus.config.home import Home, find_home
from palinurus.skills.discovery import Root, RootScan, SkillCache, SkillCatalog, SkillSet, skill_roots
from palinurus.skills.requirements import Programs, SkillEnvironment
from palinurus.skills.settings import SkillsSettings
from palinurus.skills.skill import Capabilities, Skill, SkillManifest
from palinurus.skills.skills import Skills, skill_cache

PLAIN, NOTHING = SkillsSettings(), Capabilities()


def write_skill(root: Path, name: str, front: str = "", body: str = "Do it well.\n", description: str = "") -> Path:
    """A SKILL.md in a folder of its own; gives its path."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    said = description or f"Helps with {name}."
    path = folder / "SKILL.md"
    path.write_text(f"---\nname: {Path(name).name}\ndescription: {said}\n{front}---\n# {name}\n{body}")
    return path


def write_raw(root: Path, name: str, data: bytes | str) -> Path:
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "SKILL.md"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def a_skill(name: str = "pdf", registry: str = "", capabilities: Capabilities = NOTHING, **about: object) -> Skill:
    manifest = SkillManifest(name, f"Helps with {name}.", capabilities=capabilities, **about)  # type: ignore[arg-type]
    return Skill(manifest, f"/house/skills/{name}", "managed", "0" * 64, registry)


class CountingCatalog(SkillCatalog):
    """Notes each root that had to be walked."""

    def __init__(self, walked: list[Root], *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._walked = walked

    def _scan(self, root: Root, known: RootScan | None) -> RootScan:
        self._walked.append(root)
        return super()._scan(root, known)


class Shelf:
    """One agent's skills in a folder of a test, with no bundled ones unless asked for."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.workspace = base / "workspace"
        self.person = base / "person"
        self.bundled = base / "bundled"
        self.programs = base / "programs"
        for folder in (self.workspace, self.person, self.bundled, self.programs, base / "home"):
            folder.mkdir(parents=True, exist_ok=True)
        self.now = 0.0
        self.walked: list[Root] = []

    @property
    def home(self) -> Home:
        return find_home({"PALINURUS_HOME": str(self.base / "home"), "HOME": str(self.person)})

    @property
    def skills(self) -> Path:
        return self.workspace / "skills"

    def program(self, name: str) -> None:
        (self.programs / name).write_text("#!/bin/sh\n")
        (self.programs / name).chmod(0o755)

    def catalog(self, settings: SkillsSettings = PLAIN, cache: SkillCache | None = None) -> SkillCatalog:
        return CountingCatalog(
            self.walked,
            skill_roots(self.workspace, self.home, settings, bundled=self.bundled),
            settings,
            cache or skill_cache(self.home),
            home=self.home.root,
            now=self._clock,
        )

    def look(self, settings: SkillsSettings = PLAIN) -> SkillSet:
        return self.catalog(settings).look()

    def open(self, settings: SkillsSettings = PLAIN, env: Mapping[str, str] | None = None, **more: object) -> Skills:
        values = {"values": more.pop("values")} if "values" in more else {}
        here = SkillEnvironment("linux", env if env is not None else {}, Programs(str(self.programs)), **values)
        where = {"workspace": str(self.workspace), "user_home": str(self.person)}
        return Skills(self.catalog(settings), settings, here, **where, **more)  # type: ignore[arg-type]

    def _clock(self) -> float:
        """Each look is a second after the last one."""
        self.now += 1.0
        return self.now
