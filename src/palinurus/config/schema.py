"""What a config may say: frozen pydantic models with the key names of openclaw.json.

A wrong type or value is an error. An unknown key is kept and reported, because a config may come from a newer version
or from OpenClaw. Sections that OpenClaw knows and we do not use yet are kept without a word. Every field has a
description, from which the reference in the docs is made; `None` means "not set", and settings.py holds the defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from palinurus.config.compaction import CompactionOptions, MaintenanceOptions, PruningOptions, StartupOptions
from palinurus.config.diagnostics import DiagnosticsOptions
from palinurus.config.gateway import GatewayOptions
from palinurus.config.hands import AgentTools, McpOptions, SandboxOptions, Tools
from palinurus.config.memory import AgentMemory, MemoryOptions, MemorySearchOptions
from palinurus.config.section import Secret, Section, names
from palinurus.config.sign_in import OAuthOptions
from palinurus.config.skills import AgentSkillLimits, SkillsOptions
from palinurus.domain.keys import AGENT_ID

ThinkingLevel = Literal["off", "minimal", "low", "medium", "high", "xhigh", "adaptive", "max", "ultra"]


def normal_agent_id(text: str) -> str:
    """The id as it stands in session keys: lower case, other signs become hyphens."""
    cleaned = re.sub(r"[^a-z0-9_-]+", "-", text.strip().lower()).strip("-_")
    if not AGENT_ID.fullmatch(cleaned):
        raise ValueError("is not an agent's id: letters, digits, - and _, at most 64")
    return cleaned


def _inside_workspace(name: str) -> str:
    path = PurePosixPath(name)
    if not name.strip() or path.is_absolute() or ".." in path.parts or name.startswith("~"):
        raise ValueError("is not a path inside the workspace")
    return name


def _as_text(value: Any) -> Any:
    """12 and 24 are numbers to JSON, and so to `pal config set`."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


AgentId = Annotated[str, AfterValidator(normal_agent_id)]
WorkspaceFile = Annotated[str, AfterValidator(_inside_workspace)]


class ModelChoice(Section):
    primary: str | None = Field(None, description="The model to ask first, as provider/model.")
    fallbacks: tuple[str, ...] = Field((), description="Models to ask in this order when the first does not answer.")


class ModelOptions(Section):
    """What is said about one model by its users."""

    foreign = names("params streaming agentRuntime codexResponsesApi")

    alias: str | None = Field(None, description="A short name that stands for this model wherever one is asked for.")


class Identity(Section):
    name: str | None = Field(None, description="What the agent calls itself; wins over IDENTITY.md.")
    emoji: str | None = Field(None, description="A sign shown beside its name.")
    creature: str | None = Field(None, description="What kind of being it is.")
    vibe: str | None = Field(None, description="How it comes across.")
    theme: str | None = Field(None, description="A few words on its manner.")
    avatar: str | None = Field(
        None, description="A picture: a path in the workspace, a data URL or an address, which is not asked."
    )


class AgentOptions(Section):
    """What can be said about all agents (`agents.defaults`) or about one."""

    foreign = names(
        """agentDir blockStreamingBreak blockStreamingChunk blockStreamingCoalesce blockStreamingDefault
        bootstrapPromptTruncationWarning cliBackends contextLimits contextTokens cwd
        default elevatedDefault embeddedPi envelopeElapsed envelopeTimestamp envelopeTimezone experimental
        fastModeDefault groupChat heartbeat humanDelay imageGenerationModel imageMaxDimensionPx imageModel
        mediaMaxMb modelPolicy params pdfModel reasoningDefault repoRoot runtime
        subagents systemPromptOverride tts
        typingIntervalSeconds typingMode utilityModel verboseDefault videoGenerationModel"""
    )

    workspace: str | None = Field(None, description="The agent's own directory; `~` and paths from the home work.")
    model: str | ModelChoice | None = Field(
        None,
        description="provider/model or a short name, which then stands alone; or an object with primary and fallbacks."
        " Unset: chosen by what is there.",
    )
    models: dict[str, ModelOptions] | None = Field(
        None, description="Models by provider/model, with what is said about each. Aliases are read from the defaults."
    )
    context_injection: Literal["always", "continuation-skip", "never"] | None = Field(
        None, description="When workspace files reach the model: always, once per epoch, or never. Default always."
    )
    bootstrap_max_chars: int | None = Field(
        None, gt=0, description="Characters of one workspace file in the prompt. Default 20000."
    )
    bootstrap_total_max_chars: int | None = Field(
        None, gt=0, description="Characters of all workspace files in the prompt. Default 60000."
    )
    extra_bootstrap_files: tuple[WorkspaceFile, ...] | None = Field(
        None, description="More files of the workspace that the prompt carries, by path. Ours; OpenClaw has a hook."
    )
    skip_bootstrap: bool | None = Field(None, description="Create no template files in the workspace. Default false.")
    skip_optional_bootstrap_files: tuple[str, ...] | None = Field(
        None, description="Names of template files that are not created, such as SOUL.md."
    )
    max_concurrent: int | None = Field(None, ge=1, description="Turns that may run at the same time. Default 8.")
    timeout_seconds: float | None = Field(
        None, ge=0, description="Seconds that one turn may take; 0 is no limit. Default 600."
    )
    user_timezone: str | None = Field(
        None, description="The owner's zone, such as Europe/Berlin. Unset: the zone of the machine."
    )
    time_format: Annotated[Literal["auto", "12", "24"], BeforeValidator(_as_text)] | None = Field(
        None, description="Whether the time of a message and in /status has 12 or 24 hours. Default auto, which is 24."
    )
    thinking_default: ThinkingLevel | None = Field(
        None, description="How much the model thinks before it answers. Unset: as the model does by itself."
    )
    prompt_mode: Literal["full", "minimal", "none"] | None = Field(
        None, description="How much of the system prompt is sent. Default full. Ours."
    )
    workspace_history: Literal["runs", "off"] | None = Field(
        None,
        description="Whether runs that changed files end with a commit, where the workspace is a git repository."
        " Default runs. Ours.",
    )
    tools: AgentTools | None = Field(None, description="What its tools may do; narrows what `tools` says.")
    sandbox: SandboxOptions | None = Field(None, description="Where its commands run.")
    compaction: CompactionOptions | None = Field(
        None, description="How a conversation that outgrows its window is summed up."
    )
    context_pruning: PruningOptions | None = Field(None, description="How old results of tools are shortened.")
    startup_context: StartupOptions | None = Field(
        None, description="Daily notes in the first message of a private session."
    )
    skills: tuple[str, ...] | None = Field(
        None, description="The skills that it may use, by name. Unset: all; an empty list: none. Replaces, never adds."
    )
    skills_limits: AgentSkillLimits | None = Field(None, description="How long its list of skills may be.")
    memory: AgentMemory | None = Field(None, description="Its memory, where it differs from `memory`.")
    memory_search: MemorySearchOptions | None = Field(None, description="The older place of memory.search.")
    name: str | None = Field(None, description="The agent's name in listings.")
    identity: Identity | None = Field(
        None, description="Who it is, for its prompt and for listings. What is unset comes from IDENTITY.md."
    )


class AgentEntry(AgentOptions):
    """One agent of `agents.entries`. What is unset comes from `agents.defaults`."""


class ListedAgent(AgentEntry):
    """One agent of `agents.list`, the older form."""

    id: AgentId = Field(description="The agent's id in session keys and paths.")
    default: bool = Field(False, description="Whether messages without an agent go to this one.")


class Agents(Section):
    foreign = frozenset({"ownership"})

    defaults: AgentOptions = Field(
        default_factory=AgentOptions.model_construct, description="What holds for every agent unless it says otherwise."
    )
    listed: tuple[ListedAgent, ...] = Field((), alias="list", description="Agents as a list (older form).")
    entries: dict[AgentId, AgentEntry] = Field({}, description="Agents by id.")

    @field_validator("listed")
    @classmethod
    def _ids_differ(cls, agents: tuple[ListedAgent, ...]) -> tuple[ListedAgent, ...]:
        ids = [agent.id for agent in agents]
        for agent_id in ids:
            if ids.count(agent_id) > 1:
                raise ValueError(f"holds the agent {agent_id} twice")
        return agents


class ModelCost(Section):
    """US dollars per million tokens. A model without input and output prices is unpriced, not free."""

    foreign = frozenset({"tieredPricing"})

    input: float | None = Field(None, ge=0, description="Price of a million tokens read.")
    output: float | None = Field(None, ge=0, description="Price of a million tokens written.")
    cache_read: float | None = Field(
        None, ge=0, description="Price of a million tokens served from the provider's cache. Default: as input."
    )
    cache_write: float | None = Field(
        None, ge=0, description="Price of a million tokens put into the provider's cache. Default: as input."
    )


class ModelEntry(Section):
    foreign = frozenset({"compat", "headers", "params", "contextTokens"})

    id: str = Field(min_length=1, description="The model's name on the provider's wire.")
    name: str | None = Field(None, description="The model's name for people.")
    api: str | None = Field(None, description="The wire of this model when it differs from its provider's.")
    context_window: int | None = Field(None, gt=0, description="Tokens that the model can read at once.")
    max_tokens: int | None = Field(None, gt=0, description="Tokens that the model may write in one reply.")
    reasoning: bool | None = Field(None, description="Whether the model can think before it answers.")
    input: tuple[str, ...] = Field(("text",), description="What the model reads: text, image.")
    cost: ModelCost | None = Field(
        None, description="US dollars per million tokens. Unset: as the built-in table says."
    )


class ProviderEntry(Section):
    foreign = frozenset({"auth", "authHeader", "injectNumCtxForOpenAICompat", "request", "region", "params"})

    base_url: str | None = Field(None, description="Address of the provider's API.")
    api_key: Secret | None = Field(None, description="The key: text, ${NAME}, or a reference to where it is kept.")
    api: str | None = Field(
        None,
        description="The wire it speaks: openai-completions, openai-responses, anthropic-messages,"
        " google-generative-ai, ollama. Default openai-completions.",
    )
    headers: dict[str, Secret] = Field({}, description="HTTP headers that are sent with every request.")
    timeout_seconds: float | None = Field(None, gt=0, description="Seconds without a byte after which a call fails.")
    oauth: OAuthOptions | None = Field(None, description="How to sign in there, instead of a key. Ours.")
    models: tuple[ModelEntry, ...] = Field((), description="The models it serves, with their windows and prices.")


class Models(Section):
    foreign = frozenset({"bedrockDiscovery", "pricing", "catalog"})

    mode: Literal["merge", "replace"] = Field(
        "merge", description="Whether these providers stand beside the built-in ones or in their place."
    )
    providers: dict[str, ProviderEntry] = Field({}, description="Providers by id.")
    small_talk: bool = Field(
        True, description="Whether scout leaves small talk to the small embedded model where it is installed. Ours."
    )


class ResetPolicy(Section):
    """When a conversation starts afresh by itself."""

    mode: Literal["none", "daily", "idle"] | None = Field(
        None, description="Never, once a day, or after a silence. Default none; idle when only idleMinutes is given."
    )
    at_hour: int | None = Field(None, ge=0, le=23, description="The local hour of a daily reset. Default 4.")
    idle_minutes: int | None = Field(None, gt=0, description="Minutes of silence after which the session resets.")


class ResetByType(Section):
    direct: ResetPolicy | None = Field(None, description="Talks with one person.")
    dm: ResetPolicy | None = Field(None, description="The older name of direct.")
    group: ResetPolicy | None = Field(None, description="Groups and channels.")
    thread: ResetPolicy | None = Field(None, description="Threads and topics.")


class SessionOptions(Section):
    foreign = names(
        """agentToAgent groupScope heartbeatIdleMinutes identityLinks parentForkMaxTokens sendPolicy
        store threadBindings typingIntervalSeconds typingMode writeLock"""
    )

    dm_scope: Literal["main", "per-peer", "per-channel-peer", "per-account-channel-peer"] = Field(
        "main", description="Whether talks with single persons share the main session or have their own."
    )
    scope: Literal["per-sender", "global"] = Field("per-sender", description="Whether all talk is one session.")
    main_key: str | None = Field(None, description="Read for old homes; the main session is always called main.")
    reset: ResetPolicy = Field(
        default_factory=ResetPolicy.model_construct, description="When a session starts afresh by itself."
    )
    reset_by_type: ResetByType = Field(
        default_factory=ResetByType.model_construct, description="The same for one type of chat."
    )
    reset_by_channel: dict[str, ResetPolicy] = Field({}, description="The same for one channel; wins over the type.")
    reset_triggers: tuple[str, ...] = Field(("/new", "/reset"), description="Messages that start a session afresh.")
    idle_minutes: int | None = Field(None, gt=0, description="The older place of reset.idleMinutes.")
    maintenance: MaintenanceOptions | None = Field(None, description="Conversations that nobody uses any more.")


QueueMode = Literal["steer", "followup", "collect", "interrupt", "steer-backlog", "steer+backlog", "queue"]


class QueueOptions(Section):
    """What happens to messages that come while their session is busy."""

    foreign = frozenset({"debounceMsByChannel"})

    mode: QueueMode = Field(
        "steer",
        description="steer: the running turn hears them; followup: each its own turn; collect: one turn for all that"
        " wait; interrupt: the newest stops the running one. The last three names are of older releases.",
    )
    by_channel: dict[str, QueueMode] = Field({}, description="The mode of one channel.")
    debounce_ms: int = Field(500, ge=0, le=60_000, description="How long collect waits for more, in milliseconds.")
    cap: int = Field(20, ge=1, le=1000, description="How many may wait in one session.")
    drop: Literal["summarize", "old", "new"] = Field(
        "summarize",
        description="When more come: leave the oldest unanswered and tell the model (summarize) or not (old), or refuse"
        " the newest (new). What was accepted stays in the transcript.",
    )


class MessageOptions(Section):
    foreign = names(
        """ackReaction ackReactionScope groupChat inbound messagePrefix removeAckAfterReply responsePrefix
        statusReactions suppressToolErrors tts usageTemplate"""
    )

    queue: QueueOptions = Field(
        default_factory=QueueOptions.model_construct, description="Messages that come while their session is busy."
    )


class EnvOptions(Section):
    """Variables for ${NAME}. Those of the process win. Older configs put them right under `env`."""

    foreign = frozenset({"shellEnv"})

    vars: dict[str, str] = Field({}, description="Values by name, used where the process has no such variable.")


class Config(Section):
    """The whole config."""

    foreign = names(
        """$schema meta secrets auth bindings broadcast commands channels accessGroups plugins
        hooks cron discovery browser ui desktop talk tts audio acp approvals security logging
        telemetry audit update wizard worktreeRoot cloudWorkers surfaces transcripts attachments web
        canvasHost nodeHost media"""
    )

    agents: Agents = Field(default_factory=Agents.model_construct, description="The agents of this home.")
    agent: AgentOptions | None = Field(None, description="The oldest form of agents.defaults.")
    models: Models = Field(default_factory=Models.model_construct, description="Providers of models.")
    session: SessionOptions = Field(
        default_factory=SessionOptions.model_construct, description="How conversations are told apart and renewed."
    )
    messages: MessageOptions = Field(
        default_factory=MessageOptions.model_construct, description="How messages are received and answered."
    )
    tools: Tools = Field(
        default_factory=Tools.model_construct, description="What tools there are and who may use them."
    )
    gateway: GatewayOptions = Field(
        default_factory=GatewayOptions.model_construct, description="Where the gateway listens and who may come in."
    )
    memory: MemoryOptions = Field(
        default_factory=MemoryOptions.model_construct, description="What is remembered and who may search it."
    )
    skills: SkillsOptions = Field(
        default_factory=SkillsOptions.model_construct, description="Know-how on disk: which skills are used."
    )
    mcp: McpOptions = Field(default_factory=McpOptions.model_construct, description="Servers that bring more tools.")
    diagnostics: DiagnosticsOptions = Field(
        default_factory=DiagnosticsOptions.model_construct, description="Watching the house from outside."
    )
    env: EnvOptions = Field(default_factory=EnvOptions.model_construct, description="Variables for ${NAME}.")


def parse_config(data: bytes) -> Config:
    """Check JSON against the schema. Raises pydantic's ValidationError, which holds every error."""
    return Config.model_validate_json(data)


def unknown_keys(
    section: Section, path: tuple[str | int, ...] = (), *, foreign: bool = False
) -> Iterator[tuple[tuple[str | int, ...], list[str]]]:
    """Paths of keys that nobody knows, each with the keys that are known at that place.

    With `foreign` also of those that OpenClaw knows and we keep without using them.
    """
    if not isinstance(section, EnvOptions):
        known = {field.alias or name for name, field in type(section).model_fields.items()}
        for key in section.model_extra or ():
            if foreign or key not in section.foreign:
                yield (*path, key), sorted(known)
    for name, field in type(section).model_fields.items():
        yield from _unknown_below(getattr(section, name), (*path, field.alias or name), foreign)


def _unknown_below(
    value: Any, path: tuple[str | int, ...], foreign: bool
) -> Iterator[tuple[tuple[str | int, ...], list[str]]]:
    if isinstance(value, Section):
        yield from unknown_keys(value, path, foreign=foreign)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _unknown_below(item, (*path, key), foreign)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _unknown_below(item, (*path, index), foreign)


@cache
def json_schema() -> dict[str, Any]:
    """The schema as JSON Schema, for editors and for `pal config schema`. Made once: it takes a tenth of a second."""
    return Config.model_json_schema(by_alias=True)
