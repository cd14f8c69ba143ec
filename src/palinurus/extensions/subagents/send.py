"""Messages from one session to another whose reply comes back: the tool sessions_send.

The message is a run of the other session like any other, so it is stored, waits for its turn and is answered even if
nobody waits any more: the reply is then in the other transcript. Sessions that wait for each other would wait in vain,
so a message to one that waits for its sender is refused. Messages that cause messages are counted, and so are those of
one run to one session.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from palinurus.dispatch.runs import Run
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest, WaitTimeout
from palinurus.domain.events import Plan, RunResult
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import UNKNOWN, ContextNote, Origin, wrapped
from palinurus.domain.tool import PreparedCall, ToolOutput, ToolRun, failed
from palinurus.extensions.subagents.settings import AgentToAgentSettings
from palinurus.extensions.subagents.visibility import SessionAccess
from palinurus.operations.services import Services
from palinurus.tools.session_tools import OWN, SOMEBODY_ELSE, check_text

CHANNEL = "session"
REPLY_SKIP = "REPLY_SKIP"
REMEMBERED = 1_000  # runs and recipients whose messages are counted


class _SentMessages(Struct):
    """What one run has sent to one session."""

    count: int = 0
    answered: list[str] = []  # digests of the messages that have their reply: the same text again is a new message


class SessionSender:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._access = SessionAccess(services)
        self._sent: OrderedDict[tuple[str, SessionKey], _SentMessages] = OrderedDict()

    async def prepare(self, run: ToolRun, name: str, text: str, seconds: int) -> PreparedCall:
        """Raises PalinurusError with the rule that forbids it."""
        key = await self._recipient(run, name)
        self._check(run, key)
        message = check_text(text)

        async def send() -> ToolOutput:
            self._check(run, key)  # again: an approval takes time
            return await self._send(run, key, message, seconds)

        plan = Plan("sessions_send", f"message to {key}", arguments={"sessionKey": str(key), "message": message})
        own = key.agent == run.key.agent and key.kind in OWN and not key.thread
        return PreparedCall(plan, send, when_untrusted="" if own else SOMEBODY_ELSE, lasting=True)

    async def _recipient(self, run: ToolRun, name: str) -> SessionKey:
        session = await self._access.find(run, name)
        key = SessionKey.parse(session.key)
        if key == run.key:
            raise BadRequest("that is the current session", hint="write it in your reply")
        if session.archived_at is not None:
            raise BadRequest(f"{key} has ended", hint="sessions_history still reads it")
        if key.is_subagent and not await self._access.is_descendant(run, key):
            raise BadRequest(f"{key} is a subagent of another session", hint=f"write to {session.spawned_by or 'it'}")
        return key

    def _check(self, run: ToolRun, key: SessionKey) -> None:
        limit = self._services.config.section(AgentToAgentSettings).max_ping_pong_turns
        if self._known(run, key).count >= limit:
            raise BadRequest(
                f"this run has sent {limit} messages to {key}, and tools.agentToAgent.maxPingPongTurns allows no more",
                hint="go on with what you know",
            )
        if self._hops(run) >= limit:
            raise BadRequest(
                f"{limit} messages between sessions have led to this run, and tools.agentToAgent.maxPingPongTurns"
                " allows no more",
                hint="write it in your reply",
            )
        if self._waits_for(key, run.key):
            raise BadRequest(f"{key} waits for the reply of this session", hint="write it in your reply")

    def _known(self, run: ToolRun, key: SessionKey) -> _SentMessages:
        known = self._sent.setdefault((run.run_id, key), _SentMessages())
        self._sent.move_to_end((run.run_id, key))
        if len(self._sent) > REMEMBERED:
            self._sent.popitem(last=False)
        return known

    def _hops(self, run: ToolRun) -> int:
        """How many messages between sessions led to this run, one after the other."""
        sending = self._services.dispatcher.runs.get(run.run_id)
        return sending.inbound.hops if sending is not None and sending.inbound is not None else 0

    def _waits_for(self, key: SessionKey, sender: SessionKey) -> bool:
        """Whether a session waits for another, also through further ones."""
        passed: set[SessionKey] = set()
        left = [key]
        while left:
            if (at := left.pop()) == sender:
                return True
            if at not in passed:
                passed.add(at)
                left += [each for going in self._services.dispatcher.runs.active(at) for each in going.awaits]
        return False

    async def _send(self, run: ToolRun, key: SessionKey, text: str, seconds: int) -> ToolOutput:
        known = self._known(run, key)
        known.count += 1
        digest = hashlib.sha256(f"{run.run_id}\0{key}\0{text}".encode("utf-8", "replace")).hexdigest()
        inbound = self._inbound(run, key, text, f"session:{digest}:{known.answered.count(digest)}")
        with self._awaiting(run, key, seconds):  # from before it is sent: the other may send at the same moment
            accepted = await self._services.dispatcher.submit(inbound)
            if not seconds:
                return ToolOutput(f"sent to {key}; its reply will be in sessions_history")
            try:
                result = await accepted.wait(seconds)
            except WaitTimeout:
                return ToolOutput(_no_reply(accepted, seconds))
        known.answered.append(digest)
        return await self._reply(run, key, result)

    @contextmanager
    def _awaiting(self, run: ToolRun, key: SessionKey, seconds: int) -> Iterator[None]:
        sending = self._services.dispatcher.runs.get(run.run_id)
        if sending is None or not seconds or key in sending.awaits:
            yield
            return
        sending.awaits.add(key)
        try:
            yield
        finally:
            sending.awaits.discard(key)

    def _inbound(self, run: ToolRun, key: SessionKey, text: str, idempotency_key: str) -> Inbound:
        own = f"session:{run.key}"
        foreign = key.agent != run.key.agent
        suspects = (run.suspects or (UNKNOWN,)) if run.untrusted else ()
        outside = run.untrusted or foreign
        text = wrapped(f"session {run.key}", text) if outside else f"[from the session {run.key}]\n{text}"
        who = f"the agent {run.key.agent}" if foreign else "you"
        note = (
            f"Not your owner but {who} wrote this message, in the session {run.key}. Your reply goes back there; reply"
            f" {REPLY_SKIP} if there is nothing to say."
        )
        return Inbound(
            text,
            idempotency_key,
            session_key=str(key),
            channel=CHANNEL,
            sender=str(run.key),
            origin=Origin.OUTSIDE if outside else Origin.AGENT,
            sources=tuple(dict.fromkeys((*((own,) if foreign else ()), *(each.source or own for each in suspects)))),
            for_owner=run.owner,
            attended=run.attended,
            notes=(ContextNote("notice", note),),
            restrictions=run.restrictions,
            plain=True,
            hops=self._hops(run) + 1,
        )

    async def _reply(self, run: ToolRun, key: SessionKey, result: RunResult) -> ToolOutput:
        if result.status != "ok":
            return failed(f"{key} did not reply: {result.error or result.status}")
        text = result.text.strip()
        if text.upper() in ("", REPLY_SKIP):
            return ToolOutput(f"{key} has read it and has nothing to say")
        own = f"session:{key}"
        texts = (await self._services.turns.history.view_of(key)).outside_texts
        sources = (*((own,) if key.agent != run.key.agent else ()), *(each.source or own for each in texts))
        if not sources:
            return ToolOutput(f"{key} replied:\n{text}", origin=Origin.AGENT)
        return ToolOutput(wrapped(f"session {key}", text), origin=Origin.OUTSIDE, sources=tuple(dict.fromkeys(sources)))


def _no_reply(accepted: Run, seconds: int) -> str:
    """A run may not have begun because too many others go on, this one among them."""
    state = "has not begun to answer" if accepted.waits else "is still answering"
    return f"sent to {accepted.key}; it {state} after {seconds} s. Its reply will be in sessions_history"
