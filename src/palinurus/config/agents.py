"""The settings of one agent and its sessions: the defaults of all agents merged with its own entry."""

from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import Struct
from msgspec.structs import asdict

from palinurus.config.home import Home
from palinurus.config.load import Config, normal_agent_id
from palinurus.config.section import OptionForm, Section, build_values, dig, option
from palinurus.config.source import JsonPath
from palinurus.domain.errors import NotFound
from palinurus.domain.identity import AgentIdentity
from palinurus.domain.keys import DEFAULT_AGENT

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

DAILY_RESET_HOUR = 4
ThinkingLevel = Literal["off", "minimal", "low", "medium", "high", "xhigh", "adaptive", "max", "ultra"]
QueueMode = Literal["steer", "followup", "collect", "interrupt", "steer-backlog", "steer+backlog", "queue"]
DmScope = Literal["main", "per-peer", "per-channel-peer", "per-account-channel-peer"]
GroupScope = Literal["per-group", "main"]
SHARED_BY_GROUPS = "members of groups share the private session of the owner, with its memory"
PromptMode = Literal["full", "minimal", "none"]


def known_zone(name: str) -> "ZoneInfo | None":
    from zoneinfo import ZoneInfo  # needed only if a time zone is configured

    try:
        return ZoneInfo(name) if name else None
    except (KeyError, OSError, ValueError):  # not found is a KeyError; invalid names raise other errors
        return None


def _odd_zone(name: str) -> str:
    known = not name or known_zone(name) is not None
    return "" if known else f"this machine does not know the time zone {name}; its own zone is used"


def _inside_workspace(name: str) -> None:
    path = PurePosixPath(name)
    if not name.strip() or path.is_absolute() or ".." in path.parts or name.startswith("~"):
        raise ValueError("is not a path inside the workspace")


WorkspaceFile = Annotated[str, option("", check=_inside_workspace)]


class AgentSettings(Section, frozen=True):
    """The settings of every agent, unless its own entry overrides them."""

    foreign: ClassVar = {
        "": """blockStreamingBreak blockStreamingChunk blockStreamingCoalesce blockStreamingDefault
        bootstrapPromptTruncationWarning cliBackends contextLimits contextTokens cwd
        elevatedDefault embeddedPi envelopeElapsed envelopeTimestamp envelopeTimezone experimental
        fastModeDefault humanDelay imageGenerationModel imageMaxDimensionPx imageModel
        mediaMaxMb modelPolicy params pdfModel reasoningDefault repoRoot runtime
        systemPromptOverride tts
        typingIntervalSeconds typingMode utilityModel verboseDefault videoGenerationModel"""
    }

    agent_id: str
    workspace: Path
    workspace_named: bool = True  # set by the config or a flag, so it must exist; any other is created on demand
    name: str = ""
    identity: AgentIdentity = AgentIdentity()  # from the config; IDENTITY.md fills empty fields
    model: str = ""  # provider/model; empty: chosen automatically
    fallbacks: tuple[str, ...] = ()
    context_injection: Annotated[
        Literal["always", "continuation-skip", "never"],
        option("When workspace files reach the model: always, once per epoch, or never."),
    ] = "always"
    bootstrap_max_chars: Annotated[int, option("Characters of one workspace file in the prompt.", gt=0)] = 20_000
    bootstrap_total_max_chars: Annotated[int, option("Characters of all workspace files in the prompt.", gt=0)] = 60_000
    extra_bootstrap_files: Annotated[
        tuple[WorkspaceFile, ...],
        option("More files of the workspace that the prompt carries, by path. Ours; OpenClaw has a hook."),
    ] = ()
    skip_bootstrap: Annotated[bool, option("Create no template files in the workspace.")] = False
    skip_optional_bootstrap_files: Annotated[
        tuple[str, ...], option("Names of template files that are not created, such as SOUL.md.")
    ] = ()
    max_concurrent: Annotated[int, option("Turns that may run at the same time.", ge=1)] = 8
    timeout_seconds: Annotated[float, option("Seconds that one turn may take; 0 is no limit.", ge=0)] = 600.0
    user_timezone: Annotated[
        str, option("The owner's zone, such as Europe/Berlin. Unset: the zone of the machine.", odd=_odd_zone)
    ] = ""
    time_format: Annotated[
        Literal["auto", "12", "24"],
        option("Whether the time of a message and in /status has 12 or 24 hours; auto is 24.", text=True),
    ] = "auto"
    thinking_default: Annotated[
        str,
        option(
            "How much the model thinks before it answers. Unset: the model's default.",
            form=OptionForm(ThinkingLevel, str, str),
        ),
    ] = ""
    prompt_mode: Annotated[PromptMode, option("How much of the system prompt is sent.")] = "full"
    workspace_history: Annotated[
        Literal["runs", "off"],
        option("Whether runs that changed files end with a commit, where the workspace is a git repository."),
    ] = "runs"

    @property
    def zone(self) -> "ZoneInfo | None":
        """The user's time zone; None for the machine's, or if this machine does not know it."""
        return known_zone(self.user_timezone) if self.user_timezone else None


class ModelSelection(Section, frozen=True):
    primary: Annotated[str | None, option("The default model, as provider/model.")] = None
    fallbacks: Annotated[tuple[str, ...], option("Models to try in this order when the first one fails.")] = ()


class ModelOptions(Section, frozen=True):
    """The user's settings for one model."""

    foreign: ClassVar = {"": "params streaming agentRuntime codexResponsesApi"}

    alias: Annotated[str | None, option("A short name for this model.")] = None


class IdentityOptions(AgentIdentity, frozen=True):
    """The agent's identity, for its prompt and for listings. Unset fields come from IDENTITY.md."""

    name: Annotated[str, option("The agent's name; takes precedence over IDENTITY.md.")] = ""
    emoji: Annotated[str, option("An emoji shown beside its name.")] = ""
    creature: Annotated[str, option("The kind of creature.")] = ""
    vibe: Annotated[str, option("Its vibe.")] = ""
    theme: Annotated[str, option("A short description of its style.")] = ""
    avatar: Annotated[
        str, option("A picture: a path in the workspace, a data URL or an address, which is never fetched.")
    ] = ""


class AgentEntry(Section, frozen=True):
    """The parts of an agent's entry that are merged and not simply overridden: see `agent_settings`."""

    workspace: Annotated[str | None, option("The agent's own directory; `~` and paths from the home work.")] = None
    model: Annotated[
        str | ModelSelection | None,
        option(
            "provider/model or a short name, which then stands alone; or an object with primary and fallbacks."
            " Unset: chosen automatically."
        ),
    ] = None
    models: Annotated[
        dict[str, ModelOptions],
        option("Models by provider/model, with settings for each. Aliases are read from the defaults."),
    ] = {}
    skills: Annotated[
        tuple[str, ...] | None,
        option("The skills that it may use, by name. Unset: all; an empty list: none. Replaces, never adds."),
    ] = None
    name: Annotated[str | None, option("The agent's name in listings.")] = None
    identity: Annotated[IdentityOptions | None, option("Its identity, for its prompt and for listings.")] = None
    agent_dir: Annotated[
        str | None,
        option(
            "In an agent's own entry: where its keys are kept; `~` and paths from the home work."
            " Unset: agents/ID in the home."
        ),
    ] = None
    default: Annotated[bool | None, option("In an agent's own entry: whether messages without an agent go to it.")] = (
        None
    )

    @property
    def models_named(self) -> tuple[str, ...]:
        """The model and its fallbacks."""
        if isinstance(self.model, ModelSelection):
            return tuple(filter(None, (self.model.primary, *self.model.fallbacks)))
        return (self.model,) if self.model else ()


class ListedAgent(Section, frozen=True):
    """One agent of `agents.list`, the older form."""

    id: Annotated[str, option("The agent's id in session keys and paths.", check=normal_agent_id)]


class ResetOptions(Section, frozen=True):
    """When a session resets automatically."""

    mode: Annotated[
        Literal["none", "daily", "idle"] | None,
        option("Never, once a day, or after a pause. Unset: none; idle when only idleMinutes is given."),
    ] = None
    at_hour: Annotated[int, option("The local hour of a daily reset.", ge=0, le=23)] = DAILY_RESET_HOUR
    idle_minutes: Annotated[int | None, option("Minutes without messages until a reset.", gt=0)] = None


class ResetByType(Section, frozen=True):
    """The same for one type of chat."""

    direct: Annotated[ResetOptions | None, option("Direct chats.")] = None
    dm: Annotated[ResetOptions | None, option("The older name of direct.")] = None
    group: Annotated[ResetOptions | None, option("Groups and channels.")] = None
    thread: Annotated[ResetOptions | None, option("Threads and topics.")] = None


class SessionSettings(Section, frozen=True):
    """How sessions are separated and reset."""

    foreign: ClassVar = {
        "": """agentToAgent heartbeatIdleMinutes parentForkMaxTokens sendPolicy store threadBindings
        typingIntervalSeconds typingMode writeLock"""
    }

    dm_scope: Annotated[
        DmScope,
        option(
            "Whether direct chats share the main session, or each person has one: everywhere, on each channel, or with"
            " each account of a channel. Unset: main for the owner; per-channel-peer for others once an owner is set."
        ),
    ] = "main"
    group_scope: Annotated[
        GroupScope,
        option(
            "Whether each group has a session of its own, or shares the main one.",
            odd=lambda said: SHARED_BY_GROUPS if said == "main" else "",
        ),
    ] = "per-group"
    scope: Annotated[Literal["per-sender", "global"], option("Whether all chats with an agent share one session.")] = (
        "per-sender"
    )
    identity_links: Annotated[
        dict[str, tuple[str, ...]],
        option("People who write from several places: a name, and ids such as telegram:1. They have one session."),
    ] = {}
    main_key: Annotated[
        str | None,
        option(
            "Read for old homes; the main session is always called main.",
            odd=lambda said: "" if said == "main" else "not used; the main session is always called main",
        ),
    ] = None
    reset: Annotated[ResetOptions, option("When a session resets automatically.")] = ResetOptions()
    reset_by_type: Annotated[ResetByType, option("The same for one type of chat.")] = ResetByType()
    reset_by_channel: Annotated[dict[str, ResetOptions], option("The same for one channel; wins over the type.")] = {}
    reset_triggers: Annotated[tuple[str, ...], option("Messages that reset a session.")] = ("/new", "/reset")
    idle_minutes: Annotated[int | None, option("The older place of reset.idleMinutes.", gt=0)] = None


class QueueOptions(Section, frozen=True):
    """What happens to messages that arrive while their session is busy."""

    foreign: ClassVar = {"": "debounceMsByChannel"}

    mode: Annotated[
        QueueMode,
        option(
            "steer: they join the running turn; followup: each its own turn; collect: one turn for all waiting ones;"
            " interrupt: the newest stops the running one. The last three names are of older releases."
        ),
    ] = "steer"
    by_channel: Annotated[dict[str, QueueMode], option("The mode of one channel.")] = {}
    debounce_ms: Annotated[int, option("How long collect waits for more, in milliseconds.", ge=0, le=60_000)] = 500
    cap: Annotated[int, option("How many may wait in one session.", ge=1, le=1000)] = 20
    drop: Annotated[
        Literal["summarize", "old", "new"],
        option(
            "When more come: leave the oldest unanswered and tell the model (summarize) or not (old), or refuse the"
            " newest (new). What was accepted stays in the transcript."
        ),
    ] = "summarize"


class EnvOptions(Section, frozen=True):
    """Variables for ${NAME}. The environment of the process takes precedence. Older configs put them directly under
    `env`.
    """

    foreign: ClassVar = {"": "shellEnv"}
    free: ClassVar = True

    vars: Annotated[dict[str, str], option("Values by name, used if the process has no such variable.")] = {}


class ResetRule(Struct, frozen=True):
    """When a session resets automatically. With both a daily hour and idle minutes, whichever comes first."""

    mode: Literal["none", "daily", "idle"] = "none"
    at_hour: int = DAILY_RESET_HOUR
    idle_minutes: int | None = None


def agent_ids(config: Config) -> tuple[str, ...]:
    """The agents of the config in order; `main` if it names none."""
    return config.agent_ids


def default_agent(config: Config) -> str:
    """The agent for messages that name none: the marked one, else `main`, else the first."""
    ids = config.agent_ids
    marked = (agent for agent, own in config.own_places.items() if _first_said(config, own, "default"))
    return next(marked, DEFAULT_AGENT if DEFAULT_AGENT in ids else ids[0])


def agent_folder(config: Config, home: Home, agent_id: str) -> Path:
    """Where the agent's own keys are kept. A foreign home is only read: a folder that its config names is not used."""
    named = _first_said(config, config.own_places.get(agent_id, ()), "agentDir") if home.ours else None
    if isinstance(named, str) and named.strip():
        return home.expand(named.strip(), home.root)
    return home.root / "agents" / agent_id


def key_folder(config: Config, home: Home, agent_id: str) -> Path:
    """Where a new key of an agent is stored: the default agent's in the home, for all, unless it has an `agentDir`."""
    own = agent_folder(config, home, agent_id)
    return home.root if agent_id == default_agent(config) and own == home.root / "agents" / agent_id else own


def _first_said(config: Config, places: Iterable[JsonPath], key: str) -> Any:
    return next((said for place in places if (said := dig(config.data, (*place, key))) is not None), None)


def agent_settings(config: Config, home: Home, agent_id: str | None = None) -> AgentSettings:
    """The merged settings of an agent, by default the default agent. Raises NotFound."""
    wanted = known_agent(config, agent_id)
    own = [config.at(AgentEntry, *path) for path in config.own_places.get(wanted, ())]
    shared = [config.at(AgentEntry, "agents", "defaults"), config.at(AgentEntry, "agent")]
    identity = _first(own, "identity") or AgentIdentity()
    model, fallbacks = _models([*own, *shared])
    workspace, named = _workspace(config, home, wanted, own, shared)
    return AgentSettings(
        agent_id=wanted,
        workspace=workspace,
        workspace_named=named,
        name=_first(own, "name") or identity.name or wanted,
        identity=AgentIdentity(**asdict(identity)),
        model=model,
        fallbacks=fallbacks,
        **build_values(AgentSettings, [layer.data for layer in config.layers(AgentSettings, wanted)]),
    )


def known_agent(config: Config, agent_id: str | None) -> str:
    """The id of a configured agent, the default one's for None. Raises NotFound."""
    if agent_id is None:
        return default_agent(config)
    wanted = agent_id.strip().lower()
    if wanted not in config.agent_ids:
        raise NotFound(f"there is no agent {agent_id!r}", hint=f"the config has {', '.join(config.agent_ids)}")
    return wanted


def reset_rule(config: Config, chat_type: str, channel: str = "") -> ResetRule:
    """The reset policy for a chat: its channel's if set, else its type's, else the general one.

    `chat_type` is direct, group, channel or thread; channels use the rule for groups. Older spellings
    (`session.idleMinutes`, `resetByType.dm`) count.
    """
    session = config.section(SessionSettings)
    if by_channel := session.reset_by_channel.get(channel):
        return _rule(by_channel)
    types = session.reset_by_type
    by_type = {"direct": types.direct or types.dm, "group": types.group, "channel": types.group, "thread": types.thread}
    if policy := by_type.get(chat_type):
        return _rule(policy)
    return _rule(session.reset, session.idle_minutes)


def _rule(policy: ResetOptions, old_idle_minutes: int | None = None) -> ResetRule:
    idle = policy.idle_minutes or old_idle_minutes
    return ResetRule(policy.mode or ("idle" if idle else "none"), policy.at_hour, idle)


def _first(entries: list[AgentEntry], name: str) -> Any:
    return next((value for entry in entries if (value := getattr(entry, name)) is not None), None)


def _models(entries: list[AgentEntry]) -> tuple[str, tuple[str, ...]]:
    """The model and fallbacks. A model given as a plain string has no fallbacks."""
    fallbacks: tuple[str, ...] = ()
    for entry in entries:
        if isinstance(entry.model, str):
            return entry.model, fallbacks
        if isinstance(entry.model, ModelSelection):
            fallbacks = fallbacks or entry.model.fallbacks
            if entry.model.primary:
                return entry.model.primary, fallbacks
    return "", fallbacks


def _workspace(
    config: Config, home: Home, agent_id: str, own: list[AgentEntry], shared: list[AgentEntry]
) -> tuple[Path, bool]:
    """The agent's workspace, and whether a person chose it: in a foreign home we choose none. Paths in a foreign config
    are relative to its own home."""
    if home.workspace_override is not None:
        return home.workspace_override, True
    base = home.root if home.ours else home.config_path.parent
    if named := _first(own, "workspace"):
        return home.expand(named, base), True
    is_default = agent_id == default_agent(config)
    if common := _first(shared, "workspace"):
        return home.expand(common, base) / ("" if is_default else agent_id), is_default or not home.ours
    return base / ("workspace" if is_default else f"workspace-{agent_id}"), not home.ours
