"""Decisions about old tool results, as they are stored, and how a result is read under one.

A decision carries its own form (how much stays, which words stand in its place), so what a model reads follows from
stored rows alone, whatever the config says later (promise 20).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from palinurus.config.compacting import PruneSettings
from palinurus.domain.messages import Message, ToolResult
from palinurus.sessions.transcript import CustomEntry

PRUNED = "palinurus:pruned"
Decision = Literal["soft", "hard"]  # trimmed to its two ends, or cleared


class Pruning(Struct, frozen=True):
    """Results that are pruned from here on, by the ids of their entries."""

    results: dict[str, Decision]
    head: int
    tail: int
    placeholder: str


class Form(Struct, frozen=True):
    """How one result is read."""

    decision: Decision
    head: int
    tail: int
    placeholder: str


def pruning(decided: Mapping[str, Decision], settings: PruneSettings) -> dict[str, Any]:
    """What the entry holds."""
    return msgspec.to_builtins(  # type: ignore[no-any-return]
        Pruning(dict(decided), settings.head, settings.tail, settings.placeholder)
    )


def read_pruning(entry: CustomEntry) -> dict[str, Form]:
    """The decisions of an entry; none when it is about something else, or cannot be read."""
    if entry.custom_type != PRUNED:
        return {}
    try:
        made = msgspec.convert(entry.data, Pruning)
    except msgspec.ValidationError:
        return {}
    forms = {each: Form(each, made.head, made.tail, made.placeholder) for each in set(made.results.values())}
    return {entry_id: forms[decision] for entry_id, decision in made.results.items()}


def project(message: Message, form: Form | None) -> Message:
    """The message as it is read."""
    if form is None or not isinstance(message, ToolResult):
        return message
    text = form.placeholder if form.decision == "hard" else _trimmed(message.text, form)
    return msgspec.structs.replace(message, content=text)


def _trimmed(text: str, form: Form) -> str:
    if len(text) <= form.head + form.tail:
        return text
    note = f"[Tool result trimmed: the first {form.head:,} and the last {form.tail:,} of {len(text):,} characters]"
    return f"{text[: form.head]}\n...\n{text[len(text) - form.tail :]}\n\n{note}"
