"""Canaries in every place of a home that can hold words. After a forgetting none sings, or the report says which."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path

import apsw
import pytest

from palinurus.domain.envelope import Delivery, Inbound
from palinurus.domain.errors import BadRequest, NotFound, StorageFull
from palinurus.domain.events import Plan
from palinurus.domain.keys import SessionKey
from palinurus.extensions.backup.backups import Backups
from palinurus.extensions.backup.operations import copy_database
from palinurus.extensions.backup.pack import BackupReport
from palinurus.extensions.forget.operations import Forget, ForgetReport
from palinurus.extensions.forget.operations import forget as forget_in
from palinurus.extensions.forget.rows import WordRows
from palinurus.extensions.knowledge.core_block import refresh_core_block
from palinurus.extensions.migrate.foreign import ForeignDocument
from palinurus.extensions.migrate.import_store import import_store_of
from palinurus.memory.question import Question
from palinurus.runtime.runtime import Runtime
from palinurus.sessions.extraction import Extraction
from palinurus.sessions.session import SessionChange
from palinurus.sessions.transcript import CompactionEntry, decode_row, timestamp
from palinurus.tools.approval import Approval, ApprovalStore
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.write import keep_backup

CANARY = "Zanzibar-7741"
MAIN = SessionKey.parse("agent:main:main")


async def say(runtime: Runtime, text: str, key: SessionKey = MAIN) -> str:
    run = await runtime.services.dispatcher.submit(Inbound(text, runtime.services.new_id(), session_key=str(key)))
    result = await run.wait()
    assert result.status == "ok", result
    return result.text


async def forget(runtime: Runtime, **wanted: object) -> ForgetReport:
    return await forget_in(runtime.services, Forget(**wanted))  # type: ignore[arg-type]


async def plant(runtime: Runtime, workspace: Path, met: str = f"- We met in {CANARY}.\n") -> None:
    """Wherever words can come to rest."""
    services, root = runtime.services, runtime.services.home.root
    (workspace / "MEMORY.md").write_text(f"# Memory\n\n- The boat is called Aster.\n{met}")
    await say(runtime, f"remember that the password of the shed is {CANARY}")  # message, run, call, note, audit, trace
    session = await services.sessions.find(MAIN)
    assert session is not None
    rows = await services.sessions.rows(session.id)
    notes = Extraction("n1", session.id, rows[-1].id, f"- {CANARY} again", "model", True, "2026-11-01", 1, str(MAIN))
    summary = f"## Decisions\n- the boat stays\n- {CANARY}"
    cut = CompactionEntry(
        id="cut", parent_id=rows[-1].id, timestamp=timestamp(1), summary=summary, first_kept_entry_id=rows[-1].id
    )
    await services.sessions.append(session.id, [cut], SessionChange(extraction=notes, compacted=True, label=CANARY))
    await runtime.services.turns.maintenance.place_notes()  # into memory/2026-11-01.md
    await services.deliveries.post(Delivery("telegram", "42"), f"off to {CANARY}", "parcel")
    approvals = ApprovalStore(runtime.services.database)  # no door adds one that is decided already
    plan = Plan("exec", f"echo {CANARY}", argv=("echo", CANARY))
    await approvals.add(Approval("a1", "r", str(MAIN), "exec", plan, "d", "why", 1, 2))
    await approvals.settle("a1", "denied", 2)
    await import_store_of(services).keep_documents(
        "other", [ForeignDocument("cron", "jobs.json", json.dumps({"say": CANARY}))]
    )
    for path, text in {
        root / "chat-history.jsonl": json.dumps(f"go to {CANARY}") + "\n" + json.dumps("hello") + "\n",
        root / "logs" / "pal.jsonl": json.dumps({"text": f"saw {CANARY.lower()}"}) + "\n" + '{"text":"fine"}\n',
        root / "results" / "abc" / "0123.txt": f"{{}}\nfine\n{CANARY}\n",
        root / "derived" / "mcp" / "x.json": json.dumps(CANARY),
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    keep_backup(Boundary(workspace), "MEMORY.md", (workspace / "MEMORY.md").read_bytes(), 1_000)
    await services.index.search("shed")
    await services.memory("main").search(Question("shed"))
    copy_database(root / "home.sqlite", root / "home.sqlite.before-0008")
    with apsw.Connection(str(root / "home.sqlite")) as other:  # what was deleted long ago lies in free pages
        other.set_busy_timeout(5000)
        other.execute("CREATE TABLE gone (text TEXT)")
        other.executemany("INSERT INTO gone VALUES (?)", [(f"{CANARY} {n} " * 50,) for n in range(200)])
        other.execute("DROP TABLE gone")


def holding(*roots: Path) -> set[Path]:
    files = [path for root in roots for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    return {path for path in files if CANARY.lower().encode() in path.read_bytes().lower()}


async def test_after_a_forgetting_no_byte_of_the_home_holds_the_words(runtime: Runtime, workspace: Path) -> None:
    root = runtime.services.home.root
    await plant(runtime, workspace)
    before = {path.name.removesuffix("-wal") for path in holding(root, workspace)}
    assert before >= {
        *("home.sqlite", "home.sqlite.before-0008", "chat-history.jsonl", "pal.jsonl", "0123.txt", "x.json"),
        *("MEMORY.md", "2026-11-01.md", "transcripts.sqlite", "main.sqlite"),
    }
    plan = await forget(runtime, query=CANARY.lower())
    assert {path.name.removesuffix("-wal") for path in holding(root, workspace)} == before, "a plan changes nothing"
    report = await forget(runtime, query=CANARY.lower(), apply=True)
    assert holding(root, workspace) == set()
    assert report.remains == ()
    assert [probe for probe in report.probes if probe.found] == []
    planned = {spot.where for spot in plan.spots if not spot.where.startswith("derived/")}
    assert planned <= {spot.where for spot in report.spots}
    places = {spot.where.removeprefix("home.sqlite: ") for spot in report.spots}
    assert {
        *("what was said", "notes of conversations", "accepted messages and replies", "names of conversations"),
        *("messages on their way out", "documents of other homes", "decided approvals", "details of the audit log"),
        *("chat-history.jsonl", "logs/pal.jsonl", "results/abc/0123.txt", "home.sqlite.before-0008"),
        *("derived/mcp/x.json", "memory index of main", f"{workspace}/MEMORY.md", f"{workspace}/memory/2026-11-01.md"),
    } <= places


async def test_what_was_not_meant_stays_word_for_word(runtime: Runtime, workspace: Path) -> None:
    await plant(runtime, workspace)
    await say(runtime, "remember that the lamp is green", SessionKey.parse("agent:main:explicit:other"))
    await forget(runtime, query=CANARY, apply=True)
    assert (workspace / "MEMORY.md").read_text() == "# Memory\n\n- The boat is called Aster.\n"
    assert (runtime.services.home.root / "chat-history.jsonl").read_text().splitlines()[1] == '"hello"'
    found = await runtime.services.memory("main").search(Question("which colour has the lamp"))
    assert any("green" in result.snippet for result in found.results)
    session = await runtime.services.sessions.find(MAIN)
    assert session is not None
    rows = await runtime.services.sessions.rows(session.id)
    cut = next(entry for entry in map(decode_row, rows) if isinstance(entry, CompactionEntry))
    assert cut.summary == "## Decisions\n- the boat stays\n[forgotten]"
    assert (await runtime.services.audit.verify()).trouble == ""
    assert session.entry_count == len(rows)


async def test_a_second_forgetting_finds_nothing(runtime: Runtime, workspace: Path) -> None:
    await plant(runtime, workspace)
    await forget(runtime, query=CANARY, apply=True)
    again = await forget(runtime, query=CANARY, apply=True)
    assert [spot for spot in again.spots if spot.action != "index anew"] == []


async def test_the_conversation_goes_on_in_a_new_epoch_without_the_words(runtime: Runtime, workspace: Path) -> None:
    await say(runtime, f"remember that the shed opens with {CANARY}")
    await forget(runtime, query=CANARY, apply=True)
    await say(runtime, "hello again")
    session = await runtime.services.sessions.find(MAIN)
    assert session is not None
    payloads = [json.loads(row.payload) for row in await runtime.services.sessions.rows(session.id)]
    epochs = [each["data"]["reason"] for each in payloads if each.get("customType") == "palinurus:epoch"]
    assert epochs == ["new", "forget"]
    assert holding(runtime.services.home.root, workspace) == set()
    ids = [each["id"] for each in payloads]
    assert all(each.get("parentId") in (None, *ids) for each in payloads)


async def test_a_whole_conversation_goes_with_its_notes_and_what_was_typed(runtime: Runtime, workspace: Path) -> None:
    services, root = runtime.services, runtime.services.home.root
    other = SessionKey.parse("agent:main:explicit:other")
    await say(runtime, "remember that the lamp in the hall is green", other)
    await plant(runtime, workspace, met="")
    typed = f"remember that the password of the shed is {CANARY}"
    (root / "chat-history.jsonl").write_text(json.dumps(typed) + "\n" + json.dumps("hello") + "\n")
    for planted in (root / "logs" / "pal.jsonl", root / "results" / "abc" / "0123.txt", root / "derived/mcp/x.json"):
        planted.unlink()
    report = await forget(runtime, session=str(MAIN), apply=True)
    assert report.sessions == (str(MAIN),)
    session = await services.sessions.find(MAIN)
    assert session is not None
    assert not [row for row in await services.sessions.rows(session.id) if CANARY in row.payload]
    left = {str(path.name) for path in holding(root, workspace)}
    assert left <= {"home.sqlite", "home.sqlite.before-0008"}  # the document of another home is not of this talk
    assert (root / "chat-history.jsonl").read_text().splitlines()[1] == '"hello"'
    notes = "".join(path.read_text() for path in (workspace / "memory").glob("*.md"))
    assert "the lamp in the hall is green" in notes
    assert "Notes from" not in notes
    assert "lamp" in await say(runtime, "what colour has the lamp in the hall?", other)


async def test_a_conversation_can_be_forgotten_twice(runtime: Runtime, workspace: Path) -> None:
    await plant(runtime, workspace, met="")
    await forget(runtime, session=str(MAIN), apply=True)
    rows = len(await runtime.services.sessions.rows((await runtime.services.sessions.open(MAIN)).id))
    again = await forget(runtime, session=str(MAIN), apply=True)
    assert [spot for spot in again.spots if spot.action != "index anew"] == []
    assert again.remains == ()
    assert len(await runtime.services.sessions.rows((await runtime.services.sessions.open(MAIN)).id)) == rows


async def test_one_that_was_cut_off_after_the_files_is_done_by_the_next(
    runtime: Runtime, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await plant(runtime, workspace)

    async def full(*_: object) -> None:
        raise StorageFull("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(WordRows, "forget", full)
        with pytest.raises(StorageFull):
            await forget(runtime, query=CANARY, apply=True)
    report = await forget(runtime, query=CANARY, apply=True)
    assert holding(runtime.services.home.root, workspace) == set()
    assert report.remains == ()


async def test_a_session_that_is_answering_is_left_alone(runtime: Runtime, workspace: Path) -> None:
    await say(runtime, f"remember {CANARY}")
    released = asyncio.Event()
    held = asyncio.create_task(runtime.services.dispatcher.in_lane(MAIN, released.wait))
    run = await runtime.services.dispatcher.submit(Inbound(f"what of {CANARY}?", "k", session_key=str(MAIN)))
    with pytest.raises(BadRequest, match="being answered now"):
        await forget(runtime, query=CANARY, apply=True)
    released.set()
    await asyncio.wait_for(asyncio.gather(held, run.wait()), 60)
    await forget(runtime, query=CANARY, apply=True)
    assert holding(runtime.services.home.root, workspace) == set()


async def test_backups_and_git_history_are_named_and_never_changed(runtime: Runtime, workspace: Path) -> None:
    root = runtime.services.home.root
    await say(runtime, f"remember that the shed opens with {CANARY}")
    git = ["git", "-C", str(workspace), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-qm", "notes"], check=True)
    now = runtime.services.clock.now_ms()
    Backups(root).add(BackupReport("feedfacefeedface", str(root / "x.tar.gz"), now, 1, 1, 1, False, False))
    Backups(root).add(BackupReport("0ldest0000000000", str(root / "y.tar.gz"), 1000, 1, 1, 1, False, False))
    report = await forget(runtime, query=CANARY, apply=True)
    told = [spot.where for spot in report.remains]
    assert any(where.startswith("git history of the workspace of main") for where in told)
    assert [where.split(",")[0] for where in told if where.startswith("backup ")] == ["backup feedface"]
    marked = {known.id: known.forgotten for known in Backups(root).all()}
    assert marked == {"feedfacefeedface": (report.id,), "0ldest0000000000": ()}


async def test_a_file_of_work_is_named_and_rewritten_when_asked(runtime: Runtime, workspace: Path) -> None:
    (workspace / "src").mkdir()
    (workspace / "src" / "code.py").write_text(f"one = 1\nplace = '{CANARY}'\n")
    (workspace / "src" / "picture.bin").write_bytes(b"\0\1" + CANARY.encode())
    report = await forget(runtime, query=CANARY, apply=True)
    assert {Path(spot.where).name for spot in report.remains} == {"code.py", "picture.bin"}
    assert CANARY in (workspace / "src" / "code.py").read_text()
    report = await forget(runtime, query=CANARY, files=True, apply=True)
    assert (workspace / "src" / "code.py").read_text() == "one = 1\n"
    assert {Path(spot.where).name for spot in report.remains} == {"picture.bin"}


async def test_transcripts_are_still_append_only_for_everybody_else(runtime: Runtime, workspace: Path) -> None:
    await say(runtime, f"remember {CANARY}")
    await forget(runtime, query=CANARY, apply=True)
    with apsw.Connection(str(runtime.services.home.root / "home.sqlite")) as other:
        for change in ("UPDATE entries SET payload = '{}'", "UPDATE entries SET id = 'x'", "DELETE FROM entries"):
            with pytest.raises(apsw.ConstraintError, match="append-only"):
                other.execute(change)


@pytest.mark.parametrize(
    ("wanted", "error"), [({}, BadRequest), ({"query": "ab"}, BadRequest), ({"session": "no"}, NotFound)]
)
async def test_what_makes_no_sense_is_refused(runtime: Runtime, wanted: dict[str, str], error: type[Exception]) -> None:
    with pytest.raises(error):
        await forget(runtime, **wanted)


async def test_only_the_agent_that_was_named_forgets(runtime: Runtime, workspace: Path) -> None:
    await say(runtime, f"remember {CANARY}")
    with pytest.raises(NotFound):
        await forget(runtime, query=CANARY, agent="nobody", apply=True)
    report = await forget(runtime, query=CANARY, agent="main", apply=True)
    assert report.sessions == (str(MAIN),)
    assert os.environ.get("PALINURUS_HOME") != str(runtime.services.home.root) or report.applied


async def test_what_a_forgotten_session_has_said_of_the_user_leaves_the_core_block(
    runtime: Runtime, workspace: Path
) -> None:
    await say(runtime, "hello")
    session = await runtime.services.sessions.find(MAIN)
    assert session is not None
    rows = await runtime.services.sessions.rows(session.id)
    told = "- W: remember that I never eat meat"
    notes = Extraction("n1", session.id, rows[-1].id, told, "extractor", True, "2026-11-01", 1, str(MAIN))
    await runtime.services.sessions.append(session.id, [], SessionChange(extraction=notes))
    await runtime.services.turns.maintenance.place_notes()
    (workspace / "memory" / "2026-10-01.md").write_text("## Retain\n- W: My boat is called Aster.\n")
    await refresh_core_block(runtime.services, "main")
    core = workspace / ".pal" / "core.md"
    assert sorted(core.read_text().splitlines()) == ["- I never eat meat", "- My boat is called Aster."]
    await forget(runtime, session=str(MAIN), apply=True)
    assert core.read_text() == "- My boat is called Aster.\n"
