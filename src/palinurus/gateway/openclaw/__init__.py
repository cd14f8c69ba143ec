"""Methods in OpenClaw's shape, over our operations; `METHODS` joins them.

Field names are OpenClaw's where it has the field. Where only names differ, a method is an alias, below. A method that
needs the client itself (its events, its scopes) is a function in one of the modules. The rest are operations under
OpenClaw's names, such as exec.approval.*. What is not supported is refused with one sentence.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from palinurus.gateway.openclaw import agents, approvals, chat, devices, sessions, status
from palinurus.gateway.websocket.methods import ClientSession, Method, alias, method_of
from palinurus.operations.approvals import answer_approval
from palinurus.operations.runs import StoppedRuns, stop_runs
from palinurus.operations.session_changes import patch_session, reset_session


class AbortedRuns(Struct, frozen=True):
    ok: bool
    aborted: bool
    count: int


async def _aborted(_: ClientSession, stopped: StoppedRuns) -> AbortedRuns:
    return AbortedRuns(ok=True, aborted=stopped.count > 0, count=stopped.count)


async def _ok(_: ClientSession, __: Any) -> chat.OkReply:
    return chat.OkReply()


_SEND = alias(
    "chat.send", chat.ask_agent, "session_key! message thinking attachments", about="Send a message to a session."
)
_ABORT = alias(
    "chat.abort", method_of(stop_runs), result=AbortedRuns, shape=_aborted, about="Stop the runs of a session."
)
ALIASES = (
    _SEND,
    _ABORT,
    alias("sessions.send", _SEND, "key=session_key message thinking attachments"),
    alias("sessions.abort", _ABORT, "key=session_key run_id"),
    alias("sessions.get", sessions.describe_session),
    alias(
        "sessions.patch",
        method_of(patch_session),
        result=sessions.PatchedRow,
        shape=sessions.patched_row,
        about="Name a session, or change its settings. null goes back to the config.",
    ),
    alias(
        "sessions.reset",
        method_of(reset_session),
        result=sessions.ResetRow,
        shape=sessions.reset_row,
        about="Start over when the current run has ended. The transcript stays.",
    ),
    alias(
        "exec.approval.resolve",
        method_of(answer_approval),
        "id decision=answer digest grant_expires_in_days=days confirmed",
        result=chat.OkReply,
        shape=_ok,
        about="Answer an approval.",
    ),
)
_IN_MODULES = [
    each for family in (chat, sessions, agents, approvals, devices, status) for each in vars(family).values()
]
METHODS: tuple[Method, ...] = (*ALIASES, *(each for each in _IN_MODULES if isinstance(each, Method)))
