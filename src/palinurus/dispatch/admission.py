"""Who may speak to an agent at all. Pure but for the messages that wait in memory; bindings never grant access.

A sender is known by channel, account, surface (a direct chat, or a group) and id: a pairing in a direct chat opens no
group. In a group the policy is asked, then whether the group is listed, then the sender, then whether the message
speaks to the agent. What people say to each other there is kept for a while, in memory only, and told to the agent when
somebody speaks to it, as text from outside.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

from palinurus.config.load import Config
from palinurus.config.section import dig
from palinurus.dispatch.routing import RoutingTable, sender_id
from palinurus.dispatch.settings import (
    ACCESS_GROUP,
    ANY,
    AccessGroupOptions,
    AccountSettings,
    CommandOptions,
    GroupChatOptions,
    GroupOptions,
    TopicOptions,
    account_settings,
)
from palinurus.domain.envelope import Inbound, Peer
from palinurus.domain.identity import AgentIdentity
from palinurus.domain.messages import ContextNote, Origin, harmless, wrapped
from palinurus.text.patterns import LinearPatterns

Outcome = Literal["admitted", "pairing", "refused"]
MOST_GROUPS = 500  # with messages that wait; the one that was quiet longest goes first
LONGEST_ENTRY = 2_000  # characters of a message that waits
LONGEST_HISTORY = 20_000  # of all in one group
LONGEST_NAME = 64
FORWARDED = "[a forwarded message]"  # the text of a message whose own text is a note: others wrote it
_SIGNS = dict.fromkeys(map(ord, ":()[]<>"), " ")


class AdmissionPolicy(Struct, frozen=True):
    """What the config says about one account of a channel."""

    channel: str
    settings: AccountSettings
    groups: Mapping[str, frozenset[str]]  # access groups, with their members on this channel
    commanders: frozenset[str]  # who besides the owner may use commands


class Admission(Struct, frozen=True):
    """Whether a sender may speak here, and why; `needs_mention`: only when the message speaks to the agent."""

    outcome: Outcome
    why: str
    needs_mention: bool = False


def admission_policy(config: Config, channel: str, account: str) -> AdmissionPolicy:
    named = dig(config.data, ("accessGroups",)) or {}
    groups = {
        name.lower(): _members(config.at(AccessGroupOptions, "accessGroups", name).members, channel) for name in named
    }
    commands = config.section(CommandOptions)
    return AdmissionPolicy(
        channel, account_settings(config, channel, account), groups, _members(commands.allow_from, channel)
    )


def _members(by_channel: Mapping[str, Iterable[str | int]], channel: str) -> frozenset[str]:
    listed = (entry for name in (channel, ANY) for entry in by_channel.get(name, ()))
    return frozenset(sender_id(channel, entry) for entry in listed)


def admit(policy: AdmissionPolicy, peer: Peer, sender: str, *, paired: bool) -> Admission:
    """Whether the sender may speak. `paired`: whether a person has approved them in direct chats of this account."""
    if not policy.settings.enabled:
        return Admission("refused", f"{policy.channel} is switched off (enabled)")
    if peer.kind == "direct":
        return _admit_direct(policy, sender, paired=paired)
    return _admit_in_group(policy, peer, sender)


def _admit_direct(policy: AdmissionPolicy, sender: str, *, paired: bool) -> Admission:
    said = policy.settings
    if said.dm_policy == "disabled":
        return Admission("refused", "direct chats are switched off (dmPolicy)")
    if said.dm_policy == "open" and ANY in said.allow_from:
        return Admission("admitted", "direct chats are open to everybody (dmPolicy)")
    if is_listed(policy, sender, said.allow_from):
        return Admission("admitted", "the sender is on allowFrom")
    if said.dm_policy == "pairing":
        return (
            Admission("admitted", "the sender was paired") if paired else Admission("pairing", "nobody knows them yet")
        )
    return Admission("refused", "the sender is not on allowFrom")


def _admit_in_group(policy: AdmissionPolicy, peer: Peer, sender: str) -> Admission:
    if refusal := group_refusal(policy, peer):
        return Admission("refused", refusal)
    said, places = policy.settings, _group_places(policy.settings, peer)
    own = next((place.allow_from for place in places if place.allow_from is not None), None)
    fallback = said.allow_from if said.group_allow_from is None else said.group_allow_from
    if own is None and said.group_policy == "open":
        why = "every member may speak (groupPolicy)"
    elif is_listed(policy, sender, fallback if own is None else own):
        why = "the sender is listed for groups"
    else:
        return Admission("refused", "the sender is not listed for groups (groupAllowFrom, allowFrom of the group)")
    wanted = next((place.require_mention for place in places if place.require_mention is not None), True)
    return Admission("admitted", why, needs_mention=wanted)


def group_refusal(policy: AdmissionPolicy, peer: Peer) -> str:
    """Why the agent takes no part in a group, whoever speaks; empty: it does."""
    said, places = policy.settings, _group_places(policy.settings, peer)
    if said.group_policy == "disabled":
        return "groups are switched off (groupPolicy)"
    if said.groups and not places:
        return f"the group {peer.id} is not listed under groups"
    return f"the group {peer.id} is switched off (enabled)" if any(each.enabled is False for each in places) else ""


def _group_places(said: AccountSettings, peer: Peer) -> list[TopicOptions | GroupOptions]:
    """What is said about a group, the nearest first: its topic, the group, all groups. Empty: it is not listed."""
    groups = {name.strip().lower(): about for name, about in said.groups.items()}
    ids = (peer.id.strip().lower(), peer.parent.strip().lower())
    found = [groups[name] for name in dict.fromkeys((*filter(None, ids), ANY)) if name in groups]
    topics = (about.topics.get(name) for about in found for name in (peer.thread, ANY) if peer.thread)
    return [*filter(None, topics), *found]


def is_listed(policy: AdmissionPolicy, sender: str, entries: Iterable[str | int]) -> bool:
    """Whether a list names the sender: by id, through an access group, or with `*`."""
    wanted = sender_id(policy.channel, sender)
    for entry in entries:
        text = str(entry).strip().lower()
        if text.startswith(ACCESS_GROUP):
            if not {wanted, ANY}.isdisjoint(policy.groups.get(text[len(ACCESS_GROUP) :].strip(), frozenset())):
                return True
        elif text == ANY or (wanted and sender_id(policy.channel, text) == wanted):
            return True
    return False


def origin_of(table: RoutingTable, policy: AdmissionPolicy, sender: str) -> tuple[Origin, bool]:
    """In whose voice a sender speaks, and whether commands are for them."""
    if table.is_owner(policy.channel, sender):
        return Origin.OWNER, True
    return Origin.OUTSIDE, not {sender_id(policy.channel, sender), ANY}.isdisjoint(policy.commanders)


def mention_patterns(config: Config, agent_id: str, identity: AgentIdentity) -> tuple[str, ...]:
    """The patterns of an agent: those of the config, else its name and its emoji."""
    said = config.section(GroupChatOptions, agent_id).mention_patterns
    return name_patterns(identity) if said is None else said


def name_patterns(identity: AgentIdentity) -> tuple[str, ...]:
    words = [_literal(word) for word in identity.name[:LONGEST_NAME].split()]
    emoji = _literal(identity.emoji.strip()[:8])
    name = r"\s+".join(words)
    return (*((rf"(^|\W)@?{name}($|\W)",) if words else ()), *((emoji,) if emoji else ()))


def _literal(text: str) -> str:
    return "".join(char if char.isalnum() else f"[{char}]" if char not in "[]\\^-" else f"\\{char}" for char in text)


def is_spoken_to(text: str, peer: Peer, patterns: LinearPatterns) -> bool:
    """Whether a message in a group speaks to the agent. May take some milliseconds for a long text."""
    return peer.mentioned or patterns.found_in(text)


def history_limit(config: Config, policy: AdmissionPolicy) -> int:
    own = policy.settings.history_limit
    return config.section(GroupChatOptions).history_limit if own is None else own


class OverheardMessage(Struct, frozen=True):
    sender: str  # channel:id
    name: str
    text: str


class GroupHistory:
    """What was said in groups and not to the agent, by session. It is told once, with the next message to the agent."""

    def __init__(self) -> None:
        self._groups: OrderedDict[str, deque[OverheardMessage]] = OrderedDict()

    def add(self, session_key: str, inbound: Inbound, limit: int) -> None:
        kept = self._groups.pop(session_key, deque())
        self._groups[session_key] = kept
        text = "\n".join(note.text for note in inbound.notes) if inbound.text == FORWARDED else inbound.text
        text = text[:LONGEST_ENTRY]
        if text.strip():
            kept.append(OverheardMessage(f"{inbound.channel}:{inbound.sender}", shown_name(inbound), text))
        size = sum(len(each.text) for each in kept)
        while kept and (len(kept) > limit or size > LONGEST_HISTORY):
            size -= len(kept.popleft().text)
        while len(self._groups) > MOST_GROUPS:
            self._groups.popitem(last=False)

    def take(self, session_key: str) -> tuple[ContextNote, ...]:
        """All that waits, as one note."""
        kept = self._groups.pop(session_key, ())
        if not kept:
            return ()
        lines = "\n".join(f"{each.name}: {each.text}" for each in kept)
        sources = tuple(dict.fromkeys(f"sender:{each.sender}" for each in kept))
        told = f"Messages in this chat since you were last spoken to.\n{wrapped('this chat', lines)}"
        return (ContextNote("history", told, origin=Origin.OUTSIDE, sources=sources),)


def plain_name(chosen: str) -> str:
    """A name that somebody chose, without what could be read as an id, a label or an end of the name."""
    return " ".join(harmless(chosen).translate(_SIGNS).split())[:LONGEST_NAME].lstrip("/ ")


def shown_name(inbound: Inbound) -> str:
    """A sender as the model reads it: the name that they chose, and the id that they cannot choose."""
    name = plain_name(inbound.peer.sender_name if inbound.peer else "")
    number = " ".join(harmless(inbound.sender).split())[:LONGEST_NAME].lstrip("/ ")
    return f"{name} ({number})" if name else number or "somebody"
