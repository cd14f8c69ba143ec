"""The log of the home, piece by piece: a client goes on from the cursor that it was given."""

from __future__ import annotations

import asyncio
from typing import Annotated

from msgspec import Meta, Struct

from palinurus.gateway.talk.methods import Method, Talk
from palinurus.operations.logs import LogTail, tail_logs


class AskTail(Struct, frozen=True, rename="camel"):
    cursor: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    limit: Annotated[int, Meta(ge=1, le=5_000)] = 500
    max_bytes: Annotated[int, Meta(ge=1, le=1_000_000)] = 250_000


async def _tail(talk: Talk, params: AskTail) -> LogTail:
    root = talk.desk.house.home.root
    return await asyncio.to_thread(
        lambda: tail_logs(root, cursor=params.cursor, limit=params.limit, max_bytes=params.max_bytes)
    )


METHODS = (Method("logs.tail", AskTail, LogTail, "read", _tail, about="Lines of the log, from a cursor on."),)
