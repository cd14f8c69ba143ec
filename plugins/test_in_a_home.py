"""Each of these plugins in a whole home: found by its manifest, loaded by the host, used as a person would."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import pytest
from plugged import fresh_modules, use_plugins

from palinurus.config.home import Home
from palinurus.extensions.channels.host import run_channels
from palinurus.extensions.plugins.operations import list_plugins
from palinurus.runtime.background import run_services
from palinurus.testing.loop_time import excuse
from support.behaviours import Calls, Says
from support.open_home import opened

pytestmark = pytest.mark.real
HERE = Path(__file__).parent
NAMES = sorted(each.parent.name for each in HERE.glob("*/pyproject.toml"))
NGIRCD = which("ngircd", path="/usr/sbin:/usr/bin")


@pytest.fixture(autouse=True)
def modules() -> Iterator[None]:
    with fresh_modules():
        yield


@pytest.mark.skipif(not which("chromium"), reason="Debian's chromium is not installed")
async def test_the_agent_reads_a_page_in_a_browser(home: Home) -> None:
    pytest.importorskip("playwright")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b"<h1 id=h></h1><script>h.textContent = 'made by a script'</script>"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        writer.close()

    use_plugins(home, HERE / "browser", slots={"browser": "browser"})
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        fetch = {"allowPrivate": [f"127.0.0.1:{port}"]}
        async with opened(home, tools={"web": {"fetch": fetch}, "allow": ["web_browse"]}) as pal:
            pal.says(Calls(("web_browse", {"action": "open", "url": f"http://127.0.0.1:{port}/"})), Says("Read."))
            staying = asyncio.create_task(run_services(pal.services))  # at whose end the browser is closed
            result = await pal.hears("read it")
            [found] = await pal.results()
            staying.cancel()
            await asyncio.wait({staying})
    assert result.status == "ok"
    assert "made by a script" in found.text, found.text
    assert "<<<outside text from 127.0.0.1>>>" in found.text


@pytest.mark.skipif(not NGIRCD, reason="Debian's ngircd is not installed")
async def test_a_person_on_irc_is_answered(home: Home) -> None:
    sys.path.append(str(HERE / "irc" / "tests"))
    from irc_network import IrcNetwork

    use_plugins(home, HERE / "irc")
    network = IrcNetwork()
    await network.start()
    try:
        account = {**network.config(), "dmPolicy": "open", "allowFrom": ["*"]}
        async with opened(home, channels={"irc": account}) as pal:
            pal.server.otherwise = Says("Aye, the tide turns at six.")
            channels = asyncio.create_task(run_channels(pal.services))
            await network.write("when does the tide turn?")
            ada = await network.person()
            async with asyncio.timeout(60):
                while not ada.heard:
                    await asyncio.sleep(0.02)
            channels.cancel()
            await asyncio.wait({channels})
    finally:
        await network.stop()
    assert ada.heard == [("Ada", "Aye, the tide turns at six.")]


async def test_a_model_of_pydantic_ai_calls_a_tool(home: Home) -> None:
    pytest.importorskip("pydantic_ai")
    with excuse("first imports"):
        import openai  # noqa: F401
        import pydantic_ai.models.openai  # noqa: F401
    use_plugins(home, HERE / "pydantic-ai")
    async with opened(home) as pal:
        tail = {"baseUrl": pal.server.base_url, "apiKey": "k", "api": "pydantic-ai"}
        config = json.loads(home.config_path.read_text())
        config["models"]["providers"]["tail"] = tail
        config["agents"]["defaults"]["model"] = "tail/openai-chat:m"
        home.config_path.write_text(json.dumps(config))
        pal.says(Calls(("ls", {"path": "."})), Says("There are seven files."))
        result = await pal.hears("what is there?")
        [found] = await pal.results()
    assert (result.status, result.text) == ("ok", "There are seven files.")
    assert "AGENTS.md" in found.text


async def test_the_sliding_window_has_the_slot(home: Home) -> None:
    entries = {"window": {"config": {"mostTokens": 700, "keepTokens": 300}}}
    use_plugins(home, HERE / "window", entries=entries)
    async with opened(home) as pal:
        for turn in range(12):
            pal.says(Says(f"answer {turn}"))
            await pal.hears(f"question {turn} " + "about the tide " * 20)
        assert pal.services.turns.maintenance.engines.name == "window"
        sent = json.dumps(pal.server.requests[-1]["messages"])
    assert "question 0" in sent
    assert "question 11" in sent
    assert "question 5" not in sent


async def test_all_of_them_are_listed_and_none_is_refused(home: Home) -> None:
    use_plugins(home, *(HERE / name for name in NAMES))
    async with opened(home) as pal:
        pal.services.agents.ids  # noqa: B018  the config is read when somebody asks for it
        found = await list_plugins.function(pal.services)
    assert sorted(each.id for each in found.plugins) == NAMES
    reasons = [reason for each in found.plugins for reason in each.reasons]
    assert not [reason for reason in reasons if "missing programs" not in reason]


@pytest.mark.parametrize("name", NAMES)
def test_each_is_a_distribution_with_its_manifest(name: str, tmp_path: Path) -> None:
    uv = str(Path(sys.executable).with_name("uv"))
    subprocess.run([uv, "build", "--quiet", "--wheel", "--out-dir", tmp_path, HERE / name], check=True, timeout=300)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
        points = next(each for each in names if each.endswith("entry_points.txt"))
        text = files.read(points).decode()
    assert "[palinurus.plugins]" in text
    assert any(each.endswith("/palinurus.plugin.json") for each in names)
    assert not any("tests" in each for each in names)
