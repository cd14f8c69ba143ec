"""An epoch: the part of a session during which the prompt only grows at its end (promise 20).

The head of the request (system prompt, tool schemas) is stored when an epoch starts and sent unchanged until it ends,
so provider caches hit. A new one starts for the reasons in `reason_for_new`, after a cut or a reset, or with decisions
about old tool results. A decision includes its parameters (how much stays, which text replaces it), so what a model
reads follows from stored rows alone, whatever the config is later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from palinurus.context.settings import PruneSettings
from palinurus.domain.messages import Message, ToolResult
from palinurus.domain.tool import ToolSpec
from palinurus.providers.provider import Head
from palinurus.sessions.transcript import CustomEntry

EPOCH = "palinurus:epoch"
BOOTSTRAPPED = "openclaw:bootstrap-context:full"  # OpenClaw's name for the same marker, so that both read it


class Route(Struct, frozen=True, rename="camel"):
    """Which model answers, over which wire, and its thinking level."""

    provider: str
    model: str
    wire: str
    thinking: str = "off"
    reason: str = ""  # why it was chosen: for people, not part of the epoch's identity


class Epoch(Struct, frozen=True, rename="camel", omit_defaults=True):
    reason: str
    route: Route
    settings: str  # digest of the config of the prompt; another value starts a new epoch
    system: str
    tools: tuple[ToolSpec, ...]
    files: dict[str, str]  # name -> digest of each workspace file as the head shows it
    hooked: tuple[str, ...] = ()  # names of files that hooks have added, replaced or removed

    @property
    def head(self) -> Head:
        return Head(self.system, self.tools)


def read_epoch(entry: CustomEntry) -> Epoch | None:
    """The epoch that this entry starts; None if it is not an epoch or unreadable."""
    if entry.custom_type != EPOCH:
        return None
    try:
        return msgspec.convert(entry.data, Epoch)
    except msgspec.ValidationError:
        return None


def reason_for_new(epoch: Epoch | None, route: Route, settings: str, tools: tuple[ToolSpec, ...]) -> str:
    """Why this request cannot continue the epoch, or "" if it can."""
    if epoch is None:
        return "new"
    before = epoch.route
    compared = (
        ("model", (before.provider, before.model), (route.provider, route.model)),
        ("wire", before.wire, route.wire),
        ("thinking", before.thinking, route.thinking),
        ("config", epoch.settings, settings),
        ("tools", epoch.tools, tools),
    )
    return next((reason for reason, old, new in compared if old != new), "")


PRUNED = "palinurus:pruned"
Decision = Literal["soft", "hard"]  # trimmed to its two ends, or cleared


class PruneDecisions(Struct, frozen=True):
    """Results that are pruned from here on, by entry id."""

    results: dict[str, Decision]
    head: int
    tail: int
    placeholder: str


class PrunedForm(Struct, frozen=True):
    """How one result is shortened."""

    decision: Decision
    head: int
    tail: int
    placeholder: str


def pruning(decided: Mapping[str, Decision], settings: PruneSettings) -> dict[str, Any]:
    """The entry's data."""
    return {"results": dict(decided), "head": settings.head, "tail": settings.tail, "placeholder": settings.placeholder}


def read_pruning(entry: CustomEntry) -> dict[str, PrunedForm]:
    """The decisions of an entry; none if it is another entry or unreadable."""
    if entry.custom_type != PRUNED:
        return {}
    try:
        made = msgspec.convert(entry.data, PruneDecisions)
    except msgspec.ValidationError:
        return {}
    forms = {each: PrunedForm(each, made.head, made.tail, made.placeholder) for each in set(made.results.values())}
    return {entry_id: forms[decision] for entry_id, decision in made.results.items()}


def project(message: Message, form: PrunedForm | None) -> Message:
    """The message as the model reads it."""
    if form is None or not isinstance(message, ToolResult):
        return message
    text = form.placeholder if form.decision == "hard" else _trimmed(message.text, form)
    return msgspec.structs.replace(message, content=text)


def _trimmed(text: str, form: PrunedForm) -> str:
    if len(text) <= form.head + form.tail:
        return text
    note = f"[Tool result trimmed: the first {form.head:,} and the last {form.tail:,} of {len(text):,} characters]"
    return f"{text[: form.head]}\n...\n{text[len(text) - form.tail :]}\n\n{note}"
