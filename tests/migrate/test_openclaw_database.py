"""Sessions as rows: read without touching the file, with what is only in its log, packed rows and damage."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import zstandard
from foreign_trees import Tree, add_rows, header, jsonl, look, only, said, talk

from palinurus.extensions.migrate.openclaw.home import OpenClawHome


def test_rows_are_read_packed_or_not(tree: Tree) -> None:
    database = tree.database()
    add_rows(database, "agent:main:main", "s", talk("s", "one", "two", "three"), packed=2)
    database.close()
    found = only(tree.root)
    assert (found.key, found.messages, found.texts) == ("agent:main:main", {"user": 2, "assistant": 1}, 3)


def test_what_is_only_in_the_log_is_read_and_the_file_stays_as_it_is(tree: Tree, tmp_path: Path) -> None:
    database = tree.database()
    database.pragma("journal_mode", "wal")
    add_rows(database, "agent:main:main", "s", talk("s", "one"))
    database.wal_checkpoint(mode=0)
    database.execute("INSERT INTO transcript_events VALUES ('s', 9, ?, NULL, 1)", (json.dumps(said("late", "two")),))
    left = tmp_path / "left"  # as a process that was killed leaves it
    shutil.copytree(tree.root, left)
    database.close()
    before = {path: hashlib.sha256(path.read_bytes()).digest() for path in left.rglob("*") if path.is_file()}
    assert only(left).texts == 2
    assert {path: hashlib.sha256(path.read_bytes()).digest() for path in left.rglob("*") if path.is_file()} == before


def test_earlier_conversations_and_archives_come_under_their_key(tree: Tree) -> None:
    database = tree.database()
    add_rows(database, "agent:main:main", "old", talk("old", "before"))
    add_rows(database, "agent:main:main", "new", talk("new", "after"))
    blob = zstandard.compress(jsonl(talk("gone", "deleted")))
    row = ("gone", "agent:main:throwaway", "deleted", "zstd", blob, "gone.jsonl.deleted.2026.zst")
    database.execute("INSERT INTO session_transcript_archives VALUES (?, ?, ?, ?, ?, ?)", row)
    database.close()
    tree.write("agents/main/sessions/gone.jsonl.deleted.2026.zst", blob)
    found, skipped = look(tree.root)
    assert [(f.session_id, f.key, f.origin) for f in found] == [
        ("new", "agent:main:main", "live"),
        ("old", "agent:main:main", "earlier"),
        ("gone", "agent:main:throwaway", "deleted"),
    ]
    assert skipped == []


def test_cold_archives_are_unpacked(tree: Tree) -> None:
    database = tree.database()
    add_rows(database, "agent:main:main", "s", [])
    database.execute("INSERT INTO session_transcript_cold_archives VALUES ('s', 'abc.jsonl.zst', NULL)")
    database.close()
    records = [{"kind": "header", "version": 1}, *({"kind": "event", "event": line} for line in talk("s", "cold"))]
    tree.write("agents/main/sessions/cold/abc.jsonl.zst", zstandard.compress(jsonl(records)))
    assert only(tree.root).entries == {"session": 1, "message": 1}


def test_the_database_is_right_where_files_tell_the_same_session(tree: Tree) -> None:
    tree.session("s", talk("s", "an old copy"), key="agent:main:main")
    tree.session("other", talk("other", "only a file"))
    database = tree.database()
    add_rows(database, "agent:main:main", "s", talk("s", "one", "two"))
    database.close()
    found, skipped = look(tree.root)
    assert [(f.session_id, f.texts) for f in found] == [("s", 2), ("other", 1)]
    assert [loss.file for loss in skipped] == ["agents/main/sessions/s.jsonl"]


def test_a_bad_row_costs_that_row(tree: Tree) -> None:
    database = tree.database()
    add_rows(database, "agent:main:main", "s", [header("s"), "{broken", said("a", "here")], packed=2)
    database.execute("INSERT INTO transcript_events VALUES ('s', 7, NULL, x'28b52ffd00', 5)")
    database.execute("INSERT INTO transcript_events VALUES ('s', 8, CAST(x'7b22ff227d' AS TEXT), NULL, 5)")
    database.close()
    (found,), skipped = look(tree.root)
    assert found.entries == {"session": 1, "message": 1}
    assert [loss.line for loss in skipped] == [2, 8, 9]


def test_details_that_are_damaged_cost_no_conversation(tree: Tree) -> None:
    database = tree.database()
    add_rows(database, "agent:main:main", "s", talk("s", "one"))
    database.execute("UPDATE session_nodes SET entry_json = '{'")
    database.close()
    (found,), (loss,) = look(tree.root)
    assert (found.key, found.texts) == ("agent:main:main", 1)
    assert "no object" in loss.reason


def test_a_view_in_the_place_of_a_table_is_not_asked(tree: Tree) -> None:
    database = tree.database()
    add_rows(database, "agent:main:main", "s", talk("s", "one"))
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT 's' AS session_id, x AS seq,"
    database.execute("DROP TABLE transcript_events")
    database.execute(f"CREATE VIEW transcript_events AS {endless} '{{}}' AS event_json FROM n")
    database.close()
    assert look(tree.root)[0] == []


@pytest.mark.parametrize("content", [b"", b"not a database", b"SQLite format 3\0" + b"\xff" * 4000])
def test_a_file_that_is_no_database_is_told(tree: Tree, content: bytes) -> None:
    tree.write("agents/main/agent/openclaw-agent.sqlite", content)
    tree.session("s", talk("s", "in a file"), key="agent:main:main")
    (found,), skipped = look(tree.root)
    assert found.texts == 1
    assert len(skipped) == (1 if content else 0)  # an empty file is an empty database


def test_jobs_and_pairing_are_kept_word_for_word(tree: Tree) -> None:
    jobs = '{"version": 1,  "jobs": [{"id": "j", "name": "Tides", "schedule": {"kind": "every"}, "x": 1.50}]}'
    tree.write("cron/jobs.json", jobs)
    tree.write("credentials/telegram-pairing.json", '{"requests": []}')
    tree.write("credentials/oauth.json", '{"token": "not looked at"}')
    tree.write(
        "exec-approvals.json", '{"socket": {"token": "t"}, "agents": {"main": {"allowlist": [{"pattern": "/bin/wc"}]}}}'
    )
    with OpenClawHome(tree.root, tree.root) as home:
        kept = {document.name: document.text for document in home.documents.kept}
    assert kept.pop("exec-approvals.json") == '{"agents": {"main": {"allowlist": [{"pattern": "/bin/wc"}]}}}'
    assert kept == {"cron/jobs.json": jobs, "credentials/telegram-pairing.json": '{"requests": []}'}
