"""Whose workspace it is in a simulated life: writes its files, edits them and takes some away."""

from __future__ import annotations

import random
from pathlib import Path

from .liar import words
from .witness import CANARY

PUBLIC_FILES = ("AGENTS.md", "SOUL.md", "IDENTITY.md", "TOOLS.md", "BOOTSTRAP.md", "HEARTBEAT.md")
PRIVATE_FILES = ("USER.md", "MEMORY.md", "memory/2026-11-14.md")


class Owner:
    def __init__(self, workspace: Path, dice: random.Random) -> None:
        self._workspace = workspace
        self._dice = dice

    def move_in(self) -> None:
        for name in (*PUBLIC_FILES, *PRIVATE_FILES):
            self._write(name)
        (self._workspace / "link.md").symlink_to("MEMORY.md")

    def edit(self) -> None:
        name = self._dice.choice((*PUBLIC_FILES, *PRIVATE_FILES))
        if self._dice.random() < 0.2:
            (self._workspace / name).unlink(missing_ok=True)
        else:
            self._write(name)

    def _write(self, name: str) -> None:
        said = words(self._dice) if self._dice.random() < 0.9 else ""
        path = self._workspace / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{said}\n{CANARY}\n" if name in PRIVATE_FILES else f"{said}\n", encoding="utf-8")
