"""`pal audit`: what was done can be read, a record that was tampered with is told, and erasing asks first."""

from __future__ import annotations

import asyncio
from contextlib import closing

import apsw
import pytest
from called import Pal

from palinurus.config.home import Home
from palinurus.ledger.audit import BEGINNING, AuditEvent, random_salt
from palinurus.ledger.audit_log import AuditLog
from palinurus.storage.database import Database
from palinurus.testing.fakes import FakeClock

MAIN, GROUP = "agent:main:main", "agent:main:telegram:group:g1"
DEEDS = (
    AuditEvent("decision", 1000, "run-a", MAIN, "exec", "c1", "denied", {"plan": {"summary": "rm -rf build"}}),
    AuditEvent("call", 2000, "run-a", MAIN, "read", "c2", "allowed: profile", {"plan": {"summary": "read"}}),
    AuditEvent("result", 3000, "run-b", GROUP, "web\x1b[31m", "c3", "error", {"text": "no \x1b]0;answer\x07\nat all"}),
)


@pytest.fixture
def deeds(home: Home) -> Home:
    async def keep() -> None:
        database = Database(home.root / "home.sqlite", "home")
        log = AuditLog(database, FakeClock(), random_salt)
        for event in DEEDS:
            await log.record(event)
        await database.close()

    asyncio.run(keep())
    return home


def test_a_home_in_which_nothing_was_done_says_so_and_verifies(pal_command: Pal) -> None:
    assert pal_command("audit", "show").out == "No matching rows.\n"
    verified = pal_command("audit", "verify")
    assert (verified.code, verified.out) == (0, f"The chain is intact: 0 rows.\nhead  {BEGINNING}\n")


def test_what_was_done_is_shown_the_newest_last_and_obeyed_by_no_terminal(pal_command: Pal, deeds: Home) -> None:
    shown = pal_command("audit", "show").out
    lines = shown.splitlines()
    assert [line.split()[0] for line in lines[::2]] == ["1", "2", "3"]
    assert "decision  exec  denied" in lines[0]
    assert lines[1].strip() == "rm -rf build"
    assert "\x1b" not in shown
    assert "\x07" not in shown


def test_rows_can_be_filtered_and_are_json_for_programs(pal_command: Pal, deeds: Home) -> None:
    def seqs(*options: str) -> list[int]:
        return [row["seq"] for row in pal_command("audit", "show", "--json", *options).json["rows"]]

    assert seqs() == [1, 2, 3]
    assert seqs("--limit", "2") == [2, 3]
    assert seqs("--limit", "1", "--before", "3") == [2]
    assert seqs("--session-key", MAIN) == [1, 2]
    assert seqs("--tool", "exec") == [1]
    assert seqs("--run", "run-b") == [3]
    row = pal_command("audit", "show", "--json").json["rows"][0]
    assert (row["sessionKey"], row["outcome"], row["details"]) == (
        MAIN,
        "denied",
        {"plan": {"summary": "rm -rf build"}},
    )


def test_the_head_is_printed_and_can_be_expected_later(pal_command: Pal, deeds: Home) -> None:
    head = pal_command("audit", "verify").out.split()[-1]
    assert pal_command("audit", "verify", "--expect", head, "--json").json["ok"] is True
    strange = pal_command("audit", "verify", "--expect", "f" * 64)
    assert (strange.code, strange.out) == (1, "")
    assert "its end was cut off" in strange.err
    nonsense = pal_command("audit", "verify", "--expect", "abc")
    assert nonsense.code == 2
    assert "64 hex digits" in nonsense.err


def test_a_log_that_was_tampered_with_is_told_in_one_line_and_by_the_exit_code(pal_command: Pal, deeds: Home) -> None:
    with closing(apsw.Connection(str(deeds.root / "home.sqlite"))) as connection:
        connection.execute("DROP TRIGGER audit_is_never_changed; UPDATE audit SET outcome = 'allowed' WHERE seq = 1")
    told = pal_command("audit", "verify")
    assert (told.code, told.out) == (1, "")
    assert told.err == "pal: the audit log was changed: row 1 was changed\n"
    report = pal_command("audit", "verify", "--json")
    assert report.code == 1
    assert (report.json["ok"], report.json["broken"]) == (False, 1)


def test_details_are_erased_when_it_is_meant_and_the_chain_stays_whole(pal_command: Pal, deeds: Home) -> None:
    refused = pal_command("audit", "erase", "1")
    assert (refused.code, refused.out) == (2, "")
    assert "use --yes" in refused.err
    erased = pal_command("audit", "erase", "1-2", "77", "--yes")
    assert erased.out == "Erased the details of 2 rows; the chain says so. 1 had none, or do not exist.\n"
    assert "(erased)" in pal_command("audit", "show").out
    assert "rm -rf build" not in pal_command("audit", "show", "--json").out
    assert "4 rows; the details of 2 are erased" in pal_command("audit", "verify").out


@pytest.mark.parametrize("word", ["x", "5-2", "1-999999999", "-", "1,2"])
def test_rows_that_are_none_are_refused_in_one_line(pal_command: Pal, word: str) -> None:
    refused = pal_command("audit", "erase", "--yes", "--", word)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
