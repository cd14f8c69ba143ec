"""Hostile archives and names: each is refused with its reason, and nothing is left of it."""

from __future__ import annotations

import contextlib
import stat
import struct
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from hosted import bundle_of, skill_text, zip_of
from hypothesis import given
from hypothesis import strategies as st

from palinurus.domain.errors import BadRequest, PalinurusError
from palinurus.extensions.skill_registry.bundle import (
    MAX_BYTES,
    Paths,
    check_path,
    make_bundle,
    pack,
    read_zip,
    write_zip,
)
from palinurus.extensions.skill_registry.protocol import read_slug, read_wanted, version_key
from palinurus.skills.pins import MAX_FILES

SKILL = skill_text("zoo").encode()
ELF = b"\x7fELF\x02\x01\x01" + b"\0" * 64


def refusal(data: bytes) -> str:
    with pytest.raises(BadRequest) as refused:
        read_zip(data)
    return refused.value.message


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../evil.md", "leads out"),
        ("a/../../evil.md", "leads out"),
        ("./a.md", "leads out"),
        ("a//b.md", "leads out"),
        ("/etc/passwd", "absolute"),
        ("~/evil.md", "absolute"),
        ("C:/evil.md", "absolute"),
        ("a\\..\\evil.md", "other systems"),
        ("a.md:stream", "other systems"),
        ("a\x07b.md", "U+0007"),
        ("a\nb.md", "U+000A"),
        ("a\x1b[31mb.md", "U+001B"),
        ("a\u202eb.md", "U+202E"),
        ("a\u200bb.md", "U+200B"),
        ("nul.md", "cannot have"),
        ("a/con", "cannot have"),
        ("a ", "cannot have"),
        ("a./b", "cannot have"),
        ("x" * 130, "bytes"),
        ("/".join("abcdefghijklmnop"), "folders deep"),
        ("/".join(["abcdefghijklmnopqrstuvwxyz"] * 10), "bytes"),
        (".clawhub/origin.json", "written by programs"),
        ("a/.GIT/hooks/post-checkout", "written by programs"),
    ],
)
def test_a_name_that_could_mean_something_else_is_refused(name: str, why: str) -> None:
    assert why in refusal(zip_of({"SKILL.md": SKILL, name: b"x"}))


def test_a_nul_in_a_name_is_seen_although_the_zip_module_cuts_it_off() -> None:
    data = zip_of({"SKILL.md": SKILL, "goodXevil.md": b"x"}).replace(b"goodXevil.md", b"good\0evil.md")
    assert "control character" in refusal(data)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (stat.S_IFLNK, "a link"),
        (stat.S_IFCHR, "a device"),
        (stat.S_IFBLK, "a device"),
        (stat.S_IFIFO, "no plain file"),
        (stat.S_IFSOCK, "no plain file"),
    ],
)
def test_links_and_devices_are_refused(kind: int, why: str) -> None:
    data = zip_of({"SKILL.md": SKILL, "x": b"/etc/passwd"}, {"x": kind | 0o777})
    assert why in refusal(data)


@pytest.mark.parametrize("names", [("Run.sh", "run.sh"), ("a/B.md", "A/c.md"), ("stra\u00dfe.md", "strasse.md")])
def test_two_names_that_differ_by_case_are_refused(names: tuple[str, str]) -> None:
    assert "one file on many systems" in refusal(zip_of({"SKILL.md": SKILL, **dict.fromkeys(names, b"x")}))


def test_a_name_that_is_a_file_and_a_folder_is_refused() -> None:
    assert "a file and a folder" in refusal(zip_of({"SKILL.md": SKILL, "a": b"x", "a/b": b"x"}))
    assert "a file and a folder" in refusal(zip_of({"SKILL.md": SKILL, "a/b": b"x", "a": b"x"}))


def test_a_name_that_is_there_twice_is_refused() -> None:
    data = zip_of({"SKILL.md": SKILL, "one.md": b"x", "two.md": b"y"}).replace(b"two.md", b"one.md")
    assert "twice" in refusal(data)


def test_a_bomb_is_refused_before_it_is_unpacked(cpu_limit: Callable[[float], AbstractContextManager[None]]) -> None:
    assert "times its size" in refusal(zip_of({"SKILL.md": SKILL, "bomb.md": b"0" * 4_000_000}))
    many = zip_of({"SKILL.md": SKILL, **{f"{number}.md": f"{number}".encode() * 60_000 for number in range(400)}})
    with cpu_limit(5):
        assert "unpacks to more than" in refusal(many)


def test_a_bomb_that_lies_about_its_size_unpacks_to_no_more_than_it_said() -> None:
    data = bytearray(zip_of({"SKILL.md": SKILL, "bomb.md": b"0" * 4_000_000}))
    for sign, at in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        place = data.rindex(sign)
        struct.pack_into("<I", data, place + at, 100)
    assert "cannot be opened" in refusal(bytes(data))


def test_an_archive_of_a_hundred_thousand_files_is_refused_at_once(
    cpu_limit: Callable[[float], AbstractContextManager[None]],
) -> None:
    entry = zip_of({"0": b""}).split(b"PK\x01\x02")[1].split(b"PK\x05\x06")[0]
    table = b"".join(b"PK\x01\x02" + entry[:-1] + bytes([number % 26 + 97]) for number in range(100_000))
    local = b"PK\x03\x04" + b"\0" * 26
    for told in (0xFFFF, 3):
        end = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, told, told, len(table), len(local), 0)
        with cpu_limit(1):
            assert "are allowed" in refusal(local + table + end)


def test_a_table_of_contents_that_lies_about_its_length_is_refused() -> None:
    data = bytearray(zip_of({"SKILL.md": SKILL, **{f"{n}.md": b"x" for n in range(MAX_FILES + 5)}}))
    struct.pack_into("<HH", data, data.rindex(b"PK\x05\x06") + 8, 2, 2)
    assert "more than" in refusal(bytes(data))


def test_encrypted_and_strangely_packed_files_are_refused() -> None:
    data = bytearray(zip_of({"SKILL.md": SKILL, "a.md": b"x"}))
    struct.pack_into("<H", data, data.rindex(b"PK\x01\x02") + 8, 0x1)
    assert "encrypted" in refusal(bytes(data))
    assert "packed in a way" in refusal(zip_of({"SKILL.md": SKILL, "a.md": b"x"}, method=zipfile.ZIP_LZMA))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (ELF, "a program"),
        (b"MZ\x90\0" + b"\0" * 64, "a program"),
        (b"\xa7\r\r\n" + b"\0" * 12, "a program"),
        (zip_of({"inner.md": b"x"}), "an archive"),
        (b"\x1f\x8b\x08\0\0\0\0\0", "an archive"),
        (b"\xff\xfeh\0i\0", "neither UTF-8 text nor a picture"),
    ],
)
def test_what_nobody_can_look_at_is_refused_and_called_by_its_name(data: bytes, why: str) -> None:
    assert why in refusal(zip_of({"SKILL.md": SKILL, "thing.md": data}))


def test_what_is_no_zip_is_refused() -> None:
    for data in (b"", b"PK", b"not a zip", b"PK\x05\x06" + b"\0" * 18 + b"x" * 70_000, SKILL):
        assert "cannot be opened" in refusal(data) or "no SKILL.md" in refusal(data)


def test_a_cut_or_spoilt_archive_is_refused() -> None:
    whole = zip_of({"SKILL.md": SKILL, "a.md": b"hello " * 100})
    spoilt = whole.replace(b"hello", b"jello")
    for data in (whole[: len(whole) // 2], whole[:-10], whole[40:], spoilt[:60] + b"\0\0\0\0" + spoilt[64:]):
        assert "archive" in refusal(data)


def test_an_archive_with_something_else_around_it_is_refused() -> None:
    whole = zip_of({"SKILL.md": SKILL})
    for data in (b"#!/bin/sh\n" + whole, whole + b"more", whole[:-22] + b"between" + whole[-22:], whole + whole):
        assert "before, between or behind" in refusal(data)


def test_a_skill_needs_its_instructions() -> None:
    assert "no SKILL.md" in refusal(zip_of({"README.md": b"x"}))
    assert "only inner/SKILL.md" in refusal(zip_of({"inner/SKILL.md": SKILL}))
    assert "its name" in refusal(zip_of({"SKILL.md": skill_text("../evil").encode()}))
    long = "".join(f"word {number} " for number in range(30_000)).encode()
    assert "larger than" in refusal(zip_of({"SKILL.md": SKILL + long}))


def test_a_bundle_is_the_same_whichever_way_it_came(tmp_path: Path) -> None:
    made = bundle_of("zoo", scripts__run_py="print(1)\n", README_md="read\n")
    again = read_zip(write_zip(made))
    assert again == made
    assert write_zip(again) == write_zip(made)
    for path, data in made.files.items():
        (tmp_path / "zoo" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "zoo" / path).write_bytes(data)
    assert pack(tmp_path / "zoo") == made


def test_links_are_not_published(tmp_path: Path) -> None:
    (tmp_path / "SKILL.md").write_bytes(SKILL)
    (tmp_path / "key").symlink_to("/etc/passwd")
    with pytest.raises(BadRequest, match="key is a link"):
        pack(tmp_path)


def test_what_is_ignored_and_hidden_is_not_published(tmp_path: Path) -> None:
    (tmp_path / "SKILL.md").write_bytes(SKILL)
    for name in (".env", ".git/config", "node_modules/x/index.js", "__pycache__/a.pyc", "notes.tmp", "build/out.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("secret")
    (tmp_path / ".clawhubignore").write_text("# mine\n*.tmp\nbuild/\n")
    assert list(pack(tmp_path).files) == ["SKILL.md"]


@given(st.text(max_size=60))
def test_a_path_that_passes_stays_in_its_folder(path: str) -> None:
    try:
        check_path(path)
    except BadRequest:
        return
    place = Path("/quarantine") / path
    assert place.is_relative_to("/quarantine")
    assert ".." not in place.parts
    assert len(place.parts) > 2


@given(st.lists(st.text(alphabet="aAbB/", min_size=1, max_size=5), max_size=8))
def test_paths_that_pass_together_make_a_tree_on_any_system(paths: list[str]) -> None:
    taken, kept = Paths(), list[str]()
    for path in paths:
        try:
            taken.add(path)
        except BadRequest:
            continue
        kept.append(path)
    folded = [path.lower() for path in kept]
    assert len(set(folded)) == len(kept)
    assert not any(one.startswith(f"{other}/") for one in folded for other in folded)


@given(st.binary(max_size=400))
def test_no_bytes_are_worse_than_a_refusal(data: bytes) -> None:
    for tried in (data, zip_of({"SKILL.md": SKILL})[:-22] + data, write_zip(bundle_of("a")) + data):
        with contextlib.suppress(PalinurusError):
            read_zip(tried)


@pytest.mark.parametrize(
    "text", ["", "..", "a/b", "../x", "A", "a_b", "-a", "a-", "a" * 65, "con", "ä", "a\nb", "@a", "@a/"]
)
def test_what_is_no_name_is_no_name(text: str) -> None:
    with pytest.raises(BadRequest):
        read_wanted(text)
    if "@" not in text:
        with pytest.raises(BadRequest):
            read_slug(text)


def test_versions_are_ordered_as_semver_says() -> None:
    ordered = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1"]
    ordered += ["1.0.0", "1.0.1", "1.2.0", "1.10.0", "2.0.0"]
    turned = list(reversed(ordered))
    assert sorted(turned, key=version_key) == ordered
    assert version_key("1.0.0+a") == version_key("1.0.0+b")
    for wrong in ("1", "1.0", "01.0.0", "1.0.0-", "v1.0.0", "1.0.0/..", "9" * 70 + ".0.0"):
        with pytest.raises(BadRequest):
            version_key(wrong)


def test_too_many_and_too_large_files_are_refused() -> None:
    with pytest.raises(BadRequest, match="more than"):
        make_bundle([("SKILL.md", SKILL), *((f"{n}.md", b"x") for n in range(MAX_FILES))])
    with pytest.raises(BadRequest, match=f"{MAX_BYTES:,}"):
        make_bundle([("SKILL.md", SKILL), *((f"{n}.md", b"x" * 5_000_000) for n in range(6))])
