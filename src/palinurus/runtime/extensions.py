"""Extensions: what each offers is declared as data (parts.py), and it is imported when something of it is used.

`register(app)` of its module is then called once, and `app` is all that it is given. Nothing else in the core names an
extension. `validate`, `doctor`, docs and schema load all of them.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from palinurus.config.section import REGISTRY, config_section, dig
from palinurus.domain.errors import BadRequest, ConfigError, NotFound
from palinurus.parts import EXTENSIONS, WIRES, Extension, resolve

if TYPE_CHECKING:
    import click

    from palinurus.config.home import Home
    from palinurus.config.load import Config, LoadedConfig
    from palinurus.domain.tool import Tool
    from palinurus.gateway.meter import Gauge
    from palinurus.memory.backend import OpenBackend
    from palinurus.memory.embedder import OpenEmbedder
    from palinurus.operations.services import Services
    from palinurus.operations.table import Row
    from palinurus.storage.database import OpenDatabase
    from palinurus.storage.jobs import JobKind

PLUGIN_INDEX = Path("plugins", "plugins.json")  # in a home: what is installed
PLUGINS = "palinurus.extensions.plugins.host:find_rows"
LEAVE_PLUGINS = "palinurus.extensions.plugins.host:leave_rows"


def imported(part: Any) -> Any:
    """A part itself, or what stands where it says."""
    return resolve(part) if isinstance(part, str) else part


class RegisteredHook(Struct, frozen=True):
    event: str  # or a family
    where: Any  # "module:name"; of a plugin the function itself
    name: str
    priority: int = 0
    owner: str = ""  # the plugin that registered it


class FoundRows(Struct, frozen=True):
    """The plugins that a home uses, as rows, and what they add to its config: skills, MCP servers."""

    rows: tuple[Extension, ...] = ()
    config: dict[str, Any] = {}
    stamp: Any = ()  # when it is another one, they are registered again: settings or files have changed
    files: tuple[Path, ...] = ()  # whose change makes another stamp


class App:
    """What an extension may add. Whatever is given as "module:name" is imported when it is used."""

    def __init__(self) -> None:
        self.operations: dict[str, Row | str] = {}
        self.commands: dict[str, click.Command | str] = {}
        self.routes: list[Any] = []
        self.checks: list[Any] = []
        self.sources: list[Any] = []
        self.jobs: dict[str, JobKind | str] = {}
        self.tools: list[Tool | str] = []
        self.tool_makers: list[Any] = []
        self.slash_commands: dict[str, Any] = {}
        self.hooks: list[RegisteredHook] = []
        self.hook_finders: list[str] = []
        self.services: list[Any] = []
        self.prompt_sections: list[Any] = []
        self.gauge_sources: list[Any] = []
        self.wires: dict[str, Any] = {}
        self.embedders: dict[str, Any] = {}
        self.channels: dict[str, Any] = {}
        self.slots: dict[str, Any] = {}

    def operation(self, operation: Row | str, name: str = "") -> None:
        """Made by `@operation`: also a method of the gateway and a row of the schema. One that is far has a `name`."""
        self.operations[operation.name if not isinstance(operation, str) else name] = operation

    def command(self, name: str, command: click.Command | str) -> None:
        """`pal NAME`; with "GROUP NAME" a command of a group that is there already."""
        self.commands[name] = command

    def http_routes(self, provider: Any) -> None:
        """A RouteProvider of the gateway, or where one is."""
        self.routes.append(provider)

    def tool(self, tool: Tool | str) -> None:
        """For every agent, under the policy like any other."""
        self.tools.append(tool)

    def make_tools(self, maker: Any) -> None:
        """Where a function is that makes tools for every agent of the services that they need: `make(services)`."""
        self.tool_makers.append(maker)

    def slash_command(self, name: str, command: Any) -> None:
        """Where an async function is that answers `/NAME` in a chat: `answer(services, key, words, inbound)`. The
        extension declares its help (`Extension.slash_commands`)."""
        self.slash_commands[name] = command

    def tool_source(self, source: Any) -> None:
        """A class that is a runtime.ToolSource, or where one is: tools that come and go while the program runs."""
        self.sources.append(source)

    def job(self, kind: JobKind | str, name: str = "") -> None:
        """Work that survives a restart: `services.jobs.add(NAME, payload, key)` has it done. One that is far has a
        `name`. The extension declares its names (`Extension.jobs`)."""
        self.jobs[kind.name if not isinstance(kind, str) else name] = kind

    def hook(self, event: str, function: Any, name: str = "", priority: int = 0) -> None:
        """Where a function is that is called when something happens, `call(services, event)`: domain/hooks.py. Its
        `name`, by which people disable it, is the function's unless another is given. The extension declares the events
        (`Extension.hooks`)."""
        self.hooks.append(RegisteredHook(event, function, name or _name_of(function), priority))

    def find_hooks(self, finder: str) -> None:
        """Where a function is that finds hooks which come and go: `find(services, event)` gives domain.hooks.Hooks."""
        self.hook_finders.append(finder)

    def service(self, service: Any) -> None:
        """Where an async function of the services is that is called when a process begins to stay, and again when the
        config has changed; then the earlier call is cancelled. It may go on for ever, or return. The extension declares
        the sections without which it is not called (`Extension.configured_by`)."""
        self.services.append(service)

    def prompt_section(self, section: Any) -> None:
        """Where a function of the config and the id of an agent is that gives a title and a text for the system prompt
        of the owner's sessions; an empty text: nothing. Declared as services are."""
        self.prompt_sections.append(section)

    def gauges(self, source: Any) -> None:
        """Where a function of the services is that gives figures for /metrics: gateway.meter.Gauges. It is asked only
        where the extension is loaded."""
        self.gauge_sources.append(source)

    def provider(self, wire: str, provider: Any) -> None:
        """A class that is a providers.wires.http.WireProvider, or where one is: it speaks the protocol `wire`, which a
        provider of the config names as its `api`. The extension declares it (`Extension.wires`)."""
        self.wires[wire] = provider

    def embedder(self, provider: str, open_embedder: Any) -> None:
        """A memory.embedder.OpenEmbedder, or where one is: it makes vectors for a memory whose config names this
        provider. The extension declares it (`Extension.embedders`)."""
        self.embedders[provider] = open_embedder

    def channel(self, name: str, adapter: Any) -> None:
        """A dispatch.channels.ChannelFactory, or where one is: it makes the adapter of one account of a network. The
        extension declares what people are told of it (`Extension.channels`)."""
        self.channels[name] = adapter

    def context_engine(self, make: Any) -> None:
        """`make(services)` gives a context.engine.ContextEngine: what decides what a model reads. One that fails is
        replaced by the built-in one. Like the next three, for whoever has the slot (`Extension.slots`)."""
        self.slots["contextEngine"] = make

    def memory_backend(self, open_backend: Any) -> None:
        """A memory.backend.OpenBackend, or where one is: what indexes and searches memory. While it fails, the built-in
        engine answers."""
        self.slots["memory"] = open_backend

    def sandbox(self, make: Any) -> None:
        """`make(services)` gives a sandbox.Sandbox: where commands run. While it does not work, bubblewrap is used."""
        self.slots["sandbox"] = make

    def browser(self, make: Any) -> None:
        """`make(services)` gives the tools with which an agent uses a browser, such as `web_browse`."""
        self.slots["browser"] = make

    def doctor_check(self, check: Any) -> None:
        """`check(home, loaded)` gives Checks, also as a coroutine, or where it is; `loaded` is None when the config
        cannot be read."""
        self.checks.append(check)

    def join(self, other: App) -> None:
        """With all that another one has."""
        for name, own in vars(self).items():
            more = getattr(other, name)
            own.update(more) if isinstance(own, dict) else own.extend(more)


class Extensions:
    """Those of this process. Each is loaded at most once."""

    def __init__(self, known: Sequence[Extension]) -> None:
        self._waiting = list(known)
        self.known = tuple(known)
        self.app = App()
        self._guests: tuple[Path, FoundRows] | None = None  # the home whose plugins are used, and these
        self._without_guests: tuple[Any, ...] = ()
        self.plugin_files: tuple[Path, ...] = ()  # of plugins in development
        self._declare_sections(known)

    def load(self, wanted: Callable[[Extension], bool] = lambda _: True) -> App:
        """With all that match. Those that wait are few: they are looked through each time."""
        for extension in [each for each in self._waiting if wanted(each)]:
            if extension not in self._waiting:  # one before it needed this one
                continue
            self._waiting.remove(extension)
            if extension.host:
                self.app.join(resolve(extension.host)(extension))
                continue
            import_module(extension.module).register(self.app)
            if unknown := {hook.event for hook in self.app.hooks} - {each for one in self.known for each in one.hooks}:
                raise TypeError(f"the extension {extension.name} does not declare its hooks {sorted(unknown)}")
            if undeclared := set(self.app.jobs) - {name for each in self.known for name in each.jobs}:
                raise TypeError(f"the extension {extension.name} does not declare its jobs {sorted(undeclared)}")
        return self.app

    def find_operation(self, name: str) -> Row | None:
        app = self.load(lambda each: any(name == own or name.startswith(f"{own}.") for own in each.operations))
        found: Row | None = imported(app.operations.get(name))
        return found

    def all_operations(self, wanted: Callable[[Extension], bool] = lambda _: True) -> list[Row]:
        """Of those that match, and of those that were loaded before."""
        found = self.load(wanted).operations.values()
        return [imported(each) for each in found]

    def find_job(self, name: str) -> JobKind | None:
        """Who does jobs of this kind; None when nobody does."""
        found: JobKind | None = imported(self.load(lambda each: name in each.jobs).jobs.get(name))
        return found

    def find_command(self, name: str) -> click.Command | None:
        found: click.Command | None = imported(self.load(lambda each: name in each.commands).commands.get(name))
        return found

    def waiting_operations(self) -> list[str]:
        """Names of operations whose extension is not loaded."""
        return [name for each in self._waiting if not each.local for name in each.operations]

    def command_lines(self, group: str = "", before: str | None = None) -> dict[str, str]:
        """Commands of extensions and their lines: of `pal` itself, perhaps only those that stand before one of the
        core's, or of one of its groups."""
        known = [each for each in self.known if before is None or each.before == before]
        lines = {name: line for each in known for name, line in each.commands.items()}
        if not group:
            return {name: line for name, line in lines.items() if " " not in name}
        return {name.partition(" ")[2]: line for name, line in lines.items() if name.startswith(f"{group} ")}

    def find_routes(self, config: Config) -> list[Any]:
        return [imported(each) for each in self.load(lambda each: _has_part(config, each.routes)).routes]

    def find_sources(self, config: Config) -> list[Any]:
        """The classes of tool sources of those that the config has something for."""
        return [imported(each) for each in self._with_tools(config).sources]

    def find_tools(self, config: Config, services: Services) -> list[Tool]:
        app = self._with_tools(config)
        made = (tool for maker in app.tool_makers for tool in imported(maker)(services))
        browser = self.find_slot("browser")
        return [*map(imported, app.tools), *made, *(browser(services) if browser else ())]

    def find_services(self, config: Config) -> list[Callable[[Services], Awaitable[None]]]:
        """Those that run with this config, and those that ran with an earlier one: they may have something to end."""
        return [imported(each) for each in self._configured(config).services]

    def find_prompt_sections(self, config: Config, agent_id: str) -> tuple[tuple[str, str], ...]:
        made = (imported(each)(config, agent_id) for each in self._configured(config).prompt_sections)
        return tuple((title, text) for title, text in made if text)

    def find_memory_backend(self, name: str) -> OpenBackend:
        """By its name, or by that of the only one of an extension, or of the plugin that has the slot. Raises
        NotFound."""
        declared = {backend: where for each in self.known for backend, where in each.memory_backends.items()}
        alone = {each.name: next(iter(each.memory_backends.values())) for each in self.known if each.memory_backends}
        has_slot = any(each.name == name and "memory" in each.slots for each in self.known)
        where: Any = declared.get(name) or alone.get(name) or (self.find_slot("memory") if has_slot else None)
        if where is None:
            raise NotFound(
                f"there is no memory backend {name!r}", hint=f"there are: {', '.join(['builtin', *declared])}"
            )
        found: OpenBackend = imported(where)
        return found

    def find_database(self, url: str) -> OpenDatabase:
        """By the scheme of its URL. Raises ConfigError."""
        declared = {scheme: where for each in self.known for scheme, where in each.databases.items()}
        scheme = url.partition(":")[0]
        if scheme not in declared:
            raise ConfigError("storage.url names no database that is known", hint=f"there are: {', '.join(declared)}")
        found: OpenDatabase = resolve(declared[scheme])
        return found

    def find_gauges(self, services: Services) -> Iterator[Gauge]:
        """Figures of those that are loaded."""
        return (gauge for source in self.app.gauge_sources for gauge in imported(source)(services))

    def find_wire(self, wire: str) -> Any:
        """What speaks a protocol of models; None if nothing does."""
        return (
            resolve(WIRES[wire])
            if wire in WIRES
            else imported(self.load(lambda each: wire in each.wires).wires.get(wire))
        )

    def find_embedder(self, provider: str) -> OpenEmbedder:
        """Raises NotFound."""
        found: OpenEmbedder | None = imported(
            self.load(lambda each: provider in each.embedders).embedders.get(provider)
        )
        if found is None:
            known = ["embedded", *(name for each in self.known for name in each.embedders)]
            raise NotFound(f"there is no embedder {provider!r}", hint=f"there are: {', '.join(known)}, none")
        return found

    def wire_names(self) -> list[str]:
        return [*WIRES, *(wire for each in self.known for wire in each.wires)]

    def network_rows(self) -> dict[str, dict[str, Any]]:
        """Networks that others than the extension `channels` bring, and what people are told of each."""
        return {name: row for each in self.known for name, row in each.channels.items()}

    def find_adapter(self, channel: str) -> Any:
        """Of one of these networks; None if its extension could not be loaded."""
        return imported(self.load(lambda each: channel in each.channels).channels.get(channel))

    def find_slot(self, slot: str) -> Callable[[Any], Any] | None:
        """What makes the part for an exclusive slot; None: the built-in one is used."""
        if not any(slot in each.slots for each in self.known):
            return None
        found: Callable[[Any], Any] | None = imported(self.load(lambda each: slot in each.slots).slots.get(slot))
        return found

    def _configured(self, config: Config) -> App:
        return self.load(lambda each: any(one == "*" or config.sets(one) for one in each.configured_by))

    def find_slash_command(self, name: str) -> Any:
        found = self.load(lambda each: name in each.slash_commands).slash_commands.get(name)
        if found is None:
            raise NotFound(f"the plugin of /{name} could not be loaded", hint="pal plugins list")
        return imported(found)

    def with_hooks(self, event: str, has: Callable[[str], bool]) -> App:
        """With all that may listen to an event. `has`: whether a place of `Extension.hooks_need` is there."""
        names = {event, event.partition(":")[0], "*"}
        return self.load(
            lambda each: not names.isdisjoint(each.hooks) and (not each.hooks_need or any(map(has, each.hooks_need)))
        )

    def _with_tools(self, config: Config) -> App:
        return self.load(lambda each: _has_part(config, each.tools))

    def _declare_sections(self, known: Sequence[Extension]) -> None:
        for section, places in ((name, at) for each in known for name, at in each.config.items()):
            config_section(section, places)

    def take_plugins(self, home: Home, loaded: LoadedConfig) -> LoadedConfig:
        """With the plugins that a home uses, and no others: before anything else is asked about its config. Returns the
        config with what they add to it. Raises BadRequest while this process uses those of another home."""
        wants = "plugins" in loaded.config.data or (home.root / PLUGIN_INDEX).exists()
        if self._guests is not None and self._guests[0] != home.root:
            raise BadRequest(
                f"this process uses the plugins of {self._guests[0]}", hint=f"open {home.root} in a process of its own"
            )
        if not wants and self._guests is None:
            return loaded
        found: FoundRows = resolve(PLUGINS)(home, loaded) if wants else FoundRows()
        self.plugin_files = found.files
        if self._guests is None or self._guests[1].stamp != found.stamp:
            self.leave_plugins(home)
            if found.rows:
                self._without_guests = self._add(found.rows)
                self._guests = (home.root, found)
                self.announce_plugins()
        return _with_defaults(loaded, found.config) if found.config else loaded

    def leave_plugins(self, home: Home | None = None) -> None:
        """Without the plugins of a home, or of whichever it is: it is closed, or they have changed."""
        if self._guests is not None and (home is None or home.root == self._guests[0]):
            rows, self._guests = self._guests[1].rows, None
            self._remove(rows, self._without_guests)
            self.announce_plugins()
            resolve(LEAVE_PLUGINS)()

    def announce_plugins(self) -> None:
        """Tells those who keep lists of names, as far as they are imported: the others ask when they are."""
        rows = self._guests[1].rows if self._guests is not None else ()
        if (commands := sys.modules.get("palinurus.dispatch.commands")) is not None:
            commands.set_plugin_commands({name: told for each in rows for name, told in each.slash_commands.items()})
        from palinurus.tools.tool_names import set_plugin_tools

        set_plugin_tools({each.name: each.tool_names for each in rows if each.tool_names})

    @contextmanager
    def added(self, *more: Extension) -> Iterator[None]:
        """With further ones for a while, for tests."""
        before = self._add(more)
        try:
            yield
        finally:
            self._remove(more, before)

    def _add(self, more: Sequence[Extension]) -> tuple[Any, ...]:
        before = self._waiting, self.known, self.app
        self._waiting, self.known, self.app = [*self._waiting, *more], (*self.known, *more), App()
        self.app.join(before[2])
        self._declare_sections(more)
        return before

    def _remove(self, more: Sequence[Extension], before: tuple[Any, ...]) -> None:
        self._waiting, self.known, self.app = before
        for section in (name for each in more for name in each.config):
            REGISTRY.remove(section)


def _name_of(function: Any) -> str:
    return str(function.rpartition(":")[2] if isinstance(function, str) else function.__name__)


def _has_part(config: Config, part: str) -> bool:
    """Whether the config has what an extension needs: see Extension.routes."""
    return part == "*" or bool(part and dig(config.data, part.split(".")))


def _with_defaults(loaded: LoadedConfig, more: dict[str, Any]) -> LoadedConfig:
    """The config with what it does not say itself; lists are put together."""
    config = type(loaded.config)(_merged(loaded.config.data, more))
    return msgspec.structs.replace(loaded, config=config)


def _merged(own: Any, more: Any) -> Any:
    if isinstance(own, dict) and isinstance(more, dict):
        return {**more, **own, **{key: _merged(own[key], more[key]) for key in own.keys() & more.keys()}}
    return [*own, *more] if isinstance(own, list) and isinstance(more, list) else own


LOADED = Extensions(EXTENSIONS)
