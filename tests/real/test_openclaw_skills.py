"""The skills of the real OpenClaw package, from npm, load without an error and are offered within the budget."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from palinurus.skills.discovery import Root, SkillCache, SkillCatalog
from palinurus.skills.offer import command_names, offer
from palinurus.skills.requirements import Programs, SkillEnvironment, judge
from palinurus.skills.settings import SkillsSettings

PLACE = Path(__file__).parents[2] / ".peers" / "openclaw"
PACKAGE = PLACE / "node_modules" / "openclaw"
EXTENSIONS = sorted(PACKAGE.glob("dist/extensions/*/skills"))

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def _installed() -> None:
    if (PLACE / ".installed").exists():
        return
    missing = "OpenClaw is not installed: `make test-real` does it where npm can be reached"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


@pytest.mark.shows("OpenClaw", "its bundled skills load")
def test_all_skills_of_the_package_load_with_no_error() -> None:
    folders = [PACKAGE / "skills", PACKAGE / "custodian-skills", *EXTENSIONS]
    roots = tuple(Root("extra", str(folder)) for folder in folders)
    found = SkillCatalog(roots, SkillsSettings(), SkillCache(None)).look()
    assert found.left_out == ()
    assert [(skill.name, skill.about.remarks) for skill in found.skills if skill.about.remarks] == []
    files = [path for folder in folders for path in folder.rglob("SKILL.md")]
    assert len(found.skills) + len(found.shadowed) == len(files) > 50
    for skill in found.skills:
        text = Path(skill.location).read_text()
        said = re.search(r"^name: *(.*)$", text, re.MULTILINE)
        assert said is not None
        assert skill.name == said[1].strip("\"' ")
        assert ("requires" in text.partition("\n---")[0]) == (skill.about.requires != type(skill.about.requires)())


def test_they_are_gated_and_offered_within_the_budget(record_property: Callable[[str, object], None]) -> None:
    root = Root("bundled", str(PACKAGE / "skills"))
    skills = SkillCatalog((root,), SkillsSettings(), SkillCache(None)).look().skills
    here = SkillEnvironment("linux", {}, Programs(os.defpath))
    usable = [skill for skill in skills if judge(skill, SkillsSettings(), here).usable]
    darwin = {skill.name for skill in skills if judge(skill, SkillsSettings(), here).missing.os}
    assert {"apple-notes", "things-mac"} <= darwin
    assert "weather" in {skill.name for skill in usable}
    everything = offer(skills, SkillsSettings().limits, "/nobody")
    record_property("skills", len(skills))
    record_property("usable", len(usable))
    record_property("characters", len(everything.text))
    assert (everything.form, everything.listed) == ("full", len(skills))
    assert len(command_names(skills)) == sum(skill.about.user_invocable for skill in skills)
