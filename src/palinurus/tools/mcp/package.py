"""The official package `mcp`: an extra that is loaded when a server is first spoken to, and not before.

It takes more than a second to import, so that happens in a thread. What it logs goes to our log and never to the person
who sits there: what matters of it is told by us, in our words.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from importlib import import_module
from importlib.util import find_spec

from palinurus.domain.errors import ConfigError

HINT = "install it: pip install 'palinurus[mcp]'"
NOT_INSTALLED = "the config names MCP servers, but the package mcp is not installed"
_PARTS = ("anyio", "mcp", "mcp.client.streamable_http", "mcp.shared.jsonrpc_dispatcher")
_one_at_a_time = threading.Lock()

log = logging.getLogger(__name__)


def is_installed() -> bool:
    return find_spec("mcp") is not None


async def load() -> None:
    """Afterwards its modules can be imported at no cost. Raises ConfigError when it is not installed."""
    if not is_installed():
        raise ConfigError(NOT_INSTALLED, hint=HINT)
    await asyncio.to_thread(_import)


def _import() -> None:
    with _one_at_a_time:
        for name in _PARTS:
            import_module(name)
        theirs = logging.getLogger("mcp")
        if theirs.propagate:
            theirs.propagate = False
            theirs.addHandler(_Quietly())


class _Quietly(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        log.info("%s: %s", record.name, record.getMessage(), exc_info=record.exc_info)
