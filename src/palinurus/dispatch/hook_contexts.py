"""What hooks are told of messages, commands and runs, under OpenClaw's names."""

from __future__ import annotations

from typing import Any

from palinurus.domain.envelope import Inbound
from palinurus.domain.events import RunResult


def received_facts(inbound: Inbound, run_id: str) -> dict[str, Any]:
    place = inbound.place
    return {
        "from": inbound.sender,
        "content": inbound.text,
        "channelId": inbound.channel,
        "accountId": inbound.account,
        "conversationId": place.to,
        "messageId": run_id,
        "origin": str(inbound.origin),
    }


def sent_facts(channel: str, to: str, text: str, run_id: str) -> dict[str, Any]:
    return {"to": to, "content": text, "channelId": channel, "conversationId": to, "messageId": run_id, "success": True}


def command_facts(inbound: Inbound) -> dict[str, Any]:
    return {"senderId": inbound.sender, "commandSource": inbound.channel}


def end_facts(result: RunResult) -> dict[str, Any]:
    return {
        "runId": result.run_id,
        "success": result.status == "ok",
        "error": result.error,
        "durationMs": result.duration_ms,
        "content": result.text,
        "model": result.model,
        "tokens": result.usage.total,
    }


def reset_event(text: str) -> str:
    """`/reset` and `/new` do the same and are two events; other words for it count as new."""
    return "command:reset" if text.split(maxsplit=1)[0].lower() == "/reset" else "command:new"
