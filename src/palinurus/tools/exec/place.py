"""Where a command runs and who is asked first. Pure: the machine was looked at before.

Inside the sandbox nobody is asked. Outside it the config's security holds. What takes a command out is `elevated`, if
the config, the session and whoever speaks allow it; or a machine without a sandbox, unless one was asked for.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from palinurus.config.handling import ElevatedSettings, ExecSettings
from palinurus.config.hands import Ask, Security
from palinurus.domain.tool import Restriction, ToolRun
from palinurus.sandbox.quarters import Quarters
from palinurus.sandbox.sandbox import Walls
from palinurus.tools.commands.judge import Judgement

EVERYBODY = "*"


class Place(Struct, frozen=True):
    where: Literal["sandbox", "host"]
    refusal: str = ""  # why it does not run at all
    security: Security = "allowlist"  # on the host
    ask: Ask = "on-miss"
    unwalled: str = ""  # why a sandbox that would be preferred does not work


class Leave(Struct, frozen=True):
    """What it takes to run a command on the host. The fields are those of Prepared."""

    refusal: str = ""
    ask: str = ""
    unanswered: bool = False
    granted: tuple[str, ...] = ()


def find_place(
    run: ToolRun, quarters: Quarters, walls: Walls, settings: ExecSettings, elevated: ElevatedSettings, *, leave: bool
) -> Place:
    """`leave`: the call asks to run outside the sandbox."""
    confined = next((each for each in run.restrictions if each.sandboxed), None)
    walled = quarters.sandboxed != "no" or confined is not None
    barred = _barred(run, elevated, confined)
    host = Place("host", security=settings.security, ask=settings.ask)
    if leave and not barred and is_set_free(run):
        host = Place("host", security="full", ask="off")
    if not walled:
        return host
    if leave:
        return Place("host", refusal=f"the command may not leave the sandbox: {barred}") if barred else host
    if walls.works:
        return Place("sandbox")
    if quarters.sandboxed == "required" or confined:
        return Place("sandbox", refusal=f"commands of this session run in a sandbox, and there is none: {walls.why}")
    return Place("host", security=settings.security, ask=settings.ask, unwalled=walls.why)


def is_set_free(run: ToolRun) -> bool:
    """Whether `/elevated full` holds: for the owner, where nobody else's words stand in the conversation."""
    return run.elevated == "full" and run.owner and run.private


def find_leave(place: Place, fallback: Security, judgement: Judgement) -> Leave:
    """`fallback`: what holds when nobody answers."""
    if place.security == "deny":
        return Leave("commands outside the sandbox are switched off (tools.exec.security is deny)")
    covered = judgement.covered and place.security == "allowlist"
    granted = judgement.granted if covered else ()
    unanswered = fallback == "full" or (fallback == "allowlist" and judgement.covered)
    if covered or place.security == "full":
        always = "every command outside the sandbox asks (tools.exec.ask is always)" if place.ask == "always" else ""
        return Leave(ask=always, unanswered=unanswered, granted=granted)
    if place.ask == "off":
        return Leave(f"outside the sandbox only allowed commands run, and nobody may be asked: {judgement.why}")
    return Leave(ask=judgement.why, unanswered=unanswered)


def _barred(run: ToolRun, elevated: ElevatedSettings, confined: Restriction | None) -> str:
    """Why a call may not be elevated; empty when it may."""
    if confined is not None:
        return f"{confined.reason} ({confined.source})"
    if not elevated.enabled:
        return "tools.elevated.enabled is false"
    if run.elevated == "off":
        return "the owner has switched that off in this session (/elevated off)"
    allowed = (elevated.allow_from or {}).get(run.channel, ())
    if not (run.owner or run.sender in allowed or EVERYBODY in allowed):
        return "only the owner may ask for that"
    return ""
