"""Words with power: some commands in a message do what otherwise needs a scope of its own.

`/approve` decides about what waits, `/trust` about what text from outside may lead to, `/elevated` lets commands out of
the sandbox. A credential that may only talk must not get further by saying them.
"""

from __future__ import annotations

from palinurus.dispatch.commands import parse
from palinurus.dispatch.directives import parse_directives
from palinurus.gateway.door.access import Principal
from palinurus.gateway.door.guard import Refused

POWERFUL = frozenset({"approve", "trust"})


def check_words(principal: Principal, text: str) -> None:
    """Raises Refused for words that this principal may not say. Every door that submits a message asks this first."""
    if principal.may("approvals"):
        return
    command = parse(text)
    elevated = parse_directives(command.rest if command else text)[0].elevated
    if (command is not None and command.name in POWERFUL) or elevated not in (None, "off"):
        details = {"code": "MISSING_SCOPE", "missingScope": "operator.approvals"}
        raise Refused(403, "FORBIDDEN", "these words need the scope approvals", details=details)
