"""What a session is told about itself, by the tool and by `/status` alike."""

from __future__ import annotations

from pathlib import Path

from palinurus.config.home import Home
from palinurus.domain.keys import SessionKey
from palinurus.operations.status import session_report
from palinurus.testing.fakes import call, calls
from palinurus.testing.harness import Harness
from palinurus.tools.session_tools import session_status_tool


async def test_a_session_is_told_all_of_itself_in_a_few_lines(pal: Harness, home: Home) -> None:
    await pal.hears("hi")
    told = await session_report(pal.services(home), SessionKey.main())
    rows = dict(line.split(maxsplit=1) for line in told.splitlines())
    assert list(rows) == ["session", "time", "model", "context", "used", "history", "running", "settings", "commands"]
    assert rows["session"] == "agent:main:main"
    assert rows["model"].startswith("scripted/model-1 (")
    assert rows["context"] == "110 of 32,000 tokens at the last call"
    assert rows["used"] == "100 tokens in, 10 out, $0.0000, 1 calls without a known price"
    assert rows["running"] == "0 here, 0 in all"
    assert "elevated as the config says" in rows["settings"]
    assert rows["commands"] == "in the sandbox (host), workspace read-write, no network"


async def test_a_session_that_nobody_has_spoken_in_has_used_nothing(pal: Harness, home: Home) -> None:
    told = await session_report(pal.services(home), SessionKey.parse("agent:main:explicit:new"))
    assert "used     nothing yet" in told


async def test_a_model_that_asks_sees_its_own_session_and_its_own_run(workspace: Path, home: Home) -> None:
    async def report(key: SessionKey) -> str:
        return await session_report(pal.services(home), key)

    async with Harness(workspace, tools=[session_status_tool(report)]) as pal:
        pal.model.says(calls(call("session_status")), "No problems found.")
        await pal.hears("how are you?", key="agent:main:direct:alice")
        (result,) = await pal.tool_results("agent:main:direct:alice")
    assert not result.is_error
    assert "session  agent:main:direct:alice" in result.text
    assert "running  1 here, 1 in all" in result.text
