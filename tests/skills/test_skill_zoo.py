"""Hostile skills: each is refused with its reason, and the others are there all the same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from shelved import Shelf, write_raw, write_skill

from palinurus.domain.errors import WorkspaceError
from palinurus.skills.settings import SkillsSettings
from palinurus.skills.skill import OmittedSkill

BOMB = "---\nname: bomb\ndescription: d\na: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [*{old},*{old},*{old},*{old},*{old},*{old},*{old},*{old}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
ZOO: dict[str, tuple[bytes, str]] = {
    "front-matter-of-10-mb": (
        b"---\nname: x\ndescription: " + b"d" * 10_000_000 + b"\n---\n",
        "larger than 256,000 bytes",
    ),
    "long-front-matter": (
        b"---\nname: x\ndescription: d\nx: " + b"d" * 100_000 + b"\n---\n",
        "characters; 65,536 are allowed",
    ),
    "yaml-bomb": (BOMB.encode() + b"---\n", "anchors or aliases"),
    "yaml-circle": (b"---\nname: x\ndescription: d\na: &a [*a]\n---\n", "anchors or aliases"),
    "yaml-depth": (b"---\nname: x\ndescription: d\na: " + b"[" * 60_000 + b"\n---\n", "nested more than 16 deep"),
    "yaml-braces": (b"---\nname: x\ndescription: d\na: " + b"{a: " * 15_000 + b"\n---\n", "nested more than 16 deep"),
    "twice": (b"---\nname: x\ndescription: d\nname: y\n---\n", "has the key 'name' twice"),
    "bell": (b"---\nname: x\ndescription: a\x07b\n---\n", "control character U+0007"),
    "nul": (b"---\nname: x\x00y\ndescription: d\n---\n", "control character U+0000"),
    "bidi": ("---\nname: x\ndescription: safe \u202etxt.exe\n---\n".encode(), "hidden character U+202E"),
    "path-name": (b"---\nname: ../../../etc/cron.d/x\ndescription: d\n---\n", "is a path, not a name"),
    "absolute-name": (b"---\nname: /etc/passwd\ndescription: d\n---\n", "is a path, not a name"),
    "no-utf-8": (b"---\nname: x\ndescription: \xff\xfe\n---\n", "is not UTF-8 text"),
    "utf-16": ("---\nname: x\ndescription: d\n---\n".encode("utf-16"), "is not UTF-8 text"),
    "no-end": (b"---\nname: x\ndescription: d\n", "does not end"),
    "empty": (b"", "has no front matter"),
}


@pytest.mark.parametrize("animal", ZOO)
def test_each_is_refused_with_its_reason_and_a_good_one_beside_it_is_used(shelf: Shelf, animal: str) -> None:
    data, reason = ZOO[animal]
    path = write_raw(shelf.skills, animal, data)
    write_skill(shelf.skills, "zz-good")
    found = shelf.look()
    assert [skill.name for skill in found.skills] == ["zz-good"]
    assert [each.path for each in found.left_out] == [str(path)]
    assert reason in found.left_out[0].reason


def test_a_python_tag_makes_text_and_nothing_else(shelf: Shelf, tmp_path: Path) -> None:
    mark = tmp_path / "was-run"
    text = f"---\nname: tag\ndescription: d\nx: !!python/object/apply:os.mkdir ['{mark}']\n---\n"
    write_raw(shelf.skills, "tag", text)
    assert [skill.name for skill in shelf.look().skills] == ["tag"]
    assert not mark.exists()


@pytest.mark.parametrize("inside", ["file", "folder", "chain"])
def test_a_link_that_leads_out_is_refused(shelf: Shelf, tmp_path: Path, inside: str) -> None:
    secret = write_skill(tmp_path / "outside", "secret")
    shelf.skills.mkdir()
    if inside == "file":
        (shelf.skills / "link").mkdir()
        (shelf.skills / "link" / "SKILL.md").symlink_to(secret)
    elif inside == "folder":
        (shelf.skills / "link").symlink_to(secret.parent)
    else:
        (shelf.skills / "first").symlink_to("second")
        (shelf.skills / "second").symlink_to(secret.parent)
    found = shelf.look()
    assert found.skills == ()
    assert found.left_out
    assert all(f"link that leads out of {shelf.skills}" in each.reason for each in found.left_out)


def test_a_link_out_is_followed_where_the_config_allows_it(shelf: Shelf, tmp_path: Path) -> None:
    write_skill(tmp_path / "outside", "one")
    shelf.skills.mkdir()
    (shelf.skills / "link").symlink_to(tmp_path / "outside" / "one")
    assert shelf.look(SkillsSettings(link_targets=(tmp_path / "outside",))).get("one").folder == str(
        shelf.skills / "link"
    )
    assert shelf.look(SkillsSettings(link_targets=(tmp_path / "out",))).skills == ()


def test_links_that_go_round_in_circles_end(shelf: Shelf) -> None:
    write_skill(shelf.skills, "a/b/good")
    (shelf.skills / "a" / "up").symlink_to(shelf.skills)
    (shelf.skills / "a" / "b" / "back").symlink_to(shelf.skills / "a")
    (shelf.skills / "self").symlink_to("self")
    found = shelf.look()
    assert [skill.name for skill in found.skills] == ["good"]


@pytest.mark.parametrize("kind", ["fifo", "directory", "socket"])
def test_what_is_no_file_is_refused_without_waiting(shelf: Shelf, kind: str) -> None:
    folder = shelf.skills / "odd"
    folder.mkdir(parents=True)
    if kind == "fifo":
        os.mkfifo(folder / "SKILL.md")
    elif kind == "directory":
        (folder / "SKILL.md").mkdir()
    else:
        os.mknod(folder / "SKILL.md", 0o140644)
    (out,) = shelf.look().left_out
    assert out == OmittedSkill(f"{folder}/SKILL.md", "workspace", out.reason)
    assert "cannot be read" in out.reason


def test_a_huge_flat_root_costs_a_moment(shelf: Shelf) -> None:
    for number in range(1_000):
        (shelf.skills / f"empty-{number}").mkdir(parents=True)
    found = shelf.look()
    assert found.skills == ()
    assert "more than 300 folders" in found.left_out[0].reason


@pytest.mark.parametrize("path", ["../secret.txt", "link.txt", "/etc/passwd", "sub/../../secret.txt", "loop"])
def test_nothing_outside_its_folder_is_read_for_a_skill(shelf: Shelf, path: str) -> None:
    write_skill(shelf.skills, "nosy")
    folder = shelf.skills / "nosy"
    (shelf.skills / "secret.txt").write_text("secret")
    (folder / "link.txt").symlink_to("../secret.txt")
    (folder / "loop").symlink_to("loop")
    skills = shelf.open()
    try:
        text = skills.text(f"{folder}/{path}" if not path.startswith("/") else path)
    except WorkspaceError:
        text = None
    assert text is None


def test_two_of_one_name_in_one_place_are_shown(shelf: Shelf) -> None:
    write_skill(shelf.skills, "a/twin")
    write_skill(shelf.skills, "b/twin")
    found = shelf.look()
    assert [skill.location for skill in found.skills] == [f"{shelf.skills}/a/twin/SKILL.md"]
    assert [(each.path, each.by) for each in found.shadowed] == [
        (f"{shelf.skills}/b/twin/SKILL.md", f"{shelf.skills}/a/twin/SKILL.md")
    ]
