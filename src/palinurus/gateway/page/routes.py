"""The routes of the page: one HTML file at every address of it, its parts, and coming in and going out.

The files are open to everybody who may name this host: they hold nothing of the home. What is asked for by the page
goes over the WebSocket, where the browser's cookie counts.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from palinurus.domain.clock import Clock
from palinurus.domain.errors import BadRequest
from palinurus.gateway.door.cookies import DAYS, cookie_of, is_own_page, set_cookie
from palinurus.gateway.door.guard import Refused
from palinurus.gateway.http.app import peer_of, reply
from palinurus.gateway.http.documented import Documented
from palinurus.gateway.page.codes import Codes
from palinurus.gateway.page.files import INDEX, Files
from palinurus.gateway.talk.desk import Desk
from palinurus.gateway.watch.watched import Refusals

log = logging.getLogger(__name__)

# Where the page has something to show. Each is served by the same file, which looks at the address itself.
ADDRESSES = (
    *("/", "/s/{key:path}", "/memory", "/context", "/files", "/approvals", "/usage", "/runs", "/logs", "/config"),
    *("/welcome", "/login"),
)
MAX_BODY = 16 * 1024  # of what a stranger may say
BODY_SECONDS = 10.0
SYSTEMS = (("iPhone", "iPhone"), ("iPad", "iPad"), ("Android", "Android"), ("Windows", "Windows"), ("Mac OS", "Mac"))
BROWSERS = (("Edg/", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Safari/", "Safari"))


class Code(Struct, frozen=True):
    code: str


class CameIn(Struct, frozen=True, rename="camel"):
    key: str  # for the page to keep, and to show together with its cookie
    expires_at: int


class WentOut(Struct, frozen=True):
    ok: bool


class Report(Struct, frozen=True):
    told: dict[str, Any] = msgspec.field(name="csp-report")


def page_routes(desk: Desk, codes: Codes, files: Files) -> list[BaseRoute]:
    async def page(request: Request) -> Response:
        return _file(files, INDEX, request)

    async def part(request: Request) -> Response:
        return _file(files, request.path_params["name"], request)

    door = _Door(desk, codes)
    return [
        *(Route(address, page, methods=["GET"]) for address in ADDRESSES),
        Route("/page/login", door.login, methods=["POST"]),
        Route("/page/logout", door.logout, methods=["POST"]),
        Route("/page/csp-report", Reports(desk.house.clock).hear, methods=["POST"]),
        Route("/page/{name:path}", part, methods=["GET"]),
    ]


def _file(files: Files, name: str, request: Request) -> Response:
    found = files.answer(name, request.headers)
    if found is None:
        raise Refused(404, "NOT_FOUND", "the page has no such file")
    return found


class _Door:
    """Coming in by a code, and going out."""

    def __init__(self, desk: Desk, codes: Codes) -> None:
        self._guard = desk.guard
        self._codes = codes
        self._new_id = desk.new_id
        self._clock = desk.house.clock

    async def login(self, request: Request) -> Response:
        """A code for a cookie."""
        self._check_page(request)
        said = _decoded(await _read(request), Code)
        if self._guard.open_door:
            return reply(CameIn("", 0))
        if not (scopes := self._codes.take(said.code)):
            raise self._guard.guessed(peer_of(request), "this code is not good (any more)")
        before = cookie_of(request, self._guard.place)
        name = browser_name(request)
        secret, key = await self._guard.let_in(self._new_id(), name, scopes, DAYS)
        if before:
            await self._guard.let_out(before)
        until = self._clock.now_ms() + DAYS * 86_400_000
        log.info("a browser came in: %s", name)
        return reply(CameIn(key, until), headers={"set-cookie": set_cookie(request.headers["origin"], secret)})

    async def logout(self, request: Request) -> Response:
        """The browser's session ends, and its cookie goes."""
        self._check_page(request)
        await self._guard.let_out(cookie_of(request, self._guard.place))
        return reply(WentOut(ok=True), headers={"set-cookie": set_cookie(request.headers["origin"], "")})

    def _check_page(self, request: Request) -> None:
        if not is_own_page(request, self._guard.place):
            raise Refused(403, "WRONG_ORIGIN", "only the page of this gateway may ask this")
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Refused(415, "WRONG_TYPE", "the body must be application/json")


class Reports:
    """What browsers had to forbid the page. There should be none: each kind is told once a minute."""

    def __init__(self, clock: Clock) -> None:
        self._told = Refusals(clock)

    async def hear(self, request: Request) -> Response:
        """What the browser did not let the page do."""
        said = _decoded(await _read(request), Report)
        what = " ".join(_plain(said.told.get(name)) for name in ("violated-directive", "blocked-uri", "source-file"))
        if (more := self._told.count("csp")) is not None:
            log.warning("the page tried what it may not: %s (%d more before)", what, more)
        return Response(status_code=204)


def _plain(said: object) -> str:
    """A word of a stranger for the log: short, and nothing that a terminal would obey."""
    return re.sub(r"[^!-~]", "", str(said or "-").partition("?")[0].partition("#")[0])[:120]


async def _read(request: Request) -> bytes:
    """The body, as long as it is small and soon: whoever sends it is not known yet."""
    body = b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in request.stream():
                body += piece
                if len(body) > MAX_BODY:
                    raise Refused(413, "TOO_LARGE", f"the body is larger than {MAX_BODY // 1024} KiB")
    except TimeoutError:
        raise Refused(408, "TIMEOUT", "the body did not come in time") from None
    return body


def _decoded(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body: {error}") from None


def browser_name(request: Request) -> str:
    """What its owner would call it. It says so itself, and nothing rests on it."""
    agent = request.headers.get("user-agent", "")
    browser = next((name for sign, name in BROWSERS if sign in agent), "a browser")
    system = next((name for sign, name in SYSTEMS if sign in agent), "Linux" if "Linux" in agent else "")
    return f"{browser} on {system}" if system else browser


DOCUMENTED: Sequence[Documented] = (
    *(Documented("GET", address, "The page.", None, gives=("text/html",)) for address in ADDRESSES),
    Documented("GET", "/page/{name:path}", "A file of the page.", None, gives=("text/javascript", "text/css")),
    Documented("POST", "/page/login", "A code for a cookie; for the page itself.", None, body=Code, result=CameIn),
    Documented("POST", "/page/logout", "Ends the browser's session; for the page itself.", None, result=WentOut),
    Documented("POST", "/page/csp-report", "What a browser forbade.", None, body=Report, gives=(), statuses=(204,)),
)
