"""A backup as a file: whatever is done to it is noticed, and nothing is ever put over a home."""

from __future__ import annotations

import io
import random
import tarfile
from pathlib import Path

import apsw
import msgspec
import pytest

from palinurus.domain.errors import BadRequest, ConfigError, PalinurusError, StorageDamaged
from palinurus.extensions.backup.backups import DAY_MS, Backups
from palinurus.extensions.backup.operations import copy_database
from palinurus.extensions.backup.pack import (
    LABEL,
    MANIFEST,
    BackupManifest,
    BackupPart,
    BackupReport,
    Contents,
    HashedWriter,
    Label,
    Packer,
)
from palinurus.extensions.backup.restore import fault_of, restore, verify
from palinurus.extensions.backup.seal import PIECE, SealedReader, SealedWriter

LABEL_ONE = Label("0123456789abcdef", 1_000, "0", "/home/of/somebody")
SECRET = "correct horse"


@pytest.fixture
def lived_in(tmp_path: Path) -> Path:
    """A home with everything that a backup has to think about."""
    root = tmp_path / "lived-in"
    for name, text in {
        "palinurus.json": "{}",
        "credentials.json": '{"profiles": {}}',
        "agents/ann/credentials.json": "{}",
        "workspace/SOUL.md": "calm\n",
        "workspace/memory/2026-11-01.md": "# 2026-11-01\n\n- the boat is called Aster\n",
        "workspace/empty.txt": "",
        "results/a/b.txt": "a long result",
        "derived/memory/main.sqlite": "can be made again",
        "logs/pal.jsonl": "{}\n",
        "backups/old.tar.gz": "an old one",
        "lock": "1 pal",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "workspace" / "away").symlink_to("/etc")
    (root / "workspace" / "script.sh").write_text("#!/bin/sh\n")
    (root / "workspace" / "script.sh").chmod(0o755)
    connection = apsw.Connection(str(root / "home.sqlite"))
    connection.pragma("journal_mode", "wal")
    connection.execute("CREATE TABLE said (text TEXT); INSERT INTO said VALUES ('hello')")
    connection.close()
    return root


def pack(
    root: Path, to: Path, *, passphrase: str = "", credentials: bool = False, outside: Path | None = None
) -> BackupReport:
    database = to.with_name("copy.sqlite")
    database.unlink(missing_ok=True)
    copy_database(root / "home.sqlite", database)
    workspaces = {"main": root / "workspace"} | ({"ann": outside} if outside else {})
    contents = Contents(root, workspaces, credentials=credentials)
    return Packer(LABEL_ONE, passphrase=passphrase).pack(to, contents, database)


def test_what_is_restored_is_what_was_there_without_what_can_be_made_again(lived_in: Path, tmp_path: Path) -> None:
    made = pack(lived_in, tmp_path / "b.tar.gz")
    done = restore(tmp_path / "b.tar.gz", tmp_path / "new", "")
    found = sorted(str(path.relative_to(tmp_path / "new")) for path in (tmp_path / "new").rglob("*"))
    assert found == [
        *("agents", "agents/ann", "home.sqlite", "palinurus.json", "results", "results/a", "results/a/b.txt"),
        *("workspace", "workspace/SOUL.md", "workspace/away", "workspace/empty.txt", "workspace/memory"),
        *("workspace/memory/2026-11-01.md", "workspace/script.sh"),
    ]
    assert (tmp_path / "new/workspace/script.sh").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "new/workspace/away").readlink() == Path("/etc")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert apsw.Connection(str(tmp_path / "new/home.sqlite")).execute("SELECT text FROM said").get == "hello"
    assert (done.parts, done.credentials) == (made.parts, False)
    assert {left.path for left in made.left_out} == {"home/credentials.json", "home/agents/ann/credentials.json"}


def test_keys_are_taken_along_only_when_asked_for(lived_in: Path, tmp_path: Path) -> None:
    pack(lived_in, tmp_path / "b.tar.gz", credentials=True)
    restore(tmp_path / "b.tar.gz", tmp_path / "new", "")
    assert (tmp_path / "new/credentials.json").exists()
    assert (tmp_path / "new/agents/ann/credentials.json").exists()


def test_a_workspace_outside_of_the_home_comes_along_and_is_told(lived_in: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "SOUL.md").write_text("bold\n")
    pack(lived_in, tmp_path / "b.tar.gz", outside=tmp_path / "elsewhere")
    done = restore(tmp_path / "b.tar.gz", tmp_path / "new", "")
    assert (tmp_path / "new/workspaces/ann/SOUL.md").read_text() == "bold\n"
    assert any(str(tmp_path / "elsewhere") in note for note in done.notes)


@pytest.mark.parametrize("passphrase", ["", SECRET], ids=["plain", "sealed"])
def test_one_flipped_bit_anywhere_is_noticed_and_nothing_is_restored(
    lived_in: Path, tmp_path: Path, passphrase: str
) -> None:
    pack(lived_in, tmp_path / "good", passphrase=passphrase)
    good, bad = (tmp_path / "good").read_bytes(), tmp_path / "bad"
    dice = random.Random(7)
    # The whole head and the whole end, and places in between; scrypt takes its time for each try of a sealed one.
    places = {*range(0, 40, 13 if passphrase else 1), *range(len(good) - 90, len(good), 29 if passphrase else 1)}
    places |= {dice.randrange(len(good)) for _ in range(5 if passphrase else 150)}
    for place in sorted(places):
        damaged = bytearray(good)
        damaged[place] ^= 1 << dice.randrange(8)
        bad.write_bytes(damaged)
        with pytest.raises(PalinurusError):
            verify(bad, passphrase, _fresh(tmp_path))
        with pytest.raises(PalinurusError):
            restore(bad, tmp_path / "new", passphrase)
        assert not (tmp_path / "new").exists(), place
    assert [path.name for path in tmp_path.iterdir() if "restoring" in path.name] == []


@pytest.mark.parametrize("passphrase", ["", SECRET], ids=["plain", "sealed"])
def test_a_backup_that_was_cut_off_or_grew_is_noticed(lived_in: Path, tmp_path: Path, passphrase: str) -> None:
    pack(lived_in, tmp_path / "good", passphrase=passphrase)
    good = (tmp_path / "good").read_bytes()
    for changed in (good[:-1], good[: len(good) // 2], good + b"\0", good[:10], b""):
        (tmp_path / "bad").write_bytes(changed)
        with pytest.raises(PalinurusError):
            verify(tmp_path / "bad", passphrase, _fresh(tmp_path))


def _fresh(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir(exist_ok=True)
    for left in folder.iterdir():
        left.unlink()
    return folder


def test_a_sealed_backup_shows_nothing_and_opens_with_its_passphrase_only(lived_in: Path, tmp_path: Path) -> None:
    pack(lived_in, tmp_path / "b.sealed", passphrase=SECRET, credentials=True)
    assert b"SOUL.md" not in (tmp_path / "b.sealed").read_bytes()
    assert verify(tmp_path / "b.sealed", SECRET, _fresh(tmp_path)).sealed
    with pytest.raises(ConfigError, match="does not open"):
        verify(tmp_path / "b.sealed", "wrong", _fresh(tmp_path))
    with pytest.raises(ConfigError, match="is sealed"):
        verify(tmp_path / "b.sealed", "", _fresh(tmp_path))


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE])
def test_a_sealed_stream_of_any_length_comes_back(size: int) -> None:
    data, file = random.Random(size).randbytes(size), io.BytesIO()
    writer = SealedWriter(file, SECRET, "id", 1)
    writer.write(data)
    writer.finish()
    file.seek(0)
    assert SealedReader(file, SECRET, "it").readall() == data


def test_sealed_pieces_cannot_be_left_out_or_swapped() -> None:
    file = io.BytesIO()
    writer = SealedWriter(file, SECRET, "id", 1)
    head = len(file.getvalue())
    writer.write(bytes(3 * PIECE))
    writer.finish()
    whole, piece = file.getvalue(), PIECE + 16
    first, second = whole[head : head + piece], whole[head + piece : head + 2 * piece]
    for forged in (whole[:-piece], whole[:head] + second + first + whole[head + 2 * piece :]):
        with pytest.raises(PalinurusError):
            SealedReader(io.BytesIO(forged), SECRET, "it").readall()


def test_nothing_is_restored_over_anything(lived_in: Path, tmp_path: Path) -> None:
    pack(lived_in, tmp_path / "b.tar.gz")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "a").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for place in ("taken", "file", "link"):
        with pytest.raises(BadRequest, match="not empty"):
            restore(tmp_path / "b.tar.gz", tmp_path / place, "")
    (tmp_path / "empty").mkdir()
    restore(tmp_path / "b.tar.gz", tmp_path / "empty", "")
    assert (tmp_path / "empty" / "palinurus.json").exists()
    with pytest.raises(BadRequest, match="already exists"):
        pack(lived_in, tmp_path / "b.tar.gz")


@pytest.mark.parametrize("name", ["/etc/x", "home/../../x", "x", "home", "other/x", "home/link/x"])
def test_a_forged_archive_writes_nowhere_else(tmp_path: Path, name: str) -> None:
    """With a good digest and manifest: whoever can make a backup can make these too."""
    data, parts = io.BytesIO(), [BackupPart("home/link", "link", mode=0o777, target=str(tmp_path / "outside"))]
    (tmp_path / "outside").mkdir()
    sink = HashedWriter(data)
    with tarfile.open(fileobj=sink, mode="w|gz", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, LABEL, msgspec.json.encode(LABEL_ONE))
        link = tarfile.TarInfo("home/link")
        link.type, link.linkname, link.mode = tarfile.SYMTYPE, parts[0].target, 0o777
        tar.addfile(link)
        _add(tar, name, b"caught")
        _add(tar, MANIFEST, msgspec.json.encode(BackupManifest(LABEL_ONE, False, tuple(parts))))
    sink.finish()
    (tmp_path / "forged.tar.gz").write_bytes(data.getvalue())
    with pytest.raises(PalinurusError):
        restore(tmp_path / "forged.tar.gz", tmp_path / "new", "")
    assert not (tmp_path / "new").exists()
    assert [path for path in tmp_path.rglob("x") if path.is_file()] == []


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o600
    tar.addfile(info, io.BytesIO(data))


def test_a_damaged_database_inside_a_whole_backup_is_noticed(lived_in: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.sqlite").write_bytes(b"no database" * 1000)
    contents = Contents(lived_in, {}, credentials=False)
    Packer(LABEL_ONE).pack(tmp_path / "b.tar.gz", contents, tmp_path / "bad.sqlite")
    with pytest.raises(StorageDamaged, match="the database in"):
        restore(tmp_path / "b.tar.gz", tmp_path / "new", "")
    assert not (tmp_path / "new").exists()


def test_a_copy_is_of_one_moment_while_others_write(tmp_path: Path) -> None:
    """A write between any two steps would make SQLite begin anew, and the copy would never end."""
    writer = apsw.Connection(str(tmp_path / "home.sqlite"))
    writer.pragma("journal_mode", "wal")
    writer.execute("CREATE TABLE a (n INTEGER, filling BLOB)")
    writer.execute("CREATE TABLE b (n INTEGER)")
    add = "INSERT INTO a VALUES (?, zeroblob(40000)); INSERT INTO b VALUES (?)"
    for number in range(600):
        writer.execute(f"BEGIN; {add}; COMMIT", (number, number))
    steps: list[int] = []

    def write_more(done: int, total: int) -> None:
        writer.execute(f"BEGIN; {add}; COMMIT", (1000 + len(steps), 1000 + len(steps)))
        steps.append(total)

    copy_database(tmp_path / "home.sqlite", tmp_path / "copy.sqlite", write_more)
    copy = apsw.Connection(str(tmp_path / "copy.sqlite"))
    assert len(steps) > 2
    assert copy.execute("SELECT count(*), max(n) FROM a").fetchall() == [(600, 599)]
    assert copy.execute("SELECT count(*), max(n) FROM b").fetchall() == [(600, 599)]
    assert fault_of(tmp_path / "copy.sqlite") == ""


def test_old_backups_go_by_count_and_age_and_never_the_last(tmp_path: Path) -> None:
    backups = Backups(tmp_path)
    backups.folder.mkdir()
    for day in range(6):
        path = backups.folder / f"pal-{day}.tar.gz"
        label = Label(f"{day:016}", day * DAY_MS, "0", "")
        made = Packer(label).pack(path, Contents(tmp_path / "none", {}, credentials=False), None)
        backups.add(made)
    (backups.folder / ".pal-6.tar.gz.tmp").write_bytes((backups.folder / "pal-5.tar.gz").read_bytes())
    now = 6 * DAY_MS
    assert [each.created_at // DAY_MS for each in backups.all()] == [5, 4, 3, 2, 1, 0]
    assert [each.created_at // DAY_MS for each in backups.prune(now, keep=2, days=4, apply=False)] == [1, 0]
    backups.prune(now, keep=2, days=4, apply=True)
    assert [each.created_at // DAY_MS for each in backups.all()] == [5, 4, 3, 2]
    backups.prune(now, keep=1, days=0, apply=True)
    assert [each.created_at // DAY_MS for each in backups.all()] == [5]
    assert backups.find("00000000") == backups.folder / "pal-5.tar.gz"
    with pytest.raises(BadRequest, match="there is no backup"):
        backups.find("ffff")
