"""The real OpenClaw takes over an exported home: its config is valid there, and the same senders are let in."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from palinurus.dispatch.pairing import Pairing, PairingStore, put_pairing
from palinurus.domain.clock import SystemClock
from palinurus.storage.database import Database

PLACE = Path(__file__).parents[2] / ".peers" / "openclaw"
COMMAND = [str(PLACE / "node" / "bin" / "node"), str(PLACE / "node_modules" / "openclaw" / "openclaw.mjs")]
PAL = Path(sys.executable).with_name("pal")
SECONDS = 120.0

pytestmark = pytest.mark.real

CHANNELS = {
    "telegram": {
        "enabled": False, "botToken": "1:x", "dmPolicy": "pairing", "allowFrom": [1], "groupAllowFrom": ["1"],
        "groups": {"-100": {"requireMention": True, "allowFrom": ["3"], "topics": {"3": {"requireMention": False}}}},
        "historyLimit": 10, "accounts": {"default": {}, "office": {"dmPolicy": "open"}},
    },
    "discord": {"enabled": False, "dmPolicy": "allowlist", "allowFrom": ["7"], "groupPolicy": "open"},
    "slack": {"enabled": False, "dmPolicy": "pairing", "allowFrom": ["U1"]},
    "email": {"address": "a@example.org"},
}  # fmt: skip
CONFIG = {
    "agents": {"list": [{"id": "main", "default": True}, {"id": "work"}]},
    "bindings": [{"agentId": "work", "match": {"channel": "telegram", "accountId": "office"}}],
    "commands": {"ownerAllowFrom": ["telegram:1"]},
    "session": {"dmScope": "per-channel-peer", "identityLinks": {"ada": ["telegram:2"]}},
    "channels": CHANNELS,
}


@pytest.fixture(autouse=True)
def _installed() -> None:
    if (PLACE / ".installed").exists():
        return
    missing = "OpenClaw is not installed: `make test-real` does it where npm can be reached"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


def run(command: list[str], **env: str) -> str:
    done = subprocess.run(
        command, env={"PATH": os.defpath, **env}, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done
    return done.stdout


async def keep(root: Path, *pairings: Pairing) -> None:
    database = Database(root / "home.sqlite", "home")
    for each in pairings:
        await database.write(lambda tx, each=each: put_pairing(tx, each))  # type: ignore[misc]
    assert len(await PairingStore(database).all()) == len(pairings)
    await database.close()


@pytest.mark.shows("OpenClaw", "an exported home: channels and pairings")
def test_an_exported_home_is_valid_there_and_lets_the_same_senders_in(tmp_path: Path) -> None:
    root, out, now = tmp_path / "home", tmp_path / "out", SystemClock().now_ms()
    root.mkdir()
    (root / "palinurus.json").write_text(json.dumps(CONFIG))
    ours = {"PALINURUS_HOME": str(root), "HOME": str(tmp_path)}
    run([str(PAL), "setup"], **ours)
    waits = Pairing("telegram", "default", "79", "pending", now, "ABCDEFGH", "Eve", now)
    known = (Pairing("telegram", account, account, "approved", now) for account in ("default", "office"))
    asyncio.run(keep(root, waits, *known))
    run([str(PAL), "export", str(out)], **ours)

    theirs = {"OPENCLAW_STATE_DIR": str(out), "HOME": str(tmp_path)}
    assert "Config valid" in run([*COMMAND, "config", "validate"], **theirs)
    run([*COMMAND, "doctor", "--fix", "--non-interactive"], **theirs)
    listed = run([*COMMAND, "pairing", "list", "telegram", "--json"], **theirs)
    (asked,) = json.loads(listed[listed.index("{") :])["requests"]
    assert (asked["id"], asked["code"]) == ("79", "ABCDEFGH")
    with closing(sqlite3.connect(out / "state" / "openclaw.sqlite")) as state:
        rows = state.execute("SELECT account_id, entry FROM channel_pairing_allow_entries ORDER BY entry").fetchall()
    assert rows == [("default", "default"), ("office", "office")]
