"""Settings of routing and admission: bindings, broadcast, channels with their accounts and groups, owners, mentions.

What all channels share stands here. A channel's own keys (tokens, streaming, reactions) are of its adapter; until there
is one they are kept, and reported as not used.
"""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from palinurus.config.agents import DmScope, GroupScope
from palinurus.config.load import Config, normal_agent_id
from palinurus.config.section import REGISTRY, Section, build, dig, option
from palinurus.config.source import JsonPath
from palinurus.config.tree import Findings
from palinurus.text.patterns import LinearPatterns
from palinurus.text.words import nearest

PeerKind = Literal["direct", "dm", "group", "channel"]
Sender = str | int
ANY = "*"
DEFAULT_ACCOUNT = "default"
ACCESS_GROUP = "accessgroup:"
DEFAULTS = "defaults"  # under `channels`: what holds for all of them
HISTORY_LIMIT = 50
OPEN_TO_NOBODY = 'open needs "*" in allowFrom; until then only those listed may write'
SHARED_BY_STRANGERS = (
    "anybody may write, and shares the main session with its memory; set session.dmScope to per-channel-peer"
)
NOT_YET = "there is no such channel here yet; who may speak on it and which agent answers is known already"


def _check_pattern(pattern: Any) -> None:
    LinearPatterns((pattern,))


def _odd_owners(owners: Any) -> str:
    bare = [str(each) for each in owners if ":" not in str(each)]
    return f"{bare[0]} names no channel: whoever has this id on any channel is the owner" if bare else ""


class PeerMatch(Section, frozen=True):
    """One chat, or all of a kind."""

    kind: Annotated[PeerKind, option("direct, group or channel; dm is the older name of direct.")]
    id: Annotated[Sender, option("The id of the chat; * or none: any.")] = ANY


class BindingMatch(Section, frozen=True):
    """Which messages are meant. Everything that is given must fit."""

    channel: Annotated[str, option("The channel, such as telegram.")]
    account_id: Annotated[Sender | None, option("An account of the channel; *: any. Unset: its default account.")] = (
        None
    )
    peer: Annotated[PeerMatch | None, option("One chat, or all of a kind.")] = None
    guild_id: Annotated[Sender | None, option("A Discord server.")] = None
    roles: Annotated[tuple[Sender, ...], option("Roles in the server, of which the sender has one.")] = ()
    team_id: Annotated[Sender | None, option("A Slack workspace, or a team of Microsoft Teams.")] = None


class BindingSession(Section, frozen=True):
    """Which session the messages of a binding belong to."""

    dm_scope: Annotated[DmScope | None, option("As session.dmScope.")] = None
    group_scope: Annotated[GroupScope | None, option("As session.groupScope.")] = None


class BindingOptions(Section, frozen=True):
    """Which agent answers some messages. It never grants access: that is the channel's part."""

    agent_id: Annotated[str, option("The agent that answers.")]
    match: Annotated[BindingMatch, option("Which messages are meant.")]
    type: Annotated[
        Literal["route", "acp"],
        option("What is bound.", idle=lambda said: "there are no ACP sessions here" if said == "acp" else ""),
    ] = "route"
    comment: Annotated[str | None, option("A remark for whoever reads the file.")] = None
    session: Annotated[BindingSession, option("Which session its messages belong to.")] = BindingSession()


class BroadcastOptions(Section, frozen=True):
    """Chats that several agents answer: the id of the chat, and a list of agents."""

    free: ClassVar = True

    strategy: Annotated[
        Literal["parallel", "sequential"], option("Whether the agents answer at once or one after the other.")
    ] = "parallel"


class CommandOptions(Section, frozen=True):
    """Who may use commands."""

    foreign: ClassVar = {
        "": """bash bashForegroundMs config debug mcp native nativeSkills ownerDisplay ownerDisplaySecret plugins
        restart text useAccessGroups"""
    }

    owner_allow_from: Annotated[
        tuple[Sender, ...],
        option(
            "The owner's ids on channels, such as telegram:123. The first `pal pairing approve` sets it.",
            odd=_odd_owners,
        ),
    ] = ()
    allow_from: Annotated[
        dict[str, tuple[Sender, ...]],
        option("Who besides the owner may use /new, /compact and /stop: senders by channel; *: of any channel."),
    ] = {}


class GroupChatOptions(Section, frozen=True):
    """When an agent is spoken to in a group."""

    foreign: ClassVar = {"": "unmentionedInbound visibleReplies"}

    mention_patterns: Annotated[
        tuple[Annotated[str, option("", check=_check_pattern)], ...] | None,
        option("Regular expressions; a message in which one is found speaks to the agent. Unset: its name and emoji."),
    ] = None
    history_limit: Annotated[
        int, option("How many messages to others the agent is told of when it is spoken to.", ge=0, le=500)
    ] = HISTORY_LIMIT


class AccessGroupOptions(Section, frozen=True):
    """Senders under a name, for lists: accessGroup:<name>."""

    type: Annotated[
        Literal["message.senders", "discord.channelAudience"],
        option(
            "How its members are known.",
            idle=lambda said: "" if said == "message.senders" else "who can see a channel is not known here",
        ),
    ] = "message.senders"
    members: Annotated[
        dict[str, tuple[Sender, ...]], option("Senders by channel; *: the same ids on every channel.")
    ] = {}


class TopicOptions(Section, frozen=True):
    """One topic of a group. What is unset is as in the group."""

    foreign: ClassVar = {"": "agentId errorCooldownMs errorPolicy groupPolicy ingest skills systemPrompt"}

    enabled: Annotated[bool | None, option("Whether the agent answers here.")] = None
    require_mention: Annotated[bool | None, option("Whether it answers only those who speak to it.")] = None
    allow_from: Annotated[tuple[Sender, ...] | None, option("Who may speak here.")] = None


class GroupOptions(TopicOptions, frozen=True):
    """One group, or * for all others."""

    foreign: ClassVar = {
        "": "agentId autoThread errorCooldownMs errorPolicy groupPolicy ingest roles skills systemPrompt users"
    }

    topics: Annotated[dict[str, TopicOptions], option("Its topics and threads.")] = {}
    tools: Annotated[Any, option("Which tools may be used here: see tools.")] = None
    tools_by_sender: Annotated[Any, option("The same for single senders.")] = None


class AccountSettings(Section, frozen=True):
    """One account of a channel. What is unset is as in the channel."""

    foreign: ClassVar = {
        "": """ackReaction actions allowBots apiRoot appToken audience autoThread blockStreaming blockStreamingCoalesce
        botToken cacheTtl capabilities channels chunkMode cliPath commands configWrites contextVisibility
        customCommands dangerouslyAllowNameMatching dm dmHistoryLimit dms draftChunk eventQueue execApprovals
        groupDmEnabled guilds healthMonitor heartbeat httpPort httpUrl inboundWorker intents linkPreview markdown
        mediaMaxMb mode name nativeApprovals network password pluralkit presence proxy reactionLevel
        reactionNotifications replyToMode replyToModeByChatType responsePrefix retry selfChatMode sendReadReceipts
        service serverUrl signingSecret slashCommand streamMode streaming textChunkLimit textMode thread
        threadBindings timeoutSeconds token tokenFile typingReaction ui unfurlLinks unfurlMedia userToken
        userTokenReadOnly voice webhookHost webhookPath webhookPort webhookSecret webhookUrl"""
    }

    enabled: Annotated[bool, option("Whether it is used.")] = True
    dm_policy: Annotated[
        Literal["pairing", "allowlist", "open", "disabled"],
        option(
            "Who may write directly: those on allowFrom or with an approved pairing, only those on allowFrom, anybody"
            " (allowFrom must have *), or nobody."
        ),
    ] = "pairing"
    allow_from: Annotated[tuple[Sender, ...], option("Who may write directly.")] = ()
    group_policy: Annotated[
        Literal["allowlist", "open", "disabled"],
        option("Who may speak in groups: those on groupAllowFrom, every member, or nobody."),
    ] = "allowlist"
    group_allow_from: Annotated[
        tuple[Sender, ...] | None, option("Who may speak in groups. Unset: as allowFrom; pairings do not count.")
    ] = None
    groups: Annotated[
        dict[str, GroupOptions],
        option("Groups by id, and * for all others. When any are listed, the agent answers in those only."),
    ] = {}
    history_limit: Annotated[
        int | None, option("As messages.groupChat.historyLimit, which is used when this is unset.", ge=0, le=500)
    ] = None


class ChannelSettings(AccountSettings, frozen=True):
    """One channel. An account's own settings come first, then these, then channels.defaults."""

    default_account: Annotated[str, option("The account that is meant when none is named.")] = DEFAULT_ACCOUNT
    accounts: Annotated[dict[str, AccountSettings], option("Accounts by id.")] = {}


def check_routes(config: Config, told: Findings) -> None:
    """What no single section can see: agents and groups of senders that do not exist, and doors that stand open."""
    known = config.agent_ids if not any(path[:1] == ("agents",) for path in told.wrong) else ()
    for path, name in (*_agents_of_bindings(config.data), *_agents_of_broadcast(config.data, told)):
        if known and _normal(name) not in known:
            near = nearest(name, known)
            meant = f"did you mean {near}?" if near else f"configured: {', '.join(known)}"
            told.wrong[path] = f"there is no agent {name!r}; {meant}"
    channels = config.data.get("channels")
    if isinstance(channels, dict) and not any(path[:1] == ("channels",) for path in told.wrong):
        _check_channels(config, channels, told)


def _agents_of_bindings(data: dict[str, Any]) -> Iterator[tuple[JsonPath, str]]:
    bindings = data.get("bindings")
    for index, each in enumerate(bindings if isinstance(bindings, list) else ()):
        if isinstance(name := dig(each, ("agentId",)), str):
            yield ("bindings", index, "agentId"), name


def _agents_of_broadcast(data: dict[str, Any], told: Findings) -> Iterator[tuple[JsonPath, str]]:
    broadcast = data.get("broadcast")
    for peer, agents in (broadcast if isinstance(broadcast, dict) else {}).items():
        if peer == "strategy":
            continue
        if not isinstance(agents, list) or not all(isinstance(each, str) for each in agents):
            told.wrong["broadcast", peer] = "should be a list of agents"
            continue
        for index, name in enumerate(agents):
            yield ("broadcast", peer, index), name


def _check_channels(config: Config, channels: dict[str, Any], told: Findings) -> None:
    named = dig(config.data, ("accessGroups",)) or {}
    for path, entry in _sender_lists(channels, ("channels",)):
        group = str(entry)[len(ACCESS_GROUP) :].strip()
        if str(entry).lower().startswith(ACCESS_GROUP) and group not in named:
            told.odd.append((path, f"there is no access group {group!r}, so nobody is meant"))
    scope, owners = dig(config.data, ("session", "dmScope")), dig(config.data, ("commands", "ownerAllowFrom"))
    shares_main = scope == "main" or (scope is None and not owners)
    for channel, said in channels.items():
        if channel == DEFAULTS:
            continue
        if channel not in known_channels():
            told.unused.append((("channels", channel), NOT_YET))
        for account in (None, *(said.get("accounts") or ())):
            path = ("channels", channel, *(("accounts", account) if account else ()))
            own, settings = dig(config.data, path), account_settings(config, channel, account or DEFAULT_ACCOUNT)
            is_open = ANY in settings.allow_from
            if own.get("dmPolicy") == "open" and not is_open:
                told.odd.append(((*path, "dmPolicy"), OPEN_TO_NOBODY))
            elif is_open and shares_main and settings.dm_policy != "disabled" and "allowFrom" in own:
                told.odd.append(((*path, "allowFrom"), SHARED_BY_STRANGERS))


def _sender_lists(value: Any, path: JsonPath) -> Iterator[tuple[JsonPath, Any]]:
    for key, item in value.items() if isinstance(value, dict) else ():
        if key in ("allowFrom", "groupAllowFrom") and isinstance(item, list):
            yield from (((*path, key, index), entry) for index, entry in enumerate(item))
        else:
            yield from _sender_lists(item, (*path, key))


def known_channels() -> frozenset[str]:
    """Channels that somebody has declared settings for: there is an adapter for them."""
    places = (mount.place for mounts in REGISTRY.mounts.values() for mount in mounts)
    return frozenset(place[1] for place in places if place[0] == "channels" and len(place) == 2 and place[1] != "*")


def account_settings(config: Config, channel: str, account: str) -> AccountSettings:
    """The settings that all channels share, of one account."""
    return build(AccountSettings, account_layers(config, channel, account))


def account_layers(config: Config, channel: str, account: str) -> list[dict[str, Any]]:
    """What the config says of one account of a channel: its own, then the channel's, then that of all channels."""
    channels = dig(config.data, ("channels",)) or {}
    own = channels.get(channel) or {}
    accounts = own.get("accounts") or {}
    return [accounts.get(account) or {}, own, channels.get(DEFAULTS) or {}]


def _normal(name: str) -> str:
    try:
        return normal_agent_id(name)
    except ValueError:
        return ""
