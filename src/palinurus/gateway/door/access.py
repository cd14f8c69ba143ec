"""Who has come in: a principal with the scopes that the server has bound to its credential.

What a client says about its own rights only ever narrows them. A credential is looked up for every request and for
every frame's scope, so that one that was revoked or rotated is dead at once.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from palinurus.operations.scopes import SCOPES, Scope, widened

CONFIGURED = "configured"  # the id of the owner's secret


class Principal(Struct, frozen=True):
    """Somebody who has proved who they are."""

    id: str  # of the token; "configured" for the one of the config
    name: str
    scopes: frozenset[Scope]
    proof: str = ""  # digest of the secret: when the secret changes, this one is somebody of the past
    device_id: str = ""
    owner: str = ""  # of a browser: digest of the owner's secret that its own one rests on

    @property
    def rests_on(self) -> tuple[str, ...]:
        """The ids of all that it dies with."""
        return (self.id, self.device_id, CONFIGURED) if self.owner else (self.id, self.device_id)

    def may(self, scope: Scope) -> bool:
        """admin is everything, write includes read."""
        if "admin" in self.scopes or scope in self.scopes:
            return True
        return scope == "read" and "write" in self.scopes


def known_scopes(asked: Iterable[str]) -> tuple[Scope, ...]:
    """OpenClaw's names (operator.read) and ours, those that we do not know left out."""
    bare = {name.removeprefix("operator.") for name in asked}
    return tuple(scope for scope in SCOPES if scope in bare)


def granted_scopes(held: Iterable[Scope], asked: Iterable[str]) -> tuple[Scope, ...]:
    """What a client gets that asks for these: never more than its credential holds; all of that if it names none."""
    held, named = widened(held), tuple(asked)
    wanted = widened(known_scopes(named)) if named else held
    return tuple(scope for scope in held if scope in wanted)
