"""What was brought in, goes out and comes back is what it was: ids, links, bytes, unknown fields, broken lines too."""

from __future__ import annotations

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from foreign_trees import Tree, header, jsonl, said, talk
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from taking_in import Here

from palinurus.domain.errors import BadRequest
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import UserMessage
from palinurus.extensions.migrate.export_tree import (
    ExportedAgent,
    ExportReport,
    TreeWriter,
    unpack,
)
from palinurus.extensions.migrate.exporter import SessionExporter
from palinurus.extensions.migrate.openclaw.home import OpenClawHome
from palinurus.sessions.transcript import MessageEntry
from palinurus.testing.fakes import FakeClock, SeededIds

MAIN = SessionKey.main()
HOMES = ("openclaw-a", "openclaw-b", "openclaw-c", "seed-flat")
EVERYTHING = {
    "sessions": "SELECT id, key, agent, archived_at, updated_at, row, extra FROM sessions ORDER BY id",
    "entries": "SELECT session_id, id, parent_id, type, payload FROM entries ORDER BY session_id, position",
    "documents": "SELECT kind, name, text FROM imported_documents WHERE kind <> 'cron' ORDER BY kind, name",
    "extractions": "SELECT id, session_id, place, notes FROM extractions ORDER BY id",
}


async def everything(here: Here) -> dict[str, list[Any]]:
    return {
        name: await here.database.read(lambda c, sql=sql: c.execute(sql).fetchall())  # type: ignore[misc]
        for name, sql in EVERYTHING.items()
    }


async def export(here: Here, into: Path, agents: list[str] | None = None) -> ExportReport:
    exported = [
        ExportedAgent(agent, here.root / f"workspace-{agent}", is_default=at == 0)
        for at, agent in enumerate(agents or ["main"])
    ]
    return await TreeWriter(SessionExporter(here.database), into, here.clock).write(exported, here.root / "skills")


@pytest.mark.parametrize("name", HOMES)
async def test_a_real_home_goes_out_and_comes_back_as_it_was(
    name: str, here: Here, tmp_path: Path, clock: FakeClock, new_id: SeededIds
) -> None:
    folder = os.environ.get("FIXTURES")
    if not folder:
        pytest.skip("FIXTURES does not name the OpenClaw homes")
    source = Path(folder, name, "home")
    first = await here.migrate(source)
    agents = [agent.id for agent in first.agents]
    await export(here, tmp_path / "out", agents)
    with OpenClawHome(tmp_path / "out", tmp_path) as exported, OpenClawHome(source, tmp_path) as original:
        assert exported.losses.listed == []
        assert [job.raw for job in exported.documents.jobs] == [job.raw for job in original.documents.jobs]
    assert {s.outcome for s in (await here.migrate(tmp_path / "out")).sessions} == {"same"}
    other = Here(tmp_path / "other", clock, new_id)
    second = await other.migrate(tmp_path / "out")
    assert second.skipped == ()
    assert await everything(other) == await everything(here)
    assert files(other.root) == files(here.root)
    assert sorted(job.id for job in second.cron_jobs) == sorted(job.id for job in first.cron_jobs)
    assert [each.pattern for each in second.approvals] == [each.pattern for each in first.approvals]
    await other.database.close()


def files(root: Path) -> dict[str, bytes]:
    found = (path for path in root.rglob("*") if path.is_file() and "home.sqlite" not in path.name)
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


async def test_odd_lines_come_back_word_for_word(
    here: Here, tree: Tree, tmp_path: Path, clock: FakeClock, new_id: SeededIds
) -> None:
    odd: list[Any] = [
        header("s"),
        b"no JSON at all",
        {"role": "user", "content": "bare"},
        {"role": "assistant", "content": [{"type": "text", "text": "too"}]},
        {"type": "leaf", "id": "l", "targetId": None},
        said("twice", "one"),
        said("twice", "another"),
        {"type": "message", "id": "half", "message": {"role": "user", "content": "\ud83c"}, "unheard": {"of": [1.50]}},
        b'{ "type":"message",\t"id" : "spaced",  "message": {"role":"custom", "n": 1.5e+3} }',
    ]
    tree.session("s", odd, key="agent:main:main")
    await here.migrate(tree.root)
    await export(here, tmp_path / "out")
    other = Here(tmp_path / "other", clock, new_id)
    await other.migrate(tmp_path / "out")
    assert await everything(other) == await everything(here)
    assert len((await everything(other))["entries"]) == 8
    await other.database.close()


async def test_even_rows_that_are_no_json_come_back(
    here: Here, tmp_path: Path, clock: FakeClock, new_id: SeededIds
) -> None:
    session = await here.store.open(MAIN)
    rows = [("a", None, "message", "{torn"), ("b", "a", "message", '\n{"type":\n"label","id":"x"}\n')]
    await here.database.write(
        lambda c: [
            c.execute("INSERT INTO entries (session_id, id, parent_id, type, payload) VALUES (?, ?, ?, ?, ?)", row)
            for row in [(session.id, *row) for row in rows]
        ]
    )
    await export(here, tmp_path / "out")
    other = Here(tmp_path / "other", clock, new_id)
    await other.migrate(tmp_path / "out")
    assert (await everything(other))["entries"] == (await everything(here))["entries"]
    await other.database.close()


async def test_one_file_is_enough_and_one_changed_byte_is_found(
    here: Here, tree: Tree, tmp_path: Path, clock: FakeClock, new_id: SeededIds
) -> None:
    tree.session("s", talk("s", "one", "two"), key="agent:main:main")
    tree.write("workspace/MEMORY.md", "known")
    await here.migrate(tree.root)
    done = await export(here, tmp_path / "home.pal")
    assert (done.sessions, done.entries, done.files) == (1, 3, 1)
    unpack(tmp_path / "home.pal", tmp_path / "unpacked")
    other = Here(tmp_path / "other", clock, new_id)
    await other.migrate(tmp_path / "unpacked")
    assert await everything(other) == await everything(here)
    assert (other.root / "workspace-main" / "MEMORY.md").read_text() == "known"
    await other.database.close()
    packed = bytearray((tmp_path / "home.pal").read_bytes())
    packed[len(packed) // 3] ^= 1
    (tmp_path / "bent.pal").write_bytes(packed)
    with pytest.raises(BadRequest):
        unpack(tmp_path / "bent.pal", tmp_path / "bent")


async def test_what_openclaw_said_in_the_exported_tree_since_comes_along(here: Here, tmp_path: Path) -> None:
    session = await here.store.open(MAIN)
    entry = MessageEntry("mine", "2026-11-15T09:00:00.000Z", session.id, message=UserMessage("hello"))
    await here.store.append(session.id, [entry])
    await export(here, tmp_path / "out")
    assert [s.outcome for s in (await here.migrate(tmp_path / "out")).sessions] == ["same"]
    path = tmp_path / "out" / "agents" / "main" / "sessions" / f"{session.id}.jsonl"
    assert json.loads(path.read_text().splitlines()[0])["version"] == 3
    with path.open("ab") as file:
        file.write(jsonl([said("theirs", "and then", "mine")]))
    for outcome in ("grown", "same"):
        report = await here.migrate(tmp_path / "out")
        assert [(s.outcome, s.entries) for s in report.sessions] == [(outcome, {"message": 2, "session": 1})]
    assert await here.store.archived(MAIN) == []
    assert [row.id for row in await here.store.rows(session.id)] == [session.id, "mine", "theirs"]


async def test_an_export_never_lands_on_something(here: Here, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    (tmp_path / "out.pal").write_text("mine")
    for place in ("out", "out.pal"):
        with pytest.raises(BadRequest, match="already exists"):
            await export(here, tmp_path / place)
    assert (tmp_path / "out.pal").read_text() == "mine"
    assert not list(tmp_path.glob(".out*"))


scalars = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(max_size=20)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)
lines = st.dictionaries(
    st.sampled_from(["type", "id", "parentId", "role", "content", "message", "timestamp", "x"]) | st.text(max_size=5),
    values | st.sampled_from(["message", "user", "leaf", "a", "line-3", "compaction", "custom"]),
    max_size=6,
).map(lambda value: json.dumps(value).encode()) | st.binary(max_size=40).map(lambda data: data.replace(b"\n", b""))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(lines, max_size=12))
async def test_whatever_stands_in_a_transcript_what_was_taken_comes_back(
    clock: FakeClock, new_id: SeededIds, written: list[bytes]
) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder)
        tree = Tree(root / ".openclaw")
        tree.session("s", written, key="agent:main:main")
        one, other = Here(root / "one", clock, new_id), Here(root / "other", clock, new_id)
        try:
            await one.migrate(tree.root)
            await export(one, root / "out")
            await other.migrate(root / "out")
            assert await everything(other) == await everything(one)
        finally:
            await one.database.close()
            await other.database.close()
