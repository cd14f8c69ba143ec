"""The real OpenClaw, from npm, takes the cron jobs of an export into its own database as they were."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "faults"))
from homes import PalHome

PLACE = Path(__file__).parents[2] / ".peers" / "openclaw"
SECONDS = 240.0  # it takes half a minute; the machine may be busy

pytestmark = pytest.mark.real

JOBS: list[dict[str, Any]] = [
    {
        "id": "2efe2285-5e25-4580-b7f7-bd6512b527de",
        "agentId": "main",
        "name": "Morning brief",
        "enabled": True,
        "createdAtMs": 1794771564074,
        "updatedAtMs": 1794771568234,
        "schedule": {"kind": "cron", "expr": "30 6 * * 1-5", "tz": "Europe/Paris"},
        "sessionTarget": "isolated",
        "wakeMode": "now",
        "payload": {"kind": "agentTurn", "message": "Make the morning brief.", "toolsAllow": ["*"]},
        "delivery": {"mode": "none", "channel": "last"},
        "scheduledToolPolicy": {"version": 1, "mode": "trusted"},
        "state": {"lastRunAtMs": 1794771565623, "lastRunStatus": "ok", "consecutiveErrors": 0},
    },
    {
        "id": "c98b061a-2181-4995-807b-fa8ea97d4390",
        "agentId": "main",
        "name": "Water the numbers",
        "enabled": True,
        "createdAtMs": 1794771565474,
        "updatedAtMs": 1794771565474,
        "schedule": {"kind": "every", "everyMs": 21600000, "anchorMs": 1794771565474},
        "sessionTarget": "main",
        "wakeMode": "now",
        "payload": {"kind": "systemEvent", "text": "Time to check the list."},
        "state": {},
    },
]


async def doctor(folder: Path) -> None:
    """What a person does after moving a home: `openclaw doctor --fix` imports older files."""
    env = {"HOME": str(folder.parent), "OPENCLAW_STATE_DIR": str(folder), "PATH": os.defpath}
    command = (PLACE / "node" / "bin" / "node", PLACE / "node_modules" / "openclaw" / "openclaw.mjs")
    process = await asyncio.create_subprocess_exec(
        *command, "doctor", "--fix", "--non-interactive", env=env, stdout=asyncio.subprocess.PIPE
    )
    try:
        told, _ = await asyncio.wait_for(process.communicate(), SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, told.decode()


@pytest.mark.shows("OpenClaw", "an exported home: cron jobs")
async def test_openclaw_takes_the_jobs_of_an_export_as_they_were(tmp_path: Path) -> None:
    if not (PLACE / ".installed").exists():
        missing = "OpenClaw is not installed: `make test-real` does it where npm can be reached"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    theirs, back = tmp_path / "theirs", tmp_path / "there" / ".openclaw"
    (theirs / "cron").mkdir(parents=True)
    (theirs / "openclaw.json").write_text('{"agents": {"list": [{"id": "main", "default": true}]}}')
    (theirs / "cron" / "jobs.json").write_text(json.dumps({"version": 1, "jobs": JOBS}))
    home = PalHome(tmp_path / "home")
    back.parent.mkdir()
    assert (await home.pal("migrate", "openclaw", str(theirs), "--apply")).code == 0
    assert (await home.pal("export", str(back))).code == 0
    await doctor(back)
    with closing(sqlite3.connect(back / "state" / "openclaw.sqlite")) as database:
        rows = database.execute("SELECT job_json, state_json FROM cron_jobs").fetchall()
    taken = {each["id"]: {**each, "state": json.loads(state)} for each, state in ((json.loads(a), b) for a, b in rows)}
    for job in JOBS:
        found = taken[job["id"]]
        assert found["state"].pop("nextRunAtMs") > job["createdAtMs"]  # it is planned
        assert found == {name: value for name, value in job.items() if name != "updatedAtMs"}
    beats = [each for each in taken.values() if each["payload"]["kind"] == "heartbeat"]
    assert not any(each["enabled"] for each in beats)  # the export says that there is none
