"""What happens in runs, told to connected clients: each event of a run as `agent`, and its words as `chat`.

`chat` carries a reply in pieces (`delta`) and once as a whole (`final`); `agent` carries everything, tool calls and
approvals included. Tool calls go by OpenClaw's names: the stream `tool`, with the phase `start` and then `result`.
Events are not repeated: a client that sees a gap in `seq` asks for the history.
"""

from __future__ import annotations

from typing import Any

import msgspec

from palinurus.dispatch.runs import Run
from palinurus.domain.clock import Clock
from palinurus.domain.events import (
    ApprovalAsked,
    ApprovalSettled,
    AssistantDelta,
    Lifecycle,
    RunEvent,
    ToolFinished,
    ToolStarted,
)
from palinurus.gateway.frames.hub import Hub

BREAK = "\n\n"  # between what was said before a tool was called and after it
ENDS = {"end": "final", "error": "error", "aborted": "aborted"}


class Publisher:
    """Hears the events of all runs (dispatch.Runs.told) and tells the hub."""

    def __init__(self, hub: Hub, clock: Clock) -> None:
        self._hub = hub
        self._clock = clock
        self._spoke: dict[str, bool] = {}  # runs that have said something -> whether a tool was called since

    def __call__(self, run: Run, event: RunEvent) -> None:
        key = str(run.key)
        self._hub.publish("agent", key, lambda: self._agent(run, event))
        match event:
            case AssistantDelta():
                text = f"{BREAK}{event.text}" if self._spoke.get(run.id) else event.text
                self._spoke[run.id] = False
                self._hub.publish("chat", key, lambda: {**_of(run, "delta"), "deltaText": text})
            case ToolStarted() if run.id in self._spoke:
                self._spoke[run.id] = True
            case Lifecycle(phase="end" | "error" | "aborted"):
                self._spoke.pop(run.id, None)
                self._hub.publish("chat", key, lambda: self._ended(run, event))
                self._hub.publish("sessions.changed", key, lambda: {"sessionKey": key, "reason": "run"})
            case ApprovalAsked() | ApprovalSettled():
                self._hub.publish("approval", key, lambda: {"sessionKey": key, **msgspec.to_builtins(event)})
            case _:
                pass

    def _agent(self, run: Run, event: RunEvent) -> dict[str, Any]:
        data = _tool(event) if isinstance(event, ToolStarted | ToolFinished) else msgspec.to_builtins(event)
        stream = data.pop("stream")
        return {
            "runId": run.id,
            "sessionKey": str(run.key),
            "stream": stream,
            "ts": self._clock.now_ms(),
            "data": data,
        }

    def _ended(self, run: Run, event: Lifecycle) -> dict[str, Any]:
        told: dict[str, Any] = _of(run, ENDS[event.phase])
        result = run.result
        if result is None:
            return told
        if result.text:
            content = [{"type": "text", "text": result.text}]
            told["message"] = {"role": "assistant", "content": content, "timestamp": self._clock.now_ms()}
        if result.error:
            told |= {"errorMessage": result.error, "errorKind": result.error_kind}
        return {**told, "usage": msgspec.to_builtins(result.usage), "joined": result.joined or None}


def _tool(event: ToolStarted | ToolFinished) -> dict[str, Any]:
    about = {"stream": "tool", "name": event.name, "toolCallId": event.id}
    if isinstance(event, ToolStarted):
        return {**about, "phase": "start", "args": msgspec.to_builtins(event.arguments)}
    result = {"content": [{"type": "text", "text": event.text}]}
    told = {**about, "phase": "result", "isError": event.is_error, "result": result, "seconds": event.seconds}
    return {**told, "where": event.where} if event.where else told


def _of(run: Run, state: str) -> dict[str, Any]:
    return {"runId": run.id, "sessionKey": str(run.key), "state": state}
