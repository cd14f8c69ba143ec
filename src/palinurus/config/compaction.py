"""What a config may say about long conversations: compaction, notes, pruning, the first message, what is put away."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from palinurus.config.section import Section, names

_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*+(ms|s|m|h|d|w|)\s*", re.IGNORECASE)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}


def seconds(text: str, bare: str = "m") -> float | None:
    """`5m`, `300s`, `1h`, `30d`; a bare number is in `bare` units. None for what is no time."""
    found = _DURATION.fullmatch(text)
    return float(found[1]) * _SECONDS[found[2].lower() or bare] if found else None


def _is_duration(text: str) -> str:
    if seconds(text) is None:
        raise ValueError("is not a time: for example 5m, 1h or 30d")
    return text


Duration = Annotated[str, AfterValidator(_is_duration)]


class MemoryFlushOptions(Section):
    """Notes that the model takes before a conversation is summed up."""

    foreign = names("forceFlushTranscriptBytes model systemPrompt")

    enabled: bool | None = Field(
        None, description="Whether the model takes them ahead of time. Default true. Notes are taken in any case."
    )
    soft_threshold_tokens: int | None = Field(
        None,
        ge=0,
        description="How far below the threshold of compaction, in tokens. Default 4000, or an eighth of a window that"
        " is smaller than 32000; what is set here is used as it is.",
    )
    prompt: str | None = Field(
        None, description="What the model is asked to note besides, behind our own question; it has no tools then."
    )
    timeout_seconds: float | None = Field(
        None, gt=0, le=3_600, description="Seconds that the model has for them. Default 60. Ours."
    )


class CompactionOptions(Section):
    """How a conversation that outgrows its window is summed up."""

    foreign = names(
        """customInstructions identifierInstructions maxActiveTranscriptBytes maxHistoryShare midTurnPrecheck mode model
        postCompactionSections postIndexSync provider qualityGuard recentTurnsPreserve reserveTokensFloor thinkingLevel
        truncateAfterCompaction"""
    )

    enabled: bool | None = Field(
        None, description="Whether it is done in time. If not, only by /compact and when a provider refuses."
    )
    reserve_tokens: int | None = Field(
        None, ge=0, description="Tokens kept free for the reply. Default 16384, at most a quarter of the window."
    )
    keep_recent_tokens: int | None = Field(
        None, ge=0, description="Tokens of the newest messages that stay. Default 20000, at most half of what is free."
    )
    timeout_seconds: float | None = Field(
        None, ge=0, description="Seconds for a summary; 0 has it made without a model. Default 180."
    )
    identifier_policy: Literal["strict", "off", "custom"] | None = Field(
        None, description="Whether a summary must keep exact identifiers. Default strict; custom is read as strict."
    )
    notify_user: bool | None = Field(
        None, description="Whether it is told in the conversation also when it is not verbose. Default false."
    )
    memory_flush: MemoryFlushOptions | None = Field(None, description="Notes that the model takes before.")


class HardClearOptions(Section):
    enabled: bool | None = Field(None, description="Whether old results are cleared. Default true.")
    placeholder: str | None = Field(
        None,
        min_length=1,
        max_length=500,
        description="What is read instead. Default [Old tool result content cleared].",
    )


class SoftTrimOptions(Section):
    max_chars: int | None = Field(None, ge=1, description="Longer results are trimmed. Default 4000.")
    head_chars: int | None = Field(None, ge=0, description="Characters kept of the beginning. Default 1500.")
    tail_chars: int | None = Field(None, ge=0, description="Characters kept of the end. Default 1500.")


class PrunedTools(Section):
    allow: tuple[str, ...] | None = Field(None, description="Tools whose results may be pruned. Unset: all.")
    deny: tuple[str, ...] | None = Field(None, description="Tools whose results are never pruned.")


class PruningOptions(Section):
    """Old results of tools are shortened in what the model reads; the transcript keeps them."""

    mode: Literal["off", "cache-ttl", "adaptive", "aggressive"] | None = Field(
        None, description="cache-ttl: when the provider's cache has expired; or off. Older names mean cache-ttl."
    )
    ttl: Duration | None = Field(None, description="How long a provider's cache lives. Default 5m.")
    keep_last_assistants: int | None = Field(
        None, ge=0, description="Turns of the model whose results stay whole. Default 3."
    )
    soft_trim_ratio: float | None = Field(
        None, ge=0, le=1, description="Share of the window from which on long results are trimmed. Default 0.3."
    )
    hard_clear_ratio: float | None = Field(
        None, ge=0, le=1, description="Share of the window from which on old results are cleared. Default 0.5."
    )
    min_prunable_tool_chars: int | None = Field(
        None, ge=0, description="Clearing must gain so many characters. Default 50000, at most an eighth of the window."
    )
    soft_trim: SoftTrimOptions | None = Field(None, description="What stays of a long result.")
    hard_clear: HardClearOptions | None = Field(None, description="Old results that are cleared.")
    tools: PrunedTools | None = Field(None, description="Whose results.")


class StartupOptions(Section):
    """Daily notes in the first message of a private session."""

    foreign = names("maxFileBytes")

    enabled: bool | None = Field(None, description="Whether they ride in it. Default true.")
    apply_on: tuple[Literal["new", "reset"], ...] | None = Field(
        None, description="In new sessions, after a reset, or both. Default both."
    )
    daily_memory_days: int | None = Field(None, ge=0, le=14, description="How many days, today included. Default 2.")
    max_file_chars: int | None = Field(None, ge=0, description="Characters of one day. Default 1200.")
    max_total_chars: int | None = Field(None, ge=0, description="Characters of all days. Default 2800.")


class MaintenanceOptions(Section):
    """Conversations that nobody uses any more. They are archived, never removed."""

    foreign = names("archiveDashboardAfter highWaterBytes maxDiskBytes pruneDays resetArchiveRetention rotateBytes")

    mode: Literal["warn", "enforce"] | None = Field(
        None, description="Whether they are archived, or only told by `pal doctor`. Default warn."
    )
    prune_after: Duration | int | None = Field(
        None, description="Archived after this silence, such as 30d; a bare number is days. Default 30d."
    )
    max_entries: int | None = Field(
        None, ge=1, description="How many conversations stay open; the oldest go first. Default 5000."
    )
