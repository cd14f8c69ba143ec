"""Devices: a key that proves who it is, pairing, and a token of its own."""

from __future__ import annotations

import time
from typing import Any

import pytest
from serving import CLIENT, Key, Running, Told, Visitor, running

from palinurus.config.home import Home
from palinurus.operations.access import PairedDevice

FAR = {"X-Forwarded-For": "203.0.113.9"}  # whatever it says: not from this machine


def now() -> int:
    return time.time_ns() // 1_000_000


async def arrive(served: Running, *, far: bool = False) -> Visitor:
    return await Visitor.arrive(served.ws, additional_headers=FAR if far else {})


async def enter(
    served: Running, key: Key, *, token: str = "", far: bool = False, scopes: tuple[str, ...] = (), version: str = "v3"
) -> tuple[Visitor, Told]:
    visitor = await arrive(served, far=far)
    secret = token or served.token
    proof = key.proof(visitor.nonce, now(), token=secret, version=version, scopes=",".join(scopes))
    told = await visitor.connect(secret, client=CLIENT, scopes=list(scopes), device=proof)
    return visitor, told


@pytest.mark.parametrize("version", ["v2", "v3"])
async def test_a_device_on_this_machine_is_paired_at_once_and_its_token_is_enough_later(
    served: Running, version: str
) -> None:
    key = Key()
    visitor, told = await enter(served, key, version=version, scopes=("operator.read", "operator.write"))
    assert told.ok
    secret = told.payload["auth"]["deviceToken"]
    assert served.register.device(key.id).status == "paired"  # type: ignore[union-attr]
    await visitor.leave()
    later = await Visitor.arrive(served.ws)
    told = await later.connect(auth={"deviceToken": secret})
    assert told.payload["auth"]["scopes"] == ["operator.read", "operator.write"]
    assert (await later.ask("gateway.tokens.list")).code == "FORBIDDEN"
    await later.leave()
    again, told = await enter(served, key)
    assert "deviceToken" not in told.payload["auth"]  # it has one
    await again.leave()


async def test_a_device_gets_no_more_than_the_credential_that_brought_it(served: Running) -> None:
    _, secret = await served.register.make_token("reader", ["read"])
    key = Key()
    visitor, told = await enter(served, key, token=secret, scopes=("operator.admin",))
    assert told.payload["auth"]["scopes"] == ["operator.read"]
    device = await Visitor.enter(served.ws, told.payload["auth"]["deviceToken"], scopes=["operator.admin"])
    assert device.hello is not None
    assert device.hello.payload["auth"]["scopes"] == ["operator.read"]
    await visitor.leave()
    await device.leave()


async def test_a_device_on_this_machine_gets_more_when_a_better_credential_brings_it(served: Running) -> None:
    key = Key()
    first, told = await enter(served, key, scopes=("operator.read",))
    secret = told.payload["auth"]["deviceToken"]
    second, told = await enter(served, key, scopes=("operator.write",))
    assert told.ok
    device = await Visitor.enter(served.ws, secret)
    assert device.hello is not None
    assert device.hello.payload["auth"]["scopes"] == ["operator.read", "operator.write"]
    for each in (first, second, device):
        await each.leave()


async def test_from_elsewhere_somebody_must_approve_it_first(served: Running) -> None:
    key = Key()
    visitor, told = await enter(served, key, far=True, scopes=("operator.write",))
    assert (told.code, told.detail) == ("NOT_PAIRED", "PAIRING_REQUIRED")
    code = told.error["details"]["requestId"]
    assert (await visitor.closed())[0] == 1008
    visitor, told = await enter(served, key, far=True, scopes=("operator.write",))
    assert told.error["details"]["requestId"] == code  # asked again, it keeps its place
    await visitor.closed()
    owner = await Visitor.enter(served.ws, served.token)
    assert [each["code"] for each in (await owner.ask("devices.list")).payload["devices"]] == [code]
    assert (await owner.ask("devices.approve", device=code, scopes=["read"])).payload["status"] == "paired"
    visitor, told = await enter(served, key, far=True, scopes=("operator.write",))
    assert told.payload["auth"]["scopes"] == ["operator.read"]  # what was approved, whatever it asks for
    assert told.payload["auth"]["deviceToken"]
    await owner.leave()
    await visitor.leave()


async def test_who_watches_hears_of_a_device_that_waits(served: Running) -> None:
    owner = await Visitor.enter(served.ws, served.token)
    await owner.ask("sessions.subscribe", sessionKey="*")
    visitor, _ = await enter(served, Key(), far=True)
    await visitor.closed()
    assert (await owner.event("device.pair.requested"))["payload"]["name"] == "a test"
    await owner.leave()


async def test_without_a_credential_a_key_is_worth_nothing_and_leaves_no_trace(served: Running) -> None:
    key = Key()
    for far in (False, True):
        visitor, told = await enter(served, key, token="wrong-token", far=far)
        assert told.code == "UNAUTHORIZED"
        await visitor.closed()
    assert served.register.device(key.id) is None


async def test_a_revoked_device_is_shown_out_and_does_not_come_back(served: Running) -> None:
    key = Key()
    by_secret, told = await enter(served, key)
    by_token = await Visitor.enter(served.ws, told.payload["auth"]["deviceToken"])
    bystander = await Visitor.enter(served.ws, served.token)
    await served.register.revoke_device(key.id[:10])
    assert (await by_token.closed())[0] == 1008
    assert (await by_secret.closed())[0] == 1008
    visitor = await Visitor.arrive(served.ws)
    assert (await visitor.connect(auth={"deviceToken": told.payload["auth"]["deviceToken"]})).code == "UNAUTHORIZED"
    visitor, refused = await enter(served, key)
    assert refused.detail == "PAIRING_REQUIRED"
    assert (await bystander.ask("gateway.status")).ok
    await served.register.approve_device(key.id)
    back, told = await enter(served, key)
    assert told.payload["auth"]["deviceToken"]
    await back.leave()
    await bystander.leave()


@pytest.mark.parametrize("what", ["device", "token"])
async def test_what_is_revoked_while_it_comes_in_stays_outside(
    served: Running, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    key = Key()
    await (await enter(served, key))[0].leave()
    token, secret = await served.register.make_token("reader", ["read"])
    give = served.register.device_token

    async def late(device: PairedDevice) -> str:
        await (served.register.revoke_token(token.id) if what == "token" else served.register.revoke_device(key.id))
        return await give(device)

    monkeypatch.setattr(served.register, "device_token", late)
    visitor, told = await enter(served, key, token=secret)
    assert not told.ok
    await visitor.closed()
    alive = [each for each in served.register.tokens() if each.device_id and not each.revoked_at]
    assert len(alive) == (what == "token")  # that of the device itself


async def test_the_token_of_one_device_is_no_good_for_another(served: Running) -> None:
    first, told = await enter(served, Key())
    visitor, refused = await enter(served, Key(), token=told.payload["auth"]["deviceToken"])
    assert refused.detail == "AUTH_DEVICE_TOKEN_MISMATCH"
    await visitor.closed()
    await first.leave()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"nonce": ""}, "DEVICE_AUTH_NONCE_REQUIRED"),
        ({"nonce": "of-another-connection"}, "DEVICE_AUTH_NONCE_MISMATCH"),
        ({"signedAt": 0}, "DEVICE_AUTH_SIGNATURE_EXPIRED"),
        ({"id": "0" * 64}, "DEVICE_AUTH_DEVICE_ID_MISMATCH"),
        ({"publicKey": Key().public_key}, "DEVICE_AUTH_DEVICE_ID_MISMATCH"),
        ({"publicKey": "no key"}, "DEVICE_AUTH_PUBLIC_KEY_INVALID"),
        ({"publicKey": ""}, "DEVICE_AUTH_PUBLIC_KEY_INVALID"),
        ({"publicKey": "ü" * 43}, "DEVICE_AUTH_PUBLIC_KEY_INVALID"),
        ({"signature": "AAAA"}, "DEVICE_AUTH_SIGNATURE_INVALID"),
        ({"signature": "A" * 86}, "DEVICE_AUTH_SIGNATURE_INVALID"),
        ({"signature": ""}, "DEVICE_AUTH_SIGNATURE_INVALID"),
    ],
)
async def test_a_proof_that_does_not_hold_is_refused_with_openclaws_code(
    served: Running, change: dict[str, Any], code: str
) -> None:
    visitor, key = await Visitor.arrive(served.ws), Key()
    proof = key.proof(visitor.nonce, now(), token=served.token) | change
    told = await visitor.connect(served.token, client=CLIENT, device=proof)
    assert (told.ok, told.detail) == (False, code)
    assert (await visitor.closed())[0] == 1008
    assert served.register.device(key.id) is None


@pytest.mark.parametrize(
    "change",
    [{"token": "another"}, {"scopes": "operator.admin"}, {"role": "node"}, {"platform": "ios"}, {"nonce": "other"}],
)
async def test_a_signature_over_other_words_is_refused(served: Running, change: dict[str, str]) -> None:
    visitor, key = await Visitor.arrive(served.ws), Key()
    signed = {"token": served.token, "nonce": visitor.nonce} | change
    proof = key.proof(signed.pop("nonce"), now(), **signed) | {"nonce": visitor.nonce}
    told = await visitor.connect(served.token, client=CLIENT, device=proof)
    assert told.detail == "DEVICE_AUTH_SIGNATURE_INVALID"
    await visitor.closed()


@pytest.mark.parametrize("minutes", [-11, 11])
async def test_a_clock_that_is_far_off_is_refused(served: Running, minutes: int) -> None:
    visitor, key = await Visitor.arrive(served.ws), Key()
    proof = key.proof(visitor.nonce, now() + minutes * 60_000, token=served.token)
    assert (await visitor.connect(served.token, client=CLIENT, device=proof)).detail == "DEVICE_AUTH_SIGNATURE_EXPIRED"
    await visitor.closed()


async def test_a_connect_frame_that_was_overheard_is_of_no_use(served: Running) -> None:
    key = Key()
    first = await Visitor.arrive(served.ws)
    proof = key.proof(first.nonce, now(), token=served.token)
    assert (await first.connect(served.token, client=CLIENT, device=proof)).ok
    second = await Visitor.arrive(served.ws)
    assert (await second.connect(served.token, client=CLIENT, device=proof)).detail == "DEVICE_AUTH_NONCE_MISMATCH"
    await first.leave()


async def test_only_so_many_devices_wait(served: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palinurus.operations.access.WAITING_DEVICES", 2)
    codes = []
    for _ in range(3):
        visitor, told = await enter(served, Key(), far=True)
        codes.append(told.code)
        await visitor.closed()
    assert codes == ["NOT_PAIRED", "NOT_PAIRED", "QUEUE_FULL"]


async def test_devices_that_connect_at_the_same_time_get_one_token(served: Running) -> None:
    key = Key()
    visitors = [await arrive(served) for _ in range(4)]
    numbers = []
    for visitor in visitors:
        proof = key.proof(visitor.nonce, now(), token=served.token)
        said = {"auth": {"token": served.token}, "client": CLIENT, "device": proof}
        numbers.append(await visitor.send("connect", **said))
    told = [await visitor.answer(number) for visitor, number in zip(visitors, numbers, strict=True)]
    assert all(each.ok for each in told)
    assert sum("deviceToken" in each.payload["auth"] for each in told) == 1
    for visitor in visitors:
        await visitor.leave()


async def test_pairings_outlive_the_gateway(home: Home) -> None:
    async with running(home) as served:
        visitor, told = await enter(served, Key())
        secret = told.payload["auth"]["deviceToken"]
        await visitor.leave()
    async with running(home) as served:
        visitor = await Visitor.enter(served.ws, secret)
        await visitor.leave()


async def test_openclaws_methods_approve_reject_renew_and_remove(served: Running) -> None:
    first, second, owner = Key(), Key(), await Visitor.enter(served.ws, served.token)
    for key in (first, second):
        visitor, _ = await enter(served, key, far=True)
        await visitor.closed()
    codes = {each["deviceId"]: each["requestId"] for each in (await owner.ask("device.pair.list")).payload["pending"]}
    assert (await owner.ask("device.pair.approve", requestId=codes[first.id])).ok
    assert (await owner.ask("device.pair.reject", requestId=codes[second.id])).ok
    assert (await owner.ask("device.pair.approve", requestId=codes[second.id])).code == "NOT_FOUND"
    listed = (await owner.ask("device.pair.list")).payload
    assert (listed["pending"], [each["deviceId"] for each in listed["paired"]]) == ([], [first.id])
    visitor, told = await enter(served, first, far=True)
    old = told.payload["auth"]["deviceToken"]
    new = (await owner.ask("device.token.rotate", deviceId=first.id, role="operator")).payload["token"]
    assert (await (await Visitor.arrive(served.ws)).connect(old)).code == "UNAUTHORIZED"
    device = await Visitor.enter(served.ws, new)
    assert (await owner.ask("device.pair.remove", deviceId=first.id)).ok
    assert (await device.closed())[0] == 1008
    assert (await owner.ask("device.token.revoke", deviceId=first.id)).code == "NOT_FOUND"
    await visitor.closed()
    await owner.leave()
