"""What a config mentions and nobody asks costs no import."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

from support.wire import Says, WireServer

CODE = """
import sys
from palinurus.__main__ import main
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
print(*(name for name in sys.modules if name.startswith("palinurus.") or name in ("PIL", "xllamacpp")))
"""


async def test_a_turn_loads_the_wire_that_it_speaks_and_no_other(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "workspace").mkdir(parents=True)
    async with WireServer(otherwise=Says("aye")) as server:
        apis = ("openai-completions", "anthropic-messages", "google-generative-ai")
        entries = {api: {"baseUrl": server.base_url, "api": api, "apiKey": f"{api}-key"} for api in apis}
        defaults = {"model": "openai-completions/m"}
        (home / "palinurus.json").write_text(
            json.dumps({"models": {"providers": entries}, "agents": {"defaults": defaults}})
        )
        loaded = await run_in(home)
    assert "palinurus.providers.wires.openai" in loaded
    others = {name for name in loaded if "anthropic" in name or "google" in name}
    assert not others
    assert "palinurus.providers.smollm.smollm" not in loaded
    assert not {"PIL", "xllamacpp"} & loaded


async def test_a_turn_that_calls_no_tool_loads_what_the_model_is_told_of_them_and_not_what_does_the_work(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    (home / "workspace").mkdir(parents=True)
    async with WireServer(otherwise=Says("aye")) as server:
        provider = {"baseUrl": server.base_url, "api": "openai-completions", "apiKey": "key"}
        defaults = {"model": "house/m", "sandbox": {"mode": "off"}}
        (home / "palinurus.json").write_text(
            json.dumps({"models": {"providers": {"house": provider}}, "agents": {"defaults": defaults}})
        )
        loaded = await run_in(home)
    assert "palinurus.tools.built_in" in loaded
    working = (
        "exec.exec",
        "exec.processes",
        "commands.judge",
        "files.writer",
        "files.reader",
        "web.client",
        "web.guard",
    )
    assert not {f"palinurus.tools.{name}" for name in working} & loaded
    assert not {f"palinurus.sandbox.{name}" for name in ("bubblewrap", "docker", "host", "spawn", "kernel")} & loaded


async def run_in(home: Path) -> set[str]:
    env = {"PATH": os.environ["PATH"], "HOME": str(home.parent), "PALINURUS_HOME": str(home)}
    command = (sys.executable, "-c", CODE, "agent", "--message", "ahoy")
    run = await asyncio.create_subprocess_exec(*command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, complaint = await asyncio.wait_for(run.communicate(), 60)
    assert run.returncode == 0, complaint.decode()
    return set(output.decode().split())
