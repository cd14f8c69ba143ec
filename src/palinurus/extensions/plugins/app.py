"""What a plugin's `register(app)` is given, and what is made of what it registers: each part guarded and named.

A part that raises is a failure of its plugin, which the host counts; an error of domain/errors.py is an answer.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct

from palinurus.domain.errors import BadRequest, NotOffered, PalinurusError, PluginFailed
from palinurus.domain.tool import Tool, ToolOutput, ToolRun, ToolSpec, failed
from palinurus.extensions.plugins.fetch import PluginFetcher
from palinurus.extensions.plugins.find import FoundPlugin
from palinurus.extensions.plugins.schema import with_defaults
from palinurus.operations.table import Operation
from palinurus.runtime.checks.check import Check
from palinurus.runtime.extensions import App, RegisteredHook, imported

T = TypeVar("T")
LARGEST_TOOL = 16_000  # bytes of JSON, as of an MCP server's: every request carries them
LONGEST_SECTION = 16_000  # characters of a prompt


class Reports(Protocol):
    """Who is told how the parts of a plugin do. Must neither block nor raise."""

    def failed(self, plugin_id: str, what: str, error: BaseException) -> None: ...
    def succeeded(self, plugin_id: str) -> None: ...
    def is_disabled(self, plugin_id: str) -> str:
        """Why it is not called any more; empty if it is."""


class PluginApp(App):
    """App, and what is the plugin's own."""

    def __init__(
        self, plugin_id: str, config: Mapping[str, Any], data_folder: Path, folder: Path, fetcher: PluginFetcher
    ) -> None:
        super().__init__()
        self.id = plugin_id
        self.config = config
        """Its settings, checked, with the defaults of its configSchema. When they change, it is registered again."""
        self.folder = folder
        """Where its files are."""
        self.log = logging.getLogger(f"palinurus.plugin.{plugin_id}")
        self.fetch = fetcher.fetch
        """`await app.fetch(url)`: one request to a host of the manifest, through the guard of the web tools."""
        self._data_folder = data_folder

    @property
    def data_folder(self) -> Path:
        """Where it may keep files; made when it is asked for. `pal plugins uninstall` leaves it."""
        self._data_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return self._data_folder


def plugin_app(found: FoundPlugin, data_folder: Path, allow_private: tuple[str, ...]) -> PluginApp:
    config = with_defaults(found.manifest.config_schema, found.entry.config)
    fetcher = PluginFetcher(found.id, found.manifest.hosts, allow_private)
    return PluginApp(found.id, config, data_folder, found.folder, fetcher)


def run_with_limit(work: Callable[[], T], seconds: float, name: str) -> T:
    """The result of something that may hang: then its thread is left behind. Raises what it raises; TimeoutError."""
    done: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except BaseException as error:  # noqa: BLE001  also what would end the process
            errors.append(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not done:
        raise TimeoutError(f"it was not done within {seconds:g} s")
    return done[0]


def undeclared(found: FoundPlugin, app: App) -> Iterator[str]:
    """What was registered and is not in the manifest, which is what a person agreed to."""
    has = found.manifest.capabilities
    names = [
        ("tool", [tool.spec.name for tool in map(imported, app.tools)], has.tools),
        ("operation", list(app.operations), has.operations),
        ("command", list(app.commands), tuple(has.commands)),
        ("slash command", list(app.slash_commands), tuple(has.slash_commands)),
        ("hook", [each.event for each in app.hooks], has.hooks),
        ("job", list(app.jobs), has.jobs),
        ("provider", list(app.wires), has.providers),
        ("embedder", list(app.embedders), has.embedders),
        ("channel", list(app.channels), tuple(found.manifest.channels)),
        ("slot", list(app.slots), found.manifest.slots),
    ]
    for kind, registered, declared in names:
        yield from (f"{kind} {name!r}" for name in registered if name not in declared)
    flags = [
        ("routes", app.routes, has.routes), ("services", app.services, has.services),
        ("prompt sections", app.prompt_sections, has.prompt_sections), ("doctor checks", app.checks, has.doctor_checks),
        ("tools of its own making", [*app.tool_makers, *app.sources], has.tools),
        ("hooks of its own finding", app.hook_finders, False), ("gauges", app.gauge_sources, has.services),
    ]  # fmt: skip
    yield from (kind for kind, registered, declared in flags if registered and not declared)


def check_spec(spec: ToolSpec) -> ToolSpec:
    """Raises ValueError for what a provider of models would refuse, and with it every request."""
    if spec.parameters.get("type") != "object":
        raise ValueError(f"the parameters of the tool {spec.name} are not a JSON Schema of an object")
    if (size := len(msgspec.json.encode(spec))) > LARGEST_TOOL:
        raise ValueError(f"the tool {spec.name} has {size:,} bytes of description and parameters, {LARGEST_TOOL:,} fit")
    return spec


def prompt_section(made: Any) -> tuple[str, str]:
    """Raises ValueError."""
    match made:
        case (str(title), str(text)) if len(text) <= LONGEST_SECTION:
            return title[:100], text
    raise ValueError(f"it gives no title and text of at most {LONGEST_SECTION:,} characters")


def _checks(made: Any) -> Any:
    """Raises TypeError."""
    return made if inspect.isawaitable(made) else msgspec.convert(list(made), list[Check])


def _backend(made: Any) -> Any:
    """Raises TypeError."""
    if missing := [name for name in ("search", "sync", "status", "close", "least_seconds") if not hasattr(made, name)]:
        raise TypeError(f"a {type(made).__name__} is no memory backend: it has no {missing[0]}")
    return made


class GuardedParts(Struct):
    """The parts of one plugin, each under its name, and watched."""

    found: FoundPlugin
    reports: Reports
    seconds: float  # that a call may take

    def of(self, app: App) -> App:
        """Imports whatever is far: what cannot be imported is found out now. Raises what that raises."""
        made = App()
        name = self.found.id
        made.tools = [self._tool(imported(each)) for each in app.tools]
        made.tool_makers = [self._maker(imported(each), "make_tools") for each in app.tool_makers]
        made.operations = {key: self._operation(imported(each)) for key, each in app.operations.items()}
        made.commands = {key: imported(each) for key, each in app.commands.items()}
        made.slash_commands = {key: self._call(imported(each), f"/{key}") for key, each in app.slash_commands.items()}
        made.hooks = [self._hook(each) for each in app.hooks]
        made.jobs = {key: imported(each) for key, each in app.jobs.items()}
        made.services = [self._service(imported(each)) for each in app.services]
        made.prompt_sections = [
            self._plain(imported(each), "prompt section", ("", ""), prompt_section) for each in app.prompt_sections
        ]
        made.checks = [self._plain(imported(each), "doctor check", (), _checks) for each in app.checks]
        made.routes = [self._routes(imported(each)) for each in app.routes]
        made.sources = list(app.sources)
        made.gauge_sources = [self._plain(imported(each), "gauges", (), list) for each in app.gauge_sources]
        made.wires = {key: imported(each) for key, each in app.wires.items()}
        made.embedders = {key: imported(each) for key, each in app.embedders.items()}
        made.channels = {key: imported(each) for key, each in app.channels.items()}
        made.slots = {
            key: self._slot(key, imported(each)) for key, each in app.slots.items() if key in self.found.slots
        }
        for each in made.jobs.values():
            if isinstance(each, str):
                raise BadRequest(f"the plugin {name} has a job that is no JobKind")
        return made

    def _tool(self, tool: Tool) -> Tool:
        async def run(run: ToolRun, arguments: Mapping[str, Any]) -> ToolOutput:
            return await self._tried(lambda: tool.run(run, arguments), f"the tool {tool.spec.name}", as_result=True)

        return msgspec.structs.replace(tool, spec=check_spec(tool.spec), run=run)

    def _maker(self, make: Callable[[Any], Sequence[Tool]], what: str) -> Callable[[Any], Sequence[Tool]]:
        names = self.found.manifest.capabilities.tools

        def guarded(made: Sequence[Tool]) -> Sequence[Tool]:
            tools = {each.spec.name: self._tool(each) for each in made}
            return [each for name, each in tools.items() if name in names]

        return self._plain(make, what, (), guarded)

    def _slot(self, slot: str, make: Any) -> Any:
        if slot == "browser":
            return self._maker(make, "the slot browser")
        if slot == "memory":
            return lambda place: _backend(make(place))  # what it raises is told by the memory, which uses ours then
        return self._plain(make, f"the slot {slot}", None)

    def _operation(self, row: Any) -> Any:
        if not isinstance(row, Operation) or row.blocks:
            return row
        return msgspec.structs.replace(row, handler=self._call(row.handler, f"the operation {row.name}"))

    def _call(self, call: Callable[..., Awaitable[T]], what: str) -> Callable[..., Awaitable[T]]:
        async def guarded(*arguments: Any) -> T:
            return await self._tried(lambda: call(*arguments), what)

        return guarded

    def _service(self, service: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
        async def run(services: Any) -> None:
            try:
                await service(services)
            except (PalinurusError, asyncio.CancelledError):
                raise
            except Exception as error:  # noqa: BLE001  the edge of a plugin
                self.reports.failed(self.found.id, "a service", error)

        run.__name__ = f"a service of the plugin {self.found.id}"
        return run

    def _hook(self, hook: RegisteredHook) -> RegisteredHook:
        where = imported(hook.where)
        return RegisteredHook(hook.event, where, f"{self.found.id}:{hook.name}", hook.priority, self.found.id)

    def _plain(
        self, function: Callable[..., T], what: str, otherwise: Any, read: Callable[[Any], Any] = lambda made: made
    ) -> Callable[..., T]:
        """`read` checks what it gives: raises if that is something else."""

        def guarded(*arguments: Any) -> T:
            try:
                return read(function(*arguments))  # type: ignore[no-any-return]
            except PalinurusError:
                raise
            except Exception as error:  # noqa: BLE001  the edge of a plugin
                self.reports.failed(self.found.id, what, error)
                return otherwise  # type: ignore[no-any-return]

        return guarded

    def _routes(self, provider: Any) -> Any:
        prefix = f"/plugins/{self.found.id}/"

        def inside(routes: Any) -> list[Any]:
            if wrong := [route.path for route in routes if not route.path.startswith(prefix)]:
                raise ValueError(f"the route {wrong[0]} does not begin with {prefix}")
            return list(routes)

        return msgspec.structs.replace(provider, make=self._plain(provider.make, "its routes", [], inside))

    async def _tried(self, work: Callable[[], Awaitable[T]], what: str, *, as_result: bool = False) -> T:
        """Raises PalinurusError only; with `as_result` a failure is a result that says so."""
        if why := self.reports.is_disabled(self.found.id):
            error: PalinurusError = NotOffered(
                f"the plugin {self.found.id} is disabled: {why}", hint="pal plugins list"
            )
        else:
            try:
                async with asyncio.timeout(self.seconds):
                    result = await work()
            except PalinurusError:
                raise
            except Exception as caught:  # noqa: BLE001  the edge of a plugin
                self.reports.failed(self.found.id, what, caught)
                is_late = isinstance(caught, TimeoutError) and not str(caught)
                told = f"no answer within {self.seconds:g} s" if is_late else f"{type(caught).__name__}: {caught}"[:300]
                error = PluginFailed(f"{what} of the plugin {self.found.id} failed: {told}", hint="pal plugins doctor")
            else:
                self.reports.succeeded(self.found.id)
                return result
        if as_result:
            return failed(str(error))  # type: ignore[return-value]
        raise error
