"""The program of an isolated plugin. It is run inside a sandbox, and speaks JSON lines on its standard streams.

    python child.py PATHS MODULE

It reads its settings, registers the plugin, says what was registered, and then answers calls. A request of the plugin
to the network is sent to the parent, which makes it if the manifest names the host. What it prints goes nowhere.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

Frame = dict[str, Any]
MOST_ASKED = 8  # requests to the network at the same time; further ones wait


class ParentLink:
    """The lines to and from the parent."""

    def __init__(self, out: int) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[Frame]] = {}
        self._free = asyncio.Semaphore(MOST_ASKED)

    def send(self, frame: Frame) -> None:
        data = json.dumps(frame, default=str, ensure_ascii=False).encode(errors="replace") + b"\n"
        with self._lock:
            while data:
                data = data[os.write(self._out, data) :]

    async def ask(self, frame: Frame) -> Frame:
        await self._free.acquire()  # until the parent has answered, also if nobody waits for that any more
        number = next(self._numbers)
        self._asked[number] = asyncio.get_running_loop().create_future()
        self.send({**frame, "ask": number})
        return await self._asked[number]

    def answered(self, frame: Frame) -> None:
        self._free.release()
        future = self._asked.pop(frame["answer"])
        if not future.done():
            future.set_result(frame)


class IsolatedApp:
    """PluginApp, as far as it works in isolation."""

    def __init__(self, said: Mapping[str, Any], parent: ParentLink) -> None:
        self.id = said["id"]
        self.config = said["config"]
        self.folder = Path(said["folder"])
        self.data_folder = Path(said["data"])
        self.log = logging.getLogger(self.id)
        self.tools: dict[str, Any] = {}
        self.slash_commands: dict[str, Callable[..., Awaitable[str]]] = {}
        self.hooks: dict[str, tuple[str, Callable[..., Any]]] = {}
        self._parent = parent

    def tool(self, tool: Any) -> None:
        found = _imported(tool)
        self.tools[found.spec.name] = found

    def slash_command(self, name: str, command: Any) -> None:
        self.slash_commands[name] = _imported(command)

    def hook(self, event: str, function: Any, name: str = "", priority: int = 0) -> None:
        found = _imported(function)
        self.hooks[name or found.__name__] = (event, found)

    async def fetch(
        self, url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Any:
        from palinurus.domain.errors import WebError
        from palinurus.extensions.plugins.fetch import FetchedReply

        asked = {"url": url, "method": method, "headers": dict(headers or {}), "body": base64.b64encode(body).decode()}
        answer = await self._parent.ask({"fetch": asked})
        if "error" in answer:
            raise WebError(answer["error"])
        return FetchedReply(answer["status"], answer["type"], base64.b64decode(answer["body"]))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"an isolated plugin has no app.{name}: it has tools, slash commands and hooks")


def _imported(part: Any) -> Any:
    if not isinstance(part, str):
        return part
    module, _, name = part.partition(":")
    return getattr(import_module(module), name)


async def serve(app: IsolatedApp, parent: ParentLink) -> None:
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes] = asyncio.Queue()

    def read() -> None:
        for line in sys.stdin.buffer:
            loop.call_soon_threadsafe(lines.put_nowait, line)
        os._exit(0)  # the parent has gone

    threading.Thread(target=read, daemon=True).start()
    running = set()
    while True:
        frame = json.loads(await lines.get())
        if "answer" in frame:
            parent.answered(frame)
            continue
        task = asyncio.create_task(answer_call(app, parent, frame))
        running.add(task)
        task.add_done_callback(running.discard)


async def answer_call(app: IsolatedApp, parent: ParentLink, frame: Frame) -> None:
    from palinurus.domain.errors import PalinurusError

    try:
        result = await _CALLS[frame["call"]](app, frame)
    except PalinurusError as error:  # an answer, and no failure of the plugin
        parent.send({"id": frame["id"], "refused": str(error)[:1000]})
    except Exception as error:  # noqa: BLE001  told to the parent
        parent.send({"id": frame["id"], "error": f"{type(error).__name__}: {error}"[:1000]})
    else:
        parent.send({"id": frame["id"], "result": result})


async def call_tool(app: IsolatedApp, frame: Frame) -> Frame:
    from palinurus.domain.keys import SessionKey
    from palinurus.domain.tool import ToolRun

    said = frame["run"]
    run = ToolRun(SessionKey.parse(said["key"]), said["run_id"], private=False, channel=said["channel"])
    output = await app.tools[frame["name"]].run(run, frame["arguments"])
    content = output.content
    text = content if isinstance(content, str) else "\n".join(getattr(each, "text", "") for each in content)
    return {"text": text, "error": output.is_error}


async def call_command(app: IsolatedApp, frame: Frame) -> str:
    return str(await app.slash_commands[frame["name"]](None, frame["key"], frame["words"], None))


async def call_hook(app: IsolatedApp, frame: Frame) -> None:
    from palinurus.domain.hooks import HookEvent

    said = frame["event"]
    event = HookEvent(said["type"], said["action"], said["session_key"], said["timestamp"], said["context"])
    made = app.hooks[frame["name"]][1](None, event)
    if asyncio.iscoroutine(made):
        await made


_CALLS: Mapping[str, Callable[[IsolatedApp, Frame], Awaitable[Any]]] = {
    "tool": call_tool,
    "command": call_command,
    "hook": call_hook,
}


def main(paths: str, module: str) -> None:
    sys.path[:0] = paths.split(os.pathsep)
    said = json.loads(sys.stdin.buffer.readline())
    parent = ParentLink(os.dup(1))
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    app = IsolatedApp(said, parent)
    try:
        import_module(module).register(app)
    except BaseException as error:  # noqa: BLE001  told to the parent
        parent.send({"failed": f"{type(error).__name__}: {error}"[:1000]})
        os._exit(1)
    tools = [
        {"name": each.spec.name, "description": each.spec.description, "parameters": each.spec.parameters}
        for each in app.tools.values()
    ]
    hooks = {name: event for name, (event, _) in app.hooks.items()}
    parent.send({"registered": {"tools": tools, "commands": list(app.slash_commands), "hooks": hooks}})
    asyncio.run(serve(app, parent))


if __name__ == "__main__":
    main(*sys.argv[1:3])
