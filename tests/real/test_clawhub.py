"""The real clawhub command, from npm, uses our registry; and what either client installed the other goes on with."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "faults"))
from homes import PalHome

PLACE = Path(__file__).parents[2] / ".peers" / "clawhub"
NODE = PLACE / "node" / "bin" / "node"
COMMAND = PLACE / "node_modules" / "clawhub" / "bin" / "clawdhub.js"
SECONDS = 60.0  # a call takes one; the machine may be busy

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def _installed() -> None:
    if (PLACE / ".installed").exists():
        return
    missing = "clawhub is not installed: `make test-real` does it where npm can be reached"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


@dataclass(frozen=True)
class ClawHub:
    """The command in a folder of its own, with our registry as its registry."""

    folder: Path
    registry: str

    async def __call__(self, *words: str, fails: bool = False) -> str:
        """What it said, on both channels."""
        self.folder.mkdir(parents=True, exist_ok=True)
        env = {
            "HOME": str(self.folder),
            "PATH": os.defpath,
            "CLAWHUB_REGISTRY": self.registry,
            "CLAWHUB_SITE": self.registry,
            "CLAWHUB_WORKDIR": str(self.folder),
            "CLAWHUB_CONFIG_PATH": str(self.folder / "config.json"),
        }
        process = await asyncio.create_subprocess_exec(
            NODE, COMMAND, *words, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        try:
            out, _ = await asyncio.wait_for(process.communicate(), SECONDS)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        said = out.decode()
        assert (process.returncode != 0) is fails, said
        return said

    @property
    def lock(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / ".clawhub" / "lock.json").read_text())["skills"]
        return found


@dataclass(frozen=True)
class Hosting:
    home: PalHome
    folder: Path
    url: str

    async def token(self, owner: str) -> str:
        made = await self.home.pal("registry", "token", "create", str(self.folder), "--owner", owner, "--json")
        return str(made.json["secret"])


@pytest.fixture
async def hosting(tmp_path: Path) -> AsyncIterator[Hosting]:
    home = PalHome(tmp_path / "home")
    home.configure("http://127.0.0.1:9/v1")
    folder = tmp_path / "registry"
    async with home.talking("registry", "serve", str(folder), "--port", "0") as talk:
        line = await talk.until(lambda said: said.startswith("pal registry at "))
        url = line.split()[3]
        home.variables["CLAWHUB_REGISTRY"] = url
        yield Hosting(home, folder, url)
    assert "Traceback" not in talk.complaints, talk.complaints


@pytest.fixture
async def clawhub(hosting: Hosting, tmp_path: Path) -> ClawHub:
    command = ClawHub(tmp_path / "clawhub", hosting.url)
    assert "Logged in as @ada" in await command("login", "--token", await hosting.token("ada"), "--no-browser")
    return command


def write_skill(folder: Path, words: str = "Read the tide table.", **files: str) -> Path:
    (folder / "scripts").mkdir(parents=True, exist_ok=True)
    front = (
        "name: tide-table\ndescription: Tells when to sail.\ncapabilities: {tools: [web_fetch], hosts: [tide.example]}"
    )
    (folder / "SKILL.md").write_text(f"---\n{front}\n---\n# Tides\n{words}\n")
    for name, text in {"scripts/Zenith.py": "print(1)\n", "a-b.md": "x\n", "README.md": "y\n", **files}.items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.shows("clawhub", "publish, search, explore, install, update, inspect with `pal registry`")
async def test_it_publishes_searches_installs_updates_and_verifies(clawhub: ClawHub, tmp_path: Path) -> None:
    source = write_skill(tmp_path / "tide-table")
    assert await clawhub("whoami")
    told = await clawhub("publish", str(source), "--version", "1.0.0", "--changelog", "first")
    assert "Published tide-table@1.0.0" in told
    assert "tide-table v1.0.0  @ada" in await clawhub("search", "when to sail")
    assert "tide-table" in await clawhub("explore")
    assert "Installed tide-table" in await clawhub("install", "tide-table")
    assert clawhub.lock["tide-table"]["version"] == "1.0.0"
    installed = clawhub.folder / "skills" / "tide-table"
    assert (installed / "scripts" / "Zenith.py").read_text() == "print(1)\n"
    assert "up to date (1.0.0)" in await clawhub("update", "tide-table", "--no-input")

    write_skill(source, "Read the moon's table too.")
    await clawhub("publish", str(source), "--version", "1.1.0", "--changelog", "moon")
    # What is there is recognised by its fingerprint, whatever the local records say.
    (installed / ".clawhub" / "origin.json").unlink()
    assert "updated -> 1.1.0" in await clawhub("update", "--all", "--no-input")
    assert "moon" in (installed / "SKILL.md").read_text()
    (installed / "SKILL.md").write_text("changed")
    assert "local changes" in await clawhub("update", "--all", "--no-input")
    assert "Installed" in await clawhub("install", "tide-table", "--version", "1.0.0", "--force")

    looked = json.loads(_json(await clawhub("inspect", "tide-table", "--versions", "--files", "--json")))
    assert [each["version"] for each in looked["versions"]] == ["1.1.0", "1.0.0"]
    assert looked["owner"]["handle"] == "ada"
    assert "print(1)" in await clawhub("inspect", "tide-table", "--file", "scripts/Zenith.py")


@pytest.mark.shows("clawhub", "refusals: published again, owned by somebody else, blocked, deleted")
async def test_refusals_reach_the_person_who_uses_it(clawhub: ClawHub, hosting: Hosting, tmp_path: Path) -> None:
    source = write_skill(tmp_path / "tide-table")
    await clawhub("publish", str(source), "--version", "1.0.0")
    again = await clawhub("publish", str(source), "--version", "1.0.0", fails=True)
    assert "published already; a version never changes" in again
    bob = ClawHub(tmp_path / "bob", hosting.url)
    await bob("login", "--token", await hosting.token("bob"), "--no-browser")
    assert "tide-table belongs to ada" in await bob("publish", str(source), "--version", "2.0.0", fails=True)
    assert "Skill not found" in await bob("install", "no-such-skill", fails=True)
    await hosting.home.pal("registry", "block", str(hosting.folder), "tide-table", "--reason", "reads keys")
    assert "flagged as" in await bob("install", "tide-table", fails=True)
    await hosting.home.pal("registry", "block", str(hosting.folder), "tide-table", "--undo")
    await clawhub("delete", "tide-table", "--yes")
    assert "Skill not found" in await bob("install", "tide-table", fails=True)
    await clawhub("undelete", "tide-table", "--yes")
    assert "Installed" in await bob("install", "tide-table")


@pytest.mark.shows("clawhub", "skills of either client in the other")
async def test_our_own_client_installs_what_it_published_and_it_installs_ours(
    clawhub: ClawHub, hosting: Hosting, tmp_path: Path
) -> None:
    home = hosting.home
    source = write_skill(tmp_path / "tide-table")
    await clawhub("publish", str(source), "--version", "1.0.0")
    done = await home.pal("skills", "install", "tide-table", "--yes", "--json")
    assert done.code == 0, done
    assert done.json["mayUse"].startswith("only web_fetch; hosts: tide.example")
    assert [each["state"] for each in (await home.pal("skills", "verify", "--online", "--json")).json] == ["intact"]

    # It sees what we installed as if it had done so itself: nothing has changed, by its own fingerprint.
    ours = ClawHub(home.root, hosting.url)
    assert "tide-table  1.0.0" in await ours("list")
    assert "up to date (1.0.0)" in await ours("update", "tide-table", "--no-input")

    home.variables["CLAWHUB_TOKEN"] = await hosting.token("ada")
    write_skill(source, "Words of ours.")
    published = await home.pal("skills", "publish", str(source), "--version", "1.1.0", "--yes", "--json")
    assert published.code == 0, published
    assert "Installed" in await clawhub("install", "tide-table")
    assert "Words of ours" in (clawhub.folder / "skills" / "tide-table" / "SKILL.md").read_text()

    # And when it updates one of ours, nobody has agreed to that here: the pin refuses it.
    await ours("update", "tide-table", "--no-input")
    assert (await home.pal("skills", "verify")).code == 1
    listed = (await home.pal("skills", "list", "--json")).json
    assert "tide-table" not in [each["name"] for each in listed["skills"]]
    assert any("not what was installed" in each["reason"] for each in listed["leftOut"])


def _json(said: str) -> str:
    return said[said.index("{") :]
