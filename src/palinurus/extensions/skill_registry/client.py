"""A client of the ClawHub HTTP API: each answer is bounded and read into a record."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct

from palinurus.domain.errors import BadRequest, NotFound, WebError
from palinurus.extensions.skill_registry import protocol
from palinurus.extensions.skill_registry.bundle import MAX_ARCHIVE, Bundle
from palinurus.extensions.skill_registry.scan import visible

if TYPE_CHECKING:
    import httpx2

DEFAULT = "https://clawhub.ai"
SECONDS = 30.0  # without a byte
MAX_ANSWER = 4 * 1024 * 1024
REDIRECTS = 4
R = TypeVar("R", bound=Struct)


def read_address(text: str) -> str:
    """A registry's address, without a slash at its end. Raises BadRequest; without TLS it must be on this machine."""
    address = text.strip().rstrip("/")
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise BadRequest(f"{text[:120]!r} is not an address of a registry") from None
    if parts.scheme not in ("https", "http") or not host or parts.query or parts.fragment:
        raise BadRequest(f"{text[:120]!r} is not an address of a registry", hint="such as https://skills.example.org")
    if parts.username is not None:
        raise BadRequest("a registry's address holds no user and no password", hint="use skills.registry.token")
    if parts.scheme == "http" and not is_near(host):
        raise BadRequest(f"{address} would be used without TLS", hint="write https, or use a registry on this machine")
    return address


def is_near(host: str) -> bool:
    """Whether that is this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@cache
def _certificates() -> ssl.SSLContext:
    """Loading them takes a fifth of a second, and each question would do it."""
    import httpx2

    return httpx2.create_ssl_context()


class RegistryClient:
    """Raises WebError when it cannot be reached or sends nonsense, NotFound, and BadRequest for what it refuses."""

    def __init__(self, address: str, token: str = "") -> None:
        self.address = read_address(address)
        self._near = self.address.startswith("http:")
        if not (token.isascii() and (token.isprintable() or not token)) or " " in token:
            raise BadRequest("the registry's token holds characters that no token has", hint="paste it again")
        self._token = token

    def search(self, words: str, limit: int = 25) -> protocol.SkillSearchAnswer:
        return self._read(protocol.SkillSearchAnswer, "search", {"q": words, "limit": str(limit)})

    def about(self, slug: str) -> protocol.SkillAnswer:
        found = self._read(protocol.SkillAnswer, f"skills/{quote(slug, safe='')}")
        if found.skill is None:
            raise self._unknown(slug)
        return found

    def version(self, slug: str, version: str) -> protocol.VersionAnswer:
        found = self._read(protocol.VersionAnswer, f"skills/{quote(slug, safe='')}/versions/{quote(version, safe='')}")
        if found.version is None:
            raise self._unknown(f"{slug}@{version}")
        return found

    def download(self, slug: str, version: str, owner: str = "") -> bytes:
        """The zip file, at most MAX_ARCHIVE bytes of it."""
        params = {"slug": slug, "version": version, **({"ownerHandle": owner} if owner else {})}
        with self._answer("GET", "download", params=params) as answer:
            return self._body(answer, MAX_ARCHIVE)

    def publish(self, publication: protocol.Publication, bundle: Bundle) -> protocol.PublishAnswer:
        records = {each.path: each.content_type for each in bundle.records()}
        parts = [("files", (path, data, records[path])) for path, data in bundle.files.items()]
        form = {"payload": msgspec.json.encode(publication).decode()}
        with self._answer("POST", "skills", data=form, files=parts) as answer:
            return self._decoded(protocol.PublishAnswer, self._body(answer, MAX_ANSWER))

    def whoami(self) -> str:
        return self._read(protocol.Whoami, "whoami").user.handle or ""

    def _read(self, kind: type[R], path: str, params: Mapping[str, str] | None = None) -> R:
        with self._answer("GET", path, params=params) as answer:
            return self._decoded(kind, self._body(answer, MAX_ANSWER))

    @contextmanager
    def _answer(self, method: str, path: str, **more: Any) -> Iterator[httpx2.Response]:
        import httpx2

        headers = {"Accept": "application/json" if path != "download" else "*/*"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            with (
                httpx2.Client(
                    timeout=SECONDS,
                    follow_redirects=method == "GET" and not self._near,  # with no certificates there is no going on
                    max_redirects=REDIRECTS,
                    trust_env=not self._near,  # a proxy cannot reach our loopback
                    verify=False if self._near else _certificates(),
                ) as client,
                client.stream(method, f"{self.address}/{protocol.API}/{path}", headers=headers, **more) as answer,
            ):
                self._check(answer)
                yield answer
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            why = str(error) or type(error).__name__
            raise WebError(f"the registry {self.address} cannot be reached: {visible(why)}") from None

    def _check(self, answer: httpx2.Response) -> None:
        if answer.url.scheme != "https" and not is_near(answer.url.host):
            raise WebError(f"the registry {self.address} leads to an address without TLS")
        if answer.is_success:
            return
        reason = visible(self._body(answer, 4_096, cut=True).decode("utf-8", "replace").strip())
        if answer.status_code == 404:
            raise NotFound(f"the registry {self.address} has no such skill", hint=reason)
        if answer.status_code in (401, 403):
            raise BadRequest(
                f"the registry {self.address} does not allow that: {reason or answer.status_code}",
                hint="CLAWHUB_TOKEN or skills.registry.token hold your token",
            )
        if 400 <= answer.status_code < 500 and answer.status_code != 429:
            raise BadRequest(f"the registry {self.address} refuses that: {reason or answer.status_code}")
        raise WebError(f"the registry {self.address} answers {answer.status_code}: {reason}", hint="try again later")

    def _body(self, answer: httpx2.Response, most: int, *, cut: bool = False) -> bytes:
        pieces, size = [], 0
        for piece in answer.iter_bytes():
            size += len(piece)
            if size > most:
                if cut:
                    break
                raise WebError(f"the registry {self.address} sends more than {most:,} bytes")
            pieces.append(piece)
        return b"".join(pieces)

    def _decoded(self, kind: type[R], data: bytes) -> R:
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            why = visible(str(error))
            raise WebError(f"{self.address} does not answer as a registry of skills does: {why}") from None

    def _unknown(self, what: str) -> NotFound:
        return NotFound(f"the registry {self.address} has no skill {what}", hint="`pal skills search` finds some")
