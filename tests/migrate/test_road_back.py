"""From here to OpenClaw and back: what was said there since comes over once, and nothing of here is doubled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from foreign_trees import Tree, add_rows, jsonl, said, talk
from taking_in import Here

from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Image, Text, ToolResult, UserMessage
from palinurus.extensions.migrate.export_tree import ExportedAgent, TreeWriter
from palinurus.extensions.migrate.exporter import SessionExporter
from palinurus.extensions.migrate.model_export import model_config
from palinurus.extensions.migrate.openclaw.home import OpenClawHome
from palinurus.sessions.transcript import MessageEntry
from palinurus.testing.fakes import FakeClock, SeededIds

MAIN = SessionKey.main()
T = "2026-11-15T09:00:00.000Z"
FOLDER = "agents/main/sessions"


async def export(here: Here, into: Path) -> Path:
    agents = [ExportedAgent("main", here.root / "workspace-main", is_default=True)]
    await TreeWriter(SessionExporter(here.database), into, here.clock).write(agents, here.root / "skills")
    return into


async def say(here: Here, session_id: str, *messages: tuple[str, str, Any]) -> None:
    """Each with its id and that of its parent."""
    await here.store.append(session_id, [MessageEntry(own, T, parent, message=said) for own, parent, said in messages])


async def ids(here: Here, session_id: str) -> list[tuple[str, str | None]]:
    return [(row.id, row.parent_id) for row in await here.store.rows(session_id)]


async def continued(here: Here, tree: Tree, into: Path) -> Path:
    """A session of there that was continued here, and exported. Returns its transcript."""
    tree.session("s", talk("s", "one", "two"), key="agent:main:main")
    await here.migrate(tree.root)
    result = ToolResult("call", "read", "three")
    await say(here, "s", ("mine", "e1", UserMessage("hi")), ("result", "mine", result))
    return await export(here, into) / FOLDER / "s.jsonl"


def colophon_of(path: Path) -> str:
    return str(json.loads(path.read_text().splitlines()[-1])["id"])


async def test_entries_of_here_are_known_again_and_those_of_there_follow_them(
    here: Here, tree: Tree, tmp_path: Path
) -> None:
    path = await continued(here, tree, tmp_path / "out")
    assert [s.outcome for s in (await here.migrate(tmp_path / "out")).sessions] == ["same"]
    lines = path.read_bytes().splitlines(keepends=True)
    header = {**json.loads(lines[0]), "cwd": "/somewhere/else"}  # OpenClaw writes where it works now
    path.write_bytes(jsonl([header]) + b"".join(lines[1:]) + jsonl([said("theirs", "there", colophon_of(path))]))
    preview = await here.migrate(tmp_path / "out", apply=False)
    assert [(s.outcome, s.into, s.note) for s in preview.sessions] == [("grown", "s", "")]
    for outcome in ("grown", "same"):
        report = await here.migrate(tmp_path / "out")
        assert [(s.outcome, s.into, s.note) for s in report.sessions] == [(outcome, "s", "")]
        assert report.skipped == ()
    assert await ids(here, "s") == [
        ("s", None), ("e0", None), ("e1", "e0"), ("mine", "e1"), ("result", "mine"), ("theirs", "result"),
    ]  # fmt: skip
    assert await here.store.archived(MAIN) == []
    session = await here.store.find(MAIN)
    assert session is not None
    assert (session.id, session.entry_count) == ("s", 6)


async def test_what_stood_behind_an_earlier_export_is_linked_to_an_entry_in_the_next_one(
    here: Here, tree: Tree, tmp_path: Path, clock: FakeClock, new_id: SeededIds
) -> None:
    path = await continued(here, tree, tmp_path / "out")
    with path.open("ab") as file:
        file.write(jsonl([said("theirs", "there", colophon_of(path))]))
    await here.migrate(tmp_path / "out")
    again = await export(here, tmp_path / "again") / FOLDER / "s.jsonl"
    lines = [json.loads(line) for line in again.read_text().splitlines()]
    assert [(line["id"], line.get("parentId")) for line in lines][-2] == ("theirs", "result")
    assert {s.outcome for s in (await here.migrate(tmp_path / "again")).sessions} == {"same"}
    other = Here(tmp_path / "other", clock, new_id)
    await other.migrate(tmp_path / "again")
    assert await other.payloads("s") == await here.payloads("s")
    await other.database.close()


async def test_a_run_in_a_version_that_has_rows_comes_over_once(here: Here, tree: Tree, tmp_path: Path) -> None:
    born = await here.store.open(MAIN)
    await say(here, born.id, ("mine", born.id, UserMessage("hi")))
    path = await export(here, tmp_path / "out") / FOLDER / f"{born.id}.jsonl"
    lines = path.read_text().splitlines()
    lines[:-1] = [json.dumps(json.loads(line)) for line in lines[:-1]]  # it writes the same in its own way
    database = Tree(tmp_path / "rows").database()
    add_rows(database, str(MAIN), born.id, [*lines, said("theirs", "there", colophon_of(path))], packed=len(lines) - 1)
    database.close()
    for outcome in ("grown", "same"):
        (found,) = (await here.migrate(tmp_path / "rows")).sessions
        assert (found.outcome, found.into) == (outcome, born.id)
    assert await ids(here, born.id) == [(born.id, None), ("mine", born.id), ("theirs", "mine")]
    assert await here.store.archived(MAIN) == []


async def test_what_was_continued_in_both_homes_since_the_export_is_told(
    here: Here, tree: Tree, tmp_path: Path
) -> None:
    path = await continued(here, tree, tmp_path / "out")
    await say(here, "s", ("later", "result", UserMessage("here")))
    with path.open("ab") as file:
        file.write(jsonl([said("theirs", "there", colophon_of(path))]))
    (found,) = (await here.migrate(tmp_path / "out")).sessions
    assert (found.outcome, "both homes" in found.note) == ("left", True)


async def test_a_tool_result_is_written_as_openclaw_reads_it_and_comes_back_as_it_was(
    here: Here, tmp_path: Path, clock: FakeClock, new_id: SeededIds
) -> None:
    session = await here.store.open(MAIN)
    results = [
        ToolResult("a", "read", "plain"),
        ToolResult("b", "read", "wrong", is_error=True),
        ToolResult("c", "read", (Text("one"), Image("QQ==", "image/png"))),
        ToolResult("d", "read", (Text("a list of one"),)),
    ]
    parents = [session.id, "r0", "r1", "r2"]
    await say(here, session.id, *[(f"r{at}", parents[at], result) for at, result in enumerate(results)])
    path = await export(here, tmp_path / "out") / FOLDER / f"{session.id}.jsonl"
    messages = [json.loads(line).get("message", {}) for line in path.read_text().splitlines()][1:-1]
    assert [(each["content"][0], each["isError"]) for each in messages] == [
        ({"type": "text", "text": "plain"}, False),
        ({"type": "text", "text": "wrong"}, True),
        ({"type": "text", "text": "one"}, False),
        ({"type": "text", "text": "a list of one"}, False),
    ]
    other = Here(tmp_path / "other", clock, new_id)
    assert (await other.migrate(tmp_path / "out")).skipped == ()
    assert await other.payloads(session.id) == await here.payloads(session.id)
    await other.database.close()


async def test_all_keys_of_a_session_and_its_window_go_back(here: Here, tree: Tree, tmp_path: Path) -> None:
    tree.session("s", talk("s", "one"))
    row = {"sessionId": "s", "updatedAt": 1, "contextTokens": 200_000, "totalTokens": 90, "inputTokens": 7}
    state = {"status": "done", "endedAt": 2, "sessionFile": "s.jsonl"}
    keys = ("agent:main:cron:job", "agent:main:cron:job:run:s")
    tree.write(f"{FOLDER}/sessions.json", json.dumps({key: {**row, **state, "of": key} for key in keys}))
    await here.migrate(tree.root)
    session = await here.store.find(SessionKey.parse(keys[0]))
    assert session is not None
    assert (session.context_tokens, session.total_tokens) == (90, 7)
    out = await export(here, tmp_path / "out")
    rows = json.loads((out / FOLDER / "sessions.json").read_text())
    assert list(rows) == list(keys)
    for key in keys:
        assert {name: rows[key][name] for name in ("contextTokens", "totalTokens", "of")} == {
            "contextTokens": 200_000, "totalTokens": 90, "of": key,
        }  # fmt: skip
        assert "status" not in rows[key]  # it would make OpenClaw begin a new session
    assert {s.outcome for s in (await here.migrate(out)).sessions} == {"same"}


async def test_approvals_that_were_rows_are_a_file_again_and_not_doubled(
    here: Here, tree: Tree, tmp_path: Path, clock: FakeClock, new_id: SeededIds
) -> None:
    text = json.dumps({"version": 1, "agents": {"main": {"allowlist": [{"pattern": "/usr/bin/wc"}]}}})
    state = tree.state_database()
    state.execute("CREATE TABLE exec_approvals_config (config_key TEXT, raw_json TEXT)")
    state.execute("INSERT INTO exec_approvals_config VALUES ('current', ?)", (text,))
    state.close()
    await here.migrate(tree.root)
    out = await export(here, tmp_path / "out")
    assert json.loads((out / "exec-approvals.json").read_text()) == json.loads(text)
    with OpenClawHome(out, tmp_path) as home:
        assert [each.pattern for each in home.documents.approvals] == ["/usr/bin/wc"]
        assert [each.kind for each in home.documents.kept] == ["approvals"]


KEY = "sk-" + "a1B2" * 8


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {}),
        ({"baseUrl": "https://models.example/v1", "apiKey": "${EXAMPLE_KEY}"}, {"apiKey": "${EXAMPLE_KEY}"}),
        ({"baseUrl": "https://models.example/v1", "apiKey": KEY}, {}),
        ({"baseUrl": "http://127.0.0.1:8080/v1"}, {"apiKey": "not-needed"}),
        ({"baseUrl": "https://models.example/v1", "headers": {"X": KEY}, "timeoutSeconds": 5}, {}),
    ],
)
def test_a_provider_goes_with_its_models_and_without_its_key(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    agents = {"defaults": {"model": "mine/big"}, "list": [{"id": "other", "model": {"primary": "mine/small"}}]}
    made = model_config({"agents": agents, "models": {"providers": {"mine": ours}}})
    assert made.config["agents"] == {"defaults": {"model": "mine/big"}}
    assert made.by_agent == {"other": {"primary": "mine/small"}}
    provider = made.config.get("models", {}).get("providers", {}).get("mine", {})
    if ours:
        assert [each["id"] for each in provider.pop("models")] == ["big", "small"]
        assert provider == {"baseUrl": ours["baseUrl"], "api": "openai-completions", **theirs}
    assert KEY not in str(made)
    assert bool(made.left_out) == (KEY in str(ours))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {"mode": "idle", "idleMinutes": 5_270_400}),
        ({"reset": {"idleMinutes": 30}}, {"mode": "idle", "idleMinutes": 30}),
        ({"reset": {"mode": "daily", "atHour": 5}}, {"mode": "daily", "atHour": 5}),
        ({"reset": {"mode": "none", "idleMinutes": 30}}, {"mode": "idle", "idleMinutes": 5_270_400}),
    ],
)
def test_sessions_begin_anew_there_when_they_would_here(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert model_config({"session": ours}).config["session"]["reset"] == theirs
