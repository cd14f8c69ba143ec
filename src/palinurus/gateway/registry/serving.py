"""A registry that listens: the application on a port, until it is closed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from palinurus.domain.clock import Clock
from palinurus.domain.errors import ConfigError
from palinurus.gateway.door.guard import place_of
from palinurus.gateway.http.serving import Listening
from palinurus.gateway.registry.app import RegistryApp
from palinurus.gateway.registry.shelf import Shelf
from palinurus.gateway.registry.tokens import Tokens
from palinurus.skills.registry.client import is_near


class RegistryServer:
    """`url` is what people call it, when a proxy with TLS stands before it. Raises ConfigError or StorageError."""

    def __init__(self, folder: Path, host: str, port: int, clock: Clock, url: str = "") -> None:
        self.shelf, self.tokens = Shelf(folder), Tokens(folder)
        self.shelf.open()
        self._app = RegistryApp(self.shelf, self.tokens, clock, url)
        try:
            self._listening = Listening(self._app, [host], port)
        except ConfigError as error:
            raise ConfigError(
                error.message.replace("the gateway", "the registry", 1), hint="--port names another port"
            ) from None
        self.url = url.rstrip("/") or f"http://{_shown(host)}:{self._listening.port}"
        self._app.place = place_of(self._listening.port, _names(host, url), any_address=not is_near(host))

    async def start(self) -> None:
        await self._listening.start()

    async def close(self) -> None:
        await self._listening.close()


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _names(host: str, url: str) -> Sequence[str]:
    named = urlsplit(url).netloc
    return [name for name in (named, _shown(host)) if name]
