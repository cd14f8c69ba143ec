"""The registry's web application: the ClawHub HTTP API over a store.

Reading is open; a change needs an owner's token in the Authorization header. Refusals are plain text, because the
clawhub command shows them to people. No address carries a credential, and nothing is stored about clients.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from palinurus.domain.clock import Clock
from palinurus.domain.errors import BadRequest, ConfigError, NotFound, PalinurusError
from palinurus.extensions.skill_registry.bundle import MAX_BYTES, Bundle, make_bundle
from palinurus.extensions.skill_registry.client import is_near
from palinurus.extensions.skill_registry.protocol import Publication
from palinurus.extensions.skill_registry.server import answers, store
from palinurus.gateway.auth.guard import Guesses, ServerAddress, server_address
from palinurus.gateway.http.server import HttpServer
from palinurus.gateway.protocol import Refused
from palinurus.skills.pins import MAX_FILES

log = logging.getLogger(__name__)

MAX_BODY = MAX_BYTES + 2 * 1024 * 1024
MAX_PAYLOAD = 64 * 1024
BODY_SECONDS = 120.0
MAX_LISTED = 200
HEADERS = ((b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"))
Answer = Callable[[Request], Awaitable[Any]]
"""Gives a Response, or what is told as JSON. Raises what `_refuse` knows."""


class RegistryServer:
    """A registry that listens. `url` is what people call it, when a proxy with TLS stands before it.

    Raises ConfigError or StorageError.
    """

    def __init__(self, folder: Path, host: str, port: int, clock: Clock, url: str = "") -> None:
        self.store, self.tokens = store.RegistryStore(folder), store.OwnerTokens(folder)
        self.store.open()
        self._app = RegistryApp(self.store, self.tokens, clock, url)
        try:
            self._listening = HttpServer(self._app, [host], port)
        except ConfigError as error:
            why = error.message.replace("the gateway", "the registry", 1)
            raise ConfigError(why, hint="--port names another port") from None
        shown = f"[{host}]" if ":" in host else host
        self.url = url.rstrip("/") or f"http://{shown}:{self._listening.port}"
        names = [name for name in (urlsplit(url).netloc, shown) if name]
        self._app.place = server_address(self._listening.port, names, any_address=not is_near(host))

    async def start(self) -> None:
        await self._listening.start()

    async def close(self) -> None:
        await self._listening.close()


class RegistryApp:
    """An ASGI application. `place` is set once the port is known; until then nobody is let in."""

    def __init__(self, skills: store.RegistryStore, tokens: store.OwnerTokens, clock: Clock, url: str = "") -> None:
        self.place = ServerAddress(frozenset(), frozenset())
        self._store = skills
        self._tokens = tokens
        self._clock = clock
        self._guesses = Guesses(clock)
        self._url = url.rstrip("/")
        self._publishing = asyncio.Lock()
        one = "/api/v1/skills/{slug}"
        rows: tuple[tuple[str, str, Answer], ...] = (
            ("GET", "/.well-known/clawhub.json", self._well_known),
            ("GET", "/.well-known/clawdhub.json", self._well_known),
            ("GET", "/api/v1/search", self._search),
            ("GET", "/api/v1/trending", self._trending),
            ("GET", "/api/v1/resolve", self._resolve),
            ("GET", "/api/v1/download", self._download),
            ("GET", "/api/v1/whoami", self._whoami),
            ("GET", "/api/v1/skills", self._list),
            ("POST", "/api/v1/skills", self._publish),
            ("POST", "/api/v1/skills/-/security-verdicts", self._verdicts),
            ("GET", one, self._about),
            ("DELETE", one, partial(self._set_deleted, deleted=True)),
            ("POST", f"{one}/undelete", partial(self._set_deleted, deleted=False)),
            ("GET", f"{one}/install", self._install),
            ("GET", f"{one}/versions", self._versions),
            ("GET", f"{one}/versions/{{version}}", self._version),
            ("GET", f"{one}/file", self._file),
            ("GET", f"{one}/verify", self._verify),
            ("GET", f"{one}/card", self._card),
            ("GET", f"{one}/moderation", self._moderation),
            ("POST", "/api/cli/telemetry/install", self._telemetry),
        )
        handled: dict[Any, Any] = dict.fromkeys((Refused, PalinurusError, HTTPException, Exception), _refuse)
        routes = [Route(path, self._checked(answer), methods=[method]) for method, path, answer in rows]
        self._app = Starlette(routes=routes, exception_handlers=handled)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008, "reason": "WebSocket is not supported"})
            return
        await self._app(scope, _bounded(receive), _with_headers(send))

    def _checked(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        async def checked(request: Request) -> Response:
            self.place.check(request.headers)
            found = await answer(request)
            if isinstance(found, Response):
                return found
            return Response(msgspec.json.encode(found), media_type="application/json")

        return checked

    # For anybody.

    async def _well_known(self, request: Request) -> Any:
        return {"apiBase": self._base(request), "authBase": self._base(request)}

    async def _search(self, request: Request) -> Any:
        text = request.query_params.get("q", "")[:400]
        return {"results": answers.find(await asyncio.to_thread(self._store.all), text, _limit(request))}

    async def _trending(self, request: Request) -> Any:
        return {"items": answers.newest(await asyncio.to_thread(self._store.all), _limit(request))}

    async def _verdicts(self, request: Request) -> Any:
        try:
            async with asyncio.timeout(BODY_SECONDS):
                asked = msgspec.json.decode(await _small_body(request), type=answers.VerdictRequests)
        except TimeoutError:
            raise HTTPException(408, "the body did not come in time") from None
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadRequest(f"the request is invalid: {error}") from None
        base = self._base(request)
        made = lambda: [answers.verdict(each, self._found(each.slug), base) for each in asked.items]  # noqa: E731
        return {"items": await asyncio.to_thread(made)}

    def _found(self, slug: str) -> store.SkillRecord | None:
        try:
            return self._store.get(slug)
        except NotFound:
            return None

    async def _list(self, request: Request) -> Any:
        records = await asyncio.to_thread(self._store.all)
        cursor = request.query_params.get("cursor", "0")
        start = int(cursor) if cursor.isascii() and cursor.isdigit() and len(cursor) < 10 else 0
        end = start + _limit(request)
        shown = [{**answers.skill(each), "latestVersion": answers.latest(each)} for each in records[start:end]]
        return {"items": shown, "nextCursor": str(end) if end < len(records) else None}

    async def _about(self, request: Request) -> Any:
        record = self._record(request)
        return {
            "skill": answers.skill(record),
            "latestVersion": answers.latest(record),
            "owner": answers.owner(record.owner),
            "moderation": answers.moderation(record),
        }

    async def _install(self, request: Request) -> Any:
        record = self._record(request)
        if record.blocked:  # the clients read this refusal as JSON
            refusal = {"ok": False, "slug": record.slug, "reason": "blocked", "message": _why_blocked(record)}
            return Response(msgspec.json.encode(refusal), 403, media_type="application/json")
        version = record.latest.version
        url = f"{self._base(request)}/api/v1/download?slug={record.slug}&version={version}"
        archive = {"version": version, "downloadUrl": url}
        return {"ok": True, "slug": record.slug, "installKind": "archive", "archive": archive}

    async def _versions(self, request: Request) -> Any:
        newest = self._record(request).versions[::-1]
        return {"items": list(map(answers.version, newest[: _limit(request)])), "nextCursor": None}

    async def _version(self, request: Request) -> Any:
        record = self._record(request)
        made = record.version(request.path_params["version"])
        detail = {**answers.version(made), "license": None, "files": made.files}
        return {"version": detail, "skill": {"slug": record.slug, "displayName": record.display_name}}

    async def _verify(self, request: Request) -> Any:
        record, query = self._record(request), request.query_params
        by = "version" if query.get("version") else "tag" if query.get("tag") else "latest"
        made = _chosen_version(record, request)
        return answers.verification(record, made, self._base(request), by, query.get("tag", ""))

    async def _card(self, request: Request) -> Any:
        record = self._record(request)
        return PlainTextResponse(answers.card(record, record.version(request.query_params.get("version", ""))))

    async def _moderation(self, request: Request) -> Any:
        return {"moderation": answers.moderation(self._record(request), evidence=[])}

    async def _resolve(self, request: Request) -> Any:
        """Which version somebody has, by the fingerprint of its files."""
        record = self._store.get(request.query_params.get("slug", ""))
        hash_ = request.query_params.get("hash", "").lower()
        match = next((each.version for each in reversed(record.versions) if each.fingerprint == hash_), None)
        named = None if match is None else {"version": match}
        return {"match": named, "latestVersion": {"version": record.latest.version}}

    async def _download(self, request: Request) -> Any:
        query = request.query_params
        record = _unblocked(self._store.get(query.get("slug", "")))
        if query.get("ownerHandle", record.owner).removeprefix("@").lower() != record.owner:
            raise NotFound("Skill not found")
        made = _chosen_version(record, request)
        data = await asyncio.to_thread(self._store.archive, record, made)
        name = f"{record.slug}-{made.version}.zip"
        headers = {"Content-Disposition": f'attachment; filename="{name}"', "ETag": f'"{made.archive_sha256}"'}
        return Response(data, headers=headers, media_type="application/zip")

    async def _file(self, request: Request) -> Any:
        record = _unblocked(self._record(request))
        made, path = _chosen_version(record, request), request.query_params.get("path", "")
        data = await asyncio.to_thread(self._store.file, record, made, path)
        return Response(data, media_type="text/plain; charset=utf-8")

    async def _telemetry(self, _: Request) -> Any:
        """The clawhub command reports what it has installed. Nothing is stored."""
        return {"ok": True}

    # For owners.

    async def _whoami(self, request: Request) -> Any:
        return {"user": answers.owner(self._owner(request))}

    async def _publish(self, request: Request) -> Any:
        owner = self._owner(request)  # before the body is read
        publication, bundle = await read_form(request)
        async with self._publishing:
            made = await asyncio.to_thread(self._store.publish, publication, bundle, owner, self._clock.now_ms())
        log.info("%s published %s@%s", owner, publication.slug, made.version)
        return {"ok": True, "skillId": publication.slug, "versionId": f"{publication.slug}@{made.version}"}

    async def _set_deleted(self, request: Request, *, deleted: bool) -> Any:
        owner = self._owner(request)
        await asyncio.to_thread(self._store.set_deleted, request.path_params["slug"], owner, deleted)
        return {"ok": True}

    def _owner(self, request: Request) -> str:
        """Returns the owner of the token. Raises Refused."""
        kind, _, secret = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not secret.strip():
            raise Refused(401, "UNAUTHORIZED", "Unauthorized: an owner's token is needed")
        owner = self._tokens.owner_of(secret.strip())
        if owner:
            return owner
        peer = request.client.host if request.client else ""
        if wait := self._guesses.count(peer):
            raise Refused(429, "RATE_LIMITED", "Too many wrong tokens", wait)
        raise Refused(401, "UNAUTHORIZED", "Unauthorized: this token is not known here")

    def _record(self, request: Request) -> store.SkillRecord:
        return self._store.get(request.path_params["slug"])

    def _base(self, request: Request) -> str:
        return self._url or f"http://{request.headers['host']}"


async def read_form(request: Request) -> tuple[Publication, Bundle]:
    """What the clawhub command sends to publish: a part `payload` of JSON, and a part `files` for each file.

    Raises BadRequest, or HTTPException for what is no such form.
    """
    try:
        async with asyncio.timeout(BODY_SECONDS):
            form = await request.form(max_files=MAX_FILES, max_fields=20, max_part_size=MAX_PAYLOAD)
    except TimeoutError:
        raise HTTPException(408, "the body did not come in time") from None
    try:
        payload = form.get("payload")
        if not isinstance(payload, str):
            raise BadRequest("the form has no payload")
        files: list[tuple[str, bytes]] = []
        for part in form.getlist("files"):
            if isinstance(part, str) or not part.filename:
                raise BadRequest("a file in the form has no name")
            files.append((part.filename, await part.read()))
    finally:
        await form.close()
    try:
        publication = msgspec.json.decode(payload, type=Publication)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(f"the payload is invalid: {error}") from None
    return publication, await asyncio.to_thread(make_bundle, files, publication.slug)


async def _small_body(request: Request) -> bytes:
    """Raises HTTPException."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_PAYLOAD:
            raise HTTPException(413, f"the body is larger than {MAX_PAYLOAD // 1024} KiB")
    return bytes(body)


def _chosen_version(record: store.SkillRecord, request: Request) -> store.VersionRecord:
    return record.version(request.query_params.get("version", ""), request.query_params.get("tag", ""))


def _unblocked(record: store.SkillRecord) -> store.SkillRecord:
    """One that may be installed."""
    if record.blocked:
        raise Refused(403, "BLOCKED", _why_blocked(record))
    return record


def _why_blocked(record: store.SkillRecord) -> str:
    return f"{record.slug} is blocked here: {record.blocked}"


def _limit(request: Request) -> int:
    text = request.query_params.get("limit", "")
    return max(1, min(int(text), MAX_LISTED)) if text.isascii() and text.isdigit() and len(text) < 7 else 25


async def _refuse(_: Request, error: Exception) -> Response:
    """Any error as a line of text."""
    headers: dict[str, str] = {}
    match error:
        case Refused():
            status, text = error.status, error.message
            if error.retry_after is not None:
                headers["Retry-After"] = str(max(1, round(error.retry_after)))
        case HTTPException():
            status, text = error.status_code, str(error.detail)
        case store.NotYours():
            status, text = 403, error.message
        case store.Conflict():
            status, text = 409, error.message
        case NotFound():
            status, text = 404, error.message
        case BadRequest():
            status, text = 400, str(error)
        case _:
            log.error("a request to the registry failed", exc_info=error)
            status, text = 500, "this request failed because of an error in the registry"
    return PlainTextResponse(text, status, headers)


def _bounded(receive: Receive) -> Receive:
    """The body, up to a size; a client may lie about its length or tell none."""
    left = MAX_BODY

    async def bounded() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise HTTPException(413, f"the body is larger than {MAX_BODY // 1024 // 1024} MiB")
        return message

    return bounded


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *HEADERS]}
        await send(message)

    return sent
