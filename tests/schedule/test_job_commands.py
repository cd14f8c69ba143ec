"""Commands of cron jobs: they run through the gate, and only while a person has approved exactly them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from clock_home import MAIN, ClockHome, open_clock_home

from palinurus.domain.errors import BadRequest, NotConfirmed
from palinurus.extensions.schedule import operations
from palinurus.extensions.schedule.cron_job import CommandPayload, CronDelivery, EverySchedule
from palinurus.extensions.schedule.drafts import NOT_APPROVED as WAITS
from palinurus.extensions.schedule.drafts import CronDraft, CronJobInfo
from palinurus.extensions.schedule.store import DUE
from palinurus.ledger.audit import AuditEvent

HOUR = 3_600_000
NOT_APPROVED = "no person has approved this command as it is now"


@asynccontextmanager
async def open_home(folder: Path, **config: Any) -> AsyncIterator[ClockHome]:
    agents = {"defaults": {"model": "mine/test", "sandbox": {"mode": "off"}}}
    async with open_clock_home(folder, agents=agents, **config) as home:
        yield home


async def add(home: ClockHome, *argv: str, deliver: str = "announce") -> CronJobInfo:
    draft = CronDraft(
        "backup",
        EverySchedule(HOUR, home.clock.now_ms()),
        CommandPayload(argv),
        delivery=CronDelivery(mode=deliver),  # type: ignore[arg-type]
    )
    return await operations.add_cron_job.run(home.services, draft)


async def approve(home: ClockHome) -> CronJobInfo:
    plan = await operations.show_command_plan(home.services, id="backup")
    return await operations.approve_cron_job(home.services, id="backup", digest=plan.digest)


async def test_a_command_waits_for_approval_and_then_runs_and_tells_its_output(tmp_path: Path) -> None:
    async with open_home(tmp_path) as home:
        made = await add(home, "printf", "%s\\n", "all is well")
        assert (made.enabled, made.disabled_why) == (False, WAITS)
        with pytest.raises(BadRequest, match="no person has approved"):
            await operations.enable_cron_job(home.services, id="backup")
        plan = await operations.show_command_plan(home.services, id="backup")
        assert any("all is well" in line for line in plan.lines)
        assert any("/printf" in line for line in plan.lines)
        with pytest.raises(NotConfirmed):
            await operations.approve_cron_job(home.services, id="backup", digest="0" * 64)
        assert (await approve(home)).enabled
        await home.passes(hours=1)
        assert await home.said(MAIN) == ["[backup] all is well"]
        (run,) = (await operations.list_cron_runs(home.services, id="backup")).runs
        assert (run.status, run.text.strip(), run.cost) == ("ran", "all is well", 0.0)
        kinds = [row.kind for row in await home.services.audit.rows(session=f"agent:main:cron:{made.id}")]
        assert kinds == ["result", "call"]  # as every tool call
        assert home.server.requests == []


async def test_a_changed_command_asks_again_and_the_old_grant_is_gone(tmp_path: Path) -> None:
    async with open_home(tmp_path) as home:
        made = await add(home, "printf", "one")
        await approve(home)
        same = await operations.update_cron_job(home.services, id="backup", patch={"name": "backup", "catchUp": "skip"})
        assert same.enabled
        changed = await operations.update_cron_job(
            home.services, id="backup", patch={"payload": {"argv": ["printf", "two"]}}
        )
        assert (changed.enabled, changed.disabled_why) == (False, WAITS)
        await approve(home)
        active = await home.services.grants.active(
            agent="main", session_key=f"agent:main:cron:{made.id}", now=home.clock.now_ms()
        )
        assert not any("one" in word for grant in active for word in grant.args)
        assert await home.services.grants.active(agent="main", session_key=MAIN, now=home.clock.now_ms()) == []
        await operations.remove_cron_job(home.services, id="backup")
        assert all(grant.revoked_at is not None for grant in await home.services.grants.all())


async def test_without_its_grant_the_due_time_fails_and_says_how_to_approve(tmp_path: Path) -> None:
    async with open_home(tmp_path) as home:
        made = await add(home, "printf", "one", deliver="none")
        await approve(home)
        for grant in await home.services.grants.all():
            await home.services.grants.revoke(grant.id, home.clock.now_ms())
        await home.passes(hours=1)
        (run,) = (await operations.list_cron_runs(home.services, id="backup")).runs
        assert run.reason.startswith(NOT_APPROVED)
        assert f"pal cron approve {made.id}" in run.reason
        assert await home.services.audit.rows(session=f"agent:main:cron:{made.id}") == []


async def test_a_command_that_fails_is_tried_again_and_one_whose_end_is_unknown_is_not(tmp_path: Path) -> None:
    async with open_home(tmp_path) as home:
        mark = tmp_path / "home" / "workspace" / "mark"
        made = await add(home, "cat", "mark", deliver="none")
        await approve(home)
        await home.passes(hours=1)
        (run,) = (await operations.list_cron_runs(home.services, id="backup")).runs
        assert run.status == "waiting"
        assert "No such file" in run.reason
        mark.write_text("here")
        await home.passes(seconds=31)
        (run,) = (await operations.list_cron_runs(home.services, id="backup")).runs
        assert (run.status, run.text) == ("ran", "here")
        (waiting,) = await home.services.jobs.of_lane(DUE, made.id, 1)
        key, run_id = f"agent:main:cron:{made.id}", f"cron-{DUE}:{waiting.id}:0"
        begun = AuditEvent("call", home.clock.now_ms(), run_id, key, "exec", "x", "", {})
        await home.services.audit.record(begun)  # as if a process had died after it began the next one
        await home.passes(hours=1)
        (run, *_) = (await operations.list_cron_runs(home.services, id="backup")).runs
        assert run.status == "skipped"
        assert run.reason == "it was started before, its end is unknown, and it is not repeated"


@pytest.mark.parametrize(
    ("config", "argv", "why"),
    [
        ({"tools": {"exec": {"security": "deny"}}}, ("printf", "x"), "switched off"),
        ({}, ("./script.sh",), "agent can write|not found"),
        ({}, ("no-such-program-here",), "there is no program"),
    ],
)
async def test_what_cannot_be_approved_for_good_is_refused(
    tmp_path: Path, config: dict[str, Any], argv: tuple[str, ...], why: str
) -> None:
    async with open_home(tmp_path, **config) as home:
        script = tmp_path / "home" / "workspace" / "script.sh"
        script.write_text("#!/bin/sh\necho hello\n")
        script.chmod(0o755)
        await add(home, *argv)
        with pytest.raises(BadRequest, match=why):
            await approve(home)
        assert not (await operations.show_cron_job(home.services, id="backup")).enabled
