"""The routes of the dashboard: one HTML file for all its views, its scripts and styles, login and logout.

The files need no credential and hold nothing of the home. The data comes over the WebSocket, where the browser's cookie
counts.

Files are read and compressed once and cached in memory. A browser checks each time whether they have changed, so a new
release is seen at once. A file that changes on the disk is read again.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
import re
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from palinurus.gateway.auth.guard import DAYS, cookie_of, is_own_page, set_cookie
from palinurus.gateway.http.app import RouteDoc, RouteProvider, peer_of, read_json, reply
from palinurus.gateway.http.metrics import RefusalCounts
from palinurus.gateway.protocol import Refused
from palinurus.gateway.websocket.methods import GatewayContext

log = logging.getLogger(__name__)

# The views of the dashboard. All are served by one file, which looks at the address itself.
ADDRESSES = (
    *("/", "/s/{key:path}", "/memory", "/context", "/files", "/approvals", "/usage", "/runs", "/logs", "/config"),
    *("/agents", "/subagents", "/schedule", "/channels", "/plugins", "/welcome", "/login"),
)

# Small and soon: the sender is not authenticated yet.
_read = partial(read_json, most=16 * 1024, seconds=10.0, any_type=True)
SYSTEMS = (("iPhone", "iPhone"), ("iPad", "iPad"), ("Android", "Android"), ("Windows", "Windows"), ("Mac OS", "Mac"))
BROWSERS = (("Edg/", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Safari/", "Safari"))
STATIC = Path(__file__).parent / "static"
INDEX = "index.html"
NAME = re.compile(r"(?:[a-z0-9_-]+/){0,3}[a-z0-9_-]+\.([a-z0-9]+)")  # one dot only: nothing leads out of the folder
TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "webmanifest": "application/manifest+json",
}
PACKED = ("png",)  # compressed already
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'none'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'; report-uri /page/csp-report"
)
PART = {"cache-control": "no-cache", "vary": "accept-encoding"}  # cached, and checked each time
# A policy applies to documents only. On forty scripts and styles it would be a seventh of the first load.
HEADERS = {"content-security-policy": POLICY, "cross-origin-opener-policy": "same-origin", **PART}
FRAME = "frame.html"  # of a plugin's page: scripts of the plugin, in an origin of its own, which reaches nothing
FRAME_HEADERS = {
    "content-security-policy": "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    "x-frame-options": "SAMEORIGIN",
    "x-dns-prefetch-control": "off",
    **PART,
}
NOT_DOCUMENTS = ("text/javascript", "text/css")


class LoginCode(Struct, frozen=True):
    code: str


class LoginResult(Struct, frozen=True, rename="camel"):
    key: str  # the dashboard stores it and sends it together with its cookie
    expires_at: int


class LogoutResult(Struct, frozen=True):
    ok: bool


class CspReport(Struct, frozen=True):
    report: dict[str, Any] = msgspec.field(name="csp-report")


def routes(gateway: GatewayContext) -> list[BaseRoute]:
    files = StaticFiles()

    async def page(request: Request) -> Response:
        return _file(files, INDEX, request)

    async def part(request: Request) -> Response:
        return _file(files, request.path_params["name"], request)

    reports = RefusalCounts(gateway.services.clock)

    async def report(request: Request) -> Response:
        """What the browser blocked by the content security policy. There should be nothing; logged once a minute."""
        sent: CspReport = await _read(request, CspReport)
        what = " ".join(_plain(sent.report.get(name)) for name in ("violated-directive", "blocked-uri", "source-file"))
        if (more := reports.count("csp")) is not None:
            log.warning("a browser blocked something on the dashboard: %s (%d more before)", what, more)
        return Response(status_code=204)

    login = _Login(gateway)
    return [
        *(Route(address, page) for address in ADDRESSES),
        Route("/page/login", login.login, methods=["POST"]),
        Route("/page/logout", login.logout, methods=["POST"]),
        Route("/page/csp-report", report, methods=["POST"]),
        Route("/page/{name:path}", part),
    ]


def _file(files: StaticFiles, name: str, request: Request) -> Response:
    found = files.answer(name, request.headers)
    if found is None:
        raise Refused(404, "NOT_FOUND", "the dashboard has no such file")
    return found


class _Login:
    """Login by a code, and logout."""

    def __init__(self, gateway: GatewayContext) -> None:
        self._guard = gateway.guard
        self._new_id = gateway.new_id
        self._clock = gateway.services.clock

    async def login(self, request: Request) -> Response:
        """A code for a cookie."""
        self._check_page(request)
        sent: LoginCode = await _read(request, LoginCode)
        if self._guard.no_auth:
            return reply(LoginResult("", 0))
        if not (scopes := self._guard.codes.take(sent.code)):
            raise self._guard.count_guess(peer_of(request), "this code is not valid (any more)")
        before = cookie_of(request, self._guard.address)
        name = browser_name(request)
        secret, key = await self._guard.add_browser(self._new_id(), name, scopes, DAYS)
        if before:
            await self._guard.remove_browser(before)
        until = self._clock.now_ms() + DAYS * 86_400_000
        log.info("a browser logged in: %s", name)
        return reply(LoginResult(key, until), headers={"set-cookie": set_cookie(request.headers["origin"], secret)})

    async def logout(self, request: Request) -> Response:
        """End the session of a browser and remove its cookie."""
        self._check_page(request)
        await self._guard.remove_browser(cookie_of(request, self._guard.address))
        return reply(LogoutResult(ok=True), headers={"set-cookie": set_cookie(request.headers["origin"], "")})

    def _check_page(self, request: Request) -> None:
        if not is_own_page(request, self._guard.address):
            raise Refused(403, "WRONG_ORIGIN", "only the dashboard of this gateway may request this")
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Refused(415, "WRONG_TYPE", "the body must be application/json")


def _plain(text: object) -> str:
    """Text from outside for the log: short, and without control characters."""
    return re.sub(r"[^!-~]", "", str(text or "-").partition("?")[0].partition("#")[0])[:120]


def browser_name(request: Request) -> str:
    """A name for people, from the User-Agent. Nothing depends on it."""
    agent = request.headers.get("user-agent", "")
    browser = next((name for sign, name in BROWSERS if sign in agent), "a browser")
    system = next((name for sign, name in SYSTEMS if sign in agent), "Linux" if "Linux" in agent else "")
    return f"{browser} on {system}" if system else browser


class StaticFile(Struct, frozen=True):
    seen: tuple[int, int, int]  # of the file on the disk: inode, size, time of change
    kind: str
    body: bytes
    packed: bytes  # empty where packing gains nothing
    tag: str


class StaticFiles:
    def __init__(self, root: Path = STATIC) -> None:
        self._root = root
        self._known: dict[str, StaticFile] = {}

    def answer(self, name: str, headers: Headers) -> Response | None:
        """The file, or 304 when the browser has it already; None when there is no such file."""
        found = self._find(name)
        if found is None:
            return None
        packs = bool(found.packed) and _takes_gzip(headers.get("accept-encoding", ""))
        tag = f'"{found.tag}{"-gz" if packs else ""}"'
        document = FRAME_HEADERS if name == FRAME else HEADERS
        reply_headers = {**(PART if found.kind.startswith(NOT_DOCUMENTS) else document), "etag": tag}
        if tag in (each.strip().removeprefix("W/") for each in headers.get("if-none-match", "").split(",")):
            return Response(status_code=304, headers=reply_headers)
        if packs:
            reply_headers["content-encoding"] = "gzip"
        return Response(found.packed if packs else found.body, headers=reply_headers, media_type=found.kind)

    def _find(self, name: str) -> StaticFile | None:
        named = NAME.fullmatch(name)
        if named is None or named[1] not in TYPES:
            return None
        path = self._root / name
        try:
            stat = path.stat()
            seen = stat.st_ino, stat.st_size, stat.st_mtime_ns
            known = self._known.get(name)
            if known is None or known.seen != seen:
                known = self._known[name] = _read_file(path, seen, named[1])
        except OSError:
            return None
        return known


def _read_file(path: Path, seen: tuple[int, int, int], suffix: str) -> StaticFile:
    body = path.read_bytes()
    packed = b"" if suffix in PACKED else gzip.compress(body, 9, mtime=0)
    if len(packed) >= len(body):
        packed = b""
    return StaticFile(seen, TYPES[suffix], body, packed, hashlib.sha256(body).hexdigest()[:20])


def _takes_gzip(accepted: str) -> bool:
    for each in accepted.lower().split(","):
        name, _, rest = each.partition(";")
        if name.strip() in ("gzip", "*"):
            return rest.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


ROUTES = RouteProvider(
    routes,
    (
        *(RouteDoc("GET", address, "The dashboard.", None, gives=("text/html",)) for address in ADDRESSES),
        RouteDoc("GET", "/page/{name:path}", "A file of the dashboard.", None, gives=("text/javascript", "text/css")),
        RouteDoc(
            "POST", "/page/login", "Log in by a code; for the dashboard.", None, body=LoginCode, result=LoginResult
        ),
        RouteDoc("POST", "/page/logout", "End the browser's session; for the dashboard.", None, result=LogoutResult),
        RouteDoc(
            "POST", "/page/csp-report", "What a browser blocked.", None, body=CspReport, gives=(), statuses=(204,)
        ),
    ),
)
