"""`pal approvals` on a real home: rules are tried, given, listed and taken back."""

from __future__ import annotations

import asyncio
import os

import msgspec
from called import Pal

from palinurus.config.home import Home
from palinurus.domain.events import Invocation, Plan
from palinurus.ledger.audit import AuditEvent
from palinurus.runtime.runtime import Runtime

CAT = f"{os.path.realpath('/bin')}/cat"


def did(home: Home, *lines: str) -> None:
    """Commands that were run in this home before."""

    async def record() -> None:
        runtime = Runtime(home, {"HOME": str(home.root)})
        for number, line in enumerate(lines):
            invocation = Invocation("cat", CAT, os.path.realpath(CAT), tuple(line.split()[1:]))
            plan = Plan("exec", line, "host", tuple(line.split()), "/srv", invocations=(invocation,))
            details = {"plan": msgspec.to_builtins(plan)}
            event = AuditEvent("call", 1, "old", "agent:main:main", "exec", str(number), "allowed: profile", details)
            await runtime.services.audit.record(event)
        await runtime.close()

    asyncio.run(record())


def test_a_rule_is_tried_given_listed_and_taken_back(pal_command: Pal, home: Home) -> None:
    did(home, "cat a", "cat b", "cat --version")
    tried = pal_command("approvals", "grant", "cat *", "--dry-run")
    assert "It would have allowed 2 of 3 past commands." in tried.out
    assert pal_command("approvals", "grants").out == "There are no grants.\n"
    made = pal_command("approvals", "grant", "cat *", "--days", "7", "--json").json["grants"][0]
    assert (made["args"], made["scope"], made["agent"]) == (["**"], "agent", "main")
    assert f"{made['id']}  cat **" in pal_command("approvals", "grants").out
    assert pal_command("approvals", "revoke", made["id"]).out == f"{made['id']} no longer holds: cat **\n"
    assert pal_command("approvals", "revoke", "nothing").code == 1
    assert pal_command("approvals", "grants").out == "There are no grants.\n"
    assert f"{made['id']}  cat **" in pal_command("approvals", "grants", "--all").out


def test_a_rule_that_would_have_touched_secrets_needs_a_yes(pal_command: Pal, home: Home) -> None:
    did(home, "cat a", "cat .ssh/config")
    refused = pal_command("approvals", "grant", "cat *")
    assert refused.code == 2
    assert "1 commands that stand out, such as cat .ssh/config (touches ~/.ssh)" in refused.err
    assert "Among them 1 that need a second look" in pal_command("approvals", "grant", "cat *", "--dry-run").out
    assert pal_command("approvals", "grant", "cat *", "--yes").code == 0


def test_the_narrowest_rule_is_made_of_commands(pal_command: Pal) -> None:
    made = pal_command("approvals", "grant", "--like", "cat src/a.py", "--like", "cat src/b.py", "--json").json
    assert [each["args"] for each in made["grants"]] == [["src/*.py"]]


def test_an_approval_that_is_not_there_is_one_line(pal_command: Pal) -> None:
    assert pal_command("approvals", "list").out == "No approvals are waiting.\n"
    for command in (("show",), ("allow",), ("deny",)):
        ended = pal_command("approvals", *command, "zzzzzz")
        assert ended.code == 1
        assert ended.err.startswith("pal: there is no approval 'zzzzzz'")
    assert pal_command("approvals", "allow", "zzzzzz", "--rule", "cat *").code == 2
