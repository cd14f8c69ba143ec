"""Whole homes that the real program made, of each era: what we read is what the raw files hold."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from foreign_trees import look
from taking_in import Here

from palinurus.extensions.migrate.openclaw.documents import found_job
from palinurus.extensions.migrate.openclaw.home import OpenClawHome
from palinurus.extensions.migrate.report import FoundSession
from palinurus.sessions.transcript import Broken, decode_row

HOMES = ("openclaw-a", "openclaw-b", "openclaw-c", "seed-flat")


@pytest.fixture(params=HOMES)
def fixture(request: pytest.FixtureRequest) -> Path:
    folder = os.environ.get("FIXTURES")
    if not folder:
        pytest.skip("FIXTURES does not name the OpenClaw homes")
    return Path(folder, request.param)


@pytest.fixture
def counts(fixture: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((fixture / "counts.json").read_text())
    return found


def as_counted(found: FoundSession) -> tuple[Any, ...]:
    return found.session_id, found.entries, found.messages, found.texts, found.texts_sha256


def counted(told: dict[str, Any], session_id: str) -> tuple[Any, ...]:
    said = told["all_texts_sha256"] if told["texts"] else ""
    return session_id, told["entries_by_type"], told["messages_by_role"], told["texts"], said


def test_every_session_is_read_to_the_last_entry(fixture: Path, counts: dict[str, Any]) -> None:
    sessions, skipped = look(fixture / "home")
    flat = counts["era"] == "flat"
    live = {f"{s.agent}/{s.session_id}" if flat else s.key: as_counted(s) for s in sessions if not s.archived}
    assert live == {key: counted(told, told["sessionId"]) for key, told in counts["sessions"].items()}
    archives = {s.file: as_counted(s) for s in sessions if s.archived}
    assert archives == {
        file: counted(told, told["header"]["id"])
        for file, told in {**counts["archives"], **counts["unreferenced_transcripts"]}.items()
    }
    assert skipped == []


def test_everything_else_is_found_too(fixture: Path, counts: dict[str, Any]) -> None:
    with OpenClawHome(fixture / "home", fixture) as home:
        files = {(file.agent, file.path): file.bytes for file, _ in home.workspace_files()}
        assert files == {
            (agent, path): told["bytes"]
            for agent, space in counts["workspaces"].items()
            for path, told in space["list"].items()
        }
        assert [(s.agent, s.path, s.name) for s in home.skills()] == [
            (told["agent"], told["path"], told["name"]) for told in counts["skills"]
        ]
        assert {agent.id for agent in home.agents if agent.folder} == set(counts["agents_on_disk"])
        listed = [found_job(job) for job in home.documents.jobs]
        jobs = {(job.id, job.name, job.agent, job.enabled, job.managed, job.where) for job in listed}
        assert jobs == {
            (job["id"], job["name"], job["agentId"], job["enabled"], job["managed_by_program"], job["where"])
            for job in counts["cron"]["jobs"]
        }
        allowed = (counts["approvals"] or {"allowlist": {}})["allowlist"]
        assert sorted((a.agent, a.pattern) for a in home.documents.approvals) == sorted(
            (agent, pattern) for agent, patterns in allowed.items() for pattern in patterns
        )
        keys = {keys.agent: {name: told["type"] for name, told in keys.profiles.items()} for keys in home.stored_keys()}
        assert keys == {
            "" if agent == "(shared)" else agent: told["profiles"] for agent, told in counts["auth_profiles"].items()
        }


def test_reading_changes_no_byte_and_leaves_nothing_behind(fixture: Path) -> None:
    before = _snapshot(fixture)
    look(fixture / "home")
    assert _snapshot(fixture) == before


async def test_it_comes_over_byte_for_byte_and_a_second_time_nothing_does(
    fixture: Path, counts: dict[str, Any], here: Here
) -> None:
    report = await here.migrate(fixture / "home")
    for found in report.sessions:
        rows = await here.store.rows(found.into)
        assert len(rows) == sum(found.entries.values())
        unread = [row for row in rows if isinstance(decode_row(row), Broken)]
        assert len(unread) == found.entries.get("leaf", 0) + found.messages.get("custom", 0)
        if found.file.endswith(".jsonl"):
            assert await here.payloads(found.into) == (fixture / "home" / found.file).read_bytes().rstrip() + b"\n"
    distinct = counts["totals"]["with_archives_and_unreferenced"]["entries"]
    distinct += counts["totals"]["live_distinct_files"]["entries"] - counts["totals"]["live"]["entries"]
    ((stored,),) = await here.database.read(lambda connection: connection.execute("SELECT count(*) FROM entries"))
    assert stored == distinct
    for agent, space in counts["workspaces"].items():
        for path, told in space["list"].items():
            data = (here.root / f"workspace-{agent}" / path).read_bytes()
            assert hashlib.sha256(data).hexdigest() == told["sha256"]
    again = await here.migrate(fixture / "home")
    assert {found.outcome for found in again.sessions} == {found.outcome for found in again.workspace_files} == {"same"}


def _snapshot(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
