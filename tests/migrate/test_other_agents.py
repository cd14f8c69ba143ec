"""Transcripts of Claude Code, Codex, nanobot and Hermes: kept word for word, and read as conversations."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from foreign_trees import jsonl
from taking_in import Here

from palinurus.domain.messages import AssistantMessage, Message, Origin, ToolResult, UserMessage
from palinurus.extensions.migrate.import_store import Destination
from palinurus.extensions.migrate.migration import Migration
from palinurus.extensions.migrate.others import VOLATILE, OtherHome, Program, find_other
from palinurus.extensions.migrate.report import MigrationReport
from palinurus.sessions.transcript import Broken, decode_row, messages_of

T = "2026-11-15T09:00:00.000Z"
ID = "0a6afc57-2f31-4cb4-8ff0-01247f50c64c"
ARGUMENTS = json.dumps({"command": ["ls"]})


def claude(kind: str, entry_id: str, parent: str | None, content: Any, **more: Any) -> dict[str, Any]:
    message = {"role": kind, "content": content, **more}
    return {"type": kind, "uuid": entry_id, "parentUuid": parent, "timestamp": T, "sessionId": ID, "message": message}


CLAUDE = [
    {"type": "summary", "summary": "Mending the boat", "leafUuid": "d"},
    claude("user", "a", None, "look around"),
    claude("assistant", "b", "a", [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}]),
    claude(
        "user", "c", "b", [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "hull"}]}]
    ),
    claude("assistant", "d", "c", [{"type": "text", "text": "a hull"}], model="claude-x", stop_reason="end_turn"),
    {**claude("user", "e", None, "aside"), "isSidechain": True},
]
CODEX: list[dict[str, Any]] = [
    {"timestamp": T, "type": kind, "payload": payload}
    for kind, payload in [
        ("session_meta", {"id": ID, "cwd": "/boat"}),
        (
            "response_item",
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "look around"}]},
        ),
        ("event_msg", {"type": "user_message", "message": "look around"}),
        ("response_item", {"type": "function_call", "call_id": "t1", "name": "shell", "arguments": ARGUMENTS}),
        ("response_item", {"type": "function_call_output", "call_id": "t1", "output": "hull"}),
        (
            "response_item",
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a hull"}]},
        ),
    ]
]
OPENAI: list[dict[str, Any]] = [
    {"role": "user", "content": "look around", "timestamp": T},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "exec", "arguments": ARGUMENTS}}],
    },
    {"role": "tool", "tool_call_id": "t1", "name": "exec", "content": "hull"},
    {"role": "assistant", "content": "a hull", "timestamp": T},
]
NANOBOT = [{"_type": "metadata", "key": "telegram:42", "created_at": T, "metadata": {}}, *OPENAI]
HOMES: dict[Program, tuple[str, list[dict[str, Any]]]] = {
    "claude-code": (f"projects/-boat/{ID}.jsonl", CLAUDE),
    "codex": (f"sessions/2026/11/15/rollout-2026-11-15T09-00-00-{ID}.jsonl", CODEX),
    "nanobot": ("workspace/sessions/telegram_42.jsonl", NANOBOT),
    "hermes": ("sessions/20261115_090000_ab12.jsonl", OPENAI),
}


async def migrate(here: Here, root: Path, program: Program, *, apply: bool = True) -> MigrationReport:
    with OtherHome(root, program) as home:
        to = Destination({"main": here.root / "workspace"}, here.root / "skills")
        return await Migration(home, here.importer, to, here.clock, lambda _: None, apply=apply).run()


def write(root: Path, program: Program) -> Path:
    name, lines = HOMES[program]
    path = root / name
    path.parent.mkdir(parents=True)
    path.write_bytes(jsonl([*lines, b"{torn"]))
    return path


def told(message: Message) -> tuple[str, str]:
    match message:
        case UserMessage():
            return "user", message.text
        case ToolResult():
            return f"result of {message.tool_call_id}", message.text
        case AssistantMessage():
            return "assistant", message.text or ",".join(f"{call.id}:{call.arguments}" for call in message.calls)


@pytest.mark.parametrize("program", HOMES)
async def test_a_transcript_comes_over_word_for_word_and_reads_as_a_conversation(
    here: Here, tmp_path: Path, program: Program
) -> None:
    path = write(tmp_path / "there", program)
    root = find_other(program, {}, tmp_path, tmp_path / "there")
    report = await migrate(here, root, program)
    assert [(skipped.line, skipped.file) for skipped in report.skipped] == [
        (len(HOMES[program][1]) + 1, str(path.relative_to(root)))
    ]
    (session,) = await here.store.recent(archived=True)
    rows = await here.store.rows(session.id)
    lines = HOMES[program][1]
    lines = [
        {name: each for name, each in line.items() if name not in VOLATILE or "_type" not in line} for line in lines
    ]
    assert jsonl([row.payload.encode() for row in rows]) == jsonl(lines)
    entries = [decode_row(row) for row in rows]
    assert not any(isinstance(entry, Broken) for entry in entries)
    command = {"command": "ls"} if program == "claude-code" else {"command": ["ls"]}
    assert [told(message) for message in messages_of(entries)] == [
        ("user", "look around"),
        ("assistant", f"t1:{command}"),
        ("result of t1", "hull"),
        ("assistant", "a hull"),
    ]
    assert report.sessions[0].messages == {"assistant": 2, "toolResult": 1, "user": 1}
    assert {s.outcome for s in (await migrate(here, root, program)).sessions} == {"same"}


async def test_people_of_a_channel_are_not_taken_for_the_owner(here: Here, tmp_path: Path) -> None:
    write(tmp_path / "there", "nanobot")
    await migrate(here, tmp_path / "there", "nanobot")
    (session,) = await here.store.recent(archived=True)
    assert session.key == "agent:main:telegram:direct:42"
    messages = messages_of(decode_row(row) for row in await here.store.rows(session.id))
    assert [m.origin for m in messages if not isinstance(m, AssistantMessage)] == [Origin.OUTSIDE, Origin.OUTSIDE]


HERMES = """
CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, chat_id TEXT, chat_type TEXT, title TEXT,
  started_at REAL NOT NULL, message_count INTEGER);
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL, content TEXT,
  tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL, active INTEGER NOT NULL DEFAULT 1,
  compacted INTEGER NOT NULL DEFAULT 0);
INSERT INTO sessions VALUES ('20261115_090000_ab12', 'cli', NULL, NULL, 'Mending the boat', 1794733200.5, 4),
  ('tg', 'telegram', '42', 'dm', NULL, 1794733300, 1), ('group', 'telegram', '-7', 'group', NULL, 1794733400, 0);
"""
PARTS = [{"type": "text", "text": "what is this?"}, {"type": "image_url", "image_url": {"url": "data:,"}}]


def write_hermes(root: Path) -> apsw.Connection:
    """As hermes-agent 0.19 writes it, with the columns that are read."""
    root.mkdir(parents=True)
    database = apsw.Connection(str(root / "state.db"))
    database.pragma("journal_mode", "wal")
    database.execute(HERMES)
    sql = "INSERT INTO messages (session_id, role, content, tool_calls, tool_call_id, tool_name, timestamp, active) "
    calls = json.dumps(OPENAI[1]["tool_calls"])
    for values in (
        ("20261115_090000_ab12", "user", "never mind", None, None, None, 1794733200, 0),
        ("20261115_090000_ab12", "user", "look around", None, None, None, 1794733201, 1),
        ("20261115_090000_ab12", "assistant", None, calls, None, None, 1794733202, 1),
        ("20261115_090000_ab12", "tool", "hull", None, "t1", "exec", 1794733203.25, 1),
        ("20261115_090000_ab12", "assistant", "a hull", None, None, None, 1794733204, 1),
        ("tg", "user", f"\0json:{json.dumps(PARTS)}", None, None, None, 1794733300, 1),
    ):
        database.execute(f"{sql} VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
    return database


async def test_conversations_in_the_database_of_hermes_come_over(here: Here, tmp_path: Path) -> None:
    root = tmp_path / ".hermes"
    with closing(write_hermes(root)):  # it runs, so rows are only in the log
        write_old = root / "sessions" / "20261115_090000_ab12.jsonl"  # from a release that wrote both
        write_old.parent.mkdir()
        write_old.write_bytes(jsonl(OPENAI))
        report = await migrate(here, root, "hermes")
        again = await migrate(here, root, "hermes")
    assert {s.outcome for s in again.sessions} == {"same"}
    assert [(s.file, s.reason) for s in report.skipped] == [
        ("sessions/20261115_090000_ab12.jsonl", "this conversation is in state.db")
    ]
    assert [(s.key, s.label) for s in report.sessions] == [
        ("agent:main:explicit:hermes-20261115_090000_ab12", "Mending the boat"),
        ("agent:main:telegram:direct:42", ""),
        ("agent:main:telegram:group:-7", ""),
    ]
    entries = [decode_row(row) for row in await here.store.rows("20261115_090000_ab12")]
    assert not any(isinstance(entry, Broken) for entry in entries)
    messages = list(messages_of(entries))
    assert [told(message) for message in messages] == [
        ("user", "look around"),
        ("assistant", f"t1:{json.loads(ARGUMENTS)}"),
        ("result of t1", "hull"),
        ("assistant", "a hull"),
    ]
    assert "never mind" in (await here.payloads("20261115_090000_ab12")).decode()
    assert report.sessions[1].texts == 1


async def test_a_row_that_is_no_text_costs_no_other_conversation(here: Here, tmp_path: Path) -> None:
    root = tmp_path / ".hermes"
    with closing(write_hermes(root)) as database:
        database.execute("UPDATE messages SET content = x'ff00', timestamp = 'soon' WHERE id = 2")
        report = await migrate(here, root, "hermes")
    assert report.sessions[0].messages == {"user": 1, "assistant": 2, "toolResult": 1}


async def test_memory_goes_where_memory_is_looked_for_and_locks_stay(here: Here, tmp_path: Path) -> None:
    root = tmp_path / ".hermes"
    for name in ("SOUL.md", "memories/MEMORY.md", "memories/USER.md", "memories/MEMORY.md.lock", "config.yaml"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    report = await migrate(here, root, "hermes")
    found = {file.path: (here.root / "workspace" / file.path).read_text() for file in report.workspace_files}
    assert found == {"SOUL.md": "SOUL.md", "MEMORY.md": "memories/MEMORY.md", "USER.md": "memories/USER.md"}
    assert "not imported: config.yaml" in report.notes


async def test_the_key_of_a_nanobot_session_is_the_one_in_its_first_line(here: Here, tmp_path: Path) -> None:
    folder = tmp_path / ".nanobot" / "sessions" / ("0" * 32)
    folder.mkdir(parents=True)
    for name, key in (("dGVsZWdyYW06LTc", "telegram:-7"), ("Y2xpOmRpcmVjdA", "cli:direct"), ("Y3JvbjphYg", "cron:ab")):
        about = {"_type": "metadata", "key": key, "metadata": {"title": f"about {key}"}}
        (folder / f"{name}.jsonl").write_bytes(jsonl([about, *OPENAI]))
    workspace = tmp_path / ".nanobot" / "workspace"
    (workspace / "memory").mkdir(parents=True)
    (workspace / "memory" / "MEMORY.md").write_text("known")
    report = await migrate(here, tmp_path / ".nanobot", "nanobot")
    assert {s.key: s.label for s in report.sessions} == {
        "agent:main:telegram:group:-7": "about telegram:-7",
        "agent:main:explicit:nanobot-cli-direct": "about cli:direct",
        "agent:main:explicit:nanobot-cron-ab": "about cron:ab",
    }
    assert (here.root / "workspace" / "MEMORY.md").read_text() == "known"


async def test_a_nanobot_session_that_goes_on_there_grows_here(here: Here, tmp_path: Path) -> None:
    path = write(tmp_path / "there", "nanobot")
    await migrate(here, tmp_path / "there", "nanobot")
    about = {**NANOBOT[0], "updated_at": "2026-11-16T09:00:00", "metadata": {"title": "The boat"}}
    path.write_bytes(jsonl([about, *OPENAI, {"role": "user", "content": "and the mast?"}]))
    for outcome in ("grown", "same"):
        assert [s.outcome for s in (await migrate(here, tmp_path / "there", "nanobot")).sessions] == [outcome]


async def test_the_workspace_of_nanobot_comes_along(here: Here, tmp_path: Path) -> None:
    write(tmp_path / "there", "nanobot")
    (tmp_path / "there" / "workspace" / "MEMORY.md").write_text("known")
    report = await migrate(here, tmp_path / "there", "nanobot")
    assert [file.path for file in report.workspace_files] == ["MEMORY.md"]
    assert (here.root / "workspace" / "MEMORY.md").read_text() == "known"
