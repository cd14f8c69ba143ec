"""Files are replaced whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from palinurus.config.atomic import rotate_backups, storage_error, write_atomic
from palinurus.domain.errors import StorageError, StorageFull, StorageReadOnly


def modes(path: Path) -> str:
    return oct(path.stat().st_mode & 0o777)


def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a", "grün")
    assert (tmp_path / "a").read_bytes() == "grün".encode()
    assert modes(tmp_path / "a") == "0o600"


def test_an_existing_file_keeps_its_mode(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_text("old")
    target.chmod(0o644)
    write_atomic(target, b"new")
    assert (target.read_text(), modes(target)) == ("new", "0o644")


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, StorageFull),
        (errno.EROFS, StorageReadOnly),
        (errno.EACCES, StorageReadOnly),
        (errno.EIO, StorageError),
    ],
)
@pytest.mark.parametrize("failing", ["fsync", "fchmod"])
def test_a_failing_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StorageError], failing: str
) -> None:
    target = tmp_path / "a"
    target.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(StorageError) as caught:
        write_atomic(target, "new")
    monkeypatch.undo()
    assert type(caught.value) is kind
    assert str(target) in caught.value.message
    assert "\n" not in str(caught.value)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_real_full_device_is_reported_as_full(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this machine has no /dev/full")
    with pytest.raises(OSError) as caught, Path("/dev/full").open("wb", buffering=0) as full:
        full.write(b"x")
    assert isinstance(storage_error(caught.value, tmp_path), StorageFull)


def test_a_missing_directory_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no such file or directory"):
        write_atomic(tmp_path / "nowhere" / "a", "x")


def test_backups_form_a_ring_with_the_newest_first(tmp_path: Path) -> None:
    target = tmp_path / "c.json"
    for content in "abcdefg":
        rotate_backups(target)
        write_atomic(target, content)
    kept = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert kept == {
        "c.json": "g",
        "c.json.bak": "f",
        "c.json.bak.1": "e",
        "c.json.bak.2": "d",
        "c.json.bak.3": "c",
        "c.json.bak.4": "b",
    }


def test_a_backup_is_as_private_as_its_file(tmp_path: Path) -> None:
    target = tmp_path / "c.json"
    target.write_text("x")
    target.chmod(0o640)
    rotate_backups(target)
    assert modes(tmp_path / "c.json.bak") == "0o640"
