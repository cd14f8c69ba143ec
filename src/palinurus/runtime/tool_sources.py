"""Tools that come and go while the program runs, such as those of MCP servers.

Extensions bring the sources, and say which part of the config has something for them: a source that nobody configured
is not imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from palinurus.config.home import Home
from palinurus.config.load import LoadedConfig
from palinurus.domain.clock import Clock
from palinurus.domain.tool import Tool
from palinurus.runtime.extensions import LOADED


class SourceContext(Struct, frozen=True):
    """What a source is made with. `config` and `redact` are asked anew each time: both may come to know more."""

    home: Home
    clock: Clock
    redact: Callable[[str], str]
    config: Callable[[], LoadedConfig]


class ToolSource(Protocol):
    def __init__(self, context: SourceContext) -> None: ...

    async def tools(self, agent_id: str) -> tuple[Tool, ...]:
        """Asked before every turn. The very same tuple for as long as nothing has changed. Does not raise."""

    def listed(self, agent_id: str) -> tuple[Tool, ...]:
        """The tools as they were last made; nobody is asked for news."""

    def warnings(self) -> tuple[str, ...]:
        """What a person should know, one line each."""

    async def close(self) -> None: ...


S = TypeVar("S", bound=ToolSource)


class ToolSources:
    """The sources that the config has something for, made when they are first needed."""

    def __init__(self, context: SourceContext) -> None:
        self._context = context
        self._made: dict[type[Any], Any] = {}
        self._joined: dict[str, tuple[tuple[tuple[Tool, ...], ...], tuple[Tool, ...]]] = {}

    def get(self, kind: type[S]) -> S:
        """The source of this kind, whether or not the config has something for it."""
        if kind not in self._made:
            self._made[kind] = kind(self._context)
        found: S = self._made[kind]
        return found

    async def tools(self, agent_id: str) -> tuple[Tool, ...]:
        """All their tools; the very same tuple for as long as nothing has changed."""
        found = tuple([await source.tools(agent_id) for source in self._configured()])
        known, joined = self._joined.get(agent_id, ((), ()))
        if len(known) != len(found) or any(old is not new for old, new in zip(known, found, strict=True)):
            joined = tuple(tool for tools in found for tool in tools)
            self._joined[agent_id] = (found, joined)
        return joined

    def listed(self, agent_id: str) -> list[Tool]:
        return [tool for source in self._configured() for tool in source.listed(agent_id)]

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(line for source in self._made.values() for line in source.warnings())

    async def close(self) -> None:
        for source in self._made.values():
            await source.close()

    def _configured(self) -> list[ToolSource]:
        return [self.get(kind) for kind in LOADED.find_sources(self._context.config().config)]
