"""The registry's web application: the ClawHub HTTP API over a shelf.

Anybody may read; whoever changes something shows an owner's token in the Authorization header. Refusals are plain text,
because that is what the clawhub command shows to people. No address carries a credential, and nothing is counted or
kept about those who come.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palinurus.domain.clock import Clock
from palinurus.domain.errors import BadRequest, NotFound, PalinurusError
from palinurus.gateway.door.guard import Guesses, Place, Refused
from palinurus.gateway.registry import answers
from palinurus.gateway.registry.finding import rank
from palinurus.gateway.registry.publishing import MAX_BODY, read_form
from palinurus.gateway.registry.shelf import Conflict, NotYours, Shelf, SkillRecord, VersionRecord
from palinurus.gateway.registry.tokens import Tokens
from palinurus.skills.registry.wire import (
    OwnerShown,
    PublishAnswer,
    ResolveAnswer,
    SearchAnswer,
    SkillListAnswer,
    VersionListAnswer,
    VersionNamed,
    Whoami,
)

log = logging.getLogger(__name__)

MAX_LISTED = 200
HEADERS = ((b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"))


class RegistryApp:
    """An ASGI application. `place` is set once the port is known; until then nobody is let in."""

    def __init__(self, shelf: Shelf, tokens: Tokens, clock: Clock, public_url: str = "") -> None:
        self.place = Place(frozenset(), frozenset())
        self._shelf = shelf
        self._tokens = tokens
        self._clock = clock
        self._guesses = Guesses(clock)
        self._url = public_url.rstrip("/")
        self._publishing = asyncio.Lock()
        self._app = self._routed()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008, "reason": "this is no place for sockets"})
            return
        await self._app(scope, _bounded(receive), _with_headers(send))

    def _routed(self) -> ASGIApp:
        one = "/api/v1/skills/{slug}"
        rows: list[tuple[str, str, Callable[[Request], Awaitable[Response]]]] = [
            ("GET", "/.well-known/clawhub.json", self._well_known),
            ("GET", "/.well-known/clawdhub.json", self._well_known),
            ("GET", "/api/v1/search", self._search),
            ("GET", "/api/v1/resolve", self._resolve),
            ("GET", "/api/v1/download", self._download),
            ("GET", "/api/v1/whoami", self._whoami),
            ("GET", "/api/v1/skills", self._list),
            ("POST", "/api/v1/skills", self._publish),
            ("GET", one, self._about),
            ("DELETE", one, self._delete),
            ("POST", f"{one}/undelete", self._undelete),
            ("GET", f"{one}/install", self._install),
            ("GET", f"{one}/versions", self._versions),
            ("GET", f"{one}/versions/{{version}}", self._version),
            ("GET", f"{one}/file", self._file),
            ("GET", f"{one}/verify", self._verify),
            ("GET", f"{one}/card", self._card),
            ("GET", f"{one}/moderation", self._moderation),
            ("POST", "/api/cli/telemetry/install", self._telemetry),
        ]
        handled: dict[Any, Any] = dict.fromkeys((Refused, PalinurusError, HTTPException, Exception), _told)
        return Starlette(
            routes=[Route(path, self._checked(answer), methods=[method]) for method, path, answer in rows],
            exception_handlers=handled,
        )

    def _checked(self, answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def checked(request: Request) -> Response:
            self.place.check(request.headers)
            return await answer(request)

        return checked

    # For anybody.

    async def _well_known(self, request: Request) -> Response:
        return _json({"apiBase": self._base(request), "authBase": self._base(request)})

    async def _search(self, request: Request) -> Response:
        text = request.query_params.get("q", "")[:400]
        ranked = rank(await asyncio.to_thread(self._shelf.all), text)[: _limit(request, 25)]
        return _json(SearchAnswer(tuple(answers.found(score, record) for score, record in ranked)))

    async def _list(self, request: Request) -> Response:
        records = await asyncio.to_thread(self._shelf.all)
        cursor = request.query_params.get("cursor", "0")
        start = int(cursor) if cursor.isascii() and cursor.isdigit() and len(cursor) < 10 else 0
        end = start + _limit(request, 25)
        shown = tuple(map(answers.listed, records[start:end]))
        return _json(SkillListAnswer(shown, str(end) if end < len(records) else None))

    async def _about(self, request: Request) -> Response:
        return _json(answers.skill(self._record(request)))

    async def _install(self, request: Request) -> Response:
        return _json(answers.install(self._free(request), self._base(request)))

    async def _versions(self, request: Request) -> Response:
        newest = tuple(reversed(self._record(request).versions))
        return _json(VersionListAnswer(tuple(map(answers.item, newest[: _limit(request, 25)]))))

    async def _version(self, request: Request) -> Response:
        record = self._record(request)
        return _json(answers.version(record, record.version(request.path_params["version"])))

    async def _verify(self, request: Request) -> Response:
        record, asked = self._record(request), request.query_params
        by = "version" if asked.get("version") else "tag" if asked.get("tag") else "latest"
        made = record.version(asked.get("version", ""), asked.get("tag", ""))
        return _json(answers.verification(record, made, self._base(request), by, asked.get("tag", "")))

    async def _card(self, request: Request) -> Response:
        record = self._record(request)
        return PlainTextResponse(answers.card(record, record.version(request.query_params.get("version", ""))))

    async def _moderation(self, request: Request) -> Response:
        found = answers.moderation(self._record(request))
        evidence = None if found is None else {**msgspec.to_builtins(found), "evidence": []}
        return _json({"moderation": evidence})

    async def _resolve(self, request: Request) -> Response:
        """Which version somebody has, by the fingerprint of its files."""
        record = self._shelf.get(request.query_params.get("slug", ""))
        hash_ = request.query_params.get("hash", "").lower()
        match = next((each for each in reversed(record.versions) if each.fingerprint == hash_), None)
        named = VersionNamed(match.version) if match is not None else None
        return _json(ResolveAnswer(named, VersionNamed(record.latest.version)))

    async def _download(self, request: Request) -> Response:
        record, made = self._wanted(request)
        data = await asyncio.to_thread(self._shelf.archive, record, made)
        name = f"{record.slug}-{made.version}.zip"
        headers = {"Content-Disposition": f'attachment; filename="{name}"', "ETag": f'"{made.archive_sha256}"'}
        return Response(data, headers=headers, media_type="application/zip")

    async def _file(self, request: Request) -> Response:
        record, asked = self._free(request), request.query_params
        made = record.version(asked.get("version", ""), asked.get("tag", ""))
        data = await asyncio.to_thread(self._shelf.file, record, made, asked.get("path", ""))
        return Response(data, media_type="text/plain; charset=utf-8")

    async def _telemetry(self, _: Request) -> Response:
        """The clawhub command tells what it has installed. Nothing is kept of it."""
        return _json({"ok": True})

    # For owners.

    async def _whoami(self, request: Request) -> Response:
        handle = self._owner(request)
        return _json(Whoami(OwnerShown(handle, handle)))

    async def _publish(self, request: Request) -> Response:
        owner = self._owner(request)  # before the body is read
        publication, bundle = await read_form(request)
        async with self._publishing:
            made = await asyncio.to_thread(self._shelf.publish, publication, bundle, owner, self._clock.now_ms())
        log.info("%s published %s@%s", owner, publication.slug, made.version)
        return _json(PublishAnswer(True, publication.slug, f"{publication.slug}@{made.version}"))

    async def _delete(self, request: Request) -> Response:
        return await self._set_deleted(request, deleted=True)

    async def _undelete(self, request: Request) -> Response:
        return await self._set_deleted(request, deleted=False)

    async def _set_deleted(self, request: Request, *, deleted: bool) -> Response:
        owner = self._owner(request)
        await asyncio.to_thread(self._shelf.set_deleted, request.path_params["slug"], owner, deleted)
        return _json({"ok": True})

    def _owner(self, request: Request) -> str:
        """Whose token it is. Raises Refused."""
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

    def _record(self, request: Request) -> SkillRecord:
        return self._shelf.get(request.path_params["slug"])

    def _free(self, request: Request) -> SkillRecord:
        """One that may be installed."""
        return _unblocked(self._record(request))

    def _wanted(self, request: Request) -> tuple[SkillRecord, VersionRecord]:
        asked = request.query_params
        record = _unblocked(self._shelf.get(asked.get("slug", "")))
        if asked.get("ownerHandle", record.owner).removeprefix("@").lower() != record.owner:
            raise NotFound("Skill not found")
        return record, record.version(asked.get("version", ""), asked.get("tag", ""))

    def _base(self, request: Request) -> str:
        return self._url or f"http://{request.headers['host']}"


def _unblocked(record: SkillRecord) -> SkillRecord:
    if record.blocked:
        raise Refused(403, "BLOCKED", f"{record.slug} is blocked here: {record.blocked}")
    return record


def _limit(request: Request, otherwise: int) -> int:
    text = request.query_params.get("limit", "")
    return max(1, min(int(text), MAX_LISTED)) if text.isascii() and text.isdigit() and len(text) < 7 else otherwise


def _json(payload: Any) -> Response:
    return Response(msgspec.json.encode(payload), media_type="application/json")


async def _told(_: Request, error: Exception) -> Response:
    """Any error as a line of text."""
    headers: dict[str, str] = {}
    match error:
        case Refused():
            status, text = error.status, error.message
            if error.retry_after is not None:
                headers["Retry-After"] = str(max(1, round(error.retry_after)))
        case HTTPException():
            status, text = error.status_code, str(error.detail)
        case NotYours():
            status, text = 403, error.message
        case Conflict():
            status, text = 409, error.message
        case NotFound():
            status, text = 404, error.message
        case BadRequest():
            status, text = 400, str(error)
        case _:
            log.error("a request to the registry failed", exc_info=error)
            status, text = 500, "this request failed by a mistake of the registry"
    return PlainTextResponse(text, status, headers)


def _bounded(receive: Receive) -> Receive:
    """The body, up to a size; a client may lie about its length or tell none."""
    room = MAX_BODY

    async def bounded() -> Message:
        nonlocal room
        message = await receive()
        room -= len(message.get("body", b""))
        if room < 0:
            raise HTTPException(413, f"the body is larger than {MAX_BODY // 1024 // 1024} MiB")
        return message

    return bounded


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *HEADERS]}
        await send(message)

    return sent
