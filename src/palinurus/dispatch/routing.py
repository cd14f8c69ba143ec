"""Which agent answers a message, and in which session. Pure; the router and `pal route explain` are one function.

Bindings are ranked by how exactly they name the place of a message: the chat itself, the chat in which its thread was
opened, all chats of a kind, a server with roles, a server, a team, an account, a whole channel. Inside a rank the first
in the config wins; when none fits, the default agent answers. A binding without an account means the channel's default
account, so it ranks as one of that account; `*` is the whole channel. A route grants nothing: see admission.py.
"""

from __future__ import annotations

import hashlib
import string
from collections.abc import Iterator, Mapping
from typing import Literal

from msgspec import Struct

from palinurus.config.agents import DmScope, GroupScope, SessionSettings, default_agent
from palinurus.config.load import Config, normal_agent_id
from palinurus.config.section import dig
from palinurus.dispatch.settings import ANY, DEFAULT_ACCOUNT, DEFAULTS, BindingOptions, BroadcastOptions, CommandOptions
from palinurus.domain.envelope import Peer
from palinurus.domain.keys import PEER_KINDS, SessionKey

Tier = Literal[
    "peer", "parent", "peer-wildcard", "guild-roles", "guild", "team", "account", "channel", "default", "broadcast"
]
TIERS: tuple[Tier, ...] = (
    "peer", "parent", "peer-wildcard", "guild-roles", "guild", "team", "account", "channel"
)  # fmt: skip
MOST_MISSES = 20
LONGEST_ID = 128
PREFIXES = {"tg": "telegram"}  # short names of channels in lists of senders
_SMALL = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


class Binding(Struct, frozen=True):
    """One binding of the config. An empty field is not given."""

    index: int
    agent: str
    channel: str
    account: str = ""  # empty: the default account; *: any
    peer_kind: str = ""
    peer: str = ""  # *: any of its kind
    guild: str = ""
    roles: tuple[str, ...] = ()
    team: str = ""
    dm_scope: DmScope | None = None
    group_scope: GroupScope | None = None


class RoutingTable(Struct, frozen=True):
    """What the config says about routes."""

    default_agent: str
    bindings: tuple[Binding, ...] = ()
    dm_scope: DmScope | None = None  # None: the config says nothing
    group_scope: GroupScope = "per-group"
    scope: Literal["per-sender", "global"] = "per-sender"
    links: Mapping[str, str] = {}  # channel:id -> the name of a person
    default_accounts: Mapping[str, str] = {}
    broadcast: Mapping[str, tuple[str, ...]] = {}  # the id of a chat -> agents
    strategy: Literal["parallel", "sequential"] = "parallel"
    owners: frozenset[str] = frozenset()  # channel:id, or an id alone

    def account(self, channel: str, account: str) -> str:
        """The account that is meant; empty: the default one."""
        return account.strip().lower() or self.default_accounts.get(channel, DEFAULT_ACCOUNT)

    def is_owner(self, channel: str, sender: str) -> bool:
        """`sender` is an id of the network as it is: on some networks people choose theirs, such as `telegram:1`."""
        plain = sender.translate(_SMALL)
        return f"{channel}:{plain}" in self.owners or (":" not in plain and plain in self.owners)


class Place(Struct, frozen=True, rename="camel"):
    """Where a message was written, in the form in which bindings are compared."""

    channel: str
    account: str
    kind: str
    peer: str
    parent: str = ""
    thread: str = ""
    guild: str = ""
    roles: frozenset[str] = frozenset()
    team: str = ""


class RouteTarget(Struct, frozen=True, rename="camel"):
    agent_id: str
    session_key: str


class NearMiss(Struct, frozen=True, rename="camel"):
    """A binding that did not decide, and why."""

    binding: int
    agent_id: str
    why: str


class MessageRoute(Struct, frozen=True, rename="camel"):
    """Who answers, and why. `binding` is an index of the config's bindings."""

    agent_id: str
    session_key: str
    tier: Tier
    binding: int | None
    why: str
    session_why: str
    near_misses: tuple[NearMiss, ...] = ()  # the nearest first
    targets: tuple[RouteTarget, ...] = ()  # all agents that answer: several with a broadcast
    strategy: Literal["parallel", "sequential"] = "parallel"
    channel: str = ""
    account: str = ""


def routing_table(config: Config) -> RoutingTable:
    session, broadcast = config.section(SessionSettings), config.section(BroadcastOptions)
    channels = dig(config.data, ("channels",)) or {}
    accounts = {
        name.lower(): _id(said["defaultAccount"]) for name, said in channels.items() if "defaultAccount" in said
    }
    peers = (dig(config.data, ("broadcast",)) or {}).items()
    owners = config.section(CommandOptions).owner_allow_from
    return RoutingTable(
        default_agent(config),
        tuple(_bindings(config)),
        session.dm_scope if dig(config.data, ("session", "dmScope")) else None,
        session.group_scope,
        session.scope,
        {_link(entry): name.strip().lower() for name, listed in session.identity_links.items() for entry in listed},
        {name: account for name, account in accounts.items() if name != DEFAULTS},
        {_id(peer): tuple(map(normal_agent_id, agents)) for peer, agents in peers if peer != "strategy" and agents},
        broadcast.strategy,
        frozenset(_link(str(each)) for each in owners),
    )


def _bindings(config: Config) -> Iterator[Binding]:
    for index in range(len(dig(config.data, ("bindings",)) or ())):
        said = config.at(BindingOptions, "bindings", index)
        match, peer = said.match, said.match.peer
        if said.type == "route":
            yield Binding(
                index,
                normal_agent_id(said.agent_id),
                match.channel.strip().lower(),
                "" if match.account_id is None else _id(match.account_id),
                _kind(peer.kind) if peer else "",
                (_id(peer.id) or ANY) if peer else "",
                "" if match.guild_id is None else _id(match.guild_id),
                tuple(map(_id, match.roles)),
                "" if match.team_id is None else _id(match.team_id),
                said.session.dm_scope,
                said.session.group_scope,
            )


def sender_id(channel: str, text: str | int) -> str:
    """A sender in the form in which lists are compared: lower case, without the channel's own name before it."""
    plain = _id(text)
    prefix, colon, rest = plain.partition(":")
    return rest if colon and PREFIXES.get(prefix, prefix) == channel and rest else plain


def find_route(table: RoutingTable, channel: str, account: str, peer: Peer) -> MessageRoute:
    """The route of a message, with its reasons."""
    place = _place(table, channel, account, peer)
    fitting: list[tuple[int, Binding, str]] = []
    missed: list[tuple[int, NearMiss]] = []
    for binding in table.bindings:
        rank, why, fits = _compare(binding, place, table)
        if rank >= 0:
            fitting.append((rank, binding, why))
        elif fits:  # of another channel: no near miss
            missed.append((100 - fits, NearMiss(binding.index, binding.agent, why)))
    fitting.sort(key=lambda each: each[0])  # stable: inside a rank the order of the config
    agents = table.broadcast.get(place.peer, ())
    winner = None if agents or not fitting else fitting[0]
    tier, why = _reason(winner, place, agents, table)
    names = agents or ((winner[1].agent,) if winner else (table.default_agent,))
    keys = [session_of(table, name, place, winner[1] if winner else None) for name in names]
    beaten = [(each[0], NearMiss(each[1].index, each[1].agent, _beaten(each, winner))) for each in fitting]
    misses = [miss for _, miss in sorted((*beaten, *missed), key=lambda each: each[0])]
    chosen = winner[1].index if winner else None
    return MessageRoute(
        names[0],
        str(keys[0][0]),
        tier,
        chosen,
        why,
        keys[0][1],
        tuple(miss for miss in misses if miss.binding != chosen)[:MOST_MISSES],
        tuple(RouteTarget(name, str(key)) for name, (key, _) in zip(names, keys, strict=True)),
        table.strategy,
        place.channel,
        place.account,
    )


def _place(table: RoutingTable, channel: str, account: str, peer: Peer) -> Place:
    name = channel.strip().lower()
    return Place(
        name,
        table.account(name, account),
        peer.kind,
        _id(peer.id),
        _id(peer.parent),
        _id(peer.thread),
        _id(peer.guild),
        frozenset(map(_id, peer.roles)),
        _id(peer.team),
    )


def _compare(binding: Binding, place: Place, table: RoutingTable) -> tuple[int, str, int]:
    """The rank of a binding that fits, and what fits; else -1, what does not, and how many of its fields do fit."""
    if binding.channel != place.channel:
        return -1, "", 0
    fits = 1
    wanted = binding.account or table.account(place.channel, "")
    if binding.account != ANY and wanted != place.account:
        named = f"account {wanted!r}" if binding.account else f"no account, which means {wanted!r}"
        return -1, f"it names {named}; the message came to {place.account!r}", fits
    rank = TIERS.index("channel" if binding.account == ANY else "account")
    for given, has, name, tier in (
        (binding.team, place.team, "team", "team"),
        (binding.guild, place.guild, "server", "guild"),
    ):
        if given and given != has:
            return -1, f"it names the {name} {given!r}; the message is of {repr(has) if has else 'none'}", fits
        rank, fits = (TIERS.index(tier), fits + 1) if given else (rank, fits)
    if binding.roles:
        if place.roles.isdisjoint(binding.roles):
            return -1, f"the sender has none of its roles: {', '.join(binding.roles)}", fits
        rank, fits = TIERS.index("guild-roles") if binding.guild else rank, fits + 1
    if not binding.peer_kind:
        return rank, "", fits
    return _compare_peer(binding, place, fits)


def _compare_peer(binding: Binding, place: Place, fits: int) -> tuple[int, str, int]:
    if binding.peer_kind != place.kind:
        return -1, f"it is for {_plural(binding.peer_kind)}; this is a {_singular(place.kind)}", fits
    fits += 1
    if binding.peer == ANY:
        return TIERS.index("peer-wildcard"), "", fits
    if binding.peer == place.peer:
        return TIERS.index("peer"), "", fits
    if binding.peer == place.parent:
        return TIERS.index("parent"), "", fits
    return -1, f"it names the {_singular(binding.peer_kind)} {binding.peer!r}, not {place.peer!r}", fits


_MEANINGS: Mapping[str, str] = {
    "peer": "names exactly this chat",
    "parent": "names the chat in which this thread was opened",
    "peer-wildcard": "is for all chats of this kind",
    "guild-roles": "names the server and a role of the sender",
    "guild": "names the server",
    "team": "names the team",
    "account": "names this account of the channel",
    "channel": "is for the whole channel",
}


def _reason(
    winner: tuple[int, Binding, str] | None, place: Place, agents: tuple[str, ...], table: RoutingTable
) -> tuple[Tier, str]:
    if agents:
        return (
            "broadcast",
            f"broadcast sends what is written in {place.peer} to {', '.join(agents)}; bindings are not asked",
        )
    if winner is None:
        none = "there are no bindings" if not table.bindings else "no binding fits"
        return "default", f"{none}, so the default agent answers"
    return TIERS[winner[0]], f"binding {winner[1].index} {_MEANINGS[TIERS[winner[0]]]}"


def _beaten(each: tuple[int, Binding, str], winner: tuple[int, Binding, str] | None) -> str:
    tier = TIERS[each[0]]
    if winner is None:
        return f"it fits ({tier}), but a broadcast comes before all bindings"
    if winner[0] == each[0]:
        return f"it fits as exactly ({tier}), but binding {winner[1].index} comes before it in the config"
    return f"it fits ({tier}), but binding {winner[1].index} is more exact ({TIERS[winner[0]]})"


def session_of(table: RoutingTable, agent: str, place: Place, binding: Binding | None) -> tuple[SessionKey, str]:
    """The session of a message with an agent, and why."""
    if table.scope == "global":
        return SessionKey(agent, "named", peer="global"), "session.scope is global: all chats share one session"
    suffix = ("topic" if place.kind == "group" else "thread", place.thread) if place.thread else ("", "")
    if place.kind != "direct":
        scope = (binding.group_scope if binding else None) or table.group_scope
        if scope == "main":
            return SessionKey.main(agent), "groupScope is main: groups share the main session"
        key = SessionKey(agent, place.kind, place.channel, "", _part(place.peer), suffix[0], _part(suffix[1]))
        return key, f"each {place.kind} has a session of its own" + (", and each thread in it" if place.thread else "")
    return _direct_session(table, agent, place, binding)


def _direct_session(table: RoutingTable, agent: str, place: Place, binding: Binding | None) -> tuple[SessionKey, str]:
    scope, why = _dm_scope(table, place, binding)
    thread_kind, thread = ("thread", _part(place.thread)) if place.thread else ("", "")
    person = table.links.get(f"{place.channel}:{place.peer}", "")
    if scope == "main":
        return SessionKey(agent, thread_kind=thread_kind, thread=thread), why
    channel = place.channel if scope != "per-peer" else ""
    account = _part(place.account) if scope == "per-account-channel-peer" else ""
    key = SessionKey(agent, "direct", channel, account, _part(person or place.peer), thread_kind, thread)
    return key, why + (f"; identityLinks knows the sender as {person}" if person else "")


def _dm_scope(table: RoutingTable, place: Place, binding: Binding | None) -> tuple[DmScope, str]:
    if binding and binding.dm_scope:
        return binding.dm_scope, f"binding {binding.index} sets dmScope to {binding.dm_scope}"
    if table.dm_scope:
        return table.dm_scope, f"session.dmScope is {table.dm_scope}"
    if table.owners and not table.is_owner(place.channel, place.peer):
        return "per-channel-peer", "the main session is the owner's, and the sender is not in commands.ownerAllowFrom"
    return "main", "session.dmScope is not set, so direct chats share the main session"


def _id(text: str | int) -> str:
    """Only ASCII letters are made small: others, such as the sign of kelvin, would become letters of other ids."""
    return str(text).strip().translate(_SMALL)


def _kind(kind: str) -> str:
    return "direct" if kind == "dm" else kind


def _link(entry: str) -> str:
    """An entry such as `tg:1` as `telegram:1`."""
    prefix, colon, rest = _id(entry).partition(":")
    return f"{PREFIXES.get(prefix, prefix)}:{rest}" if colon else prefix


def _part(text: str) -> str:
    """An id as a part of a session's key: one that could be read as another key is replaced by its digest."""
    risky = ":thread" in f":{text}" or ":topic" in f":{text}" or not text.isprintable() or len(text) > LONGEST_ID
    risky = risky or text in (*PEER_KINDS, "dm") or text != text.lower()  # keys are read in small letters
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:40] if risky and text else text


def _singular(kind: str) -> str:
    return "direct chat" if kind == "direct" else kind


def _plural(kind: str) -> str:
    return f"{_singular(kind)}s"
