"""The homes of other agents: their transcripts and, for some, a workspace of markdown.

claude-code   ~/.claude/projects/<project>/<id>.jsonl
codex         ~/.codex/sessions/<year>/<month>/<day>/rollout-<time>-<id>.jsonl
nanobot       ~/.nanobot/workspace, its sessions/*.jsonl and ~/.nanobot/sessions/**/*.jsonl
hermes        ~/.hermes/state.db, or ~/.hermes/sessions/*.jsonl as older releases wrote them; SOUL.md and memories/

Each line is stored as it was written, but for what changes in the first line of nanobot; sessions/others.py understands
it.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from palinurus.config.home import env_value, expand_user
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.keys import DEFAULT_AGENT
from palinurus.extensions.migrate.files import Line, file_lines, listing, walk
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
from palinurus.extensions.migrate.hermes import FILE as STATE_FILE
from palinurus.extensions.migrate.hermes import conversation_lines, conversations, open_state
from palinurus.extensions.migrate.openclaw.entries import LONGEST_NAME
from palinurus.extensions.migrate.openclaw.transcripts import SESSION_ID, agent_key
from palinurus.extensions.migrate.report import FoundFile, Losses
from palinurus.sessions.others import message_of
from palinurus.sessions.transcript import Row

OWN_CHANNELS = ("cli", "tui", "api", "acp", "sdk", "websocket", "webui", "cron", "system", "heartbeat", "unified")
PLACES = {  # where our memory looks for files that have another place there
    "memory/MEMORY.md": "MEMORY.md",
    "memories/MEMORY.md": "MEMORY.md",
    "memories/USER.md": "USER.md",
}
LOCK = ".lock"
VOLATILE = ("updated_at", "last_archived", "last_consolidated", "metadata")  # of line 1, which nanobot writes anew
PLAIN_ROLES = ("user", "assistant", "system", "human")
Program = Literal["claude-code", "codex", "nanobot", "hermes"]
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
MOST_NAMED = 20  # of things that are not imported
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


def _entries(lines: Iterator[Line], shown: str, losses: Losses) -> Iterator[ForeignEntry]:
    """A bad line is a loss of that line only. One without a link follows the line before it."""
    before = None
    for number, data in lines:
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
    if value.get("_type") == "metadata":
        about = {name: each for name, each in value.items() if name not in VOLATILE}
        payload = replace_surrogates(json.dumps(about, ensure_ascii=False))
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
    """All that is in it goes to one agent. Close it, for the copies it made."""

    def __init__(self, root: Path, program: Program, agent: str = DEFAULT_AGENT) -> None:
        self._layout = LAYOUTS[program]
        workspace = root if self._layout.files else None
        super().__init__(root, [ForeignAgent(agent, root, workspace, is_default=True)])
        self._program = program
        self._agent = agent
        self._scratch = Path(tempfile.mkdtemp(prefix="pal-migrate-"))
        self._state = open_state(root, self._scratch, self.losses) if program == "hermes" else None
        self.notes = self._left_out()

    def close(self) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)

    def sessions(self) -> Iterator[ForeignSession]:
        known = set()
        for about, title in conversations(self._state) if self._state else ():
            known.add(about["id"])
            yield self._conversation(about, title)
        for folder in self._layout.transcripts:
            for path, stat in walk(self.root / folder, folder, self.losses):
                name = path.rpartition("/")[2]
                if not name.endswith(".jsonl") or name.startswith("."):
                    continue
                if name.removesuffix(".jsonl") in known:
                    self.losses.add(f"{folder}/{path}", 0, f"this conversation is in {STATE_FILE}")
                else:
                    yield self._session(f"{folder}/{path}", name.removesuffix(".jsonl"), stat.st_size)

    def workspace_files(self) -> Iterator[tuple[FoundFile, Path]]:
        """Each with its place here. A file that stands where ours would be comes first."""
        taken: set[str] = set()
        for path, place, size in sorted(self._files(), key=lambda found: found[0] in PLACES):
            target = PLACES.get(path, path)
            target = path if target in taken else target
            taken.add(target)
            yield FoundFile(self._agent, target, size), place

    def _files(self) -> Iterator[tuple[str, Path, int]]:
        for name in self._layout.files:
            place = self.root / name
            if place.is_file() and not place.is_symlink():
                yield name, place, place.stat().st_size
                continue
            inside = "" if name == "workspace" else f"{name}/"
            for path, stat in walk(place, name, self.losses):
                if not path.endswith(LOCK) and not (name == "workspace" and path.startswith("sessions/")):
                    yield f"{inside}{path}", place / path, stat.st_size

    def _left_out(self) -> list[str]:
        """What else is in the folder."""
        taken = {name.split("/")[0] for name in (*self._layout.transcripts, *self._layout.files)}
        taken |= {STATE_FILE, f"{STATE_FILE}-wal", f"{STATE_FILE}-shm"} if self._state else set()
        names = [entry.name for entry in listing(self.root, self.root.name, self.losses) if entry.name not in taken]
        shown = [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
        return [f"not imported: {', '.join(names[:MOST_NAMED] + shown)}"] if names else []

    def _conversation(self, about: dict[str, Any], title: str) -> ForeignSession:
        session_id, shown = self._session_id(about["id"]), f"{STATE_FILE}#{about['id']}"
        chat = {name: str(about.get(name) or "") for name in ("source", "chat_type", "chat_id")}
        key = self._key(
            chat["source"], chat["chat_id"], chat["chat_type"] not in ("", "dm", "direct", "private"), session_id
        )
        read = partial(self._read_rows, about, shown)
        return ForeignSession(self._agent, key, session_id, "earlier", shown, read, label=title)

    def _read_rows(self, about: dict[str, Any], shown: str) -> Iterator[ForeignEntry]:
        lines = conversation_lines(self._state, about, shown) if self._state else iter(())
        return _entries(lines, shown, self.losses)

    def _session(self, shown: str, stem: str, size: int) -> ForeignSession:
        """An archived session: it can be found and read, and is not continued."""
        known = self._head(shown)
        found = UUID.findall(stem)
        session_id = self._session_id(found[-1] if found and self._program == "codex" else stem)
        named, label = known.get("key", ""), known.get("label", "")[:200]
        channel, _, peer = named.partition(":")
        # The name of the file may be made of the key in a way that no person can read.
        readable = _id(named) if named else session_id
        key = self._key(channel, peer, peer.startswith("-"), readable)

        def read() -> Iterator[ForeignEntry]:
            return _entries(file_lines(self.root / shown, shown, self.losses), shown, self.losses)

        return ForeignSession(self._agent, key, session_id, "earlier", shown, read, size, label=label)

    def _session_id(self, named: str) -> str:
        return named if SESSION_ID.fullmatch(named) else _id(f"t{named}")

    def _key(self, channel: str, peer: str, is_group: bool, readable: str) -> str:
        """A key of a channel where it had one (`telegram:42` is a direct chat): other people may have written there."""
        is_chat = channel and peer and channel not in OWN_CHANNELS
        short = f"{channel}:{'group' if is_group else 'direct'}:{peer}" if is_chat else ""
        for key in (short, f"explicit:{self._program}-{readable}"):
            with suppress(BadRequest):
                return agent_key(self._agent, key)
        return agent_key(self._agent, f"explicit:{self._program}")

    def _head(self, shown: str) -> dict[str, str]:
        """The key of a channel and the title, if the first lines have them."""
        found: dict[str, str] = {}
        for number, data in file_lines(self.root / shown, shown, Losses()):
            value = as_object(load_json(data))
            is_about = value.get("_type") == "metadata"
            title = as_object(value.get("metadata")).get("title") if is_about else None
            summary = value.get("summary") if value.get("type") == "summary" else None
            texts = {"key": value.get("key") if is_about else None, "label": title or summary}
            found |= {name: replace_surrogates(text) for name, text in texts.items() if text and isinstance(text, str)}
            if number >= HEAD:
                break
        return found


def _id(named: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", named)[:100]
