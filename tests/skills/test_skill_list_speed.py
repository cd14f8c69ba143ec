"""Listing a thousand skills is answered at once: what it costs, counted in what is loaded and not in seconds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("pydantic", "yaml", "asyncio", "httpx", "httpx2", "pyjson5", "apsw", "uvloop", "ssl", "zipfile", "xml.sax")
CODE = f"""
import sys
sys.argv = ["pal", "skills", "list"]
from palinurus.__main__ import main
try:
    main()
except SystemExit as left:
    assert not left.code, left.code
sys.stderr.write(",".join(name for name in {HEAVY!r} if name in sys.modules))
"""


@pytest.mark.slow
def test_a_second_listing_loads_nothing_heavy(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "skills" / "tides"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: tides\ndescription: Tells the tides.\n---\nLook.\n")
    (tmp_path / "home" / "palinurus.json").write_text("{}")
    env = {"PALINURUS_HOME": str(tmp_path / "home"), "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    for _ in range(2):  # the first one reads the config and parses; what it found is kept
        ended = subprocess.run(
            [sys.executable, "-c", CODE], env=env, capture_output=True, text=True, timeout=60, check=True
        )
        assert "tides" in ended.stdout
    assert ended.stderr == ""
