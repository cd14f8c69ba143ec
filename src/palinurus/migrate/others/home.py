"""The homes of other agents, as far as they are conversations and, for some, a workspace of markdown.

claude-code   ~/.claude/projects/<project>/<id>.jsonl
codex         ~/.codex/sessions/<year>/<month>/<day>/rollout-<time>-<id>.jsonl
nanobot       ~/.nanobot/workspace, its sessions/*.jsonl and ~/.nanobot/sessions/**/*.jsonl
hermes        ~/.hermes/sessions/*.jsonl, as its releases before the database wrote them; SOUL.md and memories/
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from msgspec import Struct

from palinurus.config.home import env_value, expand_user
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.keys import DEFAULT_AGENT
from palinurus.migrate.foreign import ForeignAgent, ForeignDocument, ForeignSecrets, ForeignSession
from palinurus.migrate.openclaw.agents import ForeignConfig
from palinurus.migrate.openclaw.files import walk
from palinurus.migrate.openclaw.lines import file_lines
from palinurus.migrate.openclaw.store import SESSION_ID, agent_key
from palinurus.migrate.others.lines import entries_of_file
from palinurus.migrate.report import FoundApproval, FoundFile, FoundJob, FoundSkill, Losses

Program = Literal["claude-code", "codex", "nanobot", "hermes"]
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
HEAD = 20  # lines in which a transcript may say what it is called


class Layout(Struct, frozen=True):
    folder: str  # in the user's home
    variable: str  # of the environment that names another
    transcripts: tuple[str, ...]  # folders that hold JSONL, however deep
    files: tuple[str, ...] = ()  # of its workspace: folders, or single files


LAYOUTS: dict[Program, Layout] = {
    "claude-code": Layout(".claude", "CLAUDE_CONFIG_DIR", ("projects",)),
    "codex": Layout(".codex", "CODEX_HOME", ("sessions", "archived_sessions")),
    "nanobot": Layout(".nanobot", "", ("workspace/sessions", "sessions"), ("workspace",)),
    "hermes": Layout(".hermes", "HERMES_HOME", ("sessions",), ("SOUL.md", "memories")),
}


def find_other(program: Program, env: Mapping[str, str], user_home: Path, given: Path | None = None) -> Path:
    """Its folder: the one that is named, or where the program keeps it. Raises NotFound."""
    layout = LAYOUTS[program]
    root = user_home / layout.folder
    if given is not None:
        root = expand_user(str(given), user_home).absolute()
        if not any((root / folder).is_dir() for folder in layout.transcripts) and (root / layout.folder).is_dir():
            root /= layout.folder
    elif layout.variable and (named := env_value(env, layout.variable)):
        root = expand_user(named, user_home).absolute()
    if not root.is_dir():
        raise NotFound(f"there is no folder {root}", hint=f"name it: pal migrate {program} DIR")
    return root


class Nothing(Struct, frozen=True):
    """Documents of a home that has none."""

    kept: tuple[ForeignDocument, ...] = ()
    jobs: tuple[FoundJob, ...] = ()
    approvals: tuple[FoundApproval, ...] = ()


class OtherHome:
    """Reads a home and leaves it as it is. All that is in it becomes the default agent's."""

    def __init__(self, root: Path, program: Program, agent: str = DEFAULT_AGENT) -> None:
        self.root = root
        self.losses = Losses()
        self.config = ForeignConfig("", {})
        self.documents = Nothing()
        self._program = program
        self._layout = LAYOUTS[program]
        self._agent = agent
        self.agents = [ForeignAgent(agent, root, root if self._layout.files else None, is_default=True)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """There is nothing to let go."""

    def sessions(self) -> Iterator[ForeignSession]:
        for folder in self._layout.transcripts:
            for path, stat in walk(self.root / folder, folder, self.losses):
                name = path.rpartition("/")[2]
                if name.endswith(".jsonl") and not name.startswith("."):
                    yield self._session(f"{folder}/{path}", name.removesuffix(".jsonl"), stat.st_size)

    def skills(self) -> list[FoundSkill]:
        return []

    def stored_keys(self) -> list[ForeignSecrets]:
        return []

    def workspace_files(self) -> Iterator[tuple[FoundFile, Path]]:
        for name in self._layout.files:
            place = self.root / name
            if place.is_file() and not place.is_symlink():
                yield FoundFile(self._agent, name, place.stat().st_size), place
                continue
            inside = "" if name == "workspace" else f"{name}/"
            for path, stat in walk(place, name, self.losses):
                if not (name == "workspace" and path.startswith("sessions/")):
                    yield FoundFile(self._agent, f"{inside}{path}", stat.st_size), place / path

    def _session(self, shown: str, stem: str, size: int) -> ForeignSession:
        """They have ended: they are there to be found and read, and nobody waits in them for an answer."""
        known = self._head(shown)
        found = UUID.findall(stem)
        named = found[-1] if found and self._program == "codex" else stem
        session_id = named if SESSION_ID.fullmatch(named) else re.sub(r"[^A-Za-z0-9._-]+", "-", f"t{stem}")[:100]
        return ForeignSession(
            agent=self._agent,
            key=self._key(known, session_id),
            session_id=session_id,
            origin="earlier",
            file=shown,
            read=entries_of_file(self.root / shown, shown, self.losses),
            size=size,
            label=known.get("label", "")[:200],
        )

    def _key(self, known: dict[str, str], session_id: str) -> str:
        """Where somebody else may have spoken, the key says so (`telegram:42` is a direct chat)."""
        channel, _, peer = known.get("key", "").partition(":")
        short = f"{channel}:direct:{peer}" if channel and peer and channel != "cli" else ""
        for key in (short, f"explicit:{self._program}-{session_id}"):
            try:
                return agent_key(self._agent, key)
            except BadRequest:
                continue
        return agent_key(self._agent, f"explicit:{self._program}")

    def _head(self, shown: str) -> dict[str, str]:
        """What the first lines say about it: a key of another channel, a title."""
        found: dict[str, str] = {}
        lines = file_lines(self.root / shown, shown, Losses())
        for number, data in lines:
            try:
                value = json.loads(data)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                found |= {name: text for name, read in _TOLD.items() if (text := read(value))}
            if number >= HEAD:
                break
        return found


def _text(value: Any) -> str:
    return value.encode(errors="replace").decode() if isinstance(value, str) else ""


_TOLD: dict[str, Callable[[dict[str, Any]], str]] = {
    "key": lambda value: _text(value.get("key")) if value.get("_type") == "metadata" else "",
    "label": lambda value: _text(value.get("summary")) if value.get("type") == "summary" else "",
}
