"""How a turn came out: the result that its caller gets, and its row in the usage ledger."""

from __future__ import annotations

from collections.abc import Sequence

from palinurus.agent.agent import Agent
from palinurus.agent.loop import DIRECT
from palinurus.context.assemble import unanswered
from palinurus.domain.errors import Failure
from palinurus.domain.events import RunResult
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, Message, Usage
from palinurus.domain.tool import ToolRun
from palinurus.ledger.usage import UsageRow
from palinurus.sessions.session import Session


def spent(entry_id: str, reply: AssistantMessage, run: ToolRun, agent: Agent, at: int) -> UsageRow | None:
    """The reply's row in the usage ledger. None when no model was asked, or one that failed before it used anything."""
    if reply.api == DIRECT:
        return None
    if reply.stop_reason in ("error", "aborted") and not reply.usage.total:
        return None
    return UsageRow(
        entry_id=entry_id,
        at=at,
        run_id=run.run_id,
        session_key=str(run.key),
        agent=agent.id,
        provider=reply.provider,
        model=reply.model,
        usage=reply.usage,
        cost=agent.cost(reply.provider, reply.model, reply.usage),
    )


def result(
    key: SessionKey, session: Session, run_id: str, answer: Sequence[Message], usage: Usage | None, took_ms: int
) -> RunResult:
    """`answer`: the last reply, and the results behind it when it waits for its client."""
    reply = answer[0]
    assert isinstance(reply, AssistantMessage)  # noqa: S101  # every way out of the loop ends with one
    kind, why = _failure(reply.error_message or "")
    failed = reply.stop_reason in ("error", "aborted")
    return RunResult(
        run_id=run_id,
        session_key=str(key),
        session_id=session.id,
        status="ok" if not failed else "aborted" if reply.stop_reason == "aborted" else "error",
        text=reply.text,
        model="" if reply.api == DIRECT else f"{reply.provider}/{reply.model}",
        usage=reply.usage if usage is None else usage,
        error=why,
        error_kind=kind,
        duration_ms=took_ms,
        stop_reason=reply.stop_reason,
        calls=unanswered(answer),
    )


def _failure(message: str) -> tuple[str, str]:
    """The kind of a provider's failure and its sentence, as the loop puts them into a reply that failed."""
    kind, _, why = message.partition(": ")
    return (kind, why) if kind in set(Failure) else ("", message)
