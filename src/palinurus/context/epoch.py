"""An epoch: the stretch of a session during which the prompt only grows at its end (promise 20).

The head of the request (system prompt, tool schemas) is stored when an epoch starts and sent unchanged until it
ends, so provider caches hit. What makes a new one is listed in `reason_for_new`, and nothing else does.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from palinurus.domain.tool import ToolSpec
from palinurus.providers.provider import Head
from palinurus.sessions.transcript import CustomEntry

EPOCH = "palinurus:epoch"
BOOTSTRAPPED = "openclaw:bootstrap-context:full"  # OpenClaw's name for the same marker, so that both read it


class Route(Struct, frozen=True, rename="camel"):
    """Which model answers, over which wire, and how hard it thinks."""

    provider: str
    model: str
    wire: str
    thinking: str = "off"
    reason: str = ""  # why this one was chosen: for people, no part of the epoch's identity


class Epoch(Struct, frozen=True, rename="camel"):
    reason: str
    route: Route
    settings: str  # of what config decides about the prompt; another value starts a new epoch
    system: str
    tools: tuple[ToolSpec, ...]
    files: dict[str, str]  # name -> digest of each workspace file as the head shows it

    @property
    def head(self) -> Head:
        return Head(self.system, self.tools)


def read_epoch(entry: CustomEntry) -> Epoch | None:
    """The epoch that this entry starts; None when it is no epoch, or one that we cannot read."""
    if entry.custom_type != EPOCH:
        return None
    try:
        return msgspec.convert(entry.data, Epoch)
    except msgspec.ValidationError:
        return None


def reason_for_new(epoch: Epoch | None, route: Route, settings: str, tools: tuple[ToolSpec, ...]) -> str:
    """Why this request cannot continue the epoch, or "" when it can."""
    if epoch is None:
        return "new"
    if epoch.route.provider != route.provider or epoch.route.model != route.model:
        return "model"
    if epoch.route.wire != route.wire:
        return "wire"
    if epoch.route.thinking != route.thinking:
        return "thinking"
    if epoch.settings != settings:
        return "config"
    if epoch.tools != tools:
        return "tools"
    return ""
