"""A registry on loopback in a thread of its own, bundles to publish there, and the command `pal` in this process."""

from __future__ import annotations

import asyncio
import io
import json
import stat
import threading
import zipfile
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from palinurus.domain.clock import SystemClock
from palinurus.extensions.skill_registry.bundle import Bundle, make_bundle
from palinurus.extensions.skill_registry.client import RegistryClient
from palinurus.extensions.skill_registry.protocol import Publication
from palinurus.extensions.skill_registry.server.app import RegistryServer

SECONDS = 60.0


class Hosted:
    """A running registry. Everything is done by HTTP, as others would."""

    def __init__(self, folder: Path, clock: SystemClock | None = None, url: str = "") -> None:
        self.folder = folder
        self._clock = clock or SystemClock()
        self._public = url
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.server: RegistryServer = self._do(self._start())
        self.url = f"http://127.0.0.1:{self.server._listening.port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self.server.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()

    def token(self, owner: str = "ada") -> str:
        return self.server.tokens.create(owner, "", 1)[1]

    def client(self, owner: str = "") -> RegistryClient:
        return RegistryClient(self.url, self.token(owner) if owner else "")

    def publish(self, slug: str, version: str = "1.0.0", owner: str = "ada", **files: str | bytes) -> None:
        self.client(owner).publish(Publication(slug, version, slug, tags=("latest",)), bundle_of(slug, "", **files))

    async def _start(self) -> RegistryServer:
        server = RegistryServer(self.folder, "127.0.0.1", 0, self._clock, self._public)
        await server.start()
        return server

    def _do(self, work: Any) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(SECONDS)


def skill_text(name: str, front: str = "", body: str = "Do it well.\n", description: str = "") -> str:
    return f"---\nname: {name}\ndescription: {description or f'Helps with {name}.'}\n{front}---\n# {name}\n{body}"


def bundle_of(name: str, front: str = "", **files: str | bytes) -> Bundle:
    """`scripts__run_py="…"` is the file scripts/run.py; SKILL_md replaces the ordinary one."""
    named = {_path(key): value for key, value in files.items()}
    whole = {"SKILL.md": skill_text(name, front), **named}
    return make_bundle((path, data.encode() if isinstance(data, str) else data) for path, data in whole.items())


def _path(key: str) -> str:
    stem, _, kind = key.replace("__", "/").rpartition("_")
    return f"{stem}.{kind}"


def zip_of(files: Mapping[str, bytes | str], modes: Mapping[str, int] | None = None, **more: Any) -> bytes:
    """A zip that says what it is told to, whether that makes sense or not."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", more.get("method", zipfile.ZIP_DEFLATED)) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = more.get("method", zipfile.ZIP_DEFLATED)
            info.create_system = 3
            info.external_attr = (modes or {}).get(name, stat.S_IFREG | 0o644) << 16
            archive.writestr(info, data)
    return whole.getvalue()


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Pal = Callable[..., Ended]
