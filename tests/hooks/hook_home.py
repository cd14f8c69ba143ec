"""A home with hooks in folders, whose model is scripted on a loopback wire."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from palinurus.config.home import Home
from support.open_home import WAIT, OpenHome, opened

__all__ = ["WAIT", "OpenHome", "configure", "opened", "write_hook"]


def write_hook(root: Path, name: str, handler: str, *events: str, **metadata: Any) -> Path:
    """A folder with HOOK.md and handler.py."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    about = json.dumps({"openclaw": {"events": events, **metadata}})
    (folder / "HOOK.md").write_text(f"---\nname: {name}\ndescription: A hook.\nmetadata: {about}\n---\n# {name}\n")
    (folder / "handler.py").write_text(handler)
    return folder


def configure(home: Home, **sections: Any) -> None:
    config = json.loads(home.config_path.read_text())
    home.config_path.write_text(json.dumps({**config, **sections}))
