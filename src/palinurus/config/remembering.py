"""How an agent's memory is indexed and searched: what the config says, joined into one record.

Where the source documents disagree (chunk sizes, weights, number of results), each default is what measures best on
`make eval`; the documents' values are presets of the config.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from msgspec import Struct


class Collection(Struct, frozen=True):
    """A folder of the owner's that is searched too."""

    name: str
    path: Path
    mask: str = "**/*.md"


class ScopeRule(Struct, frozen=True):
    """Who may search. The first rule that matches a session decides."""

    action: Literal["allow", "deny"]
    chat_type: str = ""  # direct, group, channel; empty: any
    channel: str = ""
    key_prefix: str = ""


class Ranking(Struct, frozen=True):
    """Weights of the legs; they need not add up to one. See docs/memory-quality.md for what was tried."""

    words: float = 0.5
    vector: float = 0.5
    passage: float = 0.2  # of the passage's words, beside the piece's own
    label: float = 0.3  # for a line that begins with what the question names: its speaker, its subject
    date: float = 0.3  # for files of the days that the question asks about
    neighbours: float = 0.5  # what a word counts that stands in the piece beside it
    candidates: int = 65  # of each leg
    min_score: float = 0.0
    mmr_lambda: float | None = None
    half_life_days: float | None = None  # of dated files


class Budget(Struct, frozen=True):
    characters: int = 4_000
    snippet: int = 700
    results: int | None = None
    seconds: float = 4.0
    tokens: int | None = None  # instead of the characters above: characters/4, whole lines


class Sync(Struct, frozen=True):
    watch: bool = True
    debounce_seconds: float = 1.5
    settle_seconds: float = 15.0  # changes without end are indexed after this at the latest
    sweep_minutes: float = 5.0
    session_bytes: int = 100_000
    session_messages: int = 50
    session_days: int | None = None  # older conversations are not searched


class MemorySettings(Struct, frozen=True):
    enabled: bool = True
    sources: tuple[str, ...] = ("memory",)
    collections: tuple[Collection, ...] = ()
    passage_tokens: int = 400
    embedder: str = "embedded"  # "none": by words alone
    embed_share: float = 0.5  # of one core, for vectors that are filled in behind
    ranking: Ranking = Ranking()
    budget: Budget = Budget()
    citations: Literal["auto", "on", "off"] = "auto"
    scope: tuple[ScopeRule, ...] = (ScopeRule("allow", "direct"),)  # and nobody else
    sync: Sync = Sync()
    recall: Literal["off", "on"] = "off"  # the best snippets offered unasked
    recall_characters: int = 1_200
