"""What a config may say about memory: what is indexed, how it is searched, who may search.

OpenClaw has said it in three places over the years: `agents.defaults.memorySearch`, then `memory.search`, and beside
them `memory.qmd` for its other engine. All three are read; remembering.py joins them.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from palinurus.config.section import Section, names

ChatType = Literal["direct", "group", "channel", "thread", "room"]


class ExtraPath(Section):
    name: str | None = Field(None, description="What the collection is called in citations. Default: the folder's.")
    path: str = Field(min_length=1, description="A folder or a markdown file; relative paths start at the workspace.")
    pattern: str | None = Field(None, description="Which files of the folder, as a glob. Default **/*.md.")


class ChunkingOptions(Section):
    foreign = names("overlap")

    tokens: int | None = Field(
        None, ge=32, le=8_000, description="Size of a passage, whose words count for each line in it. Default 400."
    )


class SessionSync(Section):
    foreign = names("postCompactionForce")

    delta_bytes: int | None = Field(None, ge=0, description="New bytes after which it is indexed. Default 100000.")
    delta_messages: int | None = Field(None, ge=0, description="New messages after which it is indexed. Default 50.")
    retention_days: int | None = Field(
        None, ge=1, description="Older conversations are not searched. Unset: all are. Ours."
    )


class SyncOptions(Section):
    foreign = names("onSessionStart onSearch embeddingBatchTimeoutSeconds")

    watch: bool | None = Field(None, description="Whether changed files are indexed before anybody asks. Default true.")
    watch_debounce_ms: int | None = Field(
        None, ge=0, le=600_000, description="Milliseconds of quiet after a change before it is indexed. Default 1500."
    )
    settle_ms: int | None = Field(
        None, ge=0, le=600_000, description="Changes without end are indexed after this. Default 15000. Ours."
    )
    interval_minutes: float | None = Field(
        None, ge=0, le=10_000, description="Minutes between sweeps; 0 is never. Default 5. A search looks anyway."
    )
    sessions: SessionSync | None = Field(None, description="When a conversation is indexed again.")


class MmrOptions(Section):
    """Results that say different things."""

    enabled: bool | None = Field(None, description="Whether similar results make room for others. Default false.")
    lambda_: float | None = Field(
        None, alias="lambda", ge=0, le=1, description="1 is relevance alone, 0 difference alone. Default 0.7."
    )


class DecayOptions(Section):
    enabled: bool | None = Field(None, description="Whether older daily notes count less. Default false.")
    half_life_days: float | None = Field(None, gt=0, description="Days after which a note counts half. Default 30.")


class HybridOptions(Section):
    """Weights of meaning and words. 0.7 and 0.3, 0.6 and 0.4 are OpenClaw's; ours are what measures best."""

    foreign = names("enabled candidateMultiplier")

    vector_weight: float | None = Field(None, ge=0, le=1, description="How much meaning counts.")
    text_weight: float | None = Field(None, ge=0, le=1, description="How much words count.")
    mmr: MmrOptions | None = Field(None, description="Results that say different things.")
    temporal_decay: DecayOptions | None = Field(None, description="Older daily notes count less.")


class QueryOptions(Section):
    max_results: int | None = Field(
        None, ge=1, le=100, description="Results at most. Unset: as many as fit; OpenClaw gives 6."
    )
    min_score: float | None = Field(None, ge=0, le=1, description="Results below this are left out. Default 0.")
    hybrid: HybridOptions | None = Field(None, description="Weights of meaning and words.")


class LimitOptions(Section):
    """What one answer may cost."""

    max_results: int | None = Field(None, ge=1, le=100, description="Results at most. query.maxResults comes first.")
    max_snippet_chars: int | None = Field(None, ge=40, le=20_000, description="Characters of one result. Default 700.")
    max_injected_chars: int | None = Field(None, ge=40, le=200_000, description="Characters in all. Default 4000.")
    timeout_ms: int | None = Field(
        None,
        ge=50,
        le=60_000,
        description="Milliseconds for an answer, of which the embedder has all but one second. Default 4000.",
    )


class ScopeMatch(Section):
    foreign = names("rawKeyPrefix")

    chat_type: ChatType | None = Field(None, description="direct, group, channel or thread.")
    channel: str | None = Field(None, description="A channel, such as telegram.")
    key_prefix: str | None = Field(None, description="How the session's key begins, with or without agent:<id>:.")


class ScopeEntry(Section):
    action: Literal["allow", "deny"] = Field(description="What is decided.")
    match: ScopeMatch | None = Field(None, description="For which sessions. Unset: for all.")


class ScopeOptions(Section):
    """Who may search. Sessions that others listen to get nothing, whatever is said here."""

    default: Literal["allow", "deny"] | None = Field(None, description="When no rule matches. Default deny.")
    rules: tuple[ScopeEntry, ...] = Field((), description="The first that matches decides. Unset: direct chats may.")


class RecallOptions(Section):
    """The best snippets, offered to the model with each message before it asks."""

    enabled: bool | None = Field(None, description="Whether they are offered. Default false.")
    max_chars: int | None = Field(None, ge=40, le=20_000, description="Characters in all. Default 1200.")


class MemorySearchOptions(Section):
    """What is indexed and how it is searched."""

    foreign = names(
        """cache experimental fallback inputType documentInputType queryInputType local model multimodal
        outputDimensionality qmd rememberAcrossConversations remote store"""
    )

    enabled: bool | None = Field(None, description="Whether memory can be searched at all. Default true.")
    sources: tuple[str, ...] | None = Field(
        None, description="memory (the files), sessions (what was said in private sessions). Default memory alone."
    )
    extra_paths: tuple[str | ExtraPath, ...] = Field(
        (), description="More markdown to search: folders or files, each a collection. What all levels name is joined."
    )
    provider: str | None = Field(
        None,
        description="Who makes vectors: embedded (default; auto means it too) or none, for words alone. For OpenClaw's"
        " other providers the embedded one steps in.",
    )
    embed_share: float | None = Field(
        None, gt=0, le=1, description="Share of one core for vectors that are filled in behind. Default 0.5. Ours."
    )
    chunking: ChunkingOptions | None = Field(None, description="How files are cut up.")
    sync: SyncOptions | None = Field(None, description="When files are looked at.")
    query: QueryOptions | None = Field(None, description="How results are chosen.")
    limits: LimitOptions | None = Field(None, description="What one answer may cost. Ours; memory.qmd.limits is read.")
    scope: ScopeOptions | None = Field(None, description="Who may search. Ours; memory.qmd.scope is read.")
    recall: RecallOptions | None = Field(None, description="Snippets offered unasked. Ours.")


class AgentMemory(Section):
    foreign = names("qmd")

    search: MemorySearchOptions | None = Field(None, description="What is indexed and how it is searched.")


class QmdSessions(Section):
    foreign = names("exportDir")

    enabled: bool | None = Field(None, description="Whether conversations are searched. Default false.")
    retention_days: int | None = Field(None, ge=1, description="Older conversations are not searched.")


class QmdUpdate(Section):
    foreign = names(
        """onBoot startup startupDelayMs waitForBootSync embedInterval commandTimeoutMs updateTimeoutMs
        embedTimeoutMs"""
    )

    interval: str | None = Field(None, description="Time between sweeps, such as 5m.")
    debounce_ms: int | None = Field(None, ge=0, description="Changes are indexed after this at the latest.")


class QmdOptions(Section):
    """OpenClaw's section for its engine qmd, which is not used here; what it says about memory is."""

    foreign = names("command searchMode searchTool rerank includeDefaultMemory mcporter")

    paths: tuple[ExtraPath, ...] = Field((), description="Collections of all agents.")
    sessions: QmdSessions | None = Field(None, description="Whether conversations are searched.")
    limits: LimitOptions | None = Field(None, description="What one answer may cost.")
    scope: ScopeOptions | None = Field(None, description="Who may search.")
    update: QmdUpdate | None = Field(None, description="When files are looked at.")


class MemoryOptions(Section):
    backend: Literal["builtin", "qmd"] | None = Field(
        None, description="OpenClaw's choice of engine. There is one here; builtin leaves the section qmd unread."
    )
    citations: Literal["auto", "on", "off"] | None = Field(
        None, description="Whether results carry path#L3-L9: auto (in direct chats), on, off. Default auto."
    )
    search: MemorySearchOptions | None = Field(None, description="What is indexed and how it is searched.")
    qmd: QmdOptions | None = Field(None, description="As OpenClaw's older configs have it.")
