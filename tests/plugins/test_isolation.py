"""A plugin in a sandbox of its own: what works, and what it cannot reach."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from plugged import use_plugins, write_plugin

from palinurus.config.home import Home
from palinurus.extensions.plugins import isolation
from palinurus.extensions.plugins.operations import list_plugins
from support.behaviours import Calls, Says
from support.open_home import opened

CODE = """
from pathlib import Path
from palinurus.plugin import ToolOutput, ToolRun, tool

async def answer(services, key, words, inbound):
    return "told " + words

heard = []

async def note(services, event):
    heard.append(event.context["content"])

def register(app):
    @tool("try_it", "Try something.")
    async def try_it(run: ToolRun, code: str) -> ToolOutput:
        scope = {"app": app, "heard": heard}
        exec("async def work():\\n " + code, scope)
        return ToolOutput(str(await scope["work"]()))

    app.tool(try_it)
    app.slash_command("tell", answer)
    app.hook("message:received", note)
"""
CAPABILITIES = {"tools": ["try_it"], "slashCommands": {"tell": {"about": "tells"}}, "hooks": ["message:received"]}


def trial(root: Path, **more: object) -> Path:
    return write_plugin(root, "trial", CODE, capabilities=CAPABILITIES, isolation="process", **more)


@pytest.fixture
def answering() -> Iterator[str]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"rain")

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join(60)
    server.server_close()


async def test_tools_commands_hooks_and_declared_hosts_work(home: Home, tmp_path: Path, answering: str) -> None:
    use_plugins(
        home,
        trial(tmp_path / "p", hosts=[answering], configSchema={"properties": {"units": {"default": "C"}}}),
        entries={"trial": {"config": {"x": 1}}},
    )
    config = json.loads(home.config_path.read_text())
    config["tools"] = {"web": {"fetch": {"allowPrivate": [answering]}}}
    home.config_path.write_text(json.dumps(config))
    asked = [
        "return app.config['units'], app.config['x']",
        f"return (await app.fetch('http://{answering}/sky')).text",
        "return heard",
    ]
    async with opened(home) as pal:
        assert (await pal.hears("/tell it")).text == "told it"
        pal.says(Calls(*(("try_it", {"code": each}) for each in asked)), Says("Done."))
        assert (await pal.hears("go")).text == "Done."
        texts = [result.text for result in await pal.results()]
    assert "('C', 1)" in texts[0]
    assert "rain" in texts[1]
    assert "go" in texts[2]


CANARY = "canary-7f3a"


async def test_it_reads_nothing_of_ours(
    home: Home, tmp_path: Path, answering: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", CANARY)
    use_plugins(home, trial(tmp_path / "p"))
    for place in (home.root / "secret.txt", home.user_home / "secret.txt", tmp_path / "workspace" / "secret.txt"):
        place.write_text(CANARY)
    trials = [
        f"return [p.read_text() for p in __import__('pathlib').Path({str(home.root)!r}).glob('*')]",
        f"return open({str(home.user_home / 'secret.txt')!r}).read()",
        f"return open({str(tmp_path / 'workspace' / 'secret.txt')!r}).read()",
        "return dict(__import__('os').environ)",
        "import glob; return [open(f, 'rb').read() for f in glob.glob('/proc/*/environ')]",
        "import glob; return [open(f, 'rb').read() for f in glob.glob('/proc/*/cmdline')]",
        f"import socket; return socket.create_connection(('127.0.0.1', {answering.split(':')[1]}), 5)",
        f"return (await app.fetch('http://{answering}/')).text",
        f"return open({str(tmp_path / 'p' / 'trial' / 'mine.txt')!r}, 'w').write('x')",
        "return app.operation",
    ]
    async with opened(home, {"CANARY": CANARY}) as pal:
        pal.says(Calls(*(("try_it", {"code": each}) for each in trials)), Says("Done."))
        await pal.hears("go")
        results = await pal.results()
    assert len(results) == len(trials)
    assert not any(CANARY in result.text for result in results)
    failed = [result.is_error for result in results]
    assert failed == [False, True, True, False, False, False, True, True, True, True], [each.text for each in results]


async def test_its_tools_are_offered_without_starting_it_again(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capabilities = {"tools": ["try_it"], "slashCommands": {"tell": {}}}
    code = CODE.replace('app.hook("message:received", note)', "")
    use_plugins(home, write_plugin(tmp_path / "p", "trial", code, capabilities=capabilities, isolation="process"))
    for text in ("hi", "hi again"):
        async with opened(home) as pal:
            pal.says(Says("Hello."))
            await pal.hears(text)
            assert "try_it" in json.dumps(pal.server.requests[-1]["tools"])
        monkeypatch.setattr(isolation, "start_child", None)  # whoever calls it fails


async def test_what_works_in_our_process_only_is_refused(home: Home, tmp_path: Path) -> None:
    wanted = {**CAPABILITIES, "services": True}
    use_plugins(home, write_plugin(tmp_path / "p", "trial", CODE, capabilities=wanted, isolation="process"))
    async with opened(home) as pal:
        (info,) = (await list_plugins(pal.services)).plugins
    assert "it also has services" in info.reasons[0]
