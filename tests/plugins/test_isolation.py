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
FETCH = "app.fetch('http://x.example')"
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
        "(app.data_folder / 'kept.txt').write_text('rained'); return (app.data_folder / 'kept.txt').read_text()",
        f"import asyncio; return await asyncio.gather(*({FETCH} for _ in range(20)), return_exceptions=True)",
        *[f"await {FETCH}"] * 4,
    ]
    async with opened(home) as pal:
        assert (await pal.hears("/tell it")).text == "told it"
        pal.says(Calls(*(("try_it", {"code": each}) for each in asked)), Says("Done."))
        assert (await pal.hears("go")).text == "Done."
        texts = [result.text for result in await pal.results()]
    assert "('C', 1)" in texts[0]
    assert "rain" in texts[1]
    assert "go" in texts[2]
    assert "rained" in texts[3]
    assert (home.root / "plugins" / "data" / "trial" / "kept.txt").read_text() == "rained"
    assert texts[4].count("may not reach") == 20
    assert all("may not reach" in each for each in texts[5:])  # an answer: nothing is disabled for it


CANARY = "canary-7f3a"


async def test_it_reads_nothing_of_ours(
    home: Home, tmp_path: Path, answering: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", CANARY)
    use_plugins(home, trial(tmp_path / "p"), entries={"trial": {"config": {"key": CANARY}}})
    for place in (home.root / "secret.txt", home.user_home / "secret.txt", tmp_path / "workspace" / "secret.txt"):
        place.write_text(CANARY)
    trials = [
        f"return [p.read_text() for p in __import__('pathlib').Path({str(home.root)!r}).rglob('*') if p.is_file()]",
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


ENDING = {  # what a hostile plugin does with its line to us (descriptor 3), and what is said of it
    "while True: pass": "no answer within 3 s",
    "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)": "no answer within 3 s",
    "return 'x' * 3_000_000": "lines that never end",
    "import os; [os.write(3, b'{}\\n' * 9_000) for _ in range(99)]": "answers what nobody has asked",
    "import os; os.write(3, b'{\"ask\": 1}\\n' * 99); import asyncio; await asyncio.sleep(99)": "too many requests",
    "import os; os.write(3, b'[' * 99_000 + b'\\n'); import asyncio; await asyncio.sleep(99)": "what is no frame",
    "import os; os.write(3, b'\"\\xff\"\\n'); import asyncio; await asyncio.sleep(99)": "what is no frame",
    "import os; os.kill(os.getppid(), 9); os._exit(7)": "has ended",
}


async def test_one_that_breaks_the_line_is_ended_and_starts_again(home: Home, tmp_path: Path) -> None:
    use_plugins(home, trial(tmp_path / "p"), limits={"callSeconds": 3})
    codes = [code for each in ENDING for code in (each, "return 'again'")]
    async with opened(home) as pal:
        await pal.hears("/tell it")  # it is started: that does not count as time of a call
        pal.says(*(Calls(("try_it", {"code": each})) for each in codes), Says("Done."))
        assert (await pal.hears("go")).text == "Done."
        texts = [result.text for result in await pal.results()]
    assert [why in text for why, text in zip(ENDING.values(), texts[::2], strict=True)] == [True] * len(ENDING), texts
    assert texts[1::2] == ["again"] * len(ENDING)


LINE = 'import os\nos.write(3, b\'{"registered": {"tools": [%s]}}\\n\')\n'
SPEC = '{"name": "%s", "description": "x", "parameters": {"type": "%s"}}'
REGISTERING = {  # what it does when it is imported, and what is said of it
    "raise ValueError('boom')": "ValueError: boom",
    "import sys; sys.exit(3)": "SystemExit: 3",
    "import os; os._exit(3)": "exit code 3",
    "import os\nwhile True: os.write(3, b'noise\\n')": "says nothing of what it registers",
    LINE % SPEC % ("exec", "object"): "does not declare: tool 'exec'",
    LINE % ", ".join([SPEC % ("try_it", "object")] * 2): "a tool twice",
    LINE % SPEC % ("try_it", "banana"): "not a JSON Schema of an object",
    (LINE % SPEC % ("try_it", "object")).replace('"x"', f'"{"x" * 20_000}"'): "bytes of description",
}  # fmt: skip


async def test_one_that_registers_what_it_should_not_is_named_and_the_others_work(home: Home, tmp_path: Path) -> None:
    more = {"capabilities": {"tools": ["try_it"]}, "isolation": "process"}
    folders = [write_plugin(tmp_path / "p", f"bad{n}", code, **more) for n, code in enumerate(REGISTERING)]
    for n, folder in enumerate(folders):
        manifest = (folder / "palinurus.plugin.json").read_text().replace("try_it", f"try{n}")
        (folder / "palinurus.plugin.json").write_text(manifest)
        code = folder / f"bad{n}_plugin.py"
        code.write_text(code.read_text().replace("try_it", f"try{n}"))
    use_plugins(home, trial(tmp_path / "p"), *folders)
    async with opened(home) as pal:
        pal.says(Calls(("try_it", {"code": "return 'fine'"})), Says("Done."))
        assert (await pal.hears("go")).text == "Done."
        assert [each.text for each in await pal.results()] == ["fine"]
        rows = {each.id: each for each in (await list_plugins(pal.services)).plugins}
    for n, why in enumerate(REGISTERING.values()):
        assert (rows[f"bad{n}"].state, why in rows[f"bad{n}"].trouble) == ("failed", True), rows[f"bad{n}"]
