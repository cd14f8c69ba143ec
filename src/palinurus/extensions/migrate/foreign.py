"""What a reader of a foreign home returns: agents, transcripts and documents, each as it was written. And the base of
such readers, with the few ways to read values that other programs wrote.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self

from msgspec import Struct

from palinurus.extensions.migrate.files import walk
from palinurus.extensions.migrate.report import FoundApproval, FoundFile, FoundSkill, Losses, Origin
from palinurus.sessions.session import Session
from palinurus.sessions.transcript import Row

FLAT = "flat:"  # before the role of a bare message: its type
LATEST_MS = 1e14  # the year 5138


class ForeignEntry(Struct, frozen=True, gc=False):
    """One line of a transcript. `row.payload` is its text as it was written; the rest is what we read in it."""

    row: Row
    kind: str  # its type; `flat:<role>` for lines that are bare messages
    role: str  # of a message; empty for other entries
    text: str  # what was said
    number: int  # of the line or the row
    stamp: str | float | None = None  # the time as it was written

    @property
    def is_flat(self) -> bool:
        return self.kind.startswith(FLAT)


class ForeignAgent(Struct, frozen=True):
    id: str
    folder: Path | None  # of its state
    workspace: Path | None
    name: str = ""
    configured: bool = False
    is_default: bool = False
    marked: bool = False  # as the default: by the config or by its name


class ForeignSession(Struct, frozen=True):
    """A transcript with what is known about it. `read` may be called again and reads from the start each time.

    Reading never raises because of the content of a file: that is added to the losses of the reader.
    """

    agent: str
    key: str
    session_id: str
    origin: Origin
    file: str = ""  # relative to the home, for people
    read: Callable[[], Iterator[ForeignEntry]] = lambda: iter(())
    size: int = 0
    details: str = ""  # its row in the store of sessions: a JSON object, unchanged
    label: str = ""
    updated_at: int = 0
    same_as: str = ""  # an earlier key with the same transcript
    other_keys: dict[str, str] = {}  # later keys with the same transcript, with their rows
    own: Session | None = None  # its row, when a Palinurus exported it
    extra: str = ""  # fields that this Palinurus did not know either: a JSON object


class ForeignDocument(Struct, frozen=True):
    """Something that is stored unchanged for a later use."""

    kind: Literal["cron", "pairing", "approvals"]
    name: str
    text: str


class ForeignJob(Struct, frozen=True):
    """A cron job, with its state in it."""

    raw: dict[str, Any]
    where: str


class ForeignDocuments(Struct):
    """Documents to store unchanged, and what is in them."""

    kept: list[ForeignDocument] = []
    jobs: list[ForeignJob] = []
    approvals: list[FoundApproval] = []


class ForeignConfig(Struct, frozen=True):
    """The config as data; empty when there is none that can be read."""

    file: str = ""
    data: dict[str, Any] = {}

    @property
    def version(self) -> str:
        return as_text(as_object(self.data.get("meta")).get("lastTouchedVersion"))


class ForeignSecrets(Struct, frozen=True):
    """The stored keys of one agent. Never shown."""

    agent: str  # empty: of all agents
    where: str
    profiles: dict[str, Any]
    order: dict[str, tuple[str, ...]] = {}  # provider -> ids of profiles, the preferred one first


class ForeignHome:
    """A home that is open for reading, and is never changed. This base has only the files of its agents' workspaces.

    Nothing raises because of the content of a file: `losses` says what could not be read.
    """

    def __init__(self, root: Path, agents: list[ForeignAgent] | None = None) -> None:
        self.root = root
        self.agents = agents or []
        self.losses = Losses()
        self.secrets: tuple[str, ...] = ()  # values that must not get into a wiki; never shown or stored
        self.config = ForeignConfig()
        self.documents = ForeignDocuments()
        self.notes: list[str] = []  # what is in it and is not imported

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove what was opened or copied for reading."""

    def sessions(self) -> Iterator[ForeignSession]:
        return iter(())

    def skills(self) -> list[FoundSkill]:
        return []

    def workspace_files(self) -> Iterator[tuple[FoundFile, Path]]:
        """Each file of each workspace with its path. Of agents that share a workspace, the first one has it."""
        seen: set[Path] = set()
        for agent in self.agents:
            if agent.workspace is not None and agent.workspace not in seen:
                seen.add(agent.workspace)
                for path, stat in walk(agent.workspace, agent.workspace.name, self.losses):
                    yield FoundFile(agent.id, path, stat.st_size), agent.workspace / path

    def stored_keys(self) -> list[ForeignSecrets]:
        """The stored keys of model providers. Use them only when a person asked for it."""
        return []


def as_object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_text(value: Any) -> str:
    """A text of a config, stripped."""
    return value.strip() if isinstance(value, str) else ""


def load_json(text: str | bytes) -> Any:
    """None for what is not JSON, or nested too deep."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def load_line(data: bytes) -> tuple[str, dict[str, Any]] | str:
    """The text of a line and the object in it, or the reason why there is none."""
    try:
        payload = data.decode()
        value = json.loads(payload)
    except UnicodeDecodeError:
        return "it is not UTF-8 text"
    except (ValueError, RecursionError) as error:
        return f"it is not JSON: {'nested too deep' if isinstance(error, RecursionError) else str(error)[:120]}"
    return (payload, value) if isinstance(value, dict) else "it is no JSON object"


def text_of_blocks(content: Any) -> str:
    """The text of a message's content, which may be a text, a block or a list of blocks."""
    if isinstance(content, str):
        return content
    blocks = [content] if isinstance(content, dict) else content if isinstance(content, list) else []
    texts = [block.get("text") for block in blocks if isinstance(block, dict) and block.get("type", "text") == "text"]
    return "\n".join(text for text in texts if isinstance(text, str))


def as_stamp(value: Any) -> str | float | None:
    return value if isinstance(value, str | int | float) and not isinstance(value, bool) else None


def replace_surrogates(text: str) -> str:
    """Half of a surrogate pair cannot be stored."""
    return text.encode(errors="replace").decode()


def time_ms(value: str | float | None) -> int | None:
    """Milliseconds of an ISO time or a number of milliseconds; None for what is no possible time."""
    with suppress(ValueError, OverflowError):
        if isinstance(value, str) and value:
            moment = datetime.fromisoformat(value)
            return max(0, int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000))
        if isinstance(value, int | float) and 0 < value < LATEST_MS:
            return int(value)
    return None


def are_alike(entries: Sequence[ForeignEntry], payloads: Sequence[str]) -> bool:
    """Whether they are the first of our entries. Another program may have written them in another way."""
    pairs = zip([each.row.payload for each in entries], payloads, strict=False)
    return all(there == here or _meaning(there) == _meaning(here) for there, here in pairs)


def _meaning(payload: str) -> Any:
    """Of a header without what each program writes anew: the version of the form, and where it works."""
    value = load_json(payload)
    if as_object(value).get("type") == "session":
        return {name: each for name, each in value.items() if name not in ("version", "cwd")}
    return payload if value is None else value
