"""Which skills an agent has: places, collisions, limits, and how little is done when nothing has changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from shelved import Shelf, write_raw, write_skill

from palinurus.domain.errors import NotFound
from palinurus.extensions.skill_registry.bundle import installed
from palinurus.extensions.skill_registry.quarantine import set_pin
from palinurus.skills import discovery
from palinurus.skills.discovery import SkillCache, SkillCatalog
from palinurus.skills.pins import Pin
from palinurus.skills.settings import SkillLimit, SkillsSettings
from palinurus.skills.skill import Tier


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if what was written lay further back than a tick of the file system's clock."""
    monkeypatch.setattr(discovery, "SETTLED_NS", -3_600_000_000_000)


def test_of_two_with_one_name_the_higher_place_wins_and_the_other_is_shown(shelf: Shelf, tmp_path: Path) -> None:
    extra = tmp_path / "more"
    places: dict[Tier, Path] = {
        "workspace": shelf.workspace / "skills",
        "project": shelf.workspace / ".agents" / "skills",
        "personal": shelf.person / ".agents" / "skills",
        "managed": shelf.base / "home" / "skills",
        "bundled": shelf.bundled,
        "extra": extra,
    }
    for tier, root in places.items():
        write_skill(root, "same")
        write_skill(root, f"only-{tier}")
    settings = SkillsSettings(extra_dirs=(extra,))
    tiers: list[Tier] = []
    for _ in places:
        found = shelf.look(settings)
        winner = found.get("same")
        tiers.append(winner.tier)
        assert {each.by for each in found.shadowed} <= {winner.location}
        assert len(found.shadowed) == len(places) - len(tiers)
        Path(winner.location).unlink()
        Path(winner.folder).rmdir()
    assert tiers == list(places)


def test_another_profile_does_not_see_what_is_the_persons(shelf: Shelf) -> None:
    write_skill(shelf.person / ".agents" / "skills", "mine")
    assert shelf.look().get("mine").tier == "personal"
    from palinurus.config.home import find_home
    from palinurus.skills.discovery import skill_roots

    other = find_home({"HOME": str(shelf.person)}, profile="work")
    assert "personal" not in {root.tier for root in skill_roots(shelf.workspace, other, SkillsSettings())}


def test_names_that_only_look_different_are_the_same(shelf: Shelf) -> None:
    write_skill(shelf.skills, "git-helper")
    write_raw(shelf.bundled, "other", "---\nname: GIT-Helper\ndescription: d\n---\n")
    found = shelf.look()
    assert [skill.name for skill in found.skills] == ["git-helper"]
    assert [each.name for each in found.shadowed] == ["GIT-Helper"]


def test_a_skill_ends_the_descent_and_the_descent_ends_at_six(shelf: Shelf) -> None:
    write_skill(shelf.skills, "outer")
    write_skill(shelf.skills, "outer/inner")
    write_skill(shelf.skills, "a/b/c/d/e/deep")
    write_skill(shelf.skills, "a/b/c/d/e/f/too-deep")
    write_skill(shelf.skills, ".hidden/no")
    write_skill(shelf.skills, "node_modules/no")
    assert [skill.name for skill in shelf.look().skills] == ["deep", "outer"]


def test_a_root_may_be_a_skill_itself(shelf: Shelf, tmp_path: Path) -> None:
    write_skill(tmp_path, "single")
    found = shelf.look(SkillsSettings(extra_dirs=(tmp_path / "single",)))
    assert [skill.name for skill in found.skills] == ["single"]


def test_what_is_over_a_limit_is_left_out_and_said(shelf: Shelf) -> None:
    for number in range(8):
        write_skill(shelf.skills, f"s{number}")
    few = shelf.look(SkillsSettings(limits=SkillLimit(skills=5)))
    assert len(few.skills) == 5
    assert {each.reason for each in few.left_out} == {f"{shelf.skills} has more than 5 skills"}
    fewer = shelf.look(SkillsSettings(limits=SkillLimit(folders=4)))
    assert len(fewer.skills) == 3  # the root is a folder too
    assert [each.reason for each in fewer.left_out] == [f"more than 4 folders below {shelf.skills}: not searched"]


def test_asking_for_a_skill_that_was_left_out_says_why(shelf: Shelf) -> None:
    write_raw(shelf.skills, "broken", "no front matter")
    with pytest.raises(NotFound, match="broken was left out: it has no front matter"):
        shelf.look().get("broken")
    with pytest.raises(NotFound, match="there is no skill 'nobody'"):
        shelf.look().get("nobody")


@pytest.mark.usefixtures("settled")
def test_nothing_is_walked_or_parsed_when_nothing_has_changed(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        write_skill(shelf.skills, f"s{number}")
    catalog = shelf.catalog()
    first = catalog.look()
    monkeypatch.setattr(discovery, "read_manifest", _must_not)
    shelf.walked.clear()
    assert catalog.look() is first
    assert shelf.catalog().look() == first  # another process, with what is kept on disk
    assert shelf.walked == []


@pytest.mark.usefixtures("settled")
def test_an_edit_is_seen_and_only_that_file_is_parsed(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [write_skill(shelf.skills, f"s{number}") for number in range(3)]
    catalog = shelf.catalog()
    catalog.look()
    parsed: list[str] = []
    real = discovery.read_manifest
    monkeypatch.setattr(discovery, "read_manifest", lambda data, name: parsed.append(name) or real(data, name))
    paths[1].write_text(paths[1].read_text().replace("Helps with s1.", "Does better."))
    assert catalog.look().get("s1").about.description == "Does better."
    assert parsed == ["s1"]
    os.utime(paths[2])  # touched, and the same
    assert len(catalog.look().skills) == 3
    assert parsed == ["s1"]


def test_skills_that_come_and_go_are_seen(shelf: Shelf) -> None:
    catalog = shelf.catalog()
    assert catalog.look().skills == ()
    path = write_skill(shelf.skills, "deep/down/new")
    assert [skill.name for skill in catalog.look().skills] == ["new"]
    path.unlink()
    assert catalog.look().skills == ()


def test_two_edits_within_one_tick_are_both_seen(shelf: Shelf) -> None:
    path = write_skill(shelf.skills, "quick", description="one")
    catalog = shelf.catalog()
    assert catalog.look().get("quick").about.description == "one"
    seen = path.stat()
    path.write_text(path.read_text().replace("one", "two"))
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert catalog.look().get("quick").about.description == "two"


def test_a_quarter_of_a_second_is_believed(shelf: Shelf) -> None:
    now = [100.0]
    write_skill(shelf.skills, "one")
    catalog = SkillCatalog(shelf.catalog()._roots, SkillsSettings(), SkillCache(None), now=lambda: now[0])
    catalog.look()
    write_skill(shelf.skills, "two")
    now[0] += 0.2
    assert len(catalog.look().skills) == 1
    now[0] += 0.1
    assert len(catalog.look().skills) == 2


@pytest.mark.parametrize("damage", [b"", b"\x93not what it was", b"\x00" * 1000])
def test_a_damaged_cache_costs_only_time(shelf: Shelf, damage: bytes) -> None:
    write_skill(shelf.skills, "one")
    shelf.look()
    (shelf.base / "home" / "derived" / "skills.msgpack").write_bytes(damage)
    assert [skill.name for skill in shelf.look().skills] == ["one"]


@pytest.mark.usefixtures("settled")
def test_agents_with_other_workspaces_share_the_cache(shelf: Shelf, tmp_path: Path) -> None:
    other = Shelf(tmp_path)
    other.workspace = tmp_path / "other"
    write_skill(shelf.skills, "mine")
    write_skill(other.skills, "theirs")
    shelf.look(), other.look()
    shelf.walked.clear()
    other.walked.clear()
    assert [skill.name for skill in shelf.look().skills] == ["mine"]
    assert [skill.name for skill in other.look().skills] == ["theirs"]
    assert shelf.walked == other.walked == []


def test_what_a_registry_brought_is_known_by_either_record(shelf: Shelf) -> None:
    write_skill(shelf.skills, "by-origin")
    origin = shelf.skills / "by-origin" / ".clawhub" / "origin.json"
    origin.parent.mkdir()
    origin.write_text('{"version": 1, "registry": "https://hub.example", "slug": "by-origin"}')
    write_skill(shelf.skills, "by-lock")
    write_skill(shelf.skills, "by-hand")
    catalog = shelf.catalog()
    catalog.look()
    lock = shelf.workspace / ".clawhub" / "lock.json"
    lock.parent.mkdir()
    lock.write_text('{"version": 1, "skills": {"by-lock": {"version": "1.0.0", "installedAt": 1}}}')
    found = {skill.name: skill.registry for skill in catalog.look().skills}
    assert found == {"by-hand": "", "by-lock": "clawhub", "by-origin": "https://hub.example"}


def test_a_home_that_is_not_there_is_not_made_by_looking(shelf: Shelf) -> None:
    (shelf.base / "home").rmdir()
    write_skill(shelf.skills, "one")
    assert len(shelf.look().skills) == 1
    assert not (shelf.base / "home").exists()


def _must_not(*_: object) -> None:
    raise AssertionError("parsed, though nothing has changed")


@pytest.mark.usefixtures("settled")
def test_what_differs_from_its_pin_is_left_out_and_comes_back(shelf: Shelf) -> None:
    path = write_skill(shelf.skills, "pinned")
    script = shelf.skills / "pinned" / "run.sh"
    script.write_text("echo good\n")
    bundle = installed(shelf.skills / "pinned")
    files = {each.path: each.sha256 for each in bundle.records()}
    entry = Pin("pinned", "1.0.0", "https://hub.example", bundle.digest, 1, files=files)
    catalog = shelf.catalog()
    assert catalog.look().get("pinned").registry == ""
    set_pin(shelf.home.root, shelf.skills / "pinned", entry)
    assert catalog.look().get("pinned").registry == "https://hub.example"
    script.write_text("echo evil\n")
    (out,) = catalog.look().left_out
    assert (out.path, out.reason) == (str(path), "it is not what was installed: 1 changed (run.sh)")
    script.write_text("echo good\n")
    assert catalog.look().get("pinned").registry == "https://hub.example"
    (shelf.skills / "pinned" / "more.sh").write_text("")
    assert catalog.look().skills == ()
