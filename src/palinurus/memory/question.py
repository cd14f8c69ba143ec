"""Search requests, and which sessions may search: private ones that the scope allows."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from palinurus.domain.keys import SessionKey
from palinurus.memory.settings import MemorySettings, ScopeRule, SearchLimits

MAX_QUERY = 4_000  # characters that are used; the rest adds nothing


class Question(Struct, frozen=True):
    query: str
    budget: SearchLimits = SearchLimits()
    min_score: float | None = None  # None: from the config
    sources: tuple[str, ...] = ()  # empty: all
    explain: bool = False
    cite: bool = True
    keyword_only: bool = False


Score = Annotated[float, Meta(ge=0, le=1)]
Results = Annotated[int, Meta(ge=1, le=1_000)]
Tokens = Annotated[int, Meta(ge=1, le=1_000_000)]


class IndexMemory(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    agent: str = ""  # empty: the default one
    force: bool = False  # rebuild all; cached vectors stay


class SearchMemory(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """A search request. Unset fields come from the config."""

    query: str
    agent: str = ""
    max_results: Results | None = None
    min_score: Score | None = None
    budget_tokens: Tokens | None = None  # instead of the config's characters
    sources: tuple[str, ...] = ()
    explain: bool = False
    keyword: bool = False  # keyword search only


def question(settings: MemorySettings, asked: SearchMemory) -> Question:
    """The owner's own question: every result is cited."""
    budget = settings.budget
    if asked.max_results is not None:
        budget = msgspec.structs.replace(budget, results=asked.max_results)
    if asked.budget_tokens is not None:
        budget = msgspec.structs.replace(budget, tokens=asked.budget_tokens, results=asked.max_results)
    query, cite = asked.query[:MAX_QUERY], settings.citations != "off"
    return Question(query, budget, asked.min_score, asked.sources, asked.explain, cite, asked.keyword)


NOT_PRIVATE = "memory is private: only a private session may search or read it"
OUT_OF_SCOPE = "the config keeps memory from this session (memory.search.scope)"


def why_not(settings: MemorySettings, key: SessionKey, *, private: bool) -> str:
    """Why a session gets nothing of memory; empty if it may search.

    No config rule opens memory to a shared session.
    """
    if not private or not key.is_private:
        return NOT_PRIVATE
    decision = next((rule.action for rule in settings.scope if _matches(rule, key)), "deny")
    return "" if decision == "allow" else OUT_OF_SCOPE


def cites(settings: MemorySettings, key: SessionKey) -> bool:
    """Whether results include `path#L3-L9`."""
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
    """Whether the key has this prefix. OpenClaw compares the key without `agent:<id>:`, unless the prefix names the
    agent.
    """
    return key.startswith(prefix) or key.removeprefix(f"agent:{agent}:").startswith(prefix)
