"""The checks can fail: a bug planted in the house is found within a few lives, and by the promise that it breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from palinurus.agent.reply import Stop
from palinurus.context import assemble as assembly
from palinurus.context import epoch
from palinurus.context.assemble import assemble
from palinurus.context.epoch import Epoch
from palinurus.dispatch.dispatcher import Dispatcher
from palinurus.dispatch.lanes import Lanes
from palinurus.dispatch.runs import Run
from palinurus.domain.clock import Clock, NewId
from palinurus.domain.events import RunResult
from palinurus.domain.messages import Message, UserMessage
from palinurus.ledger.audit_log import AuditLog
from palinurus.providers.provider import Head
from palinurus.runtime.lock import HomeLock
from palinurus.sessions import journal
from palinurus.sessions.session import NO_CHANGE, Session, SessionChange
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import Entry
from palinurus.storage.database import Database, MemoryDatabase
from palinurus.storage.jobs import MOST_WAITING, Job, JobQueue, finish_job
from palinurus.storage.transaction import Transaction, Work
from palinurus.workspace.files import WorkspaceFiles
from support.shelf import MakeShelf, Shelf
from support.simulator import in_memory, main, on_disk, simulate
from support.virtual import Deadlock
from support.world import PromiseBroken

LIVES = 40
STEPS, DISK_STEPS = 40, 25


def found(shelf: MakeShelf = in_memory, lives: int = LIVES, likely: int = 0) -> int:
    """The promise that the bug breaks, by the first life that shows it. `likely` is the seed that showed it last."""
    for seed in dict.fromkeys([likely, *range(lives)]):
        try:
            simulate(seed, DISK_STEPS if shelf is on_disk else STEPS, shelf=shelf)
        except PromiseBroken as broken:
            return int(str(broken).removeprefix("promise ").partition(":")[0])
        except Deadlock:
            return 10
    pytest.fail(f"the bug lived through {lives} lives")


def shelf_of(sessions: type[SessionStore] = SessionStore, queue: type[JobQueue] = JobQueue) -> MakeShelf:
    def make(clock: Clock, new_id: NewId, home: Path) -> Shelf:
        database = MemoryDatabase()
        return Shelf(database, sessions(database, clock, new_id), queue(database), AuditLog(database, clock, new_id))

    return make


class DropsAnAppend(SessionStore):
    appends = 0

    async def append(self, session_id: str, entries: Sequence[Entry], change: SessionChange = NO_CHANGE) -> Session:
        self.appends += 1
        kept = () if self.appends == 20 else entries
        return await super().append(session_id, kept, change)


def rewrite(tx: Transaction, session_id: str) -> None:
    tx.execute("DROP TRIGGER IF EXISTS words_are_only_forgotten")
    positions = [at for (at,) in tx.execute("SELECT position FROM entries WHERE session_id = ?", (session_id,))]
    if len(positions) > 8:
        tx.execute("UPDATE entries SET payload = replace(payload, 'the', 'a') WHERE position = ?", (positions[3],))


class Rewrites(SessionStore):
    async def append(self, session_id: str, entries: Sequence[Entry], change: SessionChange = NO_CHANGE) -> Session:
        session = await super().append(session_id, entries, change)
        await self.database.write(lambda tx: rewrite(tx, session_id))
        return session


class Forgets(JobQueue):
    adds = 0

    async def add(self, job: Job, most: int = MOST_WAITING) -> Job:
        kept = await super().add(job, most)
        self.adds += 1
        if self.adds % 7 == 0:
            await self._database.write(lambda tx: tx.execute("DELETE FROM jobs WHERE id = ?", (kept.id,)))
        return kept


class TakesDuplicates(JobQueue):
    async def add(self, job: Job, most: int = MOST_WAITING) -> Job:
        await super().add(msgspec.structs.replace(job, idempotency_key=f"{job.idempotency_key} {job.id}"), most)
        return job


class LosesPending(JobQueue):
    async def open(self, kind: str) -> list[Job]:
        return (await super().open(kind))[1:]


class ReversesPending(JobQueue):
    async def open(self, kind: str) -> list[Job]:
        return (await super().open(kind))[::-1]


@pytest.mark.parametrize(
    ("shelf", "promises"),
    [
        (shelf_of(DropsAnAppend), {1, 10, 20}),  # as the dropped row held words, a reply or an epoch
        (shelf_of(Rewrites), {1}),
        (shelf_of(queue=Forgets), {1}),
        (shelf_of(queue=TakesDuplicates), {1}),
        (shelf_of(queue=LosesPending), {1}),
        (shelf_of(queue=ReversesPending), {1}),
    ],
    ids=["drops an append", "rewrites", "forgets", "takes duplicates", "loses pending", "reverses pending"],
)
def test_a_store_that_lies_is_found(shelf: MakeShelf, promises: set[int]) -> None:
    assert found(shelf) in promises


class ForgetsWhatTakesLong(SessionStore):
    """As one who gives a write up that the disk has kept waiting for five seconds, and says that it was done."""

    def __init__(self, database: Database, clock: Clock, new_id: NewId) -> None:
        super().__init__(database, clock, new_id)
        self._last: tuple[int, str] = (0, "")
        self._time = clock

    async def append(self, session_id: str, entries: Sequence[Entry], change: SessionChange = NO_CHANGE) -> Session:
        (then, whose), now = self._last, self._time.now_ms()
        self._last = now, session_id
        late = whose == session_id and now - then == 5_000
        return await super().append(session_id, () if late else entries, change)


def test_a_store_that_loses_what_takes_long_is_found() -> None:
    assert found(shelf_of(ForgetsWhatTakesLong), likely=6) in (1, 10, 20)


def test_merging_messages_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def merging(messages: Sequence[Message], *, epoch_start: int = 0) -> tuple[Message, ...]:
        out: list[Message] = []
        for message in assemble(messages, epoch_start=epoch_start):
            if isinstance(message, UserMessage) and len(out) > 1 and out[-1].text == "(no reply)":
                out.pop()
                before = out.pop()
                out.append(msgspec.structs.replace(message, content=f"{before.text}\n{message.text}"))
            else:
                out.append(message)
        return tuple(out)

    monkeypatch.setattr(assembly, "assemble", merging)
    assert found(likely=4) == 20


def test_not_repairing_a_request_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "assemble", lambda messages, epoch_start=0: tuple(messages))
    assert found() in (7, 20)


def test_a_head_that_moves_within_an_epoch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[int] = []

    def head(self: Epoch) -> Head:
        shown.append(1)
        return Head(f"{self.system}\nRequest {len(shown)}.", self.tools)

    monkeypatch.setattr(Epoch, "head", property(head))
    assert found() == 20


def test_a_new_epoch_without_a_true_reason_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "reason_for_new", lambda *now: epoch.reason_for_new(*now) or "config")
    assert found() == 20


def test_private_files_in_a_group_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    bootstrap_files = WorkspaceFiles.bootstrap_files
    monkeypatch.setattr(
        WorkspaceFiles,
        "bootstrap_files",
        lambda self, mode, private, extra=(): bootstrap_files(self, mode, True, extra),
    )
    assert found() == 17


def test_a_secret_that_is_kept_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "map_strings", lambda value, redact: value)
    monkeypatch.setattr("support.world.LONE_SURROGATE", "whole")
    assert found() == 19


def test_a_stop_that_only_nods_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def request(self: Stop, reason: str = "stopped") -> None:
        self.reason = self.reason or reason

    monkeypatch.setattr(Stop, "request", request)
    assert found(likely=19) in (9, 10)


def test_an_answer_that_belongs_to_another_message_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def last_reply(view: Any, run_id: str, asked: Any = ()) -> Any:
        last = view.lines[-1].message if view.lines and run_id in view.stored_ids else None
        return [last] if last and last.__struct_config__.tag == "assistant" and not last.calls else []

    monkeypatch.setattr("palinurus.agent.turn.earlier_reply", last_reply)
    assert found() in (10, 7, 20)


def test_a_lane_that_dies_with_a_cancelled_tool_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palinurus.tools.registry._is_cancelled", lambda: True)
    monkeypatch.setattr("palinurus.dispatch.lanes._is_cancelled", lambda: True)
    assert found(lives=200, likely=40) in (6, 10, 9)


def test_a_message_that_is_dropped_when_the_disk_fails_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(self: Dispatcher, runs: Iterable[Run], why: str) -> None:
        for run in runs:
            run.end(RunResult(run.id, str(run.key), "", "error", error=why))
            queue: Any = self._queue
            queue._inner._database.look(lambda tx, run=run: finish_job(tx, run.job, run.result))

    monkeypatch.setattr(Dispatcher, "_unfinished", forgets)
    assert found(shelf_of()) == 1


def test_two_turns_at_once_in_a_session_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    start: Callable[..., None] = Lanes.start
    count = iter(range(1_000_000))
    monkeypatch.setattr(Lanes, "start", lambda self, key, job, *rest: start(self, f"{key} {next(count)}", job, *rest))
    assert found() in (1, 20)


def test_sending_calls_as_the_model_gave_them_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palinurus.agent.loop.answered", lambda reply, results: (reply, *results))
    assert found() == 7


def test_a_holder_that_writes_on_after_it_lost_the_home_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Database, "_check_epoch", lambda self, connection: None)
    assert found(on_disk, likely=27) in (1, 2, 10, 20)


def test_a_holder_that_does_not_look_for_its_lock_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HomeLock, "keep", lambda self, command: True)
    assert found(on_disk) == 6


def test_a_home_that_begins_anew_without_its_database_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palinurus.storage.database.check_not_emptied", lambda path: None)
    assert found(on_disk) == 1


def test_a_look_into_an_emptied_database_that_costs_its_log_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def holds_nothing(path: Path) -> bool:
        connection = apsw.Connection(str(path))
        try:
            return not connection.pragma("user_version")
        finally:
            connection.close()

    monkeypatch.setattr("palinurus.storage.files._holds_nothing", holds_nothing)
    assert found(on_disk) == 1


def test_a_log_that_is_never_moved_into_its_file_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Database, "_checkpoint", lambda self: None)
    assert found(on_disk, likely=10) == 1


def test_a_database_that_drops_what_comes_while_its_disk_is_busy_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def commit(self: Database, works: list[Work[Any]]) -> list[Any]:
        return real(self, works[:1]) + [None] * len(works[1:])

    real = Database._commit
    monkeypatch.setattr(Database, "_commit", commit)
    assert found(on_disk) in (1, 8, 10)


@pytest.mark.parametrize(("cap", "most"), [("MAX_TEXT", 1_200_000), ("MAX_CALLS", 1_000)])
def test_a_reply_of_which_too_much_is_kept_is_found(cap: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("support.faults.VERBOSE_MODELS", 1.0)
    for module in ("reply", "http"):
        monkeypatch.setattr(f"palinurus.providers.wires.{module}.{cap}", most, raising=False)
    assert found() == 10


def test_a_failing_seed_is_printed_and_the_command_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("support.simulator.in_memory", shelf_of(DropsAnAppend))
    assert main(["--seeds", "0-3", "--steps", "40"]) == 1
    assert "again: python -m support.simulator --seed" in capsys.readouterr().out
