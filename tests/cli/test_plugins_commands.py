"""`pal plugins`: install, update, uninstall, list, doctor, lock, new."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from called import Pal

from palinurus.config.home import Home

CODE = """
from palinurus.plugin import ToolOutput, ToolRun, tool

open({canary!r}, "a").close()

def register(app):
    @tool("greet", "Greet.")
    async def greet(run: ToolRun) -> ToolOutput:
        return ToolOutput("hello")
    async def answer(services, key, words, inbound):
        (app.data_folder / "greeted.txt").write_text(words)
        return "hello " + words
    app.tool(greet)
    app.slash_command("greet", answer)
"""
MANIFEST = {
    "id": "greeter",
    "version": "1.0",
    "description": "Greets.",
    "module": "greeter_code",
    "hosts": ["greet.example"],
    "requires": {"bins": ["sh"], "env": []},
    "capabilities": {"tools": ["greet"], "slashCommands": {"greet": {"about": "greets"}}},
}


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "it-ran"


@pytest.fixture
def greeter(tmp_path: Path, canary: Path) -> Iterator[Path]:
    folder = tmp_path / "greeter"
    folder.mkdir()
    (folder / "palinurus.plugin.json").write_text(json.dumps(MANIFEST))
    (folder / "greeter_code.py").write_text(CODE.format(canary=str(canary)))
    before = list(sys.path)
    yield folder
    sys.path[:] = before
    sys.modules.pop("greeter_code", None)


def wheel(greeter: Path, root: Path, requires: str = "", **more: bytes) -> Path:
    """A wheel of the same, as other programs build one."""
    files = {
        "greeter_code/__init__.py": (greeter / "greeter_code.py").read_bytes(),
        "greeter_code/palinurus.plugin.json": (greeter / "palinurus.plugin.json").read_bytes(),
        "greeter-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: greeter\nVersion: 1.0\n{requires}".encode(),
        "greeter-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "greeter-1.0.dist-info/entry_points.txt": b"[palinurus.plugins]\ngreeter = greeter_code\n",
        **more,
    }
    rows = [
        f"{name},sha256={urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
        for name, data in files.items()
    ]
    path = root / "greeter-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr("greeter-1.0.dist-info/RECORD", "\n".join([*rows, "greeter-1.0.dist-info/RECORD,,"]) + "\n")
    return path


def test_nothing_of_a_plugin_runs_before_it_was_shown_and_agreed_to(
    pal_command: Pal, greeter: Path, canary: Path
) -> None:
    refused = pal_command("plugins", "install", str(greeter))
    assert (refused.code != 0, "--yes" in refused.err) == (True, True)
    asked = ("tools: greet", "slash commands: /greet", "hosts: greet.example", "programs: sh", "whatever you can")
    assert [each for each in asked if each not in refused.out] == []
    refused = pal_command("plugins", "install", str(greeter), "--json")
    assert (refused.code != 0, "hosts: greet.example" in refused.json["error"]["message"]) == (True, True)
    assert pal_command("plugins", "list", "--json").json == {"plugins": []}
    shown = pal_command("plugins", "install", str(greeter), "--yes", "--json").json
    assert shown["state"] == "on"
    assert not canary.exists()
    assert pal_command("agent", "-m", "/greet Ada").out == "hello Ada\n"
    assert canary.exists()


@pytest.mark.parametrize("field", ["Requires-Dist: ", "Requires-Dist:\n ", "requires-dist:\t"])
def test_a_wheel_that_would_have_something_built_is_refused(
    pal_command: Pal, greeter: Path, canary: Path, tmp_path: Path, field: str
) -> None:
    source = tmp_path / "evil"
    source.mkdir()
    (source / "setup.py").write_text(f"import setuptools\nopen({str(canary)!r}, 'w')\nsetuptools.setup(name='evil')")
    path = wheel(greeter, tmp_path, f"{field}evil @ file://{source}\n")
    refused = pal_command("plugins", "install", str(path), "--yes")
    assert (refused.code != 0, "would run code" in refused.err, canary.exists()) == (True, True, False)


@pytest.mark.parametrize("place", ["{outside}", "greeter_code/../../../../../../../../../..{outside}"])
def test_an_entry_point_that_leads_out_of_the_wheel_is_none(
    pal_command: Pal, greeter: Path, tmp_path: Path, place: str
) -> None:
    points = f"[palinurus.plugins]\ngreeter = {place.format(outside=greeter)}\n"
    path = wheel(greeter, tmp_path, **{"greeter-1.0.dist-info/entry_points.txt": points.encode()})
    refused = pal_command("plugins", "install", str(path), "--yes")
    assert (refused.code != 0, "it is not a plugin" in refused.err) == (True, True)


def test_code_that_no_digest_counts_is_not_installed(
    pal_command: Pal, home: Home, greeter: Path, tmp_path: Path
) -> None:
    path = wheel(greeter, tmp_path, **{"greeter_code/__pycache__/__init__.cpython-311.pyc": b"x"})
    assert pal_command("plugins", "install", str(path), "--yes").code == 0
    assert not list(home.root.rglob("*.pyc"))


def test_an_uninstalled_plugin_leaves_its_data_and_nothing_else(pal_command: Pal, home: Home, greeter: Path) -> None:
    before = {str(path.relative_to(home.root)) for path in home.root.rglob("*")}
    pal_command("plugins", "install", str(greeter), "--yes")
    pal_command("agent", "-m", "/greet Ada")
    removed = pal_command("plugins", "uninstall", "greeter")
    assert "greeter is uninstalled" in removed.out
    assert str(home.root / "plugins" / "data" / "greeter") in removed.out
    left = {str(path.relative_to(home.root)) for path in (home.root / "plugins").rglob("*") if path.is_file()} - before
    assert left == {"plugins/data/greeter/greeted.txt", "plugins/plugins.json"}
    assert "unknown command /greet" in pal_command("agent", "-m", "/greet Ada").err


def test_changed_files_are_named_and_not_loaded(pal_command: Pal, home: Home, greeter: Path) -> None:
    pal_command("plugins", "install", str(greeter), "--yes")
    with (home.root / "plugins" / "installed" / "greeter" / "greeter_code.py").open("a") as file:
        file.write("\nsecret = 1\n")
    lock = pal_command("plugins", "lock", "--json").json["plugins"]
    assert [(each["id"], each["holds"]) for each in lock] == [("greeter", False)]
    doctor = pal_command("plugins", "doctor")
    assert (doctor.code, "greeter: its files have changed" in doctor.out, "pal plugins update" in doctor.out) == (
        1, True, True,
    )  # fmt: skip
    assert "hello" not in pal_command("agent", "-m", "/greet Ada").out


def test_an_update_shows_what_is_new(pal_command: Pal, greeter: Path) -> None:
    pal_command("plugins", "install", str(greeter), "--yes")
    more = {**MANIFEST, "version": "2.0", "hosts": ["greet.example", "other.example"]}
    (greeter / "palinurus.plugin.json").write_text(json.dumps(more))
    assert pal_command("plugins", "update", "greeter", "--yes").code == 0
    assert "2.0" in pal_command("plugins", "info", "greeter").out
    assert pal_command("plugins", "update", "gretel", "--yes").code != 0


def test_a_wheel_is_installed_by_its_entry_point(pal_command: Pal, greeter: Path, tmp_path: Path) -> None:
    done = pal_command("plugins", "install", str(wheel(greeter, tmp_path)), "--yes")
    assert (done.code, done.out) == (0, "greeter is on.\n"), done.err
    assert pal_command("agent", "-m", "/greet Ada").out == "hello Ada\n"


@pytest.mark.parametrize("source", ["greeter-1.0.tar.gz", "git+https://example.org/x", "/nowhere/at/all", "no_plugin"])
def test_what_would_run_code_to_be_installed_is_refused(pal_command: Pal, tmp_path: Path, source: str) -> None:
    (tmp_path / "no_plugin").mkdir()
    refused = pal_command("plugins", "install", str(tmp_path / source) if source == "no_plugin" else source, "--yes")
    assert refused.code != 0
    assert refused.err.startswith("pal: ")


def test_a_workspace_plugin_is_off_until_a_person_takes_that_content(
    pal_command: Pal, workspace: Path, greeter: Path, canary: Path
) -> None:
    folder = workspace / "plugins" / "greeter"
    folder.parent.mkdir()
    greeter.rename(folder)
    (row,) = pal_command("plugins", "list", "--json").json["plugins"]
    assert (row["state"], row["tier"], "an agent may have written it" in row["reasons"][0]) == (
        "off",
        "workspace",
        True,
    )
    pal_command("agent", "-m", "/greet Ada")
    assert not canary.exists()
    pal_command("plugins", "install", str(folder), "--yes")
    (folder / "greeter_code.py").write_text("raise SystemExit('changed by an agent')")
    assert pal_command("agent", "-m", "/greet Ada").out == "hello Ada\n"
    states = {row["state"]: row.get("reasons") for row in pal_command("plugins", "list", "--json").json["plugins"]}
    assert "changed since it was installed" in states["off"][0]


def test_a_path_in_a_workspace_is_not_trusted_because_the_config_names_it(
    pal_command: Pal, home: Home, workspace: Path, greeter: Path
) -> None:
    greeter.rename(workspace / "greeter")
    pal_command("config", "set", "plugins.load.paths", json.dumps([str(workspace / "greeter")]))
    assert "an agent can write there" in pal_command("plugins", "list").out
    assert "hello" not in pal_command("agent", "-m", "/greet Ada").out


def test_a_new_plugin_passes_its_own_tests(pal_command: Pal, tmp_path: Path) -> None:
    made = pal_command("plugins", "new", "tides", "--folder", str(tmp_path / "tides"), "--json").json
    assert "test_tides.py" in made["files"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path / "tides", env=env, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    pal_command("plugins", "install", str(tmp_path / "tides"), "--yes")
    assert pal_command("agent", "-m", "/tides Ada").out == "Hello, Ada!\n"
