"""One transcript in a file, out of its home: as we wrote it out, or as OpenClaw keeps it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from palinurus.domain.errors import BadRequest
from palinurus.domain.keys import SessionKey
from palinurus.migrate.foreign import ForeignSession
from palinurus.migrate.openclaw.colophon import read_colophon
from palinurus.migrate.openclaw.store import SESSION_ID
from palinurus.migrate.openclaw.transcripts import entries_of_file, own_session
from palinurus.migrate.report import Losses

Whose = Callable[[str], SessionKey]
"""Under which key it shall stand, given the one it stood under, or a short one."""


def single_session(path: Path, losses: Losses, whose: Whose) -> ForeignSession:
    """Raises BadRequest for a file that holds no conversation."""
    colophon = read_colophon(path)
    if colophon is not None:
        key = whose(colophon.key)
        session = own_session(path, path.name, SessionKey.parse(colophon.key).agent, losses)
        if session is not None:
            return replace(session, key=str(key), agent=key.agent)
    read = entries_of_file(path, path.name, losses)
    first = next(read(), None)
    losses.clear()  # it will be read again
    if first is None:
        raise BadRequest(f"no line of {path} is an entry of a conversation", hint="`pal sessions export` writes one")
    named = first.row.id if first.kind == "session" else path.name.partition(".jsonl")[0]
    session_id = named if SESSION_ID.fullmatch(named) else "imported"
    key = whose(f"explicit:{session_id}")
    size = path.stat().st_size
    return ForeignSession(key.agent, str(key), session_id, "live", path.name, read, size)
