"""Sessions of places in which several people may listen, under keys of an unknown form, are not private."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hostile_model import HostileHome

from palinurus.domain.keys import SessionKey
from support.wire import WireServer

pytestmark = pytest.mark.slow

SHARED = ("matrix:room:!x", "discord:thread:4", "slack:t1:a1:channel:c1", "zalo:groups:7", "main:cron:1", "room:7")


async def test_private_memory_is_not_read_where_a_key_may_be_that_of_a_room(tmp_path: Path) -> None:
    async with WireServer() as server:
        home = HostileHome(tmp_path, server)
        await home.pal("setup")
        (home.workspace / "MEMORY.md").write_text("the boat is called Aster\n")
        for key in SHARED:
            told = await home.use(("read", {"path": "MEMORY.md"}), session=f"agent:main:{key}")
            assert "Aster" not in str(told), key
        assert "Aster" not in msgspec.json.encode(server.requests).decode()
        [mine] = await home.use(("read", {"path": "MEMORY.md"}), session="agent:main:holiday")
        assert "Aster" in mine


@pytest.mark.parametrize("key", SHARED)
def test_such_keys_are_those_of_groups_and_stay_as_they_are(key: str) -> None:
    parsed = SessionKey.parse(f"agent:main:{key}")
    assert (parsed.is_private, parsed.chat_type, str(parsed)) == (False, "group", f"agent:main:{key}")
