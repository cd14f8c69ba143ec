"""What OpenClaw's own command and TUI ask besides messages and sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from family_asking import Asking, Line
from msgspec.structs import replace
from test_approvals_family import asks, waiting

from palinurus.config.home import Home
from palinurus.domain.errors import BadRequest, MissingScope, NotFound
from palinurus.operations.access import PairedDevice
from palinurus.operations.scopes import SCOPES, Scope
from palinurus.runtime.runtime import Runtime
from palinurus.testing.fakes import call, calls
from palinurus.testing.harness import Harness

__all__ = ["asks"]


@pytest.fixture
async def house(pal: Harness, home: Home) -> AsyncIterator[Asking]:
    """A home on a disk, as a gateway has it."""
    runtime = Runtime(home, {})
    await runtime.recover()
    yield Asking(pal, home, runtime.services)
    await asyncio.wait_for(runtime.close(), 60)


MAIN = "agent:main:main"


async def test_an_approval_reaches_who_may_answer_it_and_no_reader(asks: Asking) -> None:
    async with Line(asks) as line:
        _, reads = await asks.register.make_token("reader", ["read"])
        _, answers = await asks.register.make_token("answers", ["approvals"])
        reader, owner = await line.connect(reads), await line.connect(answers)
        assert (await line.call(reader, "sessions.subscribe"))["ok"]
        run, approval = await waiting(asks)
        asked = await line.until(owner, "exec.approval.requested", id=approval)
        assert (asked["request"]["command"], asked["request"]["sessionKey"]) == ("launch the boat", MAIN)
        await line.send(owner, "approval.resolve", {"id": approval, "decision": "allow-once", "kind": "exec"})
        settled = await line.until(owner, "exec.approval.resolved", id=approval)
        assert settled["decision"] == "allow-once"
        await run.wait(60)
        seen: list[str] = []
        while "final" not in seen:
            frame = await line.read(reader)
            seen += [frame["event"], frame["payload"].get("state", "")] if frame["type"] == "event" else []
        assert "approval" in seen
        assert not [event for event in seen if event.startswith("exec.approval")]


async def test_who_watches_a_reply_sees_its_text_and_what_it_waits_for(asks: Asking) -> None:
    async with Line(asks) as line:
        client = await line.connect()
        await line.call(client, "sessions.subscribe")
        asks.pal.model.says(calls(call("launch"), text="Let us see."), "Done.")
        await asks.pal.submits("launch it")
        asked = await line.until(client, "exec.approval.requested")
        shown = await _message(line, client)
        assert shown.startswith("Let us see.\n\nMay I? it is a boat\n")
        assert "launch the boat" in shown
        assert shown.endswith(f"/approve {asked['id']} allow-once | allow-always | deny")
        await line.send(client, "approval.resolve", {"id": asked["id"], "decision": "deny"})
        await line.until(client, "chat", state="final")


async def _message(line: Line, client: Any) -> str:
    """What the next piece of a reply that comes with the whole text says."""
    while True:
        piece = await line.until(client, "chat", state="delta")
        if "message" in piece:
            return str(piece["message"]["content"][0]["text"])


async def test_the_whole_text_of_a_long_reply_is_sent_a_bounded_number_of_times(ask: Asking) -> None:
    ask.hub.listen(ask, MAIN)
    ask.pal.model.says("word " * 4_000)
    await ask.pal.hears("go on")
    deltas = [told for event, told in ask.heard if event == "chat" and told["state"] == "delta"]
    whole = [told["message"]["content"][0]["text"] for told in deltas if "message" in told]
    assert "".join(told["deltaText"] for told in deltas).strip() == ("word " * 4_000).strip()
    assert sum(map(len, whole)) <= 12 * 5 * 4_000
    assert all("".join(told["deltaText"] for told in deltas).startswith(text) for text in whole)


async def test_the_answer_to_a_command_comes_before_what_it_says(ask: Asking) -> None:
    async with Line(ask) as line:
        client = await line.connect()
        await line.send(client, "chat.send", {"sessionKey": MAIN, "message": "/status", "idempotencyKey": "one"})
        frames = []
        while not frames or frames[-1].get("payload", {}).get("state") != "final":
            frames.append(await line.read(client))
        assert frames[0]["type"] == "res"
        assert frames[-1]["payload"]["runId"] == frames[0]["payload"]["runId"]


async def test_an_approval_is_found_and_answered_once(asks: Asking) -> None:
    run, approval = await waiting(asks)
    found = (await asks("approval.get", ("approvals",), id=approval))["approval"]
    assert (found["status"], found["presentation"]["commandText"]) == ("pending", "launch the boat")
    done = await asks("approval.resolve", ("approvals",), id=approval, decision="deny", kind="exec")
    assert (done["applied"], done["approval"]["decision"], done["approval"]["status"]) == (True, "deny", "denied")
    again = await asks("approval.resolve", id=approval, decision="allow-once", kind="exec")
    assert (again["applied"], again["approval"]["decision"]) == (False, "deny")
    await run.wait(60)
    with pytest.raises(NotFound):
        await asks("approval.get", id="nobody")


async def test_kinds_of_approvals_that_there_are_not_are_empty_lists(ask: Asking) -> None:
    assert await ask("plugin.approval.list", ("approvals",)) == []
    assert await ask("openclaw.approval.list", ("approvals",)) == []
    assert await ask("question.list", ("read",)) == {"questions": []}
    assert (await ask("node.list", ("read",)))["nodes"] == []
    assert await ask("node.pair.list", ("pairing",)) == {"pending": [], "paired": []}


async def test_who_is_connected_is_listed_and_who_has_left_is_not(ask: Asking) -> None:
    async with Line(ask) as line:
        client = await line.connect()
        other = await line.connect()
        present = (await line.call(client, "system-presence"))["payload"]
        assert present[0]["mode"] == "gateway"
        assert [each["host"] for each in present[1:]] == ["test", "test"]
        await other.close()
        left = present
        while len(left) == 3:
            left = (await line.call(client, "system-presence"))["payload"]
        assert [each["host"] for each in left[1:]] == ["test"]


DEVICE = PairedDevice("d" * 64, "key", "a phone", ("read",), "waiting", 1, code="abc")


async def test_devices_are_looked_after_with_the_scope_pairing_as_far_as_its_own_scopes_go(ask: Asking) -> None:
    pairing: tuple[Scope, ...] = ("pairing", "read")
    now = ask.services.clock.now_ms()
    await ask.register.ask_to_pair(replace(DEVICE, asked_at=now))
    await ask.register.ask_to_pair(replace(DEVICE, asked_at=now, id="e" * 64, code="def", scopes=("admin",)))
    listed = await ask("device.pair.list", pairing)
    assert {each["requestId"] for each in listed["pending"]} == {"abc", "def"}
    done = await ask("device.pair.approve", pairing, requestId="abc")
    assert (done["device"]["roles"], done["device"]["scopes"]) == (["operator"], ["operator.read"])
    with pytest.raises(MissingScope, match="admin"):
        await ask("device.pair.approve", pairing, requestId="def")
    assert (await ask("device.pair.approve", SCOPES, requestId="def"))["requestId"] == "def"
    paired = await ask.register.device_token(ask.register.device("e" * 64))  # type: ignore[arg-type]
    assert paired
    for method in ("device.token.rotate", "device.token.revoke", "device.pair.remove"):
        with pytest.raises(MissingScope, match="this device has the scope"):
            await ask(method, pairing, deviceId="e" * 64)
    assert (await ask("device.pair.remove", pairing, deviceId="d" * 64))["deviceId"] == "d" * 64


async def test_skills_are_described_with_what_they_lack(house: Asking, workspace: Path) -> None:
    folder = workspace / "skills" / "sail"
    folder.mkdir(parents=True)
    needs = '{"openclaw": {"requires": {"bins": ["no-such-program"]}}}'
    (folder / "SKILL.md").write_text(f"---\nname: sail\ndescription: Sails.\nmetadata: {needs}\n---\nSail.\n")
    told = await house("skills.status", ("read",))
    (sail,) = (each for each in told["skills"] if each["name"] == "sail")
    assert (sail["eligible"], sail["disabled"], sail["missing"]["bins"]) == (False, False, ["no-such-program"])
    assert (told["workspaceDir"], (await house("skills.status"))["workspaceDir"]) == ("", str(workspace))


async def test_cron_jobs_come_in_pages_that_tell_when_the_list_has_changed(house: Asking) -> None:
    for name in ("one", "two", "three"):
        at = {"kind": "every", "everyMs": 3_600_000}
        await house("cron.add", name=name, schedule=at, payload={"kind": "agentTurn", "message": "hi"})
    first = await house("cron.list", ("read",), limit=2, offset=0)
    last = await house("cron.list", ("read",), limit=2, offset=first["nextOffset"])
    assert [first["hasMore"], last["hasMore"], last["nextOffset"], first["total"]] == [True, False, None, 3]
    assert {each["name"] for each in first["jobs"] + last["jobs"]} == {"one", "two", "three"}
    assert first["snapshotRevision"] == last["snapshotRevision"]
    assert first["jobs"][0]["state"]["nextRunAtMs"] == first["jobs"][0]["nextRunAtMs"]
    await house("cron.remove", id="two")
    assert (await house("cron.list"))["snapshotRevision"] != first["snapshotRevision"]


async def test_channels_and_heartbeats_are_told_when_there_are_none(house: Asking) -> None:
    told = await house("channels.status", ("read",), probe=True, timeoutMs=8_000)
    assert (told["channelOrder"], told["channelAccounts"]) == ([], {})
    assert await house("last-heartbeat", ("read",)) is None
    with pytest.raises(BadRequest, match="heartbeat"):
        await house("wake", ("write",), text="the build has failed", mode="now")
