"""A tool as everyone sees it: a name, a schema for the model, and something that runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Image, Origin, Text

MALFORMED = "_malformed"
"""The only key of a call's arguments when the wire carried something that is no JSON; its value is what it carried."""


class ToolSpec(Struct, frozen=True):
    """What a model is told about a tool."""

    name: str
    description: str
    parameters: dict[str, Any]  # JSON Schema


class ToolRun(Struct, frozen=True):
    """On whose behalf a tool runs."""

    key: SessionKey
    run_id: str
    private: bool  # whether private memory may be touched: promise 17


class ToolOutput(Struct, frozen=True):
    """What a tool hands back to the model. An error is a result that says what to fix."""

    content: str | tuple[Text | Image, ...]
    is_error: bool = False
    origin: Origin = Origin.OWNER
    details: dict[str, Any] | None = None


class Tool(Struct, frozen=True):
    """A tool that can be run.

    `run` gets the arguments as the model sent them. It returns a ToolOutput for everything the model can mend,
    and raises a PalinurusError for what it cannot; it must stop promptly when cancelled.
    """

    spec: ToolSpec
    run: Callable[[ToolRun, Mapping[str, Any]], Awaitable[ToolOutput]]
