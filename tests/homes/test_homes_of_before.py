"""Homes that earlier releases have written: they open, go on, and lose nothing. How they were made: make.py.txt."""

from __future__ import annotations

import asyncio
import json
import os
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from palinurus.config.home import find_home
from palinurus.domain.clock import SystemClock
from palinurus.domain.envelope import Delivery, Inbound
from palinurus.domain.events import RunResult
from palinurus.domain.keys import SessionKey
from palinurus.extensions.migrate.exporter import SessionExporter
from palinurus.operations.services import Services
from palinurus.runtime.runtime import Runtime
from palinurus.storage.migrations import series_of, steps_in
from support.delivery import MemorySender

HERE = Path(__file__).parent
FORMS = 13  # of home.sqlite, in which accepted messages and deliveries had tables of their own


@asynccontextmanager
async def opened(root: Path) -> AsyncIterator[Runtime]:
    env = {"PALINURUS_HOME": str(root), "HOME": str(root.parent), "PATH": os.environ.get("PATH", os.defpath)}
    runtime = Runtime(find_home(env), env)
    try:
        yield runtime
    finally:
        await runtime.close()


def unpacked(name: str, to: Path) -> Path:
    with tarfile.open(HERE / f"{name}.tar.gz") as archive:
        archive.extractall(to, filter="data")
    return to / name


def told(root: Path, sql: str) -> list[Any]:
    """Of the file as it lies there."""
    connection = apsw.Connection(str(root / "home.sqlite"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


async def say(runtime: Runtime, text: str, key: str = "agent:main:main") -> RunResult:
    run = await runtime.services.dispatcher.submit(Inbound(text, runtime.services.new_id(), session_key=key))
    return await run.wait()


async def transcripts(runtime: Runtime) -> dict[str, list[tuple[str, str]]]:
    found = await runtime.services.sessions.recent(archived=True)
    return {each.id: [(row.id, row.payload) for row in await runtime.services.sessions.rows(each.id)] for each in found}


def transcripts_in(root: Path) -> dict[str, list[tuple[str, str]]]:
    rows: dict[str, list[tuple[str, str]]] = {}
    for session_id, entry_id, payload in told(root, "SELECT session_id, id, payload FROM entries ORDER BY position"):
        rows.setdefault(session_id, []).append((entry_id, payload))
    return rows


async def test_a_home_in_which_much_was_said_goes_on(tmp_path: Path) -> None:
    root = unpacked("talk", tmp_path)
    said, sessions = transcripts_in(root), dict(told(root, "SELECT id, row FROM sessions"))
    calls = told(root, "SELECT count(*) FROM usage")[0][0]
    async with opened(root) as runtime:
        services = runtime.services
        assert await transcripts(runtime) == said
        kept = await services.sessions.recent(archived=True)
        assert {each.id: each.entry_count for each in kept} == {
            each: json.loads(row)["entryCount"] for each, row in sessions.items()
        }
        assert "Lighthouse" in {each.label for each in kept}
        assert sum(total.calls for total in await services.usage.totals("model", zone=UTC)) == calls
        assert (await services.audit.verify()).ok
        assert len(await services.traces.recent(limit=100)) == 15
        assert [hit for hit in await services.index.search("lighthouse") if hit.role == "user"]
        assert not await services.index.search("Zanzibar-7741")
        await runtime.recover()  # what was accepted and not answered is answered now
        await asyncio.wait_for(services.dispatcher.idle(), 60)
        main = await services.sessions.find(SessionKey.main())
        assert main is not None
        rows = await services.sessions.rows(main.id)
        assert any("this one was accepted and not answered" in row.payload for row in rows)
        assert (await say(runtime, "hello again")).status == "ok"
        rows = await services.sessions.rows(main.id)
        assert [(row.id, row.payload) for row in rows[: len(said[main.id])]] == said[main.id]
        assert "hello again" in "".join(row.payload for row in rows[len(said[main.id]) :])
        notes = [made for each in kept for made in await services.sessions.extractions(each.id)]
        assert {made.id for made in notes} == {row[0] for row in told(root, "SELECT id FROM extractions")}
        await services.turns.maintenance.place_notes()
        assert not await services.sessions.unplaced()
    assert "the lighthouse stands" in (root / "workspace" / "memory" / "2026-11-01.md").read_text()


async def test_a_home_in_which_much_was_done_goes_on(tmp_path: Path) -> None:
    root = unpacked("hands", tmp_path)
    said = transcripts_in(root)
    origin = json.loads(told(root, "SELECT row FROM file_origins")[0][0])["path"]
    async with opened(root) as runtime:
        services = runtime.services
        assert await transcripts(runtime) == said
        asked = {each.id: each.status for each in await services.approvals.recent()}
        assert sorted(asked.values()) == ["allowed-always", "denied", "pending"]
        (grant,) = await services.grants.all()
        assert (grant.binary, grant.args) == ("/usr/bin/uname", ("-s",))
        assert [row.outcome for row in await services.audit.rows() if row.kind == "decision"] == [
            "denied",
            "allowed-always",
        ]
        assert (await services.audit.verify()).ok
        await services.access.load()
        assert [token.name for token in services.access.tokens()] == ["phone"]
        device = services.access.device("ab" * 32)
        assert device is not None
        assert device.name == "Laptop"
        states = {parcel.text: parcel.state for parcel in await services.deliveries.recent()}
        assert states == {
            "a message that waits": "waiting",
            **{f"a message {state}": state for state in ("failed", "ambiguous", "sending", "sent", "dropped")},
        }
        assert [each.name for each in await SessionExporter(services.database).documents()] == ["jobs.json"]
        sender = MemorySender("telegram")
        services.deliveries.register(sender)
        await runtime.recover()
        await asyncio.wait_for(services.jobs.idle(), 60)
        after = {parcel.text: parcel for parcel in await services.deliveries.recent()}
        assert after["a message that waits"].state == "sent"
        assert after["a message failed"].state == "failed"
        assert (await services.deliveries.retry(after["a message failed"].id)).state == "waiting"
        await asyncio.wait_for(services.jobs.idle(), 60)
        assert {parcel.text: parcel.state for parcel in await services.deliveries.recent()}[
            "a message failed"
        ] == "sent"
        settled = await services.approvals.find("wait1")
        assert settled.status == "abandoned"  # the process that had asked is no more
        assert (await services.grants.revoke(grant.id, 1)).revoked_at == 1
        assert (await say(runtime, "hello again", "agent:main:main")).status == "ok"
        assert (await services.audit.verify()).ok
    assert origin in {json.loads(row)["path"] for (row,) in told(root, "SELECT row FROM file_origins")}


OUTBOX: dict[str, dict[str, Any]] = {
    "waiting": {},
    "waiting again": {"attempts": 2, "dueAt": 5, "trouble": "down", "account": "second", "thread": "9"},
    "waiting in doubt": {"attempts": 1, "doubtfulAt": 7, "sessionKey": "agent:main:main", "runId": "r"},
    "sending": {"attempts": 1},
    "sent": {"attempts": 1, "receipt": "n-1"},
    "ambiguous": {"attempts": 1, "doubtfulAt": 7, "trouble": "reset"},
    "failed": {"attempts": 1, "trouble": "no such chat", "retryKey": "k", "retriedAt": 3},
    "dropped": {},
}


def old_form(root: Path, form: int) -> None:
    """A home of an early release, with something in every table that has words of people."""
    connection = apsw.Connection(str(root / "home.sqlite"))
    for number, _, sql in steps_in(series_of("home")[0])[:form]:
        connection.execute(sql)
        connection.pragma("user_version", number)
    times = dict.fromkeys(("createdAt", "updatedAt", "startedAt", "lastInteractionAt"), 1)
    session = {"id": "s", "key": "agent:main:main", "chatType": "direct", "agent": "main", "entryCount": 2, **times}
    add = connection.execute
    add(
        "INSERT INTO sessions (id, key, agent, updated_at, row) VALUES ('s', ?, 'main', 1, ?)",
        (session["key"], json.dumps(session)),
    )
    at = "2026-01-01T00:00:00.000Z"
    header = {"type": "session", "id": "s", "timestamp": at, "version": 3}
    message = {"type": "message", "id": "m", "parentId": "s", "timestamp": at}
    message["message"] = {"role": "user", "content": "an old word", "timestamp": 1}  # type: ignore[assignment]
    for entry in (header, message):
        add(
            "INSERT INTO entries (session_id, id, parent_id, type, payload) VALUES ('s', ?, ?, ?, ?)",
            (entry["id"], entry.get("parentId"), entry["type"], json.dumps(entry)),
        )
    add(
        "INSERT INTO runs (run_id, idempotency_key, session_key, inbound, accepted_at, attempts, result)"
        " VALUES ('r0', 'k0', 'agent:main:main', ?, 1, 2, ?)",
        (
            json.dumps({"text": "an old word", "idempotency_key": "k0"}),
            json.dumps(
                {"runId": "r0", "sessionKey": "agent:main:main", "sessionId": "s", "status": "ok", "text": "yes"}
            ),
        ),
    )
    inbound = json.dumps({"text": "an old question", "idempotency_key": "k", "session_key": "agent:main:main"})
    add(
        "INSERT INTO runs (run_id, idempotency_key, session_key, inbound, accepted_at) VALUES ('r', 'k', ?, ?, 1)",
        ("agent:main:main", inbound),
    )
    if form >= 2:
        add("INSERT INTO usage VALUES ('agent:main:main', 'm', 1, 'r', 'main', 'p', 'm', 1, 1, 0, 0, 0.5)")
    if form >= 3:
        grant = {"id": "g", "tool": "exec", "scope": "home", "binary": "/bin/ls", "createdAt": 1}
        add("INSERT INTO grants (id, created_at, row) VALUES ('g', 1, ?)", (json.dumps(grant),))
    if form >= 4:
        now = SystemClock().now_ms()  # what is older than a month is forgotten
        for state, row in OUTBOX.items():
            whole = {"id": state, "idempotencyKey": state, "channel": "telegram", "to": state, "text": f"old, {state}"}
            add(
                "INSERT INTO outbox (id, idempotency_key, channel, recipient, state, queued_at, revision, row)"
                " VALUES (?1, ?1, 'telegram', ?1, ?2, ?4, 3, ?3)",
                (state, state.split()[0], json.dumps(whole | row), now),
            )
    if form >= 6:
        made = {"id": "x", "sessionId": "s", "upTo": "m", "notes": "old notes", "madeBy": "model", "private": False}
        add(
            "INSERT INTO extractions (id, session_id, position, private, notes, row) VALUES ('x', 's', 2, 0, 1, ?)",
            (json.dumps(made | {"day": "2026-01-01", "at": 1, "key": "agent:main:main"}),),
        )
    connection.close()


async def check_old_deliveries(services: Services) -> None:
    kept = {each.id: each for each in await services.deliveries.recent()}
    assert list(reversed(kept)) == list(OUTBOX)
    assert {each.id: each.state for each in kept.values()} == {state: state.split()[0] for state in OUTBOX}
    assert {each.text for each in kept.values()} == {f"old, {state}" for state in OUTBOX}
    for state, row in OUTBOX.items():
        shown = msgspec.to_builtins(kept[state])
        assert {name: shown[name] for name in row} == row
    assert kept["waiting in doubt"].unsure
    assert (await services.deliveries.counts()).waiting == 3
    sender = MemorySender("telegram", repeatable=False)
    services.deliveries.register(sender)
    await services.jobs.start()
    await asyncio.wait_for(services.jobs.idle(), 60)
    states = {each.id: each.state for each in await services.deliveries.recent()}
    assert states == {state: state for state in OUTBOX} | {
        "waiting": "sent", "waiting again": "sent", "waiting in doubt": "ambiguous", "sending": "ambiguous"
    }  # fmt: skip
    assert sorted(sender.texts) == ["old, waiting", "old, waiting again"]
    again = await services.deliveries.post(Delivery("telegram", "42"), "another text", "sent")
    assert again.id == "sent"


@pytest.mark.parametrize("form", range(1, FORMS + 1))
async def test_a_home_of_every_earlier_form_goes_on(form: int, tmp_path: Path) -> None:
    root = tmp_path / "home"
    root.mkdir(mode=0o700)
    (root / "palinurus.json").write_text('{"agents": {"defaults": {"model": "embedded/scout"}}}')
    old_form(root, form)
    said = transcripts_in(root)
    async with opened(root) as runtime:
        services = runtime.services
        assert await transcripts(runtime) == said
        assert [total.cost for total in await services.usage.totals("model", zone=UTC)] == [0.5] * (form >= 2)
        assert [grant.binary for grant in await services.grants.all()] == ["/bin/ls"] * (form >= 3)
        if form >= 4:
            await check_old_deliveries(services)
        answered = await services.dispatcher.submit(Inbound("an old word", "k0", session_key="agent:main:main"))
        assert (answered.id, (await answered.wait()).text) == ("r0", "yes")
        assert [made.notes for made in await services.sessions.extractions("s")] == ["old notes"] * (form >= 6)
        await runtime.recover()
        await asyncio.wait_for(services.dispatcher.idle(), 60)
        rows = await services.sessions.rows("s")
        assert "an old question" in "".join(row.payload for row in rows[len(said["s"]) :])
