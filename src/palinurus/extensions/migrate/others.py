"""The homes of other agents: their transcripts and, for some, a workspace of markdown.

claude-code   ~/.claude/projects/<project>/<id>.jsonl
codex         ~/.codex/sessions/<year>/<month>/<day>/rollout-<time>-<id>.jsonl
nanobot       ~/.nanobot/workspace, its sessions/*.jsonl and ~/.nanobot/sessions/**/*.jsonl
hermes        ~/.hermes/sessions/*.jsonl, as its releases before the database wrote them; SOUL.md and memories/

Each line is stored as it was written; sessions/others.py understands it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from palinurus.config.home import env_value, expand_user
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.keys import DEFAULT_AGENT
from palinurus.extensions.migrate.files import file_lines, walk
from palinurus.extensions.migrate.foreign import (
    FLAT,
    ForeignAgent,
    ForeignEntry,
    ForeignHome,
    ForeignSession,
    as_object,
    as_stamp,
    load_json,
    load_line,
    replace_surrogates,
    text_of_blocks,
)
from palinurus.extensions.migrate.openclaw.entries import LONGEST_NAME
from palinurus.extensions.migrate.openclaw.transcripts import SESSION_ID, agent_key
from palinurus.extensions.migrate.report import FoundFile, Losses
from palinurus.sessions.others import message_of
from palinurus.sessions.transcript import Row

PLAIN_ROLES = ("user", "assistant", "system", "human")
Program = Literal["claude-code", "codex", "nanobot", "hermes"]
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
HEAD = 20  # lines that are searched for the title of a transcript


class HomeLayout(Struct, frozen=True):
    folder: str  # in the user's home
    variable: str  # of the environment, with another folder
    transcripts: tuple[str, ...]  # folders with JSONL at any depth
    files: tuple[str, ...] = ()  # of its workspace: folders, or single files


LAYOUTS: dict[Program, HomeLayout] = {
    "claude-code": HomeLayout(".claude", "CLAUDE_CONFIG_DIR", ("projects",)),
    "codex": HomeLayout(".codex", "CODEX_HOME", ("sessions", "archived_sessions")),
    "nanobot": HomeLayout(".nanobot", "", ("workspace/sessions", "sessions"), ("workspace",)),
    "hermes": HomeLayout(".hermes", "HERMES_HOME", ("sessions",), ("SOUL.md", "memories")),
}


def find_other(program: Program, env: Mapping[str, str], user_home: Path, given: Path | None = None) -> Path:
    """Its folder: `given`, or the usual one of the program. Raises NotFound."""
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


def _entries(path: Path, shown: str, losses: Losses) -> Iterator[ForeignEntry]:
    """A bad line is a loss of that line only. One without a link follows the line before it."""
    before = None
    for number, data in file_lines(path, shown, losses):
        entry = read_line(data, number, before)
        if isinstance(entry, str):
            losses.add(shown, number, entry)
        else:
            before = entry.row.id
            yield entry


def read_line(data: bytes, number: int, before: str | None) -> ForeignEntry | str:
    """The entry, or the reason why there is none."""
    loaded = load_line(data)
    if isinstance(loaded, str):
        return loaded
    payload, value = loaded
    message = message_of(value)
    if not message and value.get("role") in PLAIN_ROLES and "type" not in value:
        message = value
    role = str(message.get("role") or "")
    kind = _name(value.get("type")) or _name(value.get("_type")) or (f"{FLAT}{role}" if role else "unknown")
    row = Row(_name(value.get("uuid")) or f"line-{number}", _name(value.get("parentUuid")) or before, payload)
    text = text_of_blocks(message.get("content"))
    return ForeignEntry(row, kind, role, text, number, as_stamp(value.get("timestamp")))


def _name(value: Any) -> str:
    """What can be an id or a type."""
    return replace_surrogates(value) if isinstance(value, str) and len(value) <= LONGEST_NAME else ""


class OtherHome(ForeignHome):
    """All that is in it goes to one agent."""

    def __init__(self, root: Path, program: Program, agent: str = DEFAULT_AGENT) -> None:
        self._layout = LAYOUTS[program]
        workspace = root if self._layout.files else None
        super().__init__(root, [ForeignAgent(agent, root, workspace, is_default=True)])
        self._program = program
        self._agent = agent

    def sessions(self) -> Iterator[ForeignSession]:
        for folder in self._layout.transcripts:
            for path, stat in walk(self.root / folder, folder, self.losses):
                name = path.rpartition("/")[2]
                if name.endswith(".jsonl") and not name.startswith("."):
                    yield self._session(f"{folder}/{path}", name.removesuffix(".jsonl"), stat.st_size)

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
        """An archived session: it can be found and read, and is not continued."""
        known = self._head(shown)
        found = UUID.findall(stem)
        named = found[-1] if found and self._program == "codex" else stem
        session_id = named if SESSION_ID.fullmatch(named) else re.sub(r"[^A-Za-z0-9._-]+", "-", f"t{stem}")[:100]
        key, label = self._key(known, session_id), known.get("label", "")[:200]
        read = partial(_entries, self.root / shown, shown, self.losses)
        return ForeignSession(self._agent, key, session_id, "earlier", shown, read, size, label=label)

    def _key(self, known: dict[str, str], session_id: str) -> str:
        """A key of a channel where it had one (`telegram:42` is a direct chat): other people may have written there."""
        channel, _, peer = known.get("key", "").partition(":")
        short = f"{channel}:direct:{peer}" if channel and peer and channel != "cli" else ""
        for key in (short, f"explicit:{self._program}-{session_id}"):
            with suppress(BadRequest):
                return agent_key(self._agent, key)
        return agent_key(self._agent, f"explicit:{self._program}")

    def _head(self, shown: str) -> dict[str, str]:
        """The key of a channel and the title, if the first lines have them."""
        found: dict[str, str] = {}
        for number, data in file_lines(self.root / shown, shown, Losses()):
            value = as_object(load_json(data))
            key = value.get("key") if value.get("_type") == "metadata" else None
            label = value.get("summary") if value.get("type") == "summary" else None
            texts = {"key": key, "label": label}
            found |= {name: replace_surrogates(text) for name, text in texts.items() if text and isinstance(text, str)}
            if number >= HEAD:
                break
        return found
