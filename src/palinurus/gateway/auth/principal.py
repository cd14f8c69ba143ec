"""The authenticated client: a principal with the scopes that the server has bound to its credential.

The scopes that a client declares only narrow its own. A credential is looked up for every request and frame, so that a
revoked or rotated one is invalid at once.

Some commands in a message do what otherwise needs a scope of its own: `/approve` answers an approval, `/trust` trusts
text from outside, `/elevated` lets commands out of the sandbox. check_commands refuses them to a credential without
that scope.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from palinurus.dispatch.commands import parse
from palinurus.dispatch.directives import parse_directives
from palinurus.domain.errors import MissingScope
from palinurus.gateway.auth.protected_config import check_change
from palinurus.operations.scopes import SCOPES, Caller, Scope, widened

CONFIGURED = "configured"  # the id of the owner's secret
POWERFUL = frozenset({"approve", "trust"})


class Principal(Struct, frozen=True):
    """An authenticated client."""

    id: str  # of the token; "configured" for the one of the config
    name: str
    scopes: frozenset[Scope]
    proof: str = ""  # digest of the secret: it must match when the secret is looked up again
    device_id: str = ""
    owner: str = ""  # of a browser: digest of the owner's secret that sealed its own

    @property
    def rests_on(self) -> tuple[str, ...]:
        """The ids of the credentials that it needs: it is invalid when one of them is."""
        return (self.id, self.device_id, CONFIGURED) if self.owner else (self.id, self.device_id)

    def may(self, scope: Scope) -> bool:
        """admin is everything, write includes read."""
        return self.caller.may(scope)

    @property
    def caller(self) -> Caller:
        """The same for operations."""
        return Caller(self.id, "gateway", self.scopes, check_change)


def known_scopes(names: Iterable[str]) -> tuple[Scope, ...]:
    """Of OpenClaw's names (operator.read) and ours, those that exist."""
    bare = {name.removeprefix("operator.") for name in names}
    return tuple(scope for scope in SCOPES if scope in bare)


def granted_scopes(held: Iterable[Scope], requested: Iterable[str]) -> tuple[Scope, ...]:
    """The requested scopes that the credential has; all that it has when none is requested."""
    held, named = widened(held), tuple(requested)
    wanted = widened(known_scopes(named)) if named else held
    return tuple(scope for scope in held if scope in wanted)


def check_commands(principal: Principal, text: str) -> None:
    """Raises MissingScope for a command that this principal may not use. Called before a message is submitted."""
    if principal.may("approvals"):
        return
    command = parse(text)
    elevated = parse_directives(command.rest if command else text)[0].elevated
    if (command is not None and command.name in POWERFUL) or elevated not in (None, "off"):
        raise MissingScope("this command needs the scope approvals", scope="approvals")
