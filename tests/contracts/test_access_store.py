"""One suite for every keeper of tokens and devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from palinurus.domain.errors import BadRequest, StorageDamaged
from palinurus.operations.access import AccessStore, AccessToken, PairedDevice
from palinurus.storage.database import Database


@pytest.fixture
def store(database: Database) -> AccessStore:
    return AccessStore(database)


def token(name: str, **changes: Any) -> AccessToken:
    return msgspec.structs.replace(
        AccessToken(name, f"the {name}", f"digest-{name}", ("read", "write"), 1000), **changes
    )


def device(name: str, **changes: Any) -> PairedDevice:
    plain = PairedDevice(name, f"key-{name}", "a phone", ("read",), "waiting", 1000, code="123456", platform="ios")
    return msgspec.structs.replace(plain, **changes)


async def test_tokens_and_devices_come_back_as_they_were_in_the_order_in_which_they_came(store: AccessStore) -> None:
    tokens = [token("z", expires_at=5, last_used_at=4, device_id="d"), token("a", scopes=("admin",))]
    devices = [device("y", paired_at=7), device("b")]
    for each in tokens:
        await store.put_token(each)
    for paired in devices:
        await store.put_device(paired)
    assert await store.tokens() == tokens
    assert await store.devices() == devices


async def test_what_is_put_again_replaces_what_was_there_and_keeps_its_place(store: AccessStore) -> None:
    for name in "abc":
        await store.put_token(token(name))
        await store.put_device(device(name))
    await store.put_token(token("b", revoked_at=9))
    await store.put_device(device("b", status="paired", scopes=("read", "write"), paired_at=8))
    assert await store.tokens() == [token("a"), token("b", revoked_at=9), token("c")]
    paired = device("b", status="paired", scopes=("read", "write"), paired_at=8)
    assert await store.devices() == [device("a"), paired, device("c")]


async def test_a_rotated_token_has_a_new_digest_and_the_old_one_is_gone(store: AccessStore) -> None:
    await store.put_token(token("a"))
    await store.put_token(token("a", digest="digest-new"))
    assert [each.digest for each in await store.tokens()] == ["digest-new"]
    await store.put_token(token("b", digest="digest-a"))


async def test_two_tokens_never_share_a_secret(store: AccessStore) -> None:
    await store.put_token(token("a"))
    with pytest.raises(BadRequest, match="'b' has the secret of another"):
        await store.put_token(token("b", digest="digest-a"))
    assert await store.tokens() == [token("a")]


async def test_an_empty_store_lets_nobody_in(store: AccessStore) -> None:
    assert await store.tokens() == []
    assert await store.devices() == []


async def test_a_row_that_is_none_is_told_as_damage(tmp_path: Path) -> None:
    database = Database(tmp_path / "home.sqlite", "home")

    def spoil(connection: apsw.Connection) -> None:
        connection.execute("INSERT INTO tokens (id, digest, row) VALUES ('a', 'd', '{}')")

    await database.write(spoil)
    with pytest.raises(StorageDamaged, match="the row of a token cannot be read"):
        await AccessStore(database).tokens()
    await database.close()
