"""An extension that is neither configured nor used is not imported: neither by commands nor by a gateway."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from palinurus.config.home import Home
from palinurus.runtime.extensions import EXTENSIONS

OURS = {each.name for each in EXTENSIONS}
END = """
print(json.dumps(sorted(name for name in sys.modules if name.startswith("palinurus.extensions."))))
"""
COMMAND = """
import json, sys
from palinurus.cli.shell import run

sys.argv = ["pal", *{words!r}]
try:
    run()
except SystemExit as end:
    assert not end.code, end.code
"""
GATEWAY = """
import asyncio, json, os, sys
from palinurus.config.home import find_home
from palinurus.gateway.settings import gateway_settings
from palinurus.config.load import load_config
from palinurus.operations.services import Services
from palinurus.runtime.gateway import Gateway
from palinurus.runtime.runtime import Runtime

async def serve(home, env):
    runtime = Runtime(home, env)
    gateway = Gateway(runtime, gateway_settings(load_config(home, env).config, port=0))
    await gateway.start()
    await gateway.close()
    await runtime.close()

asyncio.run(serve(find_home(os.environ), dict(os.environ)))
"""

STAYING = """
import asyncio, json, os, sys
from palinurus.config.home import find_home
from palinurus.runtime.runtime import Runtime

async def stay():
    looked = asyncio.Event()

    async def sleep(_):
        looked.set()
        await asyncio.Event().wait()

    runtime = Runtime(find_home(os.environ), dict(os.environ), sleep=sleep, process="test")
    runtime.keep_up()
    await looked.wait()
    await runtime.close()

asyncio.run(asyncio.wait_for(stay(), 60))
"""


def imported(home: Home, code: str) -> set[str]:
    """The extensions that a process of its own has imported in the end."""
    env = {"PALINURUS_HOME": str(home.root), "HOME": str(home.root.parent), "PATH": os.environ["PATH"]}
    program = [sys.executable, "-c", code + END]
    done = subprocess.run(program, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return {name.split(".")[2] for name in json.loads(done.stdout.splitlines()[-1])} & OURS


@pytest.mark.parametrize(
    "words",
    [
        ("sessions", "list"),
        ("status",),
        ("models", "status"),
        ("skills", "list"),
        ("config", "get", "agents"),
        ("memory", "search", "--keyword", "hi"),
        ("usage",),
        ("runs", "list"),
        ("approvals", "list"),
        ("audit", "show"),
        ("--help",),
    ],
    ids=" ".join,
)
def test_a_command_imports_no_extension_that_it_does_not_need(home: Home, words: tuple[str, ...]) -> None:
    assert imported(home, COMMAND.format(words=words)) == set()


@pytest.mark.parametrize("words", [("agent", "-m", "hi"), ("tools", "list")], ids=" ".join)
def test_what_offers_tools_to_every_session_is_imported_where_tools_are(home: Home, words: tuple[str, ...]) -> None:
    assert imported(home, COMMAND.format(words=words)) == {"knowledge", "schedule", "subagents"}


def test_a_gateway_imports_what_has_routes_but_not_the_package_of_mcp(home: Home) -> None:
    assert imported(home, f'{GATEWAY}\nassert not {{"mcp", "pydantic"}} & set(sys.modules)') == {
        "openai_api",
        "dashboard",
        "mcp",
    }


def test_a_turn_imports_mcp_where_a_server_is_configured(home: Home) -> None:
    config = json.loads(home.config_path.read_text())
    config["mcp"] = {"servers": {"gone": {"command": "/nowhere/at-all"}}}
    home.config_path.write_text(json.dumps(config))
    assert imported(home, COMMAND.format(words=("agent", "-m", "hi"))) == {"knowledge", "mcp", "schedule", "subagents"}


def test_a_turn_imports_hooks_where_the_home_has_some(home: Home) -> None:
    (home.root / "hooks").mkdir()
    assert imported(home, COMMAND.format(words=("agent", "-m", "hi"))) == {
        "hooks",
        "knowledge",
        "schedule",
        "subagents",
    }
    assert imported(home, COMMAND.format(words=("sessions", "list"))) == set()


def test_a_process_that_stays_imports_the_clock_only_where_a_heartbeat_is_configured(home: Home) -> None:
    assert imported(home, STAYING) == set()
    config = json.loads(home.config_path.read_text())
    config.setdefault("agents", {}).setdefault("defaults", {})["heartbeat"] = {"every": "30m"}
    home.config_path.write_text(json.dumps(config))
    assert imported(home, STAYING) == {"schedule"}
