"""Attempts to get out of a workspace, or to make it hang; none may succeed."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palinurus.domain.errors import NotFound, OutsideWorkspace, PalinurusError, WorkspaceError
from palinurus.workspace.boundary import MAX_BYTES, Boundary
from support import examples

SECRET = b"outside: the secret"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "ws"
    (root / "a" / "b").mkdir(parents=True)
    (root / "note.md").write_text("inside")
    (root / "a" / "deep.md").write_text("deep")
    (tmp_path / "secret.md").write_bytes(SECRET)
    (tmp_path / "ws-other").mkdir()
    (tmp_path / "ws-other" / "secret.md").write_bytes(SECRET)
    return root


@pytest.fixture
def boundary(root: Path) -> Boundary:
    return Boundary(root)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0


@pytest.mark.parametrize(
    "path", ["note.md", "./note.md", "a/../note.md", "a//b/../../note.md", "a/b/../../a/../note.md"]
)
def test_a_path_that_stays_inside_is_read_however_it_is_written(boundary: Boundary, path: str) -> None:
    with boundary.open_file(path) as file:
        assert (file.path, file.read()) == ("note.md", b"inside")


def test_an_absolute_path_inside_the_root_is_read(boundary: Boundary, root: Path) -> None:
    assert boundary.read_bytes(f"{root}/a/deep.md") == b"deep"


@pytest.mark.parametrize(
    "path",
    [
        "..", "../secret.md", "../ws-other/secret.md", "a/../../secret.md", "a/b/../../../secret.md",
        "../ws/../secret.md", "/etc/passwd", "/", "note.md\0.txt", "\ud800", "x" * 5000, "../ws/note.md",
    ],
)  # fmt: skip
def test_a_path_that_leads_out_is_refused_even_when_it_would_come_back(boundary: Boundary, path: str) -> None:
    with pytest.raises(OutsideWorkspace):
        boundary.read_bytes(path)


def test_an_absolute_path_beside_the_root_is_outside(boundary: Boundary, root: Path) -> None:
    for path in (f"{root}-other/secret.md", f"{root}/../secret.md"):
        with pytest.raises(OutsideWorkspace):
            boundary.read_bytes(path)


@pytest.mark.parametrize("target", ["../secret.md", "/etc/passwd", "a/../../secret.md", "../ws-other/secret.md"])
def test_a_link_that_leads_out_is_refused(boundary: Boundary, root: Path, target: str) -> None:
    (root / "link.md").symlink_to(target)
    with pytest.raises(OutsideWorkspace):
        boundary.read_bytes("link.md")


def test_a_directory_link_that_leads_out_is_refused_for_every_kind_of_access(boundary: Boundary, root: Path) -> None:
    (root / "door").symlink_to("../ws-other")
    with pytest.raises(OutsideWorkspace):
        boundary.read_bytes("door/secret.md")
    with pytest.raises(OutsideWorkspace):
        boundary.list_directory("door")
    with pytest.raises(OutsideWorkspace):
        boundary.walk("door")


def test_a_chain_of_links_that_leads_out_at_its_end_is_refused(boundary: Boundary, root: Path) -> None:
    (root / "one").symlink_to("a/two")
    (root / "a" / "two").symlink_to("b/three")
    (root / "a" / "b" / "three").symlink_to("../../../secret.md")
    with pytest.raises(OutsideWorkspace):
        boundary.read_bytes("one")


def test_links_that_stay_inside_are_followed_and_the_true_place_is_told(boundary: Boundary, root: Path) -> None:
    (root / "near.md").symlink_to("a/deep.md")
    (root / "a" / "b" / "up").symlink_to("../../a")
    (root / "far.md").symlink_to(root / "a" / "b" / "up" / "deep.md")
    for path in ("near.md", "a/b/up/deep.md", "far.md", "a/b/up/b/up/deep.md"):
        with boundary.open_file(path) as file:
            assert (file.path, file.read()) == ("a/deep.md", b"deep")


def test_dots_after_a_link_go_back_by_where_the_link_led(boundary: Boundary, root: Path) -> None:
    (root / "short").symlink_to("a/b")
    assert boundary.read_bytes("short/../deep.md") == b"deep"


def test_a_loop_of_links_ends_in_an_error(boundary: Boundary, root: Path) -> None:
    (root / "x").symlink_to("y")
    (root / "y").symlink_to("x")
    (root / "self").symlink_to("self/self")
    for path in ("x", "self", "x/y/x"):
        with pytest.raises(WorkspaceError, match="links"):
            boundary.read_bytes(path)


def test_a_fifo_is_refused_and_does_not_hang(boundary: Boundary, root: Path) -> None:
    os.mkfifo(root / "pipe.md")
    with pytest.raises(WorkspaceError, match="not a regular file"):
        boundary.read_bytes("pipe.md")


def test_a_socket_a_directory_and_a_device_are_refused(boundary: Boundary, root: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, contextlib.chdir(root):
        listener.bind("sock.md")
    with pytest.raises(WorkspaceError, match="not a regular file"):
        boundary.read_bytes("sock.md")
    with pytest.raises(WorkspaceError, match="directory"):
        boundary.read_bytes("a")
    with pytest.raises(WorkspaceError, match="not a regular file"):
        Boundary(Path("/dev")).read_bytes("null")


def test_the_size_limit_is_kept_to_the_byte_and_the_error_names_both_sizes(boundary: Boundary, root: Path) -> None:
    (root / "full.md").write_bytes(b"x" * MAX_BYTES)
    assert len(boundary.read_bytes("full.md")) == MAX_BYTES
    (root / "over.md").write_bytes(b"x" * (MAX_BYTES + 1))
    with pytest.raises(WorkspaceError, match=r"over\.md has 2,097,153 bytes.*2,097,152"):
        boundary.read_bytes("over.md")


def test_a_file_that_grows_after_it_was_opened_is_still_held_to_the_limit(boundary: Boundary, root: Path) -> None:
    with boundary.open_file("note.md") as file:
        (root / "note.md").write_bytes(b"x" * (MAX_BYTES + 10))
        with pytest.raises(WorkspaceError, match="2,097,152"):
            file.read()


def test_a_file_replaced_after_it_was_opened_is_read_as_it_was_opened(boundary: Boundary, root: Path) -> None:
    with boundary.open_file("note.md") as file:
        (root / "note.md").unlink()
        (root / "note.md").symlink_to("../secret.md")
        assert file.read() == b"inside"


@pytest.mark.parametrize("path", ["none.md", "none/x.md", "note.md/x", "a/none/../deep.md"])
def test_what_is_not_there_is_not_found(boundary: Boundary, path: str) -> None:
    with pytest.raises(NotFound):
        boundary.read_bytes(path)


def test_a_missing_workspace_is_one_sentence_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match=r"there is no workspace at .*nowhere \(pal setup makes one\)"):
        Boundary(tmp_path / "nowhere").read_bytes("x")


def test_a_file_that_may_not_be_read_is_one_sentence(boundary: Boundary, root: Path) -> None:
    (root / "note.md").chmod(0)
    for directory in (root, *root.parents):
        if directory.stat().st_uid == os.geteuid() and directory != Path("/"):
            directory.chmod(directory.stat().st_mode | 0o011)
    user = os.geteuid()
    if user == 0:  # root reads everything
        os.seteuid(65534)
    try:
        with pytest.raises(WorkspaceError, match=r"note\.md cannot be used: permission denied"):
            boundary.read_bytes("note.md")
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("swapped", ["file", "directory"])
def test_a_race_of_swapped_links_never_yields_a_byte_from_outside(root: Path, swapped: str) -> None:
    boundary = Boundary(root)
    evil, good = root / "evil", root / "good"
    if swapped == "file":
        evil.symlink_to("../secret.md")
        good.write_bytes(b"inside")
        victim, asked = root / "victim", "victim"
    else:
        evil.symlink_to("../ws-other")
        good.mkdir()
        (good / "secret.md").write_bytes(b"inside")
        victim, asked = root / "victim", "victim/secret.md"
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            for source in (good, evil):
                source.rename(victim)
                victim.rename(source)

    outcomes: set[bytes] = set()
    attacker = threading.Thread(target=swap)
    attacker.start()
    try:
        for _ in range(3_000):
            try:
                outcomes.add(boundary.read_bytes(asked))
            except PalinurusError as error:
                outcomes.add(type(error).__name__.encode())
    finally:
        done.set()
        attacker.join(60)
    assert SECRET not in outcomes
    assert outcomes <= {b"inside", b"NotFound", b"OutsideWorkspace", b"WorkspaceError"}


NAMES = st.sampled_from(["", ".", "..", "a", "b", "note.md", "in", "out", "loop", "up", "abs", "/", "~", "\0", "é"])


@settings(max_examples=examples(300), deadline=None)
@given(parts=st.lists(NAMES, max_size=8), absolute=st.booleans())
def test_no_path_over_a_hostile_tree_reads_the_secret_or_raises_anything_foreign(
    hostile: Path, parts: list[str], absolute: bool
) -> None:
    path = "/".join(parts)
    before = open_descriptors()
    with contextlib.suppress(PalinurusError):
        assert Boundary(hostile).read_bytes(f"{hostile}/{path}" if absolute else path) != SECRET
    with contextlib.suppress(PalinurusError):
        Boundary(hostile).list_directory(path)
    assert open_descriptors() == before


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("hostile")
    root = base / "ws"
    (root / "a" / "b").mkdir(parents=True)
    for directory in (base, root, root / "a", root / "a" / "b"):
        (directory / "note.md").write_bytes(SECRET if directory == base else b"inside")
        if directory != base:
            (directory / "out").symlink_to("../" * (len(directory.relative_to(base).parts)))
            (directory / "up").symlink_to("..")
            (directory / "loop").symlink_to("loop")
            (directory / "in").symlink_to(root / "a")
            (directory / "abs").symlink_to(base)
    return root


def test_a_listing_is_sorted_bounded_and_shows_links_as_names(boundary: Boundary, root: Path) -> None:
    (root / "zlink").symlink_to("a")
    listing = boundary.list_directory()
    assert [(entry.name, entry.is_directory) for entry in listing.entries] == [
        ("a", True), ("note.md", False), ("zlink", False),
    ]  # fmt: skip
    assert listing.complete
    assert not boundary.list_directory(max_entries=2).complete
    assert boundary.list_directory("zlink").path == "a"


def test_a_walk_takes_regular_files_in_path_order_and_follows_no_link(boundary: Boundary, root: Path) -> None:
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("x")
    (root / ".hidden").mkdir()
    (root / ".hidden" / "h.md").write_text("x")
    (root / "a" / "up").symlink_to("..")
    os.mkfifo(root / "a" / "pipe")
    walked = boundary.walk()
    assert walked.files == ("a/deep.md", "note.md")
    assert walked.complete
    assert boundary.walk(hidden=True).files == (".hidden/h.md", "a/deep.md", "note.md")
    assert boundary.walk("a").files == ("a/deep.md",)


def test_a_walk_stops_at_its_bounds_and_says_so(boundary: Boundary, root: Path) -> None:
    for number in range(30):
        (root / "a" / "b" / f"{number}.md").write_text("x")
    few = boundary.walk(max_files=5)
    assert len(few.files) == 5
    assert not few.complete
    shallow = boundary.walk(max_depth=0)
    assert shallow.files == ("note.md",)
    assert not shallow.complete
