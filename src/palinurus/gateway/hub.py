"""Events for connected clients. An event is encoded once, and only if a client listens.

Publisher turns the events of runs into client events: `agent` has every event of a run, including tool calls and
approvals; `chat` has the reply in pieces (`delta`) and once as a whole (`final`). Tool calls have OpenClaw's names: the
stream `tool` with the phases `start` and `result`. Events are not repeated: a client that sees a gap in `seq` requests
the history.

Some events concern no session: approvals and devices that wait. They go to every client with the scope to answer them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from palinurus.dispatch.runs import Run
from palinurus.domain import events
from palinurus.domain.clock import Clock
from palinurus.gateway.protocol import Client as ClientInfo
from palinurus.operations.exec_approvals import DECISIONS, pending_approval
from palinurus.operations.scopes import Scope
from palinurus.tools.approval import Approval

EVERYTHING = "*"
TOOL_EVENTS = (events.ToolStarted, events.ToolFinished)
MOST_SESSIONS = 1_000  # of one listener
BREAK = "\n\n"  # between the text before a tool call and after it
ENDS = {"end": "final", "error": "error", "aborted": "aborted"}


class Listener(Protocol):
    """One connected client. Must neither block nor raise, even when the client cannot keep up."""

    def send_event(self, event: str, payload: msgspec.Raw) -> None: ...


NOBODY: frozenset[Listener] = frozenset()


class Presence(Struct, frozen=True):
    """A connected client as it describes itself, with the scopes that the server gave it."""

    client: ClientInfo
    scopes: tuple[Scope, ...]
    device_id: str
    since: int


class Hub:
    """Which clients listen to which session; `*` is all sessions."""

    def __init__(self) -> None:
        self._listeners: dict[str, set[Listener]] = {}
        self._sessions: dict[Listener, dict[str, None]] = {}  # of each listener, in the order of subscription
        self._present: dict[Listener, Presence] = {}

    @property
    def present(self) -> tuple[Presence, ...]:
        """The clients that are connected, in the order in which they came."""
        return tuple(self._present.values())

    def join(self, listener: Listener, presence: Presence) -> None:
        """From now on it is present, and receives the events for those who have its scopes, until it leaves."""
        self._present[listener] = presence

    def listen(self, listener: Listener, session_key: str = EVERYTHING) -> None:
        """A client with too many sessions stops listening to the first one it named."""
        own = self._sessions.setdefault(listener, {})
        own.pop(session_key, None)
        own[session_key] = None
        self._listeners.setdefault(session_key, set()).add(listener)
        if len(own) > MOST_SESSIONS:
            self.leave(listener, next(key for key in own if key != EVERYTHING))

    def leave(self, listener: Listener, session_key: str | None = None) -> None:
        """Stop listening to one session, or to everything."""
        own = self._sessions.get(listener, {})
        for key in [session_key] if session_key is not None else list(own):
            own.pop(key, None)
            listeners = self._listeners.get(key, set())
            listeners.discard(listener)
            if not listeners:
                self._listeners.pop(key, None)
        if not own:
            self._sessions.pop(listener, None)
        if session_key is None:
            self._present.pop(listener, None)

    def publish(self, event: str, session_key: str, payload: Callable[[], Any]) -> None:
        """Send an event to those who listen to this session. The payload is made only when there is a listener."""
        self._send(event, self._listeners.get(session_key, NOBODY) | self._listeners.get(EVERYTHING, NOBODY), payload)

    def announce(self, event: str, scope: Scope, payload: Callable[[], Any]) -> None:
        """Send an event to those who have this scope."""
        self._send(event, [each for each, who in self._present.items() if scope in who.scopes], payload)

    def _send(self, event: str, listeners: Collection[Listener], payload: Callable[[], Any]) -> None:
        if not listeners:
            return
        encoded = msgspec.Raw(msgspec.json.encode(payload()))
        for listener in listeners:
            listener.send_event(event, encoded)

    @property
    def listeners(self) -> int:
        return len(self._sessions)


class _StreamedText:
    """What a run has said so far, and how much of it was sent as a whole."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.after_tool = False
        self._size = self._shown = 0

    def add(self, text: str) -> str:
        """Returns what is new, with a break after a tool call."""
        new, self.after_tool = f"{BREAK}{text}" if self.after_tool else text, False
        self.parts.append(new)
        self._size += len(new)
        return new

    def is_due(self, *, whole: bool) -> bool:
        """Whether the whole text is to be sent. Then it counts as sent."""
        due = self._size > self._shown if whole else self._size > self._shown * 9 // 8
        if due:
            self._shown = self._size
        return due


class Publisher:
    """Listens to the events of all runs (dispatch.Runs.listen) and publishes them."""

    def __init__(self, hub: Hub, clock: Clock) -> None:
        self._hub = hub
        self._clock = clock
        self._streamed: dict[str, _StreamedText] = {}  # of runs with text so far

    def __call__(self, run: Run, event: events.RunEvent) -> None:
        key = str(run.key)
        self._hub.publish("agent", key, lambda: self._agent(run, event))
        match event:
            case events.AssistantDelta():
                self._delta(run, self._streamed.setdefault(run.id, _StreamedText()).add(event.text))
            case events.ToolStarted() if run.id in self._streamed:
                self._streamed[run.id].after_tool = True
                self._delta(run, "", whole=True)
            case events.Lifecycle(phase="end" | "error" | "aborted"):
                self._streamed.pop(run.id, None)
                self._hub.publish("chat", key, lambda: self._ended(run, event))
                self._hub.publish("sessions.changed", key, lambda: {"sessionKey": key, "reason": "run"})
            case events.ApprovalAsked() | events.ApprovalSettled():
                self._hub.publish("approval", key, lambda: {"sessionKey": key, **msgspec.to_builtins(event)})
                self._announce(run, event)
                if isinstance(event, events.ApprovalAsked):
                    self._delta(run, "", question=_question(event))

    def _delta(self, run: Run, new: str, *, whole: bool = False, question: str = "") -> None:
        """`deltaText` is what is new, `message` the text so far. Only OpenClaw's TUI needs the latter, and sees by it
        that an approval is asked for; it comes each time that the text has grown by an eighth."""
        known = self._streamed.get(run.id) or _StreamedText()
        payload = {**_chat(run, "delta"), "deltaText": new}
        if question or known.is_due(whole=whole):
            text = BREAK.join(each for each in ("".join(known.parts), question) if each)
            payload["message"] = {"role": "assistant", "content": [{"type": "text", "text": text}]}
        if new or "message" in payload:
            self._hub.publish("chat", str(run.key), lambda: payload)

    def _announce(self, run: Run, event: events.ApprovalAsked | events.ApprovalSettled) -> None:
        """Under OpenClaw's names, whichever session it is."""
        now = self._clock.now_ms()
        if isinstance(event, events.ApprovalAsked):
            about = (event.plan.tool, event.plan, event.digest, event.reason, now, event.deadline)
            asked = Approval(event.id, run.id, str(run.key), *about)
            self._hub.announce("exec.approval.requested", "approvals", lambda: pending_approval(asked))
        else:
            decision = DECISIONS.get(event.status)
            told = {"id": event.id, "decision": decision, "status": event.status, "resolvedBy": event.by, "ts": now}
            self._hub.announce("exec.approval.resolved", "approvals", lambda: told)

    def _agent(self, run: Run, event: events.RunEvent) -> dict[str, Any]:
        data = _tool(event) if isinstance(event, TOOL_EVENTS) else msgspec.to_builtins(event)
        stream = data.pop("stream")
        return {"runId": run.id, "sessionKey": str(run.key), "stream": stream, "ts": self._clock.now_ms(), "data": data}

    def _ended(self, run: Run, event: events.Lifecycle) -> dict[str, Any]:
        payload = _chat(run, ENDS[event.phase])
        result = run.result
        if result is None:
            return payload
        if result.text:
            content = [{"type": "text", "text": result.text}]
            payload["message"] = {"role": "assistant", "content": content, "timestamp": self._clock.now_ms()}
        if result.error:
            payload |= {"errorMessage": result.error, "errorKind": result.error_kind}
        return {**payload, "usage": msgspec.to_builtins(result.usage), "joined": result.joined or None}


def _question(asked: events.ApprovalAsked) -> str:
    lines = (f"May I? {events.visible(asked.reason)}", *events.render_plan(asked.plan))
    return "\n".join((*lines, f"Answer: /approve {asked.id} allow-once | allow-always | deny"))


def _tool(event: events.ToolStarted | events.ToolFinished) -> dict[str, Any]:
    about = {"stream": "tool", "name": event.name, "toolCallId": event.id}
    if isinstance(event, events.ToolStarted):
        return {**about, "phase": "start", "args": msgspec.to_builtins(event.arguments)}
    result = {"content": [{"type": "text", "text": event.text}]}
    data = {**about, "phase": "result", "isError": event.is_error, "result": result, "seconds": event.seconds}
    return {**data, "where": event.where} if event.where else data


def _chat(run: Run, state: str) -> dict[str, Any]:
    return {"runId": run.id, "sessionKey": str(run.key), "state": state}
