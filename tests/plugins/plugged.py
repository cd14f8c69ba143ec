"""A home with plugins in folders."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from palinurus.config.home import Home
from palinurus.runtime.extensions import LOADED

HERE = Path(__file__).parent
FIRST = HERE / "first_version"


def write_plugin(root: Path, name: str, code: str = "", /, **manifest: Any) -> Path:
    """A folder with a manifest and a module; the module has the plugin's name."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    about = {"id": name, "version": "1.0", **({"module": f"{name}_plugin"} if code else {}), **manifest}
    (folder / "palinurus.plugin.json").write_text(json.dumps(about))
    if code:
        (folder / f"{name}_plugin.py").write_text(code)
    return folder


def use_plugins(home: Home, *folders: Path, **settings: Any) -> None:
    """Names them in the config."""
    config = json.loads(home.config_path.read_text())
    plugins = {"load": {"paths": [str(each) for each in folders]}, **settings}
    home.config_path.write_text(json.dumps({**config, "plugins": plugins}))


@contextmanager
def fresh_modules() -> Iterator[None]:
    """Forgets afterwards what was imported, and that there were plugins."""
    before, path = set(sys.modules), list(sys.path)
    try:
        yield
    finally:
        LOADED.leave_plugins()
        sys.path[:] = path
        for name in set(sys.modules) - before:
            if not name.startswith("palinurus"):
                file = getattr(sys.modules[name], "__file__", None) or ""
                if name.endswith("_plugin") or "plugins" in file:
                    del sys.modules[name]
