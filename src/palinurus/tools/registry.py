"""The one place where a call meets its tool."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from palinurus.domain.errors import ConfigError, PalinurusError
from palinurus.domain.function_tool import failed
from palinurus.domain.messages import ToolCall
from palinurus.domain.tool import Tool, ToolOutput, ToolRun, ToolSpec
from palinurus.tools.results import Clip, ResultShelf

log = logging.getLogger(__name__)


class Registry:
    """The tools of an agent, by name."""

    def __init__(self, tools: Iterable[Tool] = (), *, shelf: ResultShelf | None = None) -> None:
        self._tools: dict[str, Tool] = {}
        self._shelf = shelf  # where what is cut off can be read
        for each in sorted(tools, key=lambda tool: tool.spec.name):
            if each.spec.name in self._tools:
                raise ConfigError(f"two tools are called {each.spec.name}", hint="rename or remove one of them")
            self._tools[each.spec.name] = each
        self._specs = tuple(each.spec for each in self._tools.values())

    def specs(self) -> tuple[ToolSpec, ...]:
        """Sorted by name, so that the head of a request is the same bytes however the tools were gathered."""
        return self._specs

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def with_tools(self, more: Iterable[Tool]) -> Registry:
        return Registry([*self._tools.values(), *more], shelf=self._shelf)

    def all(self) -> tuple[Tool, ...]:
        return tuple(self._tools.values())

    def unknown(self, name: str) -> str:
        return f"there is no tool called {name[:80]!r}; the tools are: {', '.join(self._tools) or 'none'}"

    async def run(self, run: ToolRun, call: ToolCall) -> ToolOutput:
        """Run one call, whoever may. Raises nothing but cancellation; every failure is a result."""
        found = self.get(call.name)
        if found is None:
            return failed(self.unknown(call.name))
        return await self.execute(run, call, lambda: found.run(run, call.arguments))

    async def execute(self, run: ToolRun, call: ToolCall, work: Callable[[], Awaitable[ToolOutput]]) -> ToolOutput:
        """Do a tool's work and make a result of whatever comes of it. Raises nothing but cancellation."""
        try:
            output = await work()
        except PalinurusError as error:
            output = failed(str(error))
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            output = failed(f"{call.name} gave up: something that it waited for was cancelled")
        except Exception as error:
            # A tool may be anyone's code. Its mistake costs this result, not the turn that asked for it.
            log.exception("the tool %s failed", call.name)
            output = failed(f"{call.name} failed by a mistake of its own: {type(error).__name__}: {error}")
        return await Clip(run, call.name, outside=self._is_outside(call.name), shelf=self._shelf)(output)

    def _is_outside(self, name: str) -> bool:
        found = self.get(name)
        return found is not None and found.outside


def _is_cancelled() -> bool:
    """Whether somebody cancelled this task; a tool may also run into a cancellation of its own making."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
