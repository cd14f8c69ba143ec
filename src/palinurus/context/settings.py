"""How a long session is kept within its context window: compaction, notes, pruning and archiving.

Where OpenClaw has constants, the defaults are the same (reference/config.md).
"""

from typing import Annotated, ClassVar, Literal

from palinurus.config.section import DURATION, OptionForm, Section, option

AHEAD = 4_000
MAX_SUMMARY = 16_000  # characters
_POLICY = OptionForm(
    Literal["strict", "off", "custom"], lambda said: said != "off", lambda strict: "strict" if strict else "off"
)
_MODE = OptionForm(
    Literal["off", "cache-ttl", "adaptive", "aggressive"], lambda said: "off" if said == "off" else "cache-ttl", str
)


class FlushSettings(Section, frozen=True):
    """Notes that a model writes ahead of a compaction."""

    foreign: ClassVar = {"": "forceFlushTranscriptBytes model systemPrompt"}

    enabled: Annotated[
        bool, option("Whether the model writes them ahead of time. If not, they are made by rule at the cut.")
    ] = True
    ahead: Annotated[
        int | None,
        option(
            f"Distance to the compaction threshold, in tokens. Unset: {AHEAD}, or an eighth of a window that is"
            " smaller than 32000; what is set here is used as it is.",
            "softThresholdTokens",
            ge=0,
        ),
    ] = None
    timeout_seconds: Annotated[float, option("Time limit of the model, in seconds.", gt=0, le=3_600)] = 60.0
    prompt: Annotated[
        str, option("Additional instructions for the notes, after our own prompt; the model has no tools then.")
    ] = ""

    def tokens_ahead(self, window: int) -> int:
        return min(AHEAD, window // 8) if self.ahead is None else self.ahead


class CompactionSettings(Section, frozen=True):
    """How a session that outgrows its context window is summarised."""

    foreign: ClassVar = {
        "": """customInstructions identifierInstructions maxActiveTranscriptBytes maxHistoryShare midTurnPrecheck mode
        model postCompactionSections postIndexSync provider qualityGuard recentTurnsPreserve reserveTokensFloor
        thinkingLevel truncateAfterCompaction"""
    }

    enabled: Annotated[
        bool, option("Whether it happens automatically. If not, only by /compact and when a provider refuses.")
    ] = True
    reserve: Annotated[
        int, option("Tokens kept free for the reply, at most a quarter of the window.", "reserveTokens", ge=0)
    ] = 16_384
    keep_recent: Annotated[
        int, option("Tokens of the newest messages that stay, at most half of what is free.", "keepRecentTokens", ge=0)
    ] = 20_000
    max_summary: int = MAX_SUMMARY
    timeout_seconds: Annotated[float, option("Seconds for a summary; 0: by rules, without a model.", ge=0)] = 180.0
    identifiers: Annotated[
        bool,
        option(
            "Whether a summary must keep exact identifiers; custom is read as strict.", "identifierPolicy", form=_POLICY
        ),
    ] = True
    notify: Annotated[bool, option("Whether the session shows a notice even without /verbose.", "notifyUser")] = False
    flush: Annotated[FlushSettings, option("Notes that the model writes before it.", "memoryFlush")] = FlushSettings()


class PruneSettings(Section, frozen=True):
    """Old tool results are shortened, then cleared, in what the model reads; the transcript keeps them."""

    mode: Annotated[
        Literal["off", "cache-ttl"],
        option("cache-ttl: when the provider's cache has expired; or off. Older names mean cache-ttl.", form=_MODE),
    ] = "cache-ttl"
    ttl_seconds: Annotated[
        float,
        option("How long a provider's cache lives, after which its prefix has expired anyway.", "ttl", form=DURATION),
    ] = 300.0
    keep_last_assistants: Annotated[int, option("Newest model turns whose results stay complete.", ge=0)] = 3
    soft_ratio: Annotated[
        float, option("Share of the window above which long results are trimmed.", "softTrimRatio", ge=0, le=1)
    ] = 0.3
    hard_ratio: Annotated[
        float, option("Share of the window above which old results are cleared.", "hardClearRatio", ge=0, le=1)
    ] = 0.5
    min_clearable: Annotated[
        int,
        option("Characters that clearing must gain, at most an eighth of the window.", "minPrunableToolChars", ge=0),
    ] = 50_000
    soft_above: Annotated[int, option("Longer results are trimmed.", "softTrim.maxChars", ge=1)] = 4_000
    head: Annotated[int, option("Characters kept of the beginning.", "softTrim.headChars", ge=0)] = 1_500
    tail: Annotated[int, option("Characters kept of the end.", "softTrim.tailChars", ge=0)] = 1_500
    clears: Annotated[bool, option("Whether old results are cleared.", "hardClear.enabled")] = True
    placeholder: Annotated[
        str, option("The placeholder for a cleared result.", "hardClear.placeholder", longest=500)
    ] = "[Old tool result content cleared]"
    only: Annotated[tuple[str, ...], option("Tools whose results may be pruned. Empty: all.", "tools.allow")] = ()
    never: Annotated[tuple[str, ...], option("Tools whose results are never pruned.", "tools.deny")] = ()


class StartupSettings(Section, frozen=True):
    """The newest daily notes are added to the first message of a private session."""

    foreign: ClassVar = {"": "maxFileBytes"}

    enabled: Annotated[bool, option("Whether they are added.")] = True
    on: Annotated[
        tuple[Literal["new", "reset"], ...], option("In new sessions, after a reset, or both.", "applyOn")
    ] = ("new", "reset")
    days: Annotated[int, option("How many days, today included.", "dailyMemoryDays", ge=0, le=14)] = 2
    file_characters: Annotated[int, option("Characters of one day.", "maxFileChars", ge=0)] = 1_200
    characters: Annotated[int, option("Characters of all days.", "maxTotalChars", ge=0)] = 2_800
