"""How a long conversation is kept within its window, and what of it is noted: what the config says, as records.

The rooms above use these without having read any config; compacting_settings.py joins them from it. The values here are
the defaults of the product. Where OpenClaw has constants, they are the same (reference/config.md).
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

RESERVE = 16_384
AHEAD = 4_000
KEEP_RECENT = 20_000
MAX_SUMMARY = 16_000  # characters
DAY_SECONDS = 86_400.0


class FlushSettings(Struct, frozen=True):
    """Notes that a model takes ahead of time, when a conversation comes near the end of its window."""

    enabled: bool = True  # False: notes are taken by rule, when something is cut
    ahead: int | None = None  # tokens below the threshold of compaction; None: AHEAD, or an eighth of a small window
    timeout_seconds: float = 60.0
    prompt: str = ""  # what the model is asked besides

    def tokens_ahead(self, window: int) -> int:
        return min(AHEAD, window // 8) if self.ahead is None else self.ahead


class CompactionSettings(Struct, frozen=True):
    """What config decides about compaction. 0 seconds: no model is asked for a summary."""

    enabled: bool = True  # False: only when somebody asks for it, or the provider refuses the request
    reserve: int = RESERVE
    keep_recent: int = KEEP_RECENT
    max_summary: int = MAX_SUMMARY
    timeout_seconds: float = 180.0
    identifiers: bool = True  # whether a summary must hold the exact identifiers of what it sums up
    notify: bool = False  # tell whoever listens, verbose or not
    flush: FlushSettings = FlushSettings()


class PruneSettings(Struct, frozen=True):
    """Old tool results are shortened, then cleared."""

    mode: Literal["off", "cache-ttl"] = "cache-ttl"
    ttl_seconds: float = 300.0  # after so long a silence the provider has forgotten the prefix anyway
    keep_last_assistants: int = 3
    soft_ratio: float = 0.3  # of the window, from which on long results are trimmed
    hard_ratio: float = 0.5  # and from which on the oldest are cleared
    min_clearable: int = 50_000  # characters that clearing must be able to gain; never more than 1/8 of the window
    soft_above: int = 4_000
    head: int = 1_500
    tail: int = 1_500
    clears: bool = True
    placeholder: str = "[Old tool result content cleared]"
    only: tuple[str, ...] = ()  # tools whose results may be pruned; empty: all
    never: tuple[str, ...] = ()


class StartupSettings(Struct, frozen=True):
    """The newest daily notes ride in the first message of a private session."""

    enabled: bool = True
    on: tuple[str, ...] = ("new", "reset")
    days: int = 2
    file_characters: int = 1_200
    characters: int = 2_800


class MaintenanceSettings(Struct, frozen=True):
    """Which conversations are put away. None: without a limit. `warn` only says what would be."""

    mode: Literal["warn", "enforce"] = "warn"
    after_seconds: float | None = 30 * DAY_SECONDS  # of silence
    most: int | None = 5_000  # conversations that are kept open
