"""Bindings: which agent answers where, as rows of `bindings` in the config. Who reads them is the routing.

    {agentId: "work", match: {channel: "slack", accountId: "ops", peer: {kind: "group", id: "C1"}, teamId: "T1"}}

A row is added behind the others and taken out whole, so that comments and the order of the others stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from palinurus.config.load import Config, load_config
from palinurus.config.rewrite import drop, put
from palinurus.config.source import parse
from palinurus.domain.errors import BadRequest, ConfigError, NotFound
from palinurus.operations.config import edit_config
from palinurus.operations.operation import operation
from palinurus.operations.scopes import LOCAL, Caller
from palinurus.operations.services import Services

PEER_KINDS = ("direct", "group", "channel")
OLD_KINDS = {"dm": "direct"}
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_ID = re.compile(r"[^\s\x00-\x1f\x7f]{1,200}")
_WRITTEN = (("peer", "--peer"), ("guildId", "--guild"), ("roles", "--role"), ("teamId", "--team"))


class ListedBinding(Struct, frozen=True, rename="camel"):
    agent_id: str
    match: dict[str, Any]
    text: str  # as it is written on the command line


class ChangeBindings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Places, all of one kind: each of `where` together with the rest."""

    agent_id: str
    where: tuple[str, ...] = ()  # CHANNEL or CHANNEL:ACCOUNT
    peer: str = ""  # KIND:ID
    guild: str = ""
    roles: tuple[str, ...] = ()
    team: str = ""
    every: bool = False  # to unbind: all of the agent


class ChangedBindings(Struct, frozen=True, rename="camel"):
    agent_id: str
    changed: tuple[ListedBinding, ...]  # added or removed
    unchanged: tuple[ListedBinding, ...] = ()  # were there already
    left: tuple[ListedBinding, ...] = ()  # what the agent is bound to now
    ok: bool = True


@operation("agents.bind", scope="admin", needs_home=False)
def bind_agent(services: Services, params: ChangeBindings, caller: Caller = LOCAL) -> ChangedBindings:
    """Let an agent answer at places: channels, accounts, peers, guilds, teams."""
    agent, config = _agent(services, params.agent_id)
    wanted = matches_of(params)
    fresh = new_matches(config, agent, wanted)
    edit_config(services, lambda text: with_bindings(text, agent, fresh), caller)
    known = [each for each in wanted if each not in fresh]
    _, after = _agent(services, agent)
    return ChangedBindings(agent, _listed(agent, fresh), _listed(agent, known), bindings_of(after, agent))


@operation("agents.unbind", scope="admin", needs_home=False)
def unbind_agent(services: Services, params: ChangeBindings, caller: Caller = LOCAL) -> ChangedBindings:
    """Take places away from an agent."""
    agent, config = _agent(services, params.agent_id)
    there = bindings_of(config, agent)
    gone = [each.match for each in there] if params.every else matches_of(params)
    known = [_normal(each.match) for each in there]
    if missing := [each for each in gone if _normal(each) not in known]:
        bound = ", ".join(each.text for each in there) or "nothing"
        raise NotFound(f"{agent} is not bound to {match_text(missing[0])}", hint=f"it is bound to {bound}")
    edit_config(services, lambda text: without_bindings(text, agent, gone), caller)
    _, after = _agent(services, agent)
    return ChangedBindings(agent, _listed(agent, gone), (), bindings_of(after, agent))


def _agent(services: Services, agent_id: str) -> tuple[str, Config]:
    from palinurus.config.agents import known_agent

    config = load_config(services.home, services.env).config
    return known_agent(config, agent_id), config


def bindings_of(config: Config, agent: str = "") -> tuple[ListedBinding, ...]:
    """The bindings of one agent, or of all, in their order. Rows that are no bindings are left out."""
    found = ((_owner(row), row["match"]) for row in _rows(config.data) if isinstance(row.get("match"), dict))
    return tuple(ListedBinding(owner, match, match_text(match)) for owner, match in found if agent in ("", owner))


def matches_of(params: ChangeBindings) -> list[dict[str, Any]]:
    """The matches that are meant, in OpenClaw's shape. Raises BadRequest."""
    if not params.where:
        raise BadRequest("no channel is named", hint="for example telegram, or telegram:ACCOUNT")
    rest: dict[str, Any] = {"peer": _peer(params.peer)} if params.peer else {}
    rest |= {"guildId": _id(params.guild, "--guild")} if params.guild else {}
    rest |= {"roles": [_id(role, "--role") for role in params.roles]} if params.roles else {}
    rest |= {"teamId": _id(params.team, "--team")} if params.team else {}
    if params.roles and not params.guild:
        raise BadRequest("roles belong to a guild", hint="name it with --guild")
    found = [{**_place(where), **rest} for where in params.where]
    return [each for at, each in enumerate(found) if each not in found[:at]]


def _place(where: str) -> dict[str, Any]:
    channel, colon, account = where.strip().partition(":")
    if not _NAME.fullmatch(channel.lower()) or (colon and not _ID.fullmatch(account)):
        raise BadRequest(f"not a place: {where[:80]!r}", hint="CHANNEL or CHANNEL:ACCOUNT, for example telegram:ops")
    return {"channel": channel.lower(), **({"accountId": account} if colon else {})}


def _peer(text: str) -> dict[str, str]:
    kind, colon, name = text.partition(":")
    kind = OLD_KINDS.get(kind.lower(), kind.lower())
    if kind not in PEER_KINDS or not colon or not _ID.fullmatch(name):
        raise BadRequest(f"not a peer: {text[:80]!r}", hint="KIND:ID, for example direct:12345, group:-100 or group:*")
    return {"kind": kind, "id": name}


def _id(text: str, option: str) -> str:
    if not _ID.fullmatch(text):
        raise BadRequest(f"not an id for {option}: {text[:80]!r}", hint="its id at the channel, without spaces")
    return text


def match_text(match: dict[str, Any]) -> str:
    """A match as it is written on the command line."""
    account = match.get("accountId")
    words = [f"{match.get('channel', '?')}{f':{account}' if account else ''}"]
    words += [f"{flag} {value}" for key, flag in _WRITTEN for value in _values(match.get(key))]
    return " ".join(words)


def _values(said: Any) -> Iterable[str]:
    if isinstance(said, dict):
        return [f"{said.get('kind', '?')}:{said.get('id', '?')}"]
    return map(str, said if isinstance(said, list) else [said] if said else [])


def new_matches(config: Config, agent: str, wanted: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that are not there yet. Raises BadRequest for one that another agent has: the first row would win."""
    taken = {_normal(each.match): each.agent_id for each in reversed(bindings_of(config))}
    for each in wanted:
        owner = taken.get(_normal(each), agent)
        if owner != agent:
            place = match_text(each)
            raise BadRequest(f"{place} is bound to {owner}", hint=f"`pal agents unbind {owner} {place}` comes first")
    return [each for each in wanted if _normal(each) not in taken]


def _normal(match: dict[str, Any]) -> str:
    """Equal for matches that mean the same."""
    said = {key: value for key, value in match.items() if value not in (None, "", [])}
    if isinstance(peer := said.get("peer"), dict) and peer.get("kind") in OLD_KINDS:
        said["peer"] = {**peer, "kind": OLD_KINDS[peer["kind"]]}
    return repr(sorted((key, sorted(v.items()) if isinstance(v, dict) else v) for key, v in said.items()))


def with_bindings(text: str, agent: str, matches: Iterable[dict[str, Any]]) -> str:
    """The text of a config with new bindings behind those that are there."""
    for match in matches:
        text = put(text, ("bindings", len(_rows(parse(text)))), {"agentId": agent, "match": match})
    return text


def without_bindings(text: str, agent: str, matches: Iterable[dict[str, Any]] | None = None) -> str:
    """The text of a config without these bindings of an agent, all of them for None. Raises ConfigError."""
    gone = None if matches is None else {_normal(each) for each in matches}
    rows = list(enumerate(_rows(parse(text))))
    found = [at for at, row in rows if _owner(row) == agent and _is_meant(row, gone)]
    if gone and not found:
        raise ConfigError("these bindings come from an included file", hint="take them out there")
    for at in reversed(found):
        text = drop(text, ("bindings", at))
    return text


def _is_meant(row: dict[str, Any], gone: set[str] | None) -> bool:
    return gone is None or (isinstance(row.get("match"), dict) and _normal(row["match"]) in gone)


def _rows(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows, each an object, at their places: what is none counts as an empty one."""
    rows = data.get("bindings")
    return [row if isinstance(row, dict) else {} for row in rows] if isinstance(rows, list) else []


def _owner(row: dict[str, Any]) -> str:
    return str(row.get("agentId") or "").strip().lower()


def _listed(agent: str, matches: Iterable[dict[str, Any]]) -> tuple[ListedBinding, ...]:
    return tuple(ListedBinding(agent, each, match_text(each)) for each in matches)
