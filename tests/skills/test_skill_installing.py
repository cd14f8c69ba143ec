"""What a skill needs and how it is got: exact commands, no tricks in them, downloads that are what they should be."""

from __future__ import annotations

import hashlib
import io
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest
from shelved import a_skill

from palinurus.domain.errors import BadRequest, PalinurusError, WebError
from palinurus.skills import dependencies
from palinurus.skills.dependencies import (
    Download,
    InstallPlan,
    InstallStep,
    Ways,
    do_step,
    install_download,
    install_plan,
)
from palinurus.skills.settings import SkillsSettings
from palinurus.skills.skill import Install

HERE = Ways("linux", lambda name: True, "/home/pal/tools")
DIGEST = "a" * 64


def plan(*specs: Install, missing: tuple[str, ...] = ("x",), ways: Ways = HERE, **settings: Any) -> InstallPlan:
    return install_plan(a_skill("tool", install=specs), missing, SkillsSettings(**settings), ways)


COMMANDS = [
    (Install("brew", package="steipete/tap/x"), "brew install steipete/tap/x"),
    (Install("apt", package="ffmpeg"), "sudo apt-get install -y --no-install-recommends ffmpeg"),
    (Install("node", package="@scope/x@1.2.3"), "npm install -g --ignore-scripts @scope/x@1.2.3"),
    (Install("go", package="github.com/a/b/cmd/x"), "go install github.com/a/b/cmd/x@latest"),
    (Install("go", package="github.com/a/b@v1.2"), "go install github.com/a/b@v1.2"),
    (Install("uv", package="x[extra]==1.0"), "uv tool install x[extra]==1.0"),
]


@pytest.mark.parametrize(("spec", "command"), COMMANDS)
def test_each_kind_becomes_one_plain_command(spec: Install, command: str) -> None:
    (step,) = plan(spec).steps
    assert " ".join(step.argv) == command


BAD = [
    Install("brew", package="--cask evil"),
    Install("brew", package="x; rm -rf /"),
    Install("apt", package="-o=Dpkg::Pre-Invoke::=sh"),
    Install("apt", package="./local.deb"),
    Install("node", package="https://evil.example/x.tgz"),
    Install("node", package="../local"),
    Install("go", package="-toolexec=sh/x"),
    Install("go", package="x"),
    Install("uv", package="git+https://evil.example/x"),
    Install("uv", package="--index-url=https://evil.example"),
    Install("uv", package=""),
]


@pytest.mark.parametrize("spec", BAD)
def test_a_package_is_a_name_and_neither_option_nor_address(spec: Install) -> None:
    found = plan(spec)
    assert found.steps == ()
    assert found.missing == ("x",)
    assert "is not the name of a package" in found.refused[0]


def test_the_first_way_that_works_here_is_taken_for_each_program() -> None:
    specs = (
        Install("apt", bins=("x", "y"), package="xy"),
        Install("brew", bins=("x",), package="x"),
        Install("uv", bins=("y",), package="y", os=("darwin",)),
    )
    assert [step.kind for step in plan(*specs, missing=("x", "y")).steps] == ["brew", "apt"]
    assert [step.kind for step in plan(*specs, missing=("x", "y"), prefer_brew=False).steps] == ["apt"]
    no_brew = Ways("linux", lambda name: name != "brew", "/t", root=True)
    found = plan(*specs, missing=("x", "z"), ways=no_brew)
    assert [step.argv[0] for step in found.steps] == ["apt-get"]
    assert (found.missing, found.refused) == (("z",), ("brew: there is no brew here",))
    assert plan(Install("node", package="x"), node_manager="pnpm").steps[0].argv[0] == "pnpm"


def test_nothing_missing_needs_nothing() -> None:
    assert plan(Install("uv", package="x"), missing=()) == InstallPlan("tool")


DOWNLOADS = [
    (Install("download", url="http://x.example/a.zip", sha256=DIGEST), "is not a plain https address"),
    (Install("download", url="file:///etc/passwd", sha256=DIGEST), "is not a plain https address"),
    (Install("download", url="https://[x", sha256=DIGEST), "is not an address"),
    (Install("download", url="https://user@x.example/a.zip", sha256=DIGEST), "is not a plain https address"),
    (Install("download", url="https://x.example/a.zip"), "has no sha256"),
    (Install("download", url="https://x.example/a.zip", sha256="abc"), "has no sha256"),
    (Install("download", url="https://x.example/a.rar", sha256=DIGEST, extract=True), "is not an archive"),
    (Install("download", url="https://x.example/a.zip", sha256=DIGEST, target_dir="../../x"), "leads out of"),
    (Install("download", url="https://x.example/a.zip", sha256=DIGEST, target_dir="/etc"), "leads out of"),
]


@pytest.mark.parametrize(("spec", "reason"), DOWNLOADS)
def test_a_download_that_cannot_be_checked_is_not_done(spec: Install, reason: str) -> None:
    assert reason in plan(spec).refused[0]


def test_a_download_goes_into_the_folder_of_its_skill() -> None:
    spec = Install("download", url="https://x.example/v1/a.tar.gz", sha256=DIGEST, target_dir="bin", strip_components=1)
    (step,) = plan(spec).steps
    assert step.download == Download(spec.url, DIGEST, "/home/pal/tools/tool/bin", archive=True, strip=1)


# --- doing it ---


def tarred(**members: bytes | tarfile.TarInfo) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, content in members.items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
            else:
                info = tarfile.TarInfo(name)
                info.size, info.mode = len(content), 0o755
                archive.addfile(info, io.BytesIO(content))
    return data.getvalue()


def zipped(**members: bytes) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return data.getvalue()


def served(data: bytes) -> Callable[[str, IO[bytes]], None]:
    def get(_: str, into: IO[bytes]) -> None:
        into.write(data)

    return get


def wanted(tmp_path: Path, data: bytes, **more: Any) -> Download:
    name = "a.tar.gz" if data[:2] != b"PK" else "a.zip"
    digest = hashlib.sha256(data).hexdigest()
    return Download(f"https://x.example/{name}", digest, str(tmp_path / "tools" / "x"), **more)


@pytest.mark.parametrize("data", [tarred(**{"v1/bin/x": b"#!/bin/sh\n"}), zipped(**{"v1/bin/x": b"#!/bin/sh\n"})])
def test_an_archive_is_unpacked_where_it_belongs(tmp_path: Path, data: bytes) -> None:
    folder = install_download(wanted(tmp_path, data, archive=True, strip=1), served(data))
    assert (folder / "bin" / "x").read_bytes() == b"#!/bin/sh\n"
    assert [path.name for path in folder.parent.iterdir()] == ["x"]
    with pytest.raises(PalinurusError, match="already exists"):
        install_download(wanted(tmp_path, data, archive=True), served(data))


def test_a_single_file_becomes_a_program(tmp_path: Path) -> None:
    folder = install_download(wanted(tmp_path, b"program"), served(b"program"))
    (program,) = folder.iterdir()
    assert stat.S_IMODE(program.stat().st_mode) == 0o755


def link(name: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, "/etc/passwd"
    return info


HOSTILE = {
    "traversal": (tarred(**{"../../evil": b"x"}), "leads out of its folder"),
    "absolute": (tarred(**{"/etc/evil": b"x"}), "leads out of its folder"),
    "symlink": (tarred(link=link("link", tarfile.SYMTYPE)), "not a plain file"),
    "hardlink": (tarred(link=link("link", tarfile.LNKTYPE)), "not a plain file"),
    "device": (tarred(link=link("dev", tarfile.CHRTYPE)), "not a plain file"),
    "zip traversal": (zipped(**{"a/../../evil": b"x"}), "leads out of its folder"),
    "zip backslash": (zipped(**{"..\\evil": b"x"}), "leads out of its folder"),
    "no archive": (b"what is this", "cannot be opened"),
}


@pytest.mark.parametrize("animal", HOSTILE)
def test_an_archive_that_reaches_out_is_refused_and_nothing_stays(tmp_path: Path, animal: str) -> None:
    data, reason = HOSTILE[animal]
    with pytest.raises(BadRequest, match=reason):
        install_download(wanted(tmp_path, data, archive=True), served(data))
    assert list((tmp_path / "tools").iterdir()) == []


def test_a_bomb_is_refused_by_what_comes_out_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependencies, "MAX_UNPACKED", 1_000_000)
    data = zipped(big=b"\0" * 5_000_000)
    with pytest.raises(BadRequest, match="unpacks to more than"):
        install_download(wanted(tmp_path, data, archive=True), served(data))
    monkeypatch.setattr(dependencies, "MAX_FILES", 3)
    data = zipped(**{f"f{number}": b"" for number in range(5)})
    with pytest.raises(BadRequest, match="more than 3 files"):
        install_download(wanted(tmp_path, data, archive=True), served(data))


def test_another_file_than_the_one_named_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="is not what the skill names"):
        install_download(wanted(tmp_path, b"good"), served(b"evil"))
    assert list((tmp_path / "tools").iterdir()) == []


def test_a_command_that_fails_is_told() -> None:
    step = InstallStep("install x", "uv", argv=("uv", "tool", "install", "x"))
    with pytest.raises(PalinurusError, match="uv tool install x ended with code 3"):
        do_step(step, run=lambda argv, seconds: 3)
    seen: list[object] = []
    do_step(step, run=lambda argv, seconds: seen.append(argv) or 0)  # type: ignore[func-returns-value]
    assert seen == [step.argv]
    with pytest.raises(PalinurusError, match="could not be run"):
        do_step(InstallStep("x", "uv", argv=("/nowhere/uv",)))


def test_an_address_that_does_not_answer_is_one_sentence(tmp_path: Path) -> None:
    asked = Download("https://127.0.0.1:9/x", DIGEST, str(tmp_path / "t" / "x"))
    with pytest.raises(WebError, match=r"https://127.0.0.1:9/x could not be downloaded"):
        install_download(asked)
