"""`pal hooks` on a real home: which there are, what one is, and that enabling shows the code first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from called import Pal

from palinurus.config.home import Home

HOOK = """---
name: harbour
description: Adds the tide table.
metadata: {"openclaw": {"emoji": "⚓", "events": ["agent:bootstrap"]}}
---
"""
HANDLER = 'def handle(event):\n    event.context["bootstrapFiles"].append({"name": "TIDES.md", "content": "06:12"})\n'


@pytest.fixture
def harbour(workspace: Path) -> Path:
    folder = workspace / "hooks" / "harbour"
    folder.mkdir(parents=True)
    (folder / "HOOK.md").write_text(HOOK)
    (folder / "handler.py").write_text(HANDLER)
    return folder


def test_hooks_are_listed_shown_enabled_and_disabled(pal_command: Pal, harbour: Path, home: Home) -> None:
    rows = {line.split()[1]: line for line in pal_command("hooks", "list").out.splitlines()}
    assert rows["boot-md"].split()[:3] == ["off", "boot-md", "bundled"]
    assert "`pal hooks enable harbour`" in rows["harbour"]
    shown = pal_command("hooks", "show", "harbour")
    assert "⚓ harbour" in shown.out
    assert 'event.context["bootstrapFiles"]' in shown.out
    asked = pal_command("hooks", "enable", "harbour")
    assert (asked.code != 0, "use --yes" in asked.err) == (True, True)
    assert not (home.root / "hooks").exists()
    assert pal_command("hooks", "enable", "harbour", "--yes").out == "harbour is on.\n"
    assert "TIDES.md" in pal_command("context").out
    assert "1 on: harbour" in pal_command("doctor", "--no-model").out
    assert pal_command("hooks", "disable", "harbour", "--json").json["state"] == "off"
    assert "TIDES.md" not in pal_command("context").out


def test_a_hook_that_changed_is_told_by_doctor(pal_command: Pal, harbour: Path) -> None:
    pal_command("hooks", "enable", "harbour", "--yes")
    (harbour / "handler.py").write_text(f"{HANDLER}# more\n")
    told = pal_command("doctor", "--no-model", "--json").json
    (check,) = [each for each in told["checks"] if each["name"] == "hooks"]
    assert check["state"] == "warning"
    assert "changed since it was enabled" in check["what"]


def test_a_bundled_hook_is_switched_in_the_config(pal_command: Pal, home: Home) -> None:
    assert pal_command("hooks", "enable", "command-logger").out == "command-logger is on.\n"
    config = json.loads(home.config_path.read_text())
    assert config["hooks"] == {"internal": {"entries": {"command-logger": {"enabled": True}}}}
    assert pal_command("config", "validate").code == 0
    off = pal_command("hooks", "disable", "command-logger").out
    assert off == "command-logger is off: switched off (hooks.internal.entries.command-logger.enabled).\n"
    wrong = pal_command("hooks", "enable", "comand-logger")
    assert "did you mean command-logger?" in wrong.err
