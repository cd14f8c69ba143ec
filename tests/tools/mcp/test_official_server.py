"""A server made with the official package, over both transports."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from calling import Made, words

from palinurus.domain.messages import Image, Origin
from palinurus.extensions.mcp.servers import McpServers
from palinurus.extensions.mcp.settings import ServerSettings
from palinurus.testing.fakes import FakeClock

pytestmark = pytest.mark.slow
Make = Callable[..., Made]
Until = Callable[[Callable[[], bool]], Awaitable[None]]


async def test_its_tools_are_offered_and_answer(make: Make, official: ServerSettings) -> None:
    made = make(official)
    tools = await made.tools()
    assert {"harbour__echo", "harbour__add", "harbour__picture"} <= set(tools)
    assert tools["harbour__add"].spec.parameters["required"] == ["a", "b"]
    assert tools["harbour__echo"].outside
    said = await made.call("harbour__echo", text="ahoy")
    assert (words(said), said.is_error, said.origin) == ("ahoy", False, Origin.OUTSIDE)
    assert words(await made.call("harbour__add", a=2, b=3)) == "5"
    failed = await made.call("harbour__fail")
    assert failed.is_error
    assert "the tide is out" in words(failed)
    picture = await made.call("harbour__picture")
    assert isinstance(picture.content, tuple)
    assert isinstance(picture.content[1], Image)
    assert picture.content[1].mime_type == "image/png"


async def test_it_sees_no_variable_of_ours(
    make: Make, official: ServerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_SECRET", "hunter2")
    seen = msgspec.json.decode(words(await make(official).call("harbour__environment")), type=dict[str, str])
    assert seen["GREETING"] == "ahoy"
    assert set(seen) - {"LC_CTYPE"} == {"PATH", "HOME", "LANG", "TERM", "GREETING"}  # Python itself sets LC_CTYPE


async def test_a_stopped_call_is_cancelled_at_the_server_and_others_go_on(
    make: Make, official: ServerSettings, until: Until, tmp_path: Path
) -> None:
    made, mark = make(official), tmp_path / "mark"
    call = asyncio.create_task(made.call("harbour__slow", mark=str(mark)))
    await until(mark.exists)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert words(await made.call("harbour__echo", text="still here")) == "still here"
    await until(lambda: "cancelled" in mark.read_text())


async def test_after_a_crash_the_next_call_starts_it_again(make: Make, official: ServerSettings) -> None:
    made = make(official)
    crashed = await made.call("harbour__crash")
    assert crashed.is_error
    assert "the call was interrupted" in str(crashed.content)
    assert words(await made.call("harbour__echo", text="back")) == "back"


async def test_new_tools_are_offered_from_the_next_turn_on(make: Make, official: ServerSettings) -> None:
    made = make(official)
    assert "harbour__greet" not in await made.tools()
    await made.call("harbour__grow")
    assert "harbour__greet" in await made.tools()
    assert words(await made.call("harbour__greet")) == "hello"


@pytest.fixture
def http_server(tmp_path: Path) -> Iterator[ServerSettings]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = str(Path(__file__).with_name("official_server.py"))
    quiet = subprocess.DEVNULL
    with subprocess.Popen([sys.executable, script, "http", str(port)], cwd=tmp_path, stderr=quiet) as process:
        try:
            yield ServerSettings("far", url=f"http://127.0.0.1:{port}/mcp?key=secret", timeout_seconds=60.0)
        finally:
            process.kill()


async def test_over_http_the_same_tools_answer(
    make: Make, http_server: ServerSettings, until: Until, tmp_path: Path, clock: FakeClock
) -> None:
    await _listening(http_server.url)
    made, mark = make(http_server), tmp_path / "mark"
    assert words(await made.call("far__add", a=2, b=3)) == "5"
    assert (await made.call("far__fail")).is_error
    call = asyncio.create_task(made.call("far__slow", mark=str(mark)))
    await until(mark.exists)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert words(await made.call("far__echo", text="still here")) == "still here"
    await until(lambda: "cancelled" in mark.read_text())
    (status,) = await made.servers.statuses()
    assert (status.state, status.about) == ("connected", "harbour 1.2.3")
    assert "secret" not in status.where
    crashed = await made.call("far__crash")
    assert crashed.is_error
    gone = await made.call("far__echo", text="anybody?")
    assert gone.is_error
    assert "cannot be reached" in str(gone.content)


async def _listening(url: str) -> None:
    port = int(url.partition("127.0.0.1:")[2].partition("/")[0])
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                await writer.wait_closed()
                return


async def test_the_package_is_not_imported_before_a_server_is_named(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys; from pathlib import Path; from palinurus.extensions.mcp.servers import McpServers;"
        "from palinurus.domain.clock import SystemClock; servers = McpServers((), Path('x'), SystemClock());"
        "assert asyncio.run(servers.tools()) == (); assert not {'mcp', 'anyio', 'httpx2'} & set(sys.modules)"
    )
    ended = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], cwd=tmp_path, timeout=60)
    assert ended.returncode == 0
    assert not await McpServers((), tmp_path, FakeClock()).tools()
