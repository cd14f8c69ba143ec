"""Collections of memory. Searching, reading, indexing and the rest are operations, under their own names.

Which folders are read is decided on the machine, so there is no method that adds one.
"""

from __future__ import annotations

import asyncio

from msgspec import Struct

from palinurus.gateway.talk.methods import Method, Talk
from palinurus.operations.memory_collections import ListedCollection, collections_list


class AskCollections(Struct, frozen=True, rename="camel"):
    agent_id: str = ""


class Collections(Struct, frozen=True):
    collections: tuple[ListedCollection, ...]


async def _list(talk: Talk, params: AskCollections) -> Collections:
    return Collections(await asyncio.to_thread(collections_list, talk.desk.ground, params.agent_id.strip().lower()))


METHODS = (
    Method(
        "memory.collections.list",
        AskCollections,
        Collections,
        "read",
        _list,
        about="Folders that memory searches besides the workspace.",
    ),
)
