"""What a config says about tools, what is asked, and which of the config's scopes speak about a request.

A scope that is a table (by provider, group or sender) may have several entries that fit. Their denies all hold; the
rest is said by the nearest, so that `*` speaks for those who have no entry of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import Literal

from msgspec import Struct

from palinurus.domain.keys import SessionKey
from palinurus.domain.tool import Restriction

Profile = Literal["minimal", "coding", "messaging", "full"]


class Rules(Struct, frozen=True):
    """What one scope says. `allow` None: nothing is said about what is allowed; empty: nothing is allowed."""

    profile: Profile | None = None
    allow: tuple[str, ...] | None = None
    also_allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class Policy(Struct, frozen=True):
    """Everything that the config says about the tools of one agent. Keys are in lower case."""

    everybody: Rules = Rules()  # tools
    agent: Rules = Rules()  # agents.<id>.tools
    by_provider: Mapping[str, Rules] = {}  # provider or provider/model
    agent_by_provider: Mapping[str, Rules] = {}
    by_group: Mapping[str, Rules] = {}  # "channel:peer", and "channel:*"
    by_sender: Mapping[str, Rules] = {}
    group_by_sender: Mapping[str, Mapping[str, Rules]] = {}  # by group as above, then by sender
    agent_by_sender: Mapping[str, Rules] = {}
    sandboxed: Rules = Rules()
    agent_sandboxed: Rules = Rules()
    subagents: Rules = Rules()
    agent_subagents: Rules = Rules()


class Asked(Struct, frozen=True):
    """One request: may this tool be used, here, by them?"""

    tool: str
    key: SessionKey
    owner: bool = True
    channel: str = "cli"
    sender: str = "owner"
    provider: str = ""
    model: str = ""
    sandboxed: bool = False
    owner_only: bool = False  # the tool says so of itself
    restrictions: tuple[Restriction, ...] = ()
    known_as: tuple[str, ...] = ()  # what else the sender is called: e164:+49…, username:…, name:…
    elevated_allowed: bool = True  # whether exec may leave the sandbox when it asks


class Scope(Struct, frozen=True):
    """One place in the config, and what it says."""

    where: str
    rules: Rules


def scopes_of(policy: Policy, asked: Asked, whoever: bool) -> list[Scope]:
    """Everybody's, the agent's, the group's and, unless it shall hold for whoever speaks, the sender's."""
    agent = f"agents.{asked.key.agent}.tools"
    found = [Scope("tools", policy.everybody), Scope(agent, policy.agent)]
    groups = _groups(asked) if policy.by_group or policy.group_by_sender else ()
    if policy.by_group:
        found += [Scope(group_path(scope.where, "tools"), scope.rules) for scope in fitting(policy.by_group, groups)]
    if whoever:
        return found
    if policy.group_by_sender:
        found += _in_groups(policy.group_by_sender, groups, asked)
    if policy.by_sender:
        found += _by_sender(policy.by_sender, asked, "tools.toolsBySender")
    if policy.agent_by_sender:
        found += _by_sender(policy.agent_by_sender, asked, f"{agent}.toolsBySender")
    return found


def any_sender(policy: Policy, asked: Asked) -> Iterator[Scope]:
    """What is said about senders who may speak here, whoever they are."""
    tables = chain(
        (policy.by_sender, policy.agent_by_sender),
        (policy.group_by_sender.get(group, {}) for group in _groups(asked)),
    )
    return (Scope(f"toolsBySender.{key}", rules) for table in tables for key, rules in table.items())


def both_scopes(everybody: Rules, agent: Rules, asked: Asked, name: str) -> tuple[Scope, Scope]:
    return Scope(f"tools.{name}.tools", everybody), Scope(f"agents.{asked.key.agent}.tools.{name}.tools", agent)


def fitting(table: Mapping[str, Rules], keys: Iterable[str], path: str = "") -> list[Scope]:
    """The entries under these keys, given with the nearest first: that one whole, of the others what they deny."""
    if not table:
        return []
    found = [Scope(f"{path}.{key}" if path else key, table[key]) for key in keys if key in table]
    return found if len(found) < 2 else [found[0], *map(_denying, found[1:])]


def sender_key(text: str) -> str:
    """A key of `toolsBySender` as tables hold it; one without a kind is an id."""
    kind, colon, name = text.strip().lower().partition(":")
    if kind == "*" or (kind in ("channel", "id") and colon):
        return f"{kind}{colon}{name}"
    if kind in ("e164", "username", "name") and colon:
        return f"{kind}:{name.strip().removeprefix('@')}"
    return f"id:{text.strip().lower()}"


def _denying(scope: Scope) -> Scope:
    return Scope(scope.where, Rules(deny=scope.rules.deny))


def _in_groups(tables: Mapping[str, Mapping[str, Rules]], groups: Iterable[str], asked: Asked) -> Iterator[Scope]:
    keys, names = _sender_keys(asked.channel, asked.sender, asked.known_as)
    nearest = True
    for group in groups:
        table, path = tables.get(group, {}), group_path(group, "toolsBySender")
        here = fitting(table, keys, path)
        yield from here if nearest else map(_denying, here)
        yield from _by_name(table, names, path)
        nearest = nearest and not here


def _by_sender(table: Mapping[str, Rules], asked: Asked, path: str) -> Iterator[Scope]:
    keys, names = _sender_keys(asked.channel, asked.sender, asked.known_as)
    yield from fitting(table, keys, path)
    yield from _by_name(table, names, path)


def _by_name(table: Mapping[str, Rules], names: Iterable[str], path: str) -> Iterator[Scope]:
    """People choose their names themselves, so a name stands beside the other entries and adds nothing."""
    for name in names:
        if rules := table.get(name):
            yield Scope(f"{path}.{name}", Rules(allow=rules.allow, deny=rules.deny))


@lru_cache(maxsize=1024)
def _sender_keys(channel: str, sender: str, known_as: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The keys under which a table may speak of a sender, the nearest first; and the names they call themselves."""
    sender = sender.strip().lower()
    aliases = tuple(map(sender_key, known_as))
    phones = (f"e164:{sender}",) if sender.startswith("+") else ()
    known = (alias for kind in ("e164:", "username:") for alias in aliases if alias.startswith(kind))
    keys = (f"channel:{channel.lower()}:{sender}", f"id:{sender}", *phones, *known, "*")
    return tuple(dict.fromkeys(keys)), tuple(alias for alias in aliases if alias.startswith("name:"))


def _groups(asked: Asked) -> tuple[str, ...]:
    if asked.key.kind not in ("group", "channel"):
        return ()
    return f"{asked.key.channel}:{asked.key.peer}", f"{asked.key.channel}:*"


def group_path(group: str, name: str) -> str:
    """Where the config speaks of a group that tables know as "channel:peer"."""
    channel, _, peer = group.partition(":")
    return f"channels.{channel}.groups.{peer}.{name}"
