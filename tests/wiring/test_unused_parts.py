"""What a config mentions and nobody asks costs no import."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

from palinurus.testing.wire import Says, WireServer

CODE = """
import sys
from palinurus.__main__ import main
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
print(*(name for name in sys.modules if name.startswith("palinurus.providers") or name in ("PIL", "xllamacpp")))
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


async def run_in(home: Path) -> set[str]:
    env = {"PATH": os.environ["PATH"], "HOME": str(home.parent), "PALINURUS_HOME": str(home)}
    command = (sys.executable, "-c", CODE, "agent", "--message", "ahoy")
    run = await asyncio.create_subprocess_exec(*command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, complaint = await asyncio.wait_for(run.communicate(), 60)
    assert run.returncode == 0, complaint.decode()
    return set(output.decode().split())
