"""Have a summary written: by the model, checked, once more when it is not good, and in the end by rule."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Literal

import msgspec
from msgspec import Struct

from palinurus.context import summary
from palinurus.context.beside import beside
from palinurus.context.budget import estimate_tokens
from palinurus.context.extract import extract
from palinurus.context.summary import Wanted
from palinurus.domain.messages import AssistantMessage, Message, Text, Usage, UserMessage
from palinurus.providers.provider import Head, ModelRequest

WHOLE = 0.7  # of the window: a history that fits into this is summed up in one request
CHUNK = 0.4  # of the window: one stretch of a longer one
MOST_STAGES = 8  # of a longer history the oldest part is noted by rule
_PROMPT = 600  # tokens: the instructions around the text
_LEAST = 400

Ask = Callable[[ModelRequest], Awaitable[AssistantMessage | None]]
"""Asks the session's model once. None: it has not answered, in time or at all. Must not raise."""


class Summarised(Struct, frozen=True):
    text: str
    made_by: Literal["model", "engine", "extractor"]
    attempts: int = 0  # requests to the model
    usage: Usage = Usage()
    model: str = ""  # provider/model that has answered last


class Summariser:
    """Writes one summary."""

    def __init__(self, ask: Ask | None, model: str, window: int) -> None:
        self._ask = ask
        self._model = model
        self._whole = max(int(window * WHOLE) - _PROMPT, _LEAST)
        self._tokens = max(int(window * CHUNK) - _PROMPT, _LEAST)
        self._attempts = 0
        self._usage = Usage()
        self._by = ""

    async def write(self, asked: Wanted) -> Summarised:
        text = await self._by_model(asked) if self._ask is not None else ""
        made_by: Literal["model", "extractor"] = "model" if text else "extractor"
        text = text or await beside(asked.lines, lambda: summary.by_rule(asked))
        return Summarised(text, made_by, self._attempts, self._usage, self._by)

    async def _by_model(self, asked: Wanted) -> str:
        """A summary that has passed the check, or nothing."""
        text = await self._in_one_piece(asked)
        messages: list[Message] = [UserMessage(summary.question(asked, text))]
        answer = await self._answer(messages)
        if not answer:
            return ""
        if wrong := summary.faults(answer, asked):
            messages += [AssistantMessage((Text(answer),)), UserMessage(summary.again(wrong))]
            answer = await self._answer(messages) or answer
        answer = summary.completed(answer, asked)
        return "" if summary.faults(answer, asked) else answer

    async def _in_one_piece(self, asked: Wanted) -> str:
        """The text to sum up. A history that is too long for one request is summed up stretch by stretch first."""
        if text := await beside(asked.lines, lambda: self._fitting(asked)):
            return text
        stages = await beside(asked.lines, lambda: summary.in_stages(asked.lines, self._tokens))
        share = self._tokens // min(len(stages), MOST_STAGES + 1)
        early = [line for stage in stages[:-MOST_STAGES] for line in stage]
        stages = stages[-MOST_STAGES:]
        notes = [await beside(early, lambda: extract(early))] if early else []
        for stage in stages:
            part = msgspec.structs.replace(asked, lines=tuple(stage), previous="", exact=(), tokens=share)
            answer = await self._answer([UserMessage(summary.question(part, summary.rendered(stage)))])
            notes.append(answer or await beside(stage, partial(extract, stage)))
        most = share * 3  # characters
        return "\n\n".join(note if len(note) <= most else f"{note[:most]} […]" for note in notes)

    def _fitting(self, asked: Wanted) -> str:
        """All of it, or nothing when that is too much for one request."""
        text = summary.rendered(asked.lines)
        return text if estimate_tokens(text) + estimate_tokens(asked.previous) <= self._whole else ""

    async def _answer(self, messages: list[Message]) -> str:
        assert self._ask is not None  # noqa: S101  # nobody is asked without one
        self._attempts += 1
        reply = await self._ask(ModelRequest(self._model, Head(summary.SYSTEM), tuple(messages)))
        if reply is None:
            return ""
        self._usage += reply.usage
        self._by = f"{reply.provider}/{reply.model}"
        good = reply.stop_reason in ("stop", "length") and not reply.calls
        return reply.text.strip() if good else ""
