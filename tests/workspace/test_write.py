"""Whole files written inside the workspace: atomically, in place, and never anywhere else."""

from __future__ import annotations

import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palinurus.domain.errors import NotFound, OutsideWorkspace, PalinurusError, WorkspaceError
from palinurus.workspace import write
from palinurus.workspace.boundary import MAX_BYTES, Boundary
from palinurus.workspace.write import WrittenFile, append_line, create_file, delete_file, rewrite, whereabouts
from support import examples

SECRET = b"outside: the secret"


@pytest.fixture
def boundary(tmp_path: Path) -> Boundary:
    (tmp_path / "ws").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.md").write_bytes(SECRET)
    return Boundary(tmp_path / "ws")


def put(boundary: Boundary, path: str, data: bytes, *, create: bool = True) -> WrittenFile:
    return rewrite(boundary, path, lambda *_: data, create=create)


def remains(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_new_file_is_made_with_its_directories_and_nothing_beside_it(boundary: Boundary) -> None:
    assert put(boundary, "x/y/a.md", b"one") == WrittenFile("x/y/a.md", None, b"one")
    assert (boundary.root / "x/y/a.md").read_bytes() == b"one"
    assert remains(boundary.root / "x/y") == ["a.md"]


def test_a_file_is_created_once_and_nothing_is_left_beside_it(boundary: Boundary) -> None:
    assert create_file(boundary, "x/a.md", b"first")
    assert not create_file(boundary, "x/a.md", b"second")
    assert (boundary.root / "x/a.md").read_bytes() == b"first"
    assert remains(boundary.root / "x") == ["a.md"]


def test_of_many_creators_exactly_one_wins_and_its_file_is_whole(boundary: Boundary) -> None:
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda n: create_file(boundary, "a.md", f"{n}".encode() * 1000), range(16)))
    assert won.count(True) == 1
    assert (boundary.root / "a.md").read_bytes() == f"{won.index(True)}".encode() * 1000


def test_without_hard_links_a_file_is_still_created_and_never_overwritten(
    boundary: Boundary, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise PermissionError(1, "no hard links here")

    monkeypatch.setattr(write.os, "link", no_links)
    assert create_file(boundary, "a.md", b"first")
    assert not create_file(boundary, "a.md", b"second")
    assert (boundary.root / "a.md").read_bytes() == b"first"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755, 0o200])
def test_a_replaced_file_keeps_its_mode(boundary: Boundary, mode: int) -> None:
    file = boundary.root / "a.sh"
    file.write_bytes(b"old")
    file.chmod(mode)
    if mode & 0o400 or os.geteuid() == 0:
        put(boundary, "a.sh", b"new")
        assert (file.read_bytes(), file.stat().st_mode & 0o7777) == (b"new", mode)


def test_a_new_file_has_the_mode_that_the_umask_leaves(boundary: Boundary) -> None:
    before = os.umask(0o027)
    try:
        put(boundary, "a.md", b"x")
    finally:
        os.umask(before)
    assert (boundary.root / "a.md").stat().st_mode & 0o777 == 0o640


def test_the_right_to_act_as_the_owner_is_not_carried_over(boundary: Boundary) -> None:
    (boundary.root / "a").write_bytes(b"old")
    (boundary.root / "a").chmod(0o4755)
    put(boundary, "a", b"new")
    assert (boundary.root / "a").stat().st_mode & 0o7777 == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_writes_belongs_to_whom_the_directory_belongs(boundary: Boundary) -> None:
    os.chown(boundary.root, 65534, 65534)
    put(boundary, "d/new.md", b"x")
    (boundary.root / "theirs.md").write_bytes(b"old")
    os.chown(boundary.root / "theirs.md", 1234, 1234)
    put(boundary, "theirs.md", b"new")
    owners = {name: (boundary.root / name).stat().st_uid for name in ("d", "d/new.md", "theirs.md")}
    assert owners == {"d": 65534, "d/new.md": 65534, "theirs.md": 1234}


def test_a_read_only_file_stays_as_it_is(boundary: Boundary) -> None:
    (boundary.root / "a.md").write_bytes(b"old")
    (boundary.root / "a.md").chmod(0o444)
    with pytest.raises(WorkspaceError, match=r"a\.md is read-only"):
        put(boundary, "a.md", b"new")
    assert (boundary.root / "a.md").read_bytes() == b"old"


def test_a_link_to_a_file_inside_writes_that_file_and_stays_a_link(boundary: Boundary) -> None:
    (boundary.root / "d").mkdir()
    (boundary.root / "d/real.md").write_bytes(b"old")
    (boundary.root / "link.md").symlink_to("d/real.md")
    (boundary.root / "dangling.md").symlink_to("d/made.md")
    assert put(boundary, "link.md", b"new").path == "d/real.md"
    assert put(boundary, "dangling.md", b"made").path == "d/made.md"
    assert (boundary.root / "link.md").is_symlink()
    assert ((boundary.root / "d/real.md").read_bytes(), (boundary.root / "d/made.md").read_bytes()) == (b"new", b"made")


def test_the_other_name_of_a_hard_link_keeps_the_old_content(boundary: Boundary) -> None:
    outside = boundary.root.parent / "outside/secret.md"
    os.link(outside, boundary.root / "a.md")
    assert put(boundary, "a.md", b"new").other_names
    assert outside.read_bytes() == SECRET
    assert (boundary.root / "a.md").read_bytes() == b"new"


@pytest.mark.parametrize(
    "path", ["../x.md", "door/x.md", "door/sub/x.md", "link.md", "/tmp/x.md", "m/../../x.md", ".."]
)
def test_nothing_is_written_or_deleted_outside(boundary: Boundary, path: str) -> None:
    outside = boundary.root.parent / "outside"
    (boundary.root / "door").symlink_to("../outside")
    (boundary.root / "link.md").symlink_to("../outside/secret.md")
    for attempt in (
        lambda: put(boundary, path, b"x"),
        lambda: create_file(boundary, path, b"x"),
        lambda: delete_file(boundary, path, lambda *_: None),
    ):
        with pytest.raises((OutsideWorkspace, NotFound)):
            attempt()
    assert remains(outside) == ["secret.md"]
    assert (outside / "secret.md").read_bytes() == SECRET
    assert not (boundary.root.parent / "x.md").exists()


def test_directories_and_pipes_are_not_written(boundary: Boundary) -> None:
    os.mkfifo(boundary.root / "pipe.md")
    (boundary.root / "dir.md").mkdir()
    for path in ("pipe.md", "dir.md", "."):
        with pytest.raises(WorkspaceError, match=r"not a regular file|is a directory"):
            put(boundary, path, b"x")
        with pytest.raises(WorkspaceError, match=r"not a regular file|is a directory"):
            delete_file(boundary, path, lambda *_: None)
    with pytest.raises(WorkspaceError, match="not a regular file"):
        put(Boundary(Path("/dev")), "null", b"x")


def test_a_file_that_is_not_there_is_made_only_when_that_was_meant(boundary: Boundary) -> None:
    with pytest.raises(NotFound):
        put(boundary, "d/none.md", b"x", create=False)
    assert remains(boundary.root) == []


def test_the_guard_is_asked_before_a_directory_is_made_and_before_a_byte_is_read(boundary: Boundary) -> None:
    (boundary.root / "d").mkdir()
    (boundary.root / "d/real.md").write_bytes(b"old")
    (boundary.root / "link.md").symlink_to("d/real.md")
    asked: list[str] = []

    def guard(place: str) -> None:
        asked.append(place)
        raise WorkspaceError(f"no: {place}")

    for path in ("new/deep/x.md", "link.md"):
        with pytest.raises(WorkspaceError, match="no: "):
            rewrite(boundary, path, lambda *_: pytest.fail("not asked"), create=True, guard=guard)
    assert asked == ["new", "d/real.md"]
    assert remains(boundary.root) == ["d", "link.md"]


def test_what_an_editor_saved_meanwhile_is_not_thrown_away(boundary: Boundary) -> None:
    file = boundary.root / "a.md"
    file.write_bytes(b"old")

    def change(_: str, before: bytes | None) -> bytes:
        file.write_bytes(b"typed by a person")
        return (before or b"") + b" and more"

    with pytest.raises(WorkspaceError, match="changed by another program meanwhile"):
        rewrite(boundary, "a.md", change, create=True)
    assert file.read_bytes() == b"typed by a person"
    assert remains(boundary.root) == ["a.md"]


def test_a_file_that_appears_meanwhile_is_not_overwritten(boundary: Boundary) -> None:
    def change(*_: object) -> bytes:
        (boundary.root / "a.md").write_bytes(b"first")
        return b"second"

    with pytest.raises(WorkspaceError, match="changed by another program meanwhile"):
        rewrite(boundary, "a.md", change, create=True)
    assert (boundary.root / "a.md").read_bytes() == b"first"


def test_a_full_disk_leaves_the_old_file_and_nothing_beside_it(
    boundary: Boundary, monkeypatch: pytest.MonkeyPatch
) -> None:
    (boundary.root / "a.md").write_bytes(b"old")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(write.os, "fsync", full)
    for path in ("a.md", "new.md"):
        with pytest.raises(WorkspaceError, match="no space left"):
            put(boundary, path, b"new")
    monkeypatch.undo()
    assert remains(boundary.root) == ["a.md"]
    assert (boundary.root / "a.md").read_bytes() == b"old"


def test_too_much_is_refused_before_anything_is_touched(boundary: Boundary) -> None:
    with pytest.raises(WorkspaceError, match="would have"):
        put(boundary, "a.md", b"x" * (MAX_BYTES + 1))
    assert remains(boundary.root) == []


def test_a_name_as_long_as_names_can_be_is_written(boundary: Boundary) -> None:
    name = "x" * 252 + ".md"
    put(boundary, name, b"1")
    put(boundary, name, b"2")
    assert remains(boundary.root) == [name]


def test_lines_appended_while_a_file_is_rewritten_again_and_again_all_land(boundary: Boundary) -> None:
    def prefix(_: str, before: bytes | None) -> bytes:
        return b"*" + (before or b"")

    def work(number: int) -> None:
        if number % 2:
            append_line(boundary, "n.md", f"- {number}")
        else:
            rewrite(boundary, "n.md", prefix, create=True)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(60)))
    text = (boundary.root / "n.md").read_text()
    assert text.count("*") == 30
    assert {line.strip("*") for line in text.split("\n")} >= {f"- {number}" for number in range(1, 60, 2)}


def test_a_deleted_file_is_shown_first_to_who_may_object(boundary: Boundary) -> None:
    (boundary.root / "a.md").write_bytes(b"dear")

    def object_to(_: str, data: bytes) -> None:
        raise WorkspaceError(f"{data.decode()} to somebody")

    with pytest.raises(WorkspaceError, match="dear to somebody"):
        delete_file(boundary, "a.md", object_to)
    assert delete_file(boundary, "a.md", lambda *_: None) == WrittenFile("a.md", b"dear", None)
    with pytest.raises(NotFound):
        delete_file(boundary, "a.md", lambda *_: None)


def test_whereabouts_follows_links_and_takes_what_is_missing_as_it_is(boundary: Boundary) -> None:
    (boundary.root / "d").mkdir()
    (boundary.root / "short").symlink_to("d")
    for path, place in {
        "short/new/x.md": "d/new/x.md", "none.md": "none.md", f"{boundary.root}/a/b.md": "a/b.md", ".": ".",
    }.items():  # fmt: skip
        assert whereabouts(boundary, path) == place
    with pytest.raises(OutsideWorkspace):
        whereabouts(boundary, "../outside/none.md")
    with pytest.raises(NotFound):
        whereabouts(boundary, "none/../x.md")
    assert whereabouts(boundary, "none/./x.md") == "none/x.md"


@pytest.mark.parametrize("swapped", ["file", "directory"])
def test_a_race_of_swapped_links_never_writes_a_byte_outside(boundary: Boundary, swapped: str) -> None:
    root, outside = boundary.root, boundary.root.parent / "outside"
    evil, good, victim = root / "evil", root / "good", root / "victim"
    if swapped == "file":
        evil.symlink_to("../outside/secret.md")
        good.write_bytes(b"inside")
        asked = "victim"
    else:
        evil.symlink_to("../outside")
        good.mkdir()
        asked = "victim/secret.md"
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            for source in (good, evil):
                with contextlib.suppress(OSError):  # the writer may have put its own file under either name
                    source.rename(victim)
                    victim.rename(source)

    attacker = threading.Thread(target=swap)
    attacker.start()
    outcomes: set[str] = set()
    try:
        for number in range(150):
            try:
                outcomes.add(type(put(boundary, asked, b"%d" % number)).__name__)
            except PalinurusError as error:
                outcomes.add(type(error).__name__)
    finally:
        done.set()
        attacker.join(60)
    assert outcomes <= {"WrittenFile", "NotFound", "OutsideWorkspace", "WorkspaceError"}
    assert remains(outside) == ["secret.md"]
    assert (outside / "secret.md").read_bytes() == SECRET


NAMES = st.sampled_from(["", ".", "..", "a", "b", "note.md", "in", "out", "loop", "up", "abs", "~", "\0", "é", ".git"])


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("hostile")
    root = base / "ws"
    (root / "a" / "b").mkdir(parents=True)
    (base / "secret.md").write_bytes(SECRET)
    for name, target in {
        "in": "a",
        "out": "..",
        "loop": "loop",
        "a/up": "../..",
        "abs": "/",
        "a/b/out": "../../..",
    }.items():
        (root / name).symlink_to(target)
    return root


@settings(max_examples=examples(200), deadline=None)
@given(parts=st.lists(NAMES, max_size=6), absolute=st.booleans())
def test_no_path_over_a_hostile_tree_writes_outside_or_raises_anything_foreign(
    hostile: Path, parts: list[str], absolute: bool
) -> None:
    path = "/".join(parts)
    fds = len(list(Path("/proc/self/fd").iterdir()))
    with contextlib.suppress(PalinurusError):
        written = put(Boundary(hostile), f"{hostile}/{path}" if absolute else path, b"x")
        assert (hostile / written.path).resolve().is_relative_to(hostile.resolve())
    assert remains(hostile.parent) == ["secret.md", "ws"]
    assert (hostile.parent / "secret.md").read_bytes() == SECRET
    assert len(list(Path("/proc/self/fd").iterdir())) == fds
