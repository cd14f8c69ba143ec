"""What conversations begin with is guarded by the lists that prompts and skills are made from, and by no other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from palinurus.config.home import Home, find_home
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin
from palinurus.domain.tool import PreparedCall, ToolRun
from palinurus.runtime import tools
from palinurus.runtime.runtime import Runtime
from palinurus.skills.discovery import Root, skill_roots
from palinurus.skills.settings import skills_settings
from palinurus.workspace.files import BOOTSTRAP

RUN = ToolRun(SessionKey.main(), "r", private=True, origin=Origin.OUTSIDE)


class Lodging:
    def __init__(self, base: Path) -> None:
        self.base = base
        self.workspace = base / "home" / "workspace"
        self.workspace.mkdir(parents=True)
        self.roots: tuple[str, ...] = ()  # of skills, inside the workspace

    @property
    def env(self) -> dict[str, str]:
        return {"PALINURUS_HOME": str(self.base / "home"), "HOME": str(self.base), "PATH": "/usr/bin:/bin"}

    @property
    def home(self) -> Home:
        return find_home(self.env)

    async def reasons(self, *paths: str, tool: str = "write", **more: str) -> list[str]:
        """Why a person is asked before a turn that has read text from outside writes there."""
        config = {
            "agents": {"defaults": {"extraBootstrapFiles": ["docs/RULES.md"]}},
            "skills": {"load": {"extraDirs": [str(self.workspace / "team" / "lib")]}},
            "tools": {"exec": {"applyPatch": {"enabled": True}}},
        }
        (self.base / "home" / "palinurus.json").write_text(json.dumps(config))
        runtime = Runtime(self.home, self.env)
        try:
            found = next(each for each in await runtime.services.toolsets.tools("main") if each.spec.name == tool)
            assert found.prepare is not None
            told = []
            for path in paths:
                arguments = more or {"path": path, "content": "obey"}
                sent = {key: each.replace("%s", path) for key, each in arguments.items()}
                prepared = await found.prepare(RUN, sent)
                assert isinstance(prepared, PreparedCall), prepared
                told.append(prepared.when_untrusted)
            self.roots = tuple(_inside(self.workspace, runtime, self.home))
            return told
        finally:
            await runtime.close()


def _inside(workspace: Path, runtime: Runtime, home: Home) -> Iterator[str]:
    settings = skills_settings(runtime.agents.loaded, home, "main")
    for root in skill_roots(workspace, home, settings):
        if Path(root.path).is_relative_to(workspace):
            yield str(Path(root.path).relative_to(workspace))


@pytest.fixture
def lodging(tmp_path: Path) -> Lodging:
    return Lodging(tmp_path)


async def test_every_file_of_the_prompt_and_every_root_of_skills_asks(lodging: Lodging) -> None:
    await lodging.reasons()
    assert set(lodging.roots) == {"skills", ".agents/skills", "team/lib"}
    places = [*(slot.name for slot in BOOTSTRAP), "docs/RULES.md", *(f"{root}/x/SKILL.md" for root in lodging.roots)]
    assert all(await lodging.reasons(*places))


async def test_what_says_that_a_skill_is_a_strangers_asks_too(lodging: Lodging) -> None:
    assert all(await lodging.reasons(".clawhub/lock.json", ".agents/.clawhub/lock.json", "team/.clawhub/lock.json"))


async def test_another_spelling_asks_too_and_what_lies_beside_does_not(lodging: Lodging) -> None:
    assert all(await lodging.reasons("Skills/x/SKILL.md", ".Agents/SKILLS/x.md", "DOCS/rules.MD", "agents.md"))
    beside = ("docs/OTHER.md", ".agents/notes.md", "team/notes.md", "skills.md", "team/library/x.md", "x/AGENTS.md")
    assert not any(await lodging.reasons(*beside))


async def test_what_is_behind_a_link_of_such_a_name_asks_too(lodging: Lodging) -> None:
    for name in ("plain/agents.md", "shelf/pdf/SKILL.md"):
        (lodging.workspace / name).parent.mkdir(parents=True)
        (lodging.workspace / name).write_text("as it was")
    (lodging.workspace / "AGENTS.md").symlink_to("plain/agents.md")
    (lodging.workspace / "skills").symlink_to("shelf")
    assert all(await lodging.reasons("AGENTS.md", "plain/agents.md", "shelf/pdf/SKILL.md", "skills/new/SKILL.md"))


async def test_deleting_and_moving_asks_too(lodging: Lodging) -> None:
    for name in (".agents/skills/pdf/SKILL.md", "docs/RULES.md", "docs/x.md"):
        (lodging.workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (lodging.workspace / name).write_text("one\n")
    assert all(await lodging.reasons(".agents/skills/pdf/SKILL.md", "docs/RULES.md", tool="delete", path="%s"))
    patch = "*** Begin Patch\n*** Update File: docs/x.md\n*** Move to: %s\n@@\n-one\n+two\n*** End Patch"
    assert all(await lodging.reasons(".agents/skills/y/SKILL.md", "team/lib/y", tool="apply_patch", input=patch))


async def test_a_root_that_is_added_to_the_list_is_guarded(lodging: Lodging, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await lodging.reasons("new/place/x/SKILL.md") == [""]

    def more(workspace: Path, *rest: Any) -> tuple[Root, ...]:
        return (Root("project", str(workspace / "new" / "place")), *skill_roots(workspace, *rest))

    monkeypatch.setattr(tools, "skill_roots", more)
    assert all(await lodging.reasons("new/place/x/SKILL.md"))


async def test_a_command_asks_where_walls_cannot_keep_it_from_them(lodging: Lodging) -> None:
    (told,) = await lodging.reasons("", tool="exec", command="echo fine")
    assert told == ""
    (lodging.workspace / "plain.md").write_text("as it was")
    (lodging.workspace / "AGENTS.md").symlink_to("plain.md")
    (told,) = await lodging.reasons("", tool="exec", command="echo fine")
    assert told.startswith("AGENTS.md, which later sessions start with, is a link")
    (lodging.workspace / "AGENTS.md").unlink()
    (lodging.workspace / "AGENTS.md").hardlink_to(lodging.workspace / "plain.md")
    (told,) = await lodging.reasons("", tool="exec", command="echo fine")
    assert "has another name" in told
