"""The policy of one agent, gathered from the places of the config that speak about tools, and what is odd about it.

What `channels` says about the tools of groups is read here, of accounts too: a deny that nobody reads would be a
promise that nobody keeps. A session's key does not name the account, so all that is said about a group holds for each
account. A wrong shape there is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from palinurus.config.agents import known_agent
from palinurus.config.load import SHARED, Config
from palinurus.config.section import build, dig
from palinurus.config.source import format_path
from palinurus.config.tree import faults
from palinurus.domain.errors import ConfigError
from palinurus.tools.policy import Policy, Rules, group_path, sender_key
from palinurus.tools.settings import AgentToolOptions, Allowance, ProfiledAllowance
from palinurus.tools.tool_names import allowed_by, denied_by, is_known

Tables = dict[str, dict[str, Rules]]


def policy_of(config: Config, agent_id: str) -> Policy:
    """Everything that the config says about the tools of one agent. Raises NotFound and ConfigError."""
    known_agent(config, agent_id)
    places = [*config.own_places.get(agent_id, ()), *SHARED]
    own = [config.at(AgentToolOptions, *place, "tools") for place in places]
    everybody = config.at(AgentToolOptions, "tools")
    groups, senders = _groups(config)
    return Policy(
        everybody=_rules(everybody),
        agent=_joined(own),
        by_provider=_table([everybody.by_provider], str.lower),
        agent_by_provider=_table([each.by_provider for each in own], str.lower),
        by_group=groups,
        by_sender=_table([everybody.by_sender], sender_key),
        group_by_sender=senders,
        agent_by_sender=_table([each.by_sender for each in own], sender_key),
        sandboxed=_inner([everybody], "sandbox"),
        agent_sandboxed=_inner(own, "sandbox"),
        subagents=_inner([everybody], "subagents"),
        agent_subagents=_inner(own, "subagents"),
    )


def unknown_names(policy: Policy, known_tools: Iterable[str], agent_id: str = "<id>") -> tuple[str, ...]:
    """What is odd about the lists of a policy, one line each.

    An allow list that names nothing there is allows nothing: to ignore it, as OpenClaw does, would grant everything
    the moment its last good name is taken out. So the person is told instead.
    """
    known = tuple(known_tools)
    lines: list[str] = []
    for where, rules in _said(policy, f"agents.{agent_id}.tools"):
        lists = (("allow", rules.allow or ()), ("alsoAllow", rules.also_allow), ("deny", rules.deny))
        for name, entries in lists:
            lines += [
                f"{where}.{name}: there is no tool called {entry}"
                for entry in entries
                if not is_known(entry) and not any(denied_by((entry,), tool) for tool in known)
            ]
        if rules.allow is not None and not any(_may_name(rules.allow, tool) for tool in known):
            lines.append(
                f"{where}.allow names no tool that there is, so no tool is allowed; remove it to lift the limit"
            )
    return tuple(dict.fromkeys(lines))


def _may_name(allow: tuple[str, ...], tool: str) -> bool:
    return bool(allowed_by(allow, tool)) or any("__" in entry for entry in allow)


def _said(policy: Policy, agent: str) -> Iterator[tuple[str, Rules]]:
    yield "tools", policy.everybody
    yield agent, policy.agent
    yield "tools.sandbox.tools", policy.sandboxed
    yield f"{agent}.sandbox.tools", policy.agent_sandboxed
    yield "tools.subagents.tools", policy.subagents
    yield f"{agent}.subagents.tools", policy.agent_subagents
    tables: list[tuple[str, Mapping[str, Rules]]] = [
        ("tools.byProvider", policy.by_provider),
        (f"{agent}.byProvider", policy.agent_by_provider),
        ("tools.toolsBySender", policy.by_sender),
        (f"{agent}.toolsBySender", policy.agent_by_sender),
        *((group_path(group, "toolsBySender"), table) for group, table in policy.group_by_sender.items()),
    ]
    for group, rules in policy.by_group.items():
        yield group_path(group, "tools"), rules
    for path, table in tables:
        for key, rules in table.items():
            yield f"{path}.{key}", rules


def _rules(said: Allowance) -> Rules:
    profile = said.profile if isinstance(said, ProfiledAllowance) else None
    return Rules(profile, said.allow, said.also_allow or (), said.deny)


def _joined(layers: Iterable[Allowance]) -> Rules:
    """What is said about an agent in several places, the nearest first: each key by the nearest, denies by all."""
    rules = [_rules(each) for each in layers]
    return Rules(
        next((each.profile for each in rules if each.profile), None),
        next((each.allow for each in rules if each.allow is not None), None),
        next((each.also_allow for each in rules if each.also_allow), ()),
        tuple(dict.fromkeys(entry for each in rules for entry in each.deny)),
    )


def _table(tables: Iterable[Mapping[str, Allowance]], read_key: Callable[[str], str]) -> dict[str, Rules]:
    found: dict[str, list[Allowance]] = {}
    for table in tables:
        for key, said in table.items():
            found.setdefault(read_key(key.strip()), []).append(said)
    return {key: _joined(said) for key, said in found.items()}


def _inner(tools: Iterable[AgentToolOptions], name: str) -> Rules:
    sections = [getattr(each, name) for each in tools]
    return _joined(section for section in sections if section is not None)


def _groups(config: Config) -> tuple[dict[str, Rules], Tables]:
    """`channels.<channel>.groups.<id>.tools` and `.toolsBySender`, by `channel:id`."""
    groups: dict[str, list[Allowance]] = {}
    senders: dict[str, list[Mapping[str, Allowance]]] = {}
    for channel, inside, path in _listed_groups(config):
        for group, about in _items(inside, path):
            place = (*path, group)
            key = f"{channel}:{group}".strip().lower()
            for name, value in _items(about, place):
                if name == "tools" and value is not None:
                    groups.setdefault(key, []).append(_read(value, (*place, name)))
                elif name == "toolsBySender" and value is not None:
                    table = {
                        sender: _read(each, (*place, name, sender)) for sender, each in _items(value, (*place, name))
                    }
                    senders.setdefault(key, []).append(table)
    return (
        {key: _joined(said) for key, said in groups.items()},
        {key: _table(tables, sender_key) for key, tables in senders.items()},
    )


def _listed_groups(config: Config) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    """`groups` of each channel and of each of its accounts, with the path."""
    for channel, entry in _items(config.data.get("channels"), ("channels",)):
        path = ("channels", channel)
        for name, value in _items(entry, path):
            if name == "groups":
                yield channel, value, (*path, name)
            for account, own in _items(value, (*path, name)) if name == "accounts" else ():
                yield channel, dig(own, ("groups",)), (*path, name, account, "groups")


def _items(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if value is None:
        return iter(())
    if not isinstance(value, dict):
        raise ConfigError(f"{format_path(path)} should be an object", hint="`pal config get channels` shows it")
    return iter(value.items())


def _read(value: Any, path: tuple[str, ...]) -> Allowance:
    for place, complaint in faults(Allowance, value, path).items():
        raise ConfigError(
            f"{format_path(place)}: {complaint}", hint="tools takes allow or alsoAllow, and deny: lists of names"
        )
    return build(Allowance, [value])
