"""A whole house and a whole gateway: runs leave traces on the disk, and the gateway counts them."""

from __future__ import annotations

import asyncio

import httpx2

from palinurus.config.home import Home
from palinurus.config.load import load_config
from palinurus.domain.envelope import Inbound
from palinurus.gateway.settings import gateway_settings
from palinurus.ledger.trace import ModelStep
from palinurus.operations.runs import list_runs, show_run
from palinurus.runtime.gateway import Gateway
from palinurus.runtime.runtime import Runtime
from palinurus.runtime.table import TABLE


async def test_a_run_can_be_looked_at_by_the_next_process(home: Home) -> None:
    runtime = Runtime(home, {})
    run = await runtime.services.dispatcher.submit(Inbound("what is here?", "k1"))
    await run.wait(60)
    await asyncio.wait_for(runtime.close(), 60)
    later = Runtime(home, {}, readonly=True)
    (line,) = (await list_runs(later.services)).runs
    trace = await show_run(later.services, run_id=run.id[:6])
    await later.close()
    assert (line.run_id, line.status, trace.run_id) == (run.id, "ok", run.id)
    assert isinstance(trace.steps[0], ModelStep)
    assert trace.steps[0].provider == "embedded"


def test_the_operations_are_in_the_table() -> None:
    assert {"runs.list", "runs.show"} <= {row.name for row in TABLE}


async def test_a_gateway_counts_its_runs_and_its_commits(home: Home) -> None:
    runtime = Runtime(home, {})
    settings = gateway_settings(load_config(home, {}).config, port=0)
    gateway = Gateway(runtime, settings)
    await gateway.start()
    try:
        run = await runtime.services.dispatcher.submit(Inbound("hello", "k1"))
        await run.wait(60)
        token = (home.root / "gateway.token").read_text().strip()
        async with httpx2.AsyncClient(base_url=gateway.url, timeout=60) as client:
            answer = await client.get("/metrics", headers={"authorization": f"Bearer {token}"})
    finally:
        await asyncio.wait_for(gateway.close(), 60)
        await runtime.close()
    assert answer.status_code == 200
    lines = answer.text.splitlines()
    assert 'pal_runs_total{status="ok"} 1.0' in lines
    assert "pal_runs_running 0.0" in lines
    commits = next(line for line in lines if line.startswith("pal_database_commit_writes_count"))
    assert float(commits.split()[1]) > 0
