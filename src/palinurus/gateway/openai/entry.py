"""Who may use these endpoints."""

from __future__ import annotations

from starlette.requests import Request

from palinurus.gateway.door.access import Principal, known_scopes
from palinurus.gateway.door.guard import Refused
from palinurus.gateway.http.app import who
from palinurus.gateway.openai.place import header
from palinurus.gateway.talk.desk import Desk
from palinurus.operations.scopes import Scope


def let_in(desk: Desk, request: Request, scope: Scope) -> Principal:
    """Whose request it is. Scopes that a client declares take away from its own, and never add. Raises Refused."""
    principal = who(desk, request, scope)
    if declared := header(request.headers, "scopes"):
        names = [name.strip() for name in declared.replace(",", " ").split()]
        narrowed = Principal(principal.id, principal.name, frozenset(known_scopes(names)))
        if not narrowed.may(scope):
            raise Refused(403, "FORBIDDEN", f"this needs the scope {scope}, which the request gave up")
    return principal
