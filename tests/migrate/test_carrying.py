"""Carrying transcripts over: once, again, in pieces, and when something has changed on either side."""

from __future__ import annotations

from pathlib import Path

import pytest
from foreign_trees import Tree, jsonl, said, talk
from taking_in import Here

from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import UserMessage
from palinurus.extensions.migrate import importer
from palinurus.extensions.migrate.openclaw.home import OpenClawHome
from palinurus.extensions.migrate.report import SecretFindings
from palinurus.sessions.transcript import MessageEntry

MAIN = SessionKey.main()
T = "2026-11-15T09:00:00.000Z"


async def test_looking_changes_nothing(here: Here, tree: Tree) -> None:
    tree.session("s", talk("s", "one"), key="agent:main:main")
    tree.write("workspace/MEMORY.md", "known")
    report = await here.migrate(tree.root, apply=False)
    assert [(s.outcome, s.into) for s in report.sessions] == [("new", "")]
    assert not report.applied
    assert await here.store.recent(archived=True) == []
    assert not (here.root / "workspace-main").exists()


async def test_every_byte_of_a_transcript_comes_over(here: Here, tree: Tree) -> None:
    path = tree.session("s", talk("s", "one", "zwei", "三"), key="agent:main:telegram:dm:7")
    report = await here.migrate(tree.root)
    (found,) = report.sessions
    session = await here.store.find(SessionKey.parse("agent:main:telegram:direct:7"))
    assert session is not None
    assert (found.into, session.entry_count, session.archived_at) == (session.id, 4, None)
    assert await here.payloads(session.id) == path.read_bytes()
    ((extra,),) = await here.database.read(lambda c: c.execute("SELECT extra ->> '$.openclaw.unheardOf' FROM sessions"))
    assert extra == '{"x":[1]}'


async def test_doing_it_twice_changes_nothing(here: Here, tree: Tree) -> None:
    tree.session("s", talk("s", "one", "two"), key="agent:main:main")
    tree.write("workspace/MEMORY.md", "known")
    tree.write("cron/jobs.json", '{"jobs": [{"id": "j"}]}')
    await here.migrate(tree.root)
    before = await _everything(here)
    here.clock.advance(hours=1)
    report = await here.migrate(tree.root)
    assert {s.outcome for s in report.sessions} == {f.outcome for f in report.workspace_files} == {"same"}
    assert await _everything(here) == before


async def test_a_home_that_was_moved_is_known_again(here: Here, tree: Tree, tmp_path: Path) -> None:
    tree.session("s", talk("s", "one"), key="agent:main:main")
    await here.migrate(tree.root)
    moved = tree.root.rename(tmp_path / "moved")
    assert [s.outcome for s in (await here.migrate(moved)).sessions] == ["same"]


async def test_what_was_said_there_since_comes_along(here: Here, tree: Tree) -> None:
    tree.session("s", talk("s", "one"), key="agent:main:main")
    await here.migrate(tree.root)
    path = tree.session("s", talk("s", "one", "two", "three"), key="agent:main:main")
    assert [s.outcome for s in (await here.migrate(tree.root, apply=False)).sessions] == ["grown"]
    (found,) = (await here.migrate(tree.root)).sessions
    assert found.outcome == "grown"
    assert await here.payloads(found.into) == path.read_bytes()
    assert [s.outcome for s in (await here.migrate(tree.root)).sessions] == ["same"]


async def test_a_bad_line_of_a_transcript_that_was_rewritten_is_counted_once(here: Here, tree: Tree) -> None:
    tree.session("s", [*talk("s", "one", "two"), b"{torn"], key="agent:main:main")
    await here.migrate(tree.root)
    tree.session("s", [*talk("s", "another", "word"), b"{torn"], key="agent:main:main")
    report = await here.migrate(tree.root)
    assert [(s.outcome, s.skipped) for s in report.sessions] == [("new", 1)]
    assert (report.skipped_total, [skipped.line for skipped in report.skipped]) == (1, [4])


async def test_an_archive_that_begins_like_its_session_and_goes_another_way_is_kept_too(here: Here, tree: Tree) -> None:
    tree.session("s", talk("s", "one", "two"), key="agent:main:main")
    archive = "agents/main/sessions/s.jsonl.reset.2026-11-15T19-48-22.064Z"
    tree.write(archive, jsonl(talk("s", "one", "else", "more")).decode())
    report = await here.migrate(tree.root)
    assert len({s.into for s in report.sessions}) == 2
    assert {s.outcome for s in (await here.migrate(tree.root)).sessions} == {"same"}


async def test_a_session_that_was_reset_there_since_is_known_under_its_new_name(here: Here, tree: Tree) -> None:
    path = tree.session("s", talk("s", "one"))
    await here.migrate(tree.root)
    path.rename(path.with_name("s.jsonl.reset.2026-11-15T19-48-22.064Z"))
    assert [s.outcome for s in (await here.migrate(tree.root)).sessions] == ["same"]


async def test_what_was_continued_in_both_homes_is_left_and_told(here: Here, tree: Tree) -> None:
    tree.session("s", talk("s", "one"), key="agent:main:main")
    await here.migrate(tree.root)
    await here.store.append("s", [MessageEntry("mine", T, "e0", message=UserMessage("here"))])
    assert [s.outcome for s in (await here.migrate(tree.root)).sessions] == ["same"]
    tree.session("s", talk("s", "one", "there"), key="agent:main:main")
    (found,) = (await here.migrate(tree.root)).sessions
    assert found.outcome == "left"
    assert "both" in found.note
    assert [row.id for row in await here.store.rows("s")] == ["s", "e0", "mine"]


async def test_a_transcript_that_was_rewritten_is_kept_beside_the_old_one(here: Here, tree: Tree) -> None:
    tree.session("s", talk("s", "one", "two"), key="agent:main:main")
    await here.migrate(tree.root)
    path = tree.session("s", talk("s", "one", "TWO", "three"), key="agent:main:main")
    (found,) = (await here.migrate(tree.root)).sessions
    assert "rewritten" in found.note
    assert await here.payloads(found.into) == path.read_bytes()
    assert [row.id for row in await here.store.rows("s")] == ["s", "e0", "e1"]
    before = await _everything(here)
    assert [s.outcome for s in (await here.migrate(tree.root)).sessions] == ["same"]
    assert await _everything(here) == before


async def test_a_migration_that_was_cut_off_goes_on(here: Here, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tree.session("s", talk("s", *map(str, range(30))), key="agent:main:main")
    monkeypatch.setattr(importer, "BATCH_ENTRIES", 10)
    add, calls = here.importer.add, 0

    async def failing(*arguments: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise RuntimeError("the lights went out")
        await add(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(type(here.importer), "add", staticmethod(failing))
    with pytest.raises(RuntimeError):
        await here.migrate(tree.root)
    assert await here.store.find(MAIN) is None
    report = await here.migrate(tree.root)
    assert [s.outcome for s in report.sessions] == ["new"]
    assert await here.payloads("s") == path.read_bytes()
    assert calls == 3 + 2  # ten of thirty-one entries were stored twice over by nobody


async def test_a_migration_that_was_cut_off_begins_anew_when_the_transcript_has_changed(here: Here, tree: Tree) -> None:
    tree.session("s", talk("s", "one"), key="agent:main:main")
    with OpenClawHome(tree.root, tree.root) as home:
        importing = importer.SessionImporter(here.importer, home.losses, SecretFindings(), apply=True, now=1)
        await importing.import_session(next(home.sessions()))
    path = tree.session("s", talk("s", "ONE", "two"), key="agent:main:main")
    (found,) = (await here.migrate(tree.root)).sessions
    assert found.outcome == "new"
    assert await here.payloads(found.into) == path.read_bytes()


async def test_two_homes_with_the_same_names_are_two(here: Here, tree: Tree, tmp_path: Path) -> None:
    tree.session("cli", [{**line, "timestamp": T} for line in talk("cli", "one")], key="agent:main:main")
    other = Tree(tmp_path / "other")
    later = "2026-11-16T09:00:00.000Z"
    other.session("cli", [{**line, "timestamp": later} for line in talk("cli", "two")], key="agent:main:main")
    await here.migrate(tree.root)
    (found,) = (await here.migrate(other.root)).sessions
    assert found.into.startswith("cli~")
    assert [session.id for session in await here.store.archived(MAIN)] == [found.into]


async def test_secrets_are_told_by_their_place(here: Here, tree: Tree) -> None:
    key = "ghp_" + "a1B2" * 9
    tree.session("s", [*talk("s", "fine"), said("x", f"my key is {key}")], key="agent:main:main")
    tree.write("workspace/MEMORY.md", f"# Keys\n{key}\n")
    report = await here.migrate(tree.root, apply=False)
    assert {(f.file, f.line) for f in report.secrets} == {
        ("agents/main/sessions/s.jsonl", 3),
        ("workspace/MEMORY.md", 2),
    }
    assert key not in str(report)


async def test_files_go_where_nobody_has_written(here: Here, tree: Tree) -> None:
    tree.write("workspace/MEMORY.md", "theirs")
    tree.write("workspace/memory/2026-11-15.md", b"\xff\x00 as it is")
    workspace = here.root / "workspace-main"
    workspace.mkdir()
    (workspace / "MEMORY.md").write_text("mine")
    report = await here.migrate(tree.root)
    assert {f.path: f.outcome for f in report.workspace_files} == {"MEMORY.md": "left", "memory/2026-11-15.md": "new"}
    assert (workspace / "MEMORY.md").read_text() == "mine"
    assert (workspace / "memory" / "2026-11-15.md").read_bytes() == b"\xff\x00 as it is"
    assert [loss.file for loss in report.skipped] == ["workspace/MEMORY.md"]


async def _everything(here: Here) -> list[object]:
    """Every row of the home, and every file."""

    def rows(connection: object) -> list[object]:
        tables = ("sessions", "entries", "extractions", "imports", "imported_documents")
        return [connection.execute(f"SELECT * FROM {table}").fetchall() for table in tables]  # type: ignore[attr-defined]

    files = sorted((path, path.read_bytes()) for path in here.root.rglob("*.md"))
    return [await here.database.read(rows), files]
