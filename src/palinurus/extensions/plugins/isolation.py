"""Plugins in a sandbox of their own: a child process that has its own files, and nothing else of this machine.

What it registers is learned once for each content and kept in `derived/plugins`, so that its tools can be offered
without starting it. It is started at its first call, killed when one takes too long, and started again at the next.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import sys
import sysconfig
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

import palinurus
from palinurus.config.atomic import make_directory, write_atomic
from palinurus.config.home import Home
from palinurus.domain.errors import BadRequest, PalinurusError
from palinurus.domain.hooks import HookEvent
from palinurus.domain.tool import Tool, ToolOutput, ToolRun, ToolSpec
from palinurus.extensions.plugins import child
from palinurus.extensions.plugins.app import check_spec
from palinurus.extensions.plugins.fetch import PluginFetcher
from palinurus.extensions.plugins.find import FoundPlugin
from palinurus.extensions.plugins.index import MOST_FILES, digest_of, plugins_folder
from palinurus.extensions.plugins.schema import with_defaults
from palinurus.extensions.plugins.settings import PluginSettings
from palinurus.operations.services import Services
from palinurus.runtime.extensions import App, RegisteredHook
from palinurus.sandbox.bubblewrap import BubblewrapSandbox
from palinurus.sandbox.sandbox import MIB, CommandLimits, Process, SandboxCommand, SandboxMount
from palinurus.tools.settings import FetchSettings
from palinurus.workspace.walk import walk_tree

LONGEST_LINE = 2_000_000  # bytes
NO_FRAME = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
MOST_NOISE = 100  # lines before it says what it registers
MOST_HOOKS = 50
MOST_STORED = 256 * MIB  # in its data folder when it is started; and that it may write until it ends
LIMITS = CommandLimits(512 * MIB, 600, 32, 64 * MIB, 7 * 86_400.0, MOST_STORED)


class Registration(Struct, frozen=True):
    """What a plugin has registered in its sandbox."""

    tools: tuple[ToolSpec, ...] = ()
    commands: tuple[str, ...] = ()
    hooks: dict[str, str] = {}  # name -> event


class _FirstLine(Struct, frozen=True):
    registered: Registration | None = None
    failed: str = ""


class _ChildFrame(Struct, frozen=True):
    """A line of the child. It may hold anything: the plugin can write there too."""

    id: int = 0
    result: Any = None
    error: str = ""
    refused: str = ""  # an error that is an answer
    ask: int = 0
    fetch: dict[str, Any] = {}


class ChildFailed(Exception):
    """The child has ended, was killed, or said something else than it should."""


class ChildProcess:
    """A started plugin."""

    def __init__(self, process: Process, fetcher: PluginFetcher, name: str) -> None:
        self._process = process
        self._fetcher = fetcher
        self._name = name
        self._left = b""
        self._numbers = count(1)
        self._open: dict[int, asyncio.Future[_ChildFrame]] = {}
        self._unanswered: set[int] = set()  # of these some have nobody who waits any more
        self._fetching: set[asyncio.Task[None]] = set()
        self._reading: asyncio.Task[None] | None = None

    @property
    def is_alive(self) -> bool:
        return self._reading is not None and not self._reading.done()

    async def registration(self, seconds: float) -> Registration:
        """Its first line. Raises ChildFailed and TimeoutError."""
        noise: list[bytes] = []  # of Python itself, which could not start
        async with asyncio.timeout(seconds):
            while (line := await self._line()) is not None:
                try:
                    said = msgspec.json.decode(line, type=_FirstLine)
                except NO_FRAME:
                    noise.append(line[:500])
                    if len(noise) > MOST_NOISE:
                        raise ChildFailed("it says nothing of what it registers") from None
                    continue
                if said.registered is None:
                    raise ChildFailed(said.failed or "it says nothing of what it registers")
                self._reading = asyncio.create_task(self._read())
                return said.registered
            end = await self._process.wait()
        why = b" ".join(noise[-3:]).decode(errors="replace")[:500]
        raise ChildFailed(f"it could not start: {why or end.reason or f'exit code {end.code}'}")

    async def call(self, frame: Mapping[str, Any], seconds: float) -> Any:
        """Raises ChildFailed, also when it takes too long, and BadRequest for an error that is an answer. When it takes
        too long, or nobody waits any more, it is killed, unless it is busy for somebody else too."""
        number = next(self._numbers)
        self._open[number] = asyncio.get_running_loop().create_future()
        self._unanswered.add(number)
        try:
            async with asyncio.timeout(seconds):
                await self._process.write(msgspec.json.encode({**frame, "id": number}, enc_hook=str) + b"\n")
                answer = await self._open[number]
        except (TimeoutError, asyncio.CancelledError) as error:
            if len(self._open) == 1:
                await self.kill()
            if isinstance(error, asyncio.CancelledError):
                raise
            raise ChildFailed(f"it gave no answer within {seconds:g} s") from None
        except BadRequest:
            raise ChildFailed("it has ended") from None
        finally:
            del self._open[number]
        if answer.refused:
            raise BadRequest(answer.refused[:1000])
        if answer.error:
            raise ChildFailed(answer.error[:1000])
        return answer.result

    async def kill(self) -> None:
        for task in (*self._fetching, *((self._reading,) if self._reading else ())):
            task.cancel()
        await self._process.kill()
        self._fail_open("it was stopped")

    async def _line(self) -> bytes | None:
        while b"\n" not in self._left:
            data = await self._process.read()
            if not data:
                return None
            self._left += data
            if len(self._left) > LONGEST_LINE:
                raise ChildFailed("it sends lines that never end")
        line, _, self._left = self._left.partition(b"\n")
        return line

    async def _read(self) -> None:
        why = "it has ended"
        try:
            while (line := await self._line()) is not None:
                self._take(msgspec.json.decode(line, type=_ChildFrame))
            end = await self._process.wait()
            why = f"it has ended ({end.reason or f'exit code {end.code}'})"
        except ChildFailed as error:
            why = str(error)
        except NO_FRAME:
            why = "it sends what is no frame"
        await self._process.kill()
        self._fail_open(why)

    def _take(self, frame: _ChildFrame) -> None:
        """Raises ChildFailed for what child.py does not send: then something else writes there, perhaps without end."""
        if frame.ask:
            if len(self._fetching) >= 2 * child.MOST_ASKED:
                raise ChildFailed("it makes too many requests at once")
            task = asyncio.create_task(self._fetch(frame))
            self._fetching.add(task)
            task.add_done_callback(self._fetching.discard)
            return
        if frame.id not in self._unanswered:
            raise ChildFailed("it answers what nobody has asked")
        self._unanswered.remove(frame.id)
        waiting = self._open.get(frame.id)
        if waiting is not None and not waiting.done():
            waiting.set_result(frame)

    async def _fetch(self, frame: _ChildFrame) -> None:
        said = frame.fetch
        try:
            headers = {str(name): str(value) for name, value in dict(said.get("headers") or {}).items()}
            reply = await self._fetcher.fetch(
                str(said.get("url")),
                method=str(said.get("method")),
                headers=headers,
                body=base64.b64decode(str(said.get("body") or "")),
            )
        except (PalinurusError, TimeoutError, ValueError, TypeError) as error:
            answer: dict[str, Any] = {"error": str(error) or "no answer in time"}
        else:
            body = base64.b64encode(reply.body).decode()
            answer = {"status": reply.status, "type": reply.content_type, "body": body}
        try:
            await self._process.write(msgspec.json.encode({"answer": frame.ask, **answer}) + b"\n")
        except BadRequest:
            return  # it has ended

    def _fail_open(self, why: str) -> None:
        for waiting in self._open.values():
            if not waiting.done():
                waiting.set_exception(ChildFailed(why))


def _child_command(found: FoundPlugin, data: Path, env: Mapping[str, str]) -> SandboxCommand:
    """Our Python, Palinurus and the plugin, read-only, and its data; of the variables those that it declares."""
    assert found.root is not None  # noqa: S101  only folders are isolated
    package = Path(palinurus.__file__).parent
    libraries = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    paths = os.pathsep.join(dict.fromkeys((str(package.parent), *libraries, str(found.root))))
    places: tuple[str | Path, ...] = (sys.base_prefix, package, *libraries, found.root)
    shown = dict.fromkeys(Path(each).resolve() for each in places)
    return SandboxCommand(
        (
            os.path.realpath(sys.executable), "-I", "-B", child.__file__, paths, found.manifest.module,
        ),
        "/tmp",  # noqa: S108  that of the sandbox
        {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **{k: env[k] for k in found.manifest.requires.env if k in env}},
        (
            *(SandboxMount(each, str(each)) for each in shown if not each.is_relative_to("/usr")),
            SandboxMount(data, str(data), writable=True),
        ),
        limits=LIMITS,
    )  # fmt: skip


def _prepare_data(folder: Path) -> None:
    make_directory(folder)
    stored = count = 0
    for _, entry in walk_tree(str(folder), max_entries=MOST_FILES):
        stored, count = stored + entry.stat(follow_symlinks=False).st_size, count + 1
    if stored > MOST_STORED or count == MOST_FILES:
        told = f"{MOST_STORED // MIB} MB or {MOST_FILES:,} files"
        raise ChildFailed(f"it has stored more than {told}: take something out of {folder}")


async def start_child(
    home: Home, found: FoundPlugin, env: Mapping[str, str], allow_private: tuple[str, ...], seconds: float
) -> tuple[ChildProcess, Registration]:
    """Raises SandboxError where there is no sandbox, and ChildFailed."""
    data = plugins_folder(home) / "data" / found.id
    await asyncio.to_thread(_prepare_data, data)
    sandbox = BubblewrapSandbox(home.root, home.user_home)
    process = await sandbox.start(_child_command(found, data, env))
    started = ChildProcess(process, PluginFetcher(found.id, found.manifest.hosts, allow_private), found.id)
    config = with_defaults(found.manifest.config_schema, found.entry.config)  # it may hold a secret: no argument
    settings = {"id": found.id, "config": config, "folder": str(found.folder), "data": str(data)}
    try:
        async with asyncio.timeout(seconds):
            await process.write(msgspec.json.encode(settings) + b"\n")
        return started, await started.registration(seconds)
    except BaseException as error:
        await started.kill()
        if isinstance(error, TimeoutError):
            raise ChildFailed(f"it was not ready within {seconds:g} s") from None
        raise


class IsolatedPlugins:
    """`services.keep(IsolatedPlugins)`: those that run."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._children: dict[str, tuple[FoundPlugin, ChildProcess]] = {}
        self._starting: dict[str, asyncio.Lock] = {}

    async def call(self, found: FoundPlugin, frame: Mapping[str, Any]) -> Any:
        """Raises ChildFailed and SandboxError."""
        async with self._starting.setdefault(found.id, asyncio.Lock()):
            known = self._children.get(found.id)
            if known is None or known[0] != found or not known[1].is_alive:
                if known is not None:
                    await known[1].kill()
                config = self._services.config
                private, seconds = config.section(FetchSettings).allow_private, self._settings.start_seconds
                started, _ = await start_child(self._services.home, found, self._services.env, private, seconds)
                self._children[found.id] = known = (found, started)
        return await known[1].call(frame, self._settings.call_seconds)

    @property
    def _settings(self) -> PluginSettings:
        return self._services.config.section(PluginSettings)

    async def close(self) -> None:
        for _, running in self._children.values():
            await running.kill()
        self._children.clear()


def register_isolated(home: Home, found: FoundPlugin, env: Mapping[str, str], own: App, seconds: float) -> None:
    """Registers stand-ins for what the plugin registers in its sandbox. Blocks; raises ChildFailed and SandboxError."""
    made = _registration(home, found, env, seconds)
    if more := [spec.name for spec in made.tools if spec.name not in found.manifest.capabilities.tools]:
        raise ChildFailed(f"it registers what its manifest does not declare: tool {more[0]!r}")
    if len({spec.name for spec in made.tools}) < len(made.tools) or len(made.hooks) > MOST_HOOKS:
        raise ChildFailed(f"it registers a tool twice, or more than {MOST_HOOKS} hooks")
    for spec in made.tools:
        check_spec(spec)

    def tools(services: Services) -> list[Tool]:
        return [_tool(services, found, spec) for spec in made.tools]

    own.make_tools(tools)
    for name in made.commands:
        own.slash_commands[name] = _command(found, name)
    for name, event in made.hooks.items():
        own.hooks.append(RegisteredHook(event, _hook(found, name), name))


def _registration(home: Home, found: FoundPlugin, env: Mapping[str, str], seconds: float) -> Registration:
    assert found.root is not None  # noqa: S101  only folders are isolated
    content = msgspec.json.encode(
        (found.digest or digest_of(found.root), found.manifest, found.entry, palinurus.__version__)
    )
    kept = home.root / "derived" / "plugins" / f"{hashlib.sha256(content).hexdigest()[:32]}.json"
    try:
        return msgspec.json.decode(kept.read_bytes(), type=Registration)
    except (FileNotFoundError, msgspec.DecodeError):
        made = asyncio.run(_describe(home, found, env, seconds))
    make_directory(kept.parent)
    write_atomic(kept, msgspec.json.encode(made))
    return made


async def _describe(home: Home, found: FoundPlugin, env: Mapping[str, str], seconds: float) -> Registration:
    started, registration = await start_child(home, found, env, (), seconds)
    await started.kill()
    return registration


def _tool(services: Services, found: FoundPlugin, spec: ToolSpec) -> Tool:
    async def run(run: ToolRun, arguments: Mapping[str, Any]) -> ToolOutput:
        told = {"key": str(run.key), "run_id": run.run_id, "channel": run.channel}
        frame = {"call": "tool", "name": spec.name, "arguments": dict(arguments), "run": told}
        answer = await services.keep(IsolatedPlugins).call(found, frame)
        if not isinstance(answer, dict) or not isinstance(answer.get("text"), str):
            raise ChildFailed("it answers with what is no result")
        return ToolOutput(answer["text"], is_error=bool(answer.get("error")))

    return Tool(spec, run, outside=True)


def _command(found: FoundPlugin, name: str) -> Any:
    async def answer(services: Services, key: Any, words: str, inbound: Any) -> str:
        frame = {"call": "command", "name": name, "key": str(key), "words": words}
        return str(await services.keep(IsolatedPlugins).call(found, frame))

    return answer


def _hook(found: FoundPlugin, name: str) -> Any:
    async def observe(services: Services, event: HookEvent) -> None:
        told = msgspec.to_builtins(event, enc_hook=str)
        await services.keep(IsolatedPlugins).call(found, {"call": "hook", "name": name, "event": told})

    return observe
