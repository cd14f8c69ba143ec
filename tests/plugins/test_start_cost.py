"""Fifty plugins that are installed and not used: none is imported, and none of their files is read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from plugged import write_plugin

from palinurus.config.home import Home
from palinurus.extensions.plugins.install import install_staged, stage_plugin

TOLD = """
import json, os, resource, sys

opened = []
home = os.environ["PALINURUS_HOME"]

def hook(event, arguments):
    if event == "open" and isinstance(arguments[0], str) and arguments[0].startswith(home + "/plugins"):
        opened.append(arguments[0])

sys.addaudithook(hook)
{code}
"""
END = """
used = resource.getrusage(resource.RUSAGE_SELF)
imported = [name for name in sys.modules if name.endswith("_plugin") and not name.startswith("palinurus")]
print(json.dumps([opened, imported, used.ru_utime + used.ru_stime]))
"""
STATUS = """
from palinurus.cli.shell import run
sys.argv = ["pal", "status"]
try:
    run()
except SystemExit as end:
    assert not end.code, end.code
"""
GATEWAY = """
import asyncio
from palinurus.config.home import find_home
from palinurus.gateway.settings import gateway_settings
from palinurus.config.load import load_config
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
CODE = "raise AssertionError('imported')\n"


def started(home: Home, code: str) -> tuple[list[str], list[str], float]:
    """The files below plugins/ that a process has opened, the plugins that it has imported, and its processor time."""
    env = {"PALINURUS_HOME": str(home.root), "HOME": str(home.root.parent), "PATH": os.environ["PATH"]}
    env["PALINURUS_EMBEDDED"] = "0"
    program = [sys.executable, "-c", TOLD.replace("{code}", code) + END]
    done = subprocess.run(program, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    opened, imported, seconds = json.loads(done.stdout.splitlines()[-1])
    return opened, imported, seconds


def install_many(home: Home, root: Path, count: int) -> None:
    for number in range(count):
        name = f"many{number}"
        capabilities = {
            "tools": [f"{name}_tool"], "slashCommands": {name: {"about": "x"}}, "operations": [f"{name}.do"],
            "commands": {name: "x"},
        }  # fmt: skip
        schema = {"type": "object", "properties": {"a": {"type": "string"}}}
        folder = write_plugin(root, name, CODE, capabilities=capabilities, configSchema=schema)
        install_staged(home, stage_plugin(home, str(folder)).digest, str(folder), "global", 0)


@pytest.mark.parametrize("code", [STATUS, GATEWAY], ids=["status", "gateway"])
def test_fifty_installed_plugins_are_neither_imported_nor_read(home: Home, tmp_path: Path, code: str) -> None:
    install_many(home, tmp_path / "p", 50)
    opened, imported, _ = started(home, code)
    assert imported == []
    assert {path.removeprefix(f"{home.root}/plugins/") for path in opened} <= {"plugins.json", "state.json"}
    assert opened.count(f"{home.root}/plugins/plugins.json") <= 2
