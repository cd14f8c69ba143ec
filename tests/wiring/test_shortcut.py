"""The note by which a cold command finds memory: believed only while the config says what it said."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from palinurus.config.home import Home, find_home
from palinurus.config.load import load_config
from palinurus.config.memory_settings import memory_settings
from palinurus.config.shortcut import read_shortcut
from palinurus.wiring.shortcut import leave_shortcut

CONFIG = """{
  agents: {
    defaults: { userTimezone: "Europe/Lisbon", memorySearch: { provider: "none", extraPaths: ["~/papers"] } },
    list: [{ id: "main", default: true }, { id: "work", workspace: "~/work" }],
  },
}"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path)}


def _home(env: dict[str, str], text: str = CONFIG) -> Home:
    home = find_home(env)
    home.root.mkdir(exist_ok=True)
    home.config_path.write_text(text, encoding="utf-8")
    return home


def _leave(home: Home, env: dict[str, str]) -> None:
    leave_shortcut(home, load_config(home, env))


def test_the_note_says_of_every_agent_what_the_config_says(env: dict[str, str]) -> None:
    home = _home(env)
    _leave(home, env)
    note = read_shortcut(home)
    config = load_config(home, env).config
    assert note is not None
    assert note.default_agent == "main"
    assert {name: known.settings for name, known in note.agents.items()} == {
        name: memory_settings(config, home, name) for name in ("main", "work")
    }
    assert note.agents["work"].workspace == Path(env["HOME"]) / "work"
    assert note.agents["work"].zone == "Europe/Lisbon"


def test_a_config_that_has_changed_makes_the_note_void(env: dict[str, str]) -> None:
    home = _home(env)
    _leave(home, env)
    home.config_path.write_text(CONFIG.replace("papers", "books"), encoding="utf-8")
    assert read_shortcut(home) is None


@pytest.mark.parametrize(
    "text",
    [
        '{agents: {defaults: {workspace: "${NOTES}"}}}',
        '{agents: {defaults: {workspace: "$\\u007bNOTES}"}}}',
        '{$include: "more.json"}',
        '{agents: {defaults: {memorySearch: {provider: "openai"}}}}',  # which deserves a warning
    ],
)
def test_a_config_that_is_more_than_its_own_text_leaves_no_note(env: dict[str, str], text: str) -> None:
    home = _home(env)
    _leave(home, env)
    (home.root / "more.json").write_text("{}", encoding="utf-8")
    home.config_path.write_text(text, encoding="utf-8")
    _leave(home, {**env, "NOTES": "/notes"})
    assert read_shortcut(home) is None
    home.config_path.write_text(CONFIG, encoding="utf-8")
    assert read_shortcut(home) is None, "what was noted before is gone too"


def test_another_workspace_by_option_finds_no_note(env: dict[str, str], tmp_path: Path) -> None:
    home = _home(env)
    _leave(home, env)
    assert read_shortcut(find_home(env, workspace=tmp_path / "other")) is None


@pytest.mark.parametrize("data", [b"", b"{", b'{"source": 1}', b"\xff", b'{"source": "", "agents": []}'])
def test_a_damaged_note_is_no_note(env: dict[str, str], data: bytes) -> None:
    home = _home(env)
    _leave(home, env)
    (home.root / "derived" / "memory" / "settings.json").write_bytes(data)
    assert read_shortcut(home) is None


def test_reading_the_note_imports_no_parser_of_configs() -> None:
    check = "import sys, palinurus.config.shortcut; sys.exit('pydantic' in sys.modules or 'pyjson5' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False, timeout=30).returncode == 0
