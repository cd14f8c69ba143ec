"""An adapter costs nothing while no account of its network is configured: neither it nor its library is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from palinurus.extensions.channels.networks import NETWORKS

LIBRARIES = {"telegram": "telegram", "discord": "discord", "slack": "slack_sdk", "email": "aiosmtplib"}
PROGRAM = """
import asyncio, json, sys
from palinurus.config.home import find_home
from palinurus.extensions.channels.host import ChannelHost, run_channels
from palinurus.runtime.runtime import Runtime

async def main():
    env = {"PALINURUS_HOME": sys.argv[1]}
    runtime = Runtime(find_home(env), env)
    await asyncio.wait([asyncio.create_task(run_channels(runtime.services))], timeout=0)
    host = runtime.services.keep(ChannelHost)
    await host.apply(runtime.services.config)
    print(json.dumps([[each.channel for each in host.statuses()], sorted(sys.modules)]))
    await host.close()
    await runtime.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("configured", ["", "telegram", "custom"])
def test_only_configured_adapters_are_imported(configured: str, tmp_path: Path) -> None:
    accounts = {
        "telegram": {"botToken": "1:abc", "apiRoot": "http://127.0.0.1:9"},
        "custom": {"secret": "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "sendUrl": "http://127.0.0.1:9"},
    }
    channels = {configured: accounts[configured]} if configured else {}
    (tmp_path / "palinurus.json").write_text(json.dumps({"channels": channels}))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    started, imported = json.loads(done.stdout)
    assert started == ([configured] if configured else [])
    for name, network in NETWORKS.items():
        adapter = network.adapter.partition(":")[0]
        assert (adapter in imported) == (name == configured), name
        if name in LIBRARIES and name != configured:
            assert LIBRARIES[name] not in imported
