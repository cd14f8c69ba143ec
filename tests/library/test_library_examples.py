"""The programs of docs/library.md do what the page says."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

from palinurus.config.home import Home
from support.wire import Calls, Says, WireServer

PAGE = Path(__file__).resolve().parents[2] / "docs" / "library.md"
ASK, STREAM, TOOLS, MEMORY = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


async def printed(program: str, home: Home) -> str:
    env = {"PATH": os.environ["PATH"], "HOME": str(home.user_home), "PALINURUS_HOME": str(home.root)}
    pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
    async with asyncio.timeout(60):
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, env=env, **pipes)
        out, errors = await process.communicate()
    assert (process.returncode, errors.decode()) == (0, "")
    return out.decode()


async def test_a_note_is_taken_found_and_listed_without_a_model(home: Home) -> None:
    assert "my bicycle is green" in await printed(ASK, home)
    shown = await printed(STREAM, home)
    assert "my bicycle is green" in shown
    assert shown.endswith("(ok, 0 tokens)\n")
    listed = await printed(MEMORY, home)
    assert re.search(r"^memory/.*\.md#L\d+ .*green", listed, re.MULTILINE)
    assert "agent:main:explicit:garage UserMessage what colour is my bicycle?" in listed
    assert "agent:main:main AssistantMessage" in listed


async def test_a_function_is_a_tool(home: Home, server: WireServer) -> None:
    server.script += [Calls(("tide_height", {"day": "2026-11-18"})), Says("It is 6.4 m high.")]
    assert await printed(TOOLS, home) == "It is 6.4 m high.\n"
    assert server.requests[1]["messages"][-1]["content"].endswith("6.4")
