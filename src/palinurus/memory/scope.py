"""Who may search memory: private sessions, and of those the ones that the scope lets in (promise 17)."""

from __future__ import annotations

from palinurus.config.remembering import MemorySettings, ScopeRule
from palinurus.domain.keys import SessionKey

NOT_PRIVATE = "memory is private: only a session in which nobody but the owner listens may search or read it"
OUT_OF_SCOPE = "the config keeps memory from this session (memory.search.scope)"


def why_not(settings: MemorySettings, key: SessionKey, *, private: bool) -> str:
    """Why a session gets nothing of memory; empty when it may have it.

    No rule of a config opens memory to a session that others listen to.
    """
    if not private or not key.is_private:
        return NOT_PRIVATE
    decision = next((rule.action for rule in settings.scope if _matches(rule, key)), "deny")
    return "" if decision == "allow" else OUT_OF_SCOPE


def cites(settings: MemorySettings, key: SessionKey) -> bool:
    """Whether results carry `path#L3-L9`."""
    if settings.citations == "auto":
        return key.chat_type == "direct"
    return settings.citations == "on"


def _matches(rule: ScopeRule, key: SessionKey) -> bool:
    return (
        (not rule.chat_type or rule.chat_type == key.chat_type)
        and (not rule.channel or rule.channel.casefold() == key.channel)
        and (not rule.key_prefix or _begins(str(key), key.agent, rule.key_prefix.casefold()))
    )


def _begins(key: str, agent: str, prefix: str) -> bool:
    """OpenClaw compares the key without `agent:<id>:`; a prefix that names the agent is taken as it is."""
    return key.startswith(prefix) or key.removeprefix(f"agent:{agent}:").startswith(prefix)
