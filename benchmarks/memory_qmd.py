"""qmd, whose text index our memory is measured beside: installed by `sh tools/qmd`, its words alone, no models."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.peers import FOLDER, INSTALL_SECONDS, PeerMissing
from benchmarks.processes import ROOT

NAME = "qmd"
_PLACE = FOLDER / NAME
_NODE = _PLACE / "node" / "bin"
_LIBRARY = _PLACE / "node_modules" / "@tobilu" / "qmd" / "dist" / "index.js"
_COMMAND = _PLACE / "node_modules" / ".bin" / "qmd"


def install() -> None:
    """Unless it stands there already. Raises PeerMissing."""
    command = ["sh", "tools/qmd", str(Path(sys.executable).parent)]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise PeerMissing(f"not installed within {INSTALL_SECONDS} s") from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise PeerMissing(f"cannot be installed: {said[-1] if said else 'nothing was said'}")


def environment(env: Mapping[str, str]) -> dict[str, str]:
    return {**env, "PATH": f"{_NODE}:{env['PATH']}"}


def build(notes: Path) -> tuple[str, ...]:
    """Make a collection of the folder, which reads it all; `update` behind it would only look again."""
    return (str(_COMMAND), "collection", "add", str(notes), "--name", "notes")


def update() -> tuple[str, ...]:
    return (str(_COMMAND), "update")


def search(query: str) -> tuple[str, ...]:
    return (str(_COMMAND), "search", query, "--format", "json")


def index_of(home: Path) -> Path:
    return home / ".cache" / "qmd" / "index.sqlite"


def warm(home: Path, questions: Path) -> tuple[str, ...]:
    """A process that answers all questions of the file, as often as it is told to (benchmarks/warm_qmd.mjs)."""
    script = ROOT / "benchmarks" / "warm_qmd.mjs"
    return (str(_NODE / "node"), str(script), str(_LIBRARY), str(index_of(home)), str(questions))
