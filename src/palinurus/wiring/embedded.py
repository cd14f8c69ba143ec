"""The models inside this program: Scout, and the small one that he leaves small talk to where it is installed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from importlib import import_module
from typing import Protocol

from palinurus.domain.clock import Clock
from palinurus.domain.errors import ConfigError
from palinurus.providers.provider import ModelRef, ModelRequest, Provider, ReplyEvent
from palinurus.providers.scout.scout import SCOUT, Scout, Talk
from palinurus.providers.scout.smalltalk import TALKER
from palinurus.providers.smollm.packages import weights_file

SMALL_MODEL = ("palinurus.providers.smollm.smollm", "SmolLM")
"""A table of parts with one row. Imported at the first small talk, so that it costs nobody else anything."""


class SmallModel(Provider, Protocol):
    def stream(self, request: ModelRequest) -> AsyncGenerator[ReplyEvent]: ...


class Embedded:
    """Both models of one config, made when first asked for."""

    def __init__(self, clock: Clock, *, small_talk: bool) -> None:
        self._clock = clock
        self._small_talk = small_talk
        self._scout = Scout(clock, self._find_talker)
        self._small: SmallModel | None = None

    def open(self, ref: ModelRef) -> Provider:
        """Raises ConfigError for a model that is not in this program."""
        if ref == SCOUT:
            return self._scout
        if ref == TALKER:
            return self._small_model()
        raise ConfigError(f"there is no model {ref} in this program", hint=f"there are {SCOUT} and {TALKER}")

    async def close(self) -> None:
        if self._small is not None:
            await self._small.close()

    def _find_talker(self) -> Talk | None:
        """Implements scout.FindTalker. Looked for each time: it may be installed while we run."""
        return self._small_model().stream if self._small_talk and weights_file() is not None else None

    def _small_model(self) -> SmallModel:
        if self._small is None:
            module, part = SMALL_MODEL
            make: Callable[[Clock], SmallModel] = getattr(import_module(module), part)
            self._small = make(self._clock)
        return self._small
