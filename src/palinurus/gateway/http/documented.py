"""The HTTP routes as OpenAPI tells them. Every module of routes says what its routes take and give, once, beside them.

A module has `routes(desk)` and a tuple `DOCUMENTED`; wiring/gateway.py joins them. A route that nobody has documented
is listed all the same, with the first line of its docstring, so that the document never hides a door.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct
from starlette.routing import BaseRoute, Route

from palinurus import __version__
from palinurus.operations.scopes import Scope

JSON = "application/json"
PROBLEM = "application/problem+json"


class Documented(Struct, frozen=True):
    """One route. `body` and `result` are types that msgspec can describe; None is no body, or any result."""

    method: str  # GET, POST
    path: str  # as Starlette writes it: /v1/models/{model:path}
    about: str
    scope: Scope | None  # None: open to everybody
    body: Any = None
    result: Any = None
    gives: tuple[str, ...] = (JSON,)  # media types of a good answer
    statuses: tuple[int, ...] = (200,)
    fails: Any = None  # the shape of its errors, where they are not only problems


class Problem(Struct, frozen=True, omit_defaults=True):
    """What went wrong, as RFC 9457 has it."""

    type: str
    title: str
    status: int
    code: str
    detail: str = ""


def openapi(routes: Iterable[BaseRoute], told: Iterable[Documented]) -> dict[str, Any]:
    rows = [*told]
    known = {(row.method, row.path) for row in rows}
    rows += [row for route in routes if isinstance(route, Route) for row in _undocumented(route, known)]
    kinds = [kind for row in rows for kind in (row.body, row.result, row.fails) if kind is not None]
    shapes, components = msgspec.json.schema_components([*kinds, Problem], ref_template="#/components/schemas/{name}")
    shown = iter(shapes)
    paths: dict[str, dict[str, Any]] = {}
    for row in rows:
        body = next(shown) if row.body is not None else None
        result = next(shown) if row.result is not None else {}
        failed = {JSON: {"schema": next(shown)}} if row.fails is not None else {}
        paths.setdefault(_plain(row.path), {})[row.method.lower()] = _operation(row, body, result, failed)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Palinurus gateway", "version": __version__},
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(row: Documented, body: Any, result: Any, failed: dict[str, Any]) -> dict[str, Any]:
    good = {kind: {"schema": result if kind == JSON else {}} for kind in row.gives}
    told_good = {"description": "as asked", **({"content": good} if good else {})}
    told: dict[str, Any] = {
        "summary": row.about,
        "responses": {str(status): told_good for status in row.statuses}
        | {"default": {"description": "a problem", "content": {PROBLEM: {"schema": _PROBLEM}, **failed}}},
    }
    if row.scope is not None:
        told |= {"security": [{"bearer": []}], "x-scope": row.scope}
    if body is not None:
        told["requestBody"] = {"required": True, "content": {JSON: {"schema": body}}}
    if places := _places(row.path):
        told["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            for name in places
        ]
    return told


_PROBLEM = {"$ref": "#/components/schemas/Problem"}


def _undocumented(route: Route, known: set[tuple[str, str]]) -> Iterable[Documented]:
    about = (route.endpoint.__doc__ or route.name).strip().splitlines()[0]
    for method in sorted((route.methods or set()) - {"HEAD"}):
        if (method, route.path) not in known:
            yield Documented(method, route.path, about, "admin")


def _plain(path: str) -> str:
    """/v1/models/{model:path} as OpenAPI writes it."""
    for name, kind in _pieces(path):
        path = path.replace(f"{{{name}:{kind}}}", f"{{{name}}}")
    return path


def _places(path: str) -> list[str]:
    return [name for name, _ in _pieces(path)]


def _pieces(path: str) -> list[tuple[str, str]]:
    inside = [part.partition("}")[0] for part in path.split("{")[1:]]
    return [(name, kind) for name, _, kind in (piece.partition(":") for piece in inside)]
