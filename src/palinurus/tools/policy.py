"""Decides who may use which tool: one pure function over layers, each of which can only restrict.

The layers, in order: profile, allow, deny, owner-only, provider, elevated, sandbox, subagent, restriction. A tool may
be used if the profile has it (or an `alsoAllow` adds it to the profile) and no layer denies it; the first layer that
denies it decides. Allow and deny consist of scopes: everyone, the agent, the group and the sender.

A scope that is a table (by provider, group or sender) may have several matching entries. All their denies apply;
everything else is taken from the nearest, so that `*` applies to those without an entry of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Literal

from msgspec import Struct, structs

from palinurus.domain.keys import SessionKey
from palinurus.domain.tool import Restriction, Tool
from palinurus.tools.tool_names import (
    NOT_FOR_SUBAGENTS,
    NOT_SANDBOXED,
    OWNER_ONLY,
    PROFILES,
    allowed_by,
    canonical,
    denied_by,
)

Profile = Literal["minimal", "coding", "messaging", "full"]
OWNERS_DEFAULT = (*PROFILES["coding"], "message", "agents_list")


class Rules(Struct, frozen=True):
    """What one scope says. `allow` None: not restricted; empty: nothing is allowed."""

    profile: Profile | None = None
    allow: tuple[str, ...] | None = None
    also_allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class Policy(Struct, frozen=True):
    """Everything that the config says about the tools of one agent. Keys are lower case."""

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


class ToolRequest(Struct, frozen=True):
    """One request: may this sender use this tool in this session?"""

    tool: str
    key: SessionKey
    owner: bool = True
    channel: str = "cli"
    sender: str = "owner"
    provider: str = ""
    model: str = ""
    sandboxed: bool = False
    owner_only: bool = False  # the tool declares it
    restrictions: tuple[Restriction, ...] = ()
    known_as: tuple[str, ...] = ()  # other names of the sender: e164:+49…, username:…, name:…
    elevated_allowed: bool = True  # whether exec may leave the sandbox on request


class PolicyScope(Struct, frozen=True):
    """One location in the config, and what it says."""

    where: str
    rules: Rules


def scopes_of(policy: Policy, asked: ToolRequest, whoever: bool) -> list[PolicyScope]:
    """Returns the scopes: everyone, the agent, the group and, unless it shall apply to every sender, the sender."""
    agent = f"agents.{asked.key.agent}.tools"
    found = [PolicyScope("tools", policy.everybody), PolicyScope(agent, policy.agent)]
    groups = _groups(asked.key) if policy.by_group or policy.group_by_sender else ()
    fitting = fitting_scopes(policy.by_group, groups)
    found += [PolicyScope(group_path(scope.where, "tools"), scope.rules) for scope in fitting]
    tables = policy.group_by_sender
    if not whoever and (tables or policy.by_sender or policy.agent_by_sender):
        found += _by_sender({group_path(each, "toolsBySender"): tables.get(each, {}) for each in groups}, asked)
        found += _by_sender({"tools.toolsBySender": policy.by_sender}, asked)
        found += _by_sender({f"{agent}.toolsBySender": policy.agent_by_sender}, asked)
    return found


def any_sender(policy: Policy, asked: ToolRequest) -> Iterator[PolicyScope]:
    """Returns what is said about the senders who may write here, whoever they are."""
    groups = (policy.group_by_sender.get(group, {}) for group in _groups(asked.key))
    tables = (policy.by_sender, policy.agent_by_sender, *groups)
    return (PolicyScope(f"toolsBySender.{key}", rules) for table in tables for key, rules in table.items())


def fitting_scopes(table: Mapping[str, Rules], keys: Iterable[str], path: str = "") -> list[PolicyScope]:
    """Returns the entries of these keys, nearest first: that one complete, of the others only their denies."""
    found = [PolicyScope(f"{path}.{key}" if path else key, table[key]) for key in keys if key in table]
    return found if len(found) < 2 else [found[0], *map(_denying, found[1:])]


def sender_key(text: str) -> str:
    """Returns a key of `toolsBySender` in table form; one without a kind is an id."""
    kind, colon, name = text.strip().lower().partition(":")
    if kind == "*" or (kind in ("channel", "id") and colon):
        return f"{kind}{colon}{name}"
    if kind in ("e164", "username", "name") and colon:
        return f"{kind}:{name.strip().removeprefix('@')}"
    return f"id:{text.strip().lower()}"


def _denying(scope: PolicyScope) -> PolicyScope:
    return PolicyScope(scope.where, Rules(deny=scope.rules.deny))


def _by_sender(tables: Mapping[str, Mapping[str, Rules]], asked: ToolRequest) -> Iterator[PolicyScope]:
    """Returns what tables, by their path and nearest first, say about the sender.

    People choose their own names, so an entry by name only adds restrictions to the other entries.
    """
    keys, names = _sender_keys(asked.channel, asked.sender, asked.known_as)
    nearest = True
    for path, table in tables.items():
        here = fitting_scopes(table, keys, path)
        yield from here if nearest else map(_denying, here)
        for name in names:
            if rules := table.get(name):
                yield PolicyScope(f"{path}.{name}", Rules(allow=rules.allow, deny=rules.deny))
        nearest = nearest and not here


@lru_cache(maxsize=1024)
def _sender_keys(channel: str, sender: str, known_as: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the keys under which a table may name a sender, nearest first; and the display names of the sender."""
    sender = sender.strip().lower()
    aliases = tuple(map(sender_key, known_as))
    phones = (f"e164:{sender}",) if sender.startswith("+") else ()
    known = (alias for kind in ("e164:", "username:") for alias in aliases if alias.startswith(kind))
    keys = (f"channel:{channel.lower()}:{sender}", f"id:{sender}", *phones, *known, "*")
    return tuple(dict.fromkeys(keys)), tuple(alias for alias in aliases if alias.startswith("name:"))


def _groups(key: SessionKey) -> tuple[str, ...]:
    if key.kind not in ("group", "channel"):
        return ()
    return f"{key.channel}:{key.peer}", f"{key.channel}:*"


def group_path(group: str, name: str) -> str:
    """Returns the config path of a group that tables know as "channel:peer"."""
    channel, _, peer = group.partition(":")
    return f"channels.{channel}.groups.{peer}.{name}"


class Step(Struct, frozen=True, rename="camel"):
    """The result of one layer."""

    layer: str  # profile, allow, deny, owner-only, provider, elevated, sandbox, subagent, restriction
    verdict: Literal["allows", "denies", "silent"]
    why: str


class Verdict(Struct, frozen=True, rename="camel"):
    """The decision, the layer that made it, and all steps for an explanation."""

    allowed: bool
    layer: str
    why: str
    chain: tuple[Step, ...] = ()


def decide(policy: Policy, asked: ToolRequest) -> Verdict:
    """Decides. Pure. Deny wins in any order; a restriction never allows. The steps are left out: see `explain`."""
    return _verdict(_steps(policy, asked))


def explain(policy: Policy, asked: ToolRequest) -> Verdict:
    """Returns the same decision with all steps, including layers after the one that denied."""
    chain = tuple(_steps(policy, asked))
    return structs.replace(_verdict(chain), chain=chain)


def offered_tools(policy: Policy, tools: Iterable[Tool], asked: ToolRequest) -> tuple[Tool, ...]:
    """Returns the tools that fit this session and that some sender may use there: those are offered to the model.

    Senders, ownership and restrictions change from message to message, and the start of a request must not (promise
    20), so they are ignored here and applied at the gate. `asked.tool`, `owner` and `sender` do not matter.
    """

    def is_allowed(tool: Tool) -> bool:
        if tool.fits is not None and not tool.fits(asked.key):
            return False
        return _verdict(_steps(policy, structs.replace(asked, tool=tool.spec.name), whoever=True)).allowed

    return tuple(filter(is_allowed, tools))


def policy_traits(key: SessionKey) -> tuple[object, ...]:
    """Returns the traits of a session key that the policy uses: sessions with equal traits may use the same tools."""
    return key.agent, _is_owners(key), key.is_private, key.is_subagent, _groups(key)


def _is_owners(key: SessionKey) -> bool:
    """Returns whether only the owner, or an agent for the owner, starts runs in this session."""
    return key.is_private or key.is_subagent or key.kind == "cron"


def must_ask(restrictions: Iterable[Restriction], tool: str) -> str:
    """Returns why a person must approve each call of this tool; empty if no restriction requires it."""
    for each in restrictions:
        if denied_by(each.ask, tool):
            return f"{each.source} wants a person to approve {canonical(tool)}: {each.reason}"
    return ""


def default_profile(key: SessionKey, owner: bool) -> tuple[str, tuple[str, ...]]:
    """Returns the default profile: its description for a sentence, and its tools.

    The owner's private sessions, subagents and cron jobs also have `message` and `agents_list`, which the profile
    coding lacks: the agent can write to its owner, and knows the other agents.
    """
    if _is_owners(key) and owner:
        which = "the profile coding with message and agents_list, the default of the owner's private sessions,"
        return which, OWNERS_DEFAULT
    return "the profile messaging, the default outside the owner's private sessions,", PROFILES["messaging"]


def _verdict(steps: Iterable[Step]) -> Verdict:
    """Returns the first step that denies, else the last that allows, which is the most specific."""
    decisive = None
    for step in steps:
        if step.verdict == "denies":
            return Verdict(False, step.layer, step.why)
        if step.verdict == "allows":
            decisive = step
    if decisive is None:
        return Verdict(False, "profile", "nothing allows it")
    return Verdict(True, decisive.layer, decisive.why)


def _steps(policy: Policy, asked: ToolRequest, whoever: bool = False) -> Iterator[Step]:
    tool = canonical(asked.tool)
    scopes = scopes_of(policy, asked, whoever)
    yield from _profile(policy, asked, tool, [*scopes, *(any_sender(policy, asked) if whoever else ())], whoever)
    allowances = (_allowance("allow", scope, tool) for scope in scopes)
    yield from _layer("allow", allowances, "no scope has an allow list")
    yield from _layer("deny", (_denial("deny", scope, tool) for scope in scopes), "no scope denies it")
    if not whoever:
        yield _owner_only(asked, tool)
    yield from _layer("provider", _provider(policy, asked, tool), "there is no rule for this provider or model")
    leaves = "exec may ask to leave the sandbox" if asked.elevated_allowed else "exec may not leave the sandbox"
    yield Step("elevated", "silent", leaves if tool == "exec" else "concerns exec alone")
    if asked.sandboxed:
        silent = "the session is sandboxed, which does not matter to it"
        yield from _layer("sandbox", _sandbox(policy, asked, tool), silent)
    else:
        yield Step("sandbox", "silent", "this session is not limited to a sandbox")
    if asked.key.is_subagent:
        yield from _layer("subagent", _subagent(policy, asked, tool), "subagents may have it")
    else:
        yield Step("subagent", "silent", "the session is not a subagent")
    if not whoever:
        restricted = (_restricted(each, tool) for each in asked.restrictions)
        yield from _layer("restriction", restricted, "no rule or skill restricts it in this run")


def _layer(layer: str, steps: Iterable[Step | None], otherwise: str) -> list[Step]:
    """Returns what the layer says; if it says nothing, one silent step with the reason."""
    return [step for step in steps if step is not None] or [Step(layer, "silent", otherwise)]


def _profile(policy: Policy, asked: ToolRequest, tool: str, scopes: list[PolicyScope], whoever: bool) -> Iterator[Step]:
    profile = policy.agent.profile or policy.everybody.profile
    if profile:
        which, names = f"the profile {profile}", PROFILES[profile]
    else:
        which, names = default_profile(asked.key, asked.owner or whoever)
    if allowed_by(names, tool):
        yield Step("profile", "allows", f"{which} has {tool}")
        return
    for scope in scopes:
        if entry := allowed_by(scope.rules.also_allow, tool):
            yield Step("profile", "silent", f"{which} has no {tool}, but it is added")
            yield Step("allow", "allows", f"{scope.where}.alsoAllow has {entry}")
            return
    yield Step("profile", "denies", f"{which} has no {tool}")


def _allowance(layer: str, scope: PolicyScope, tool: str) -> Step | None:
    if scope.rules.allow is None:
        return None
    if entry := allowed_by(scope.rules.allow, tool):
        return Step(layer, "allows", f"{scope.where}.allow has {entry}")
    return Step(layer, "denies", f"{scope.where}.allow names all that is allowed, and {tool} is not among it")


def _denial(layer: str, scope: PolicyScope, tool: str) -> Step | None:
    entry = denied_by(scope.rules.deny, tool) if scope.rules.deny else ""
    return Step(layer, "denies", f"{scope.where}.deny has {entry}") if entry else None


def _owner_only(asked: ToolRequest, tool: str) -> Step:
    if not asked.owner_only and not denied_by(OWNER_ONLY, tool):
        return Step("owner-only", "silent", "others may use it too")
    if asked.owner:
        return Step("owner-only", "allows", "it is for the owner alone, and the sender is the owner")
    return Step("owner-only", "denies", "it is for the owner alone, and the sender is not the owner")


def _provider(policy: Policy, asked: ToolRequest, tool: str) -> Iterator[Step | None]:
    provider, own = asked.provider.lower(), f"agents.{asked.key.agent}.tools.byProvider"
    keys = (f"{provider}/{asked.model.lower()}", provider) if provider else ()
    scopes = fitting_scopes(policy.by_provider, keys, "tools.byProvider")
    for scope in (*scopes, *fitting_scopes(policy.agent_by_provider, keys, own)):
        if profile := scope.rules.profile:
            has = allowed_by(PROFILES[profile], tool) or allowed_by(scope.rules.also_allow, tool)
            why = f"{scope.where}: the profile {profile} has {'' if has else 'no '}{tool}"
            yield Step("provider", "allows" if has else "denies", why)
        yield _allowance("provider", scope, tool)
        yield _denial("provider", scope, tool)


def _sandbox(policy: Policy, asked: ToolRequest, tool: str) -> Iterator[Step | None]:
    rules = policy.sandboxed, policy.agent_sandboxed
    if denied_by(NOT_SANDBOXED, tool) and not any(allowed_by(each.also_allow, tool) for each in rules):
        yield Step("sandbox", "denies", "not in sandboxed sessions, unless tools.sandbox.tools.alsoAllow adds it")
    yield from _both("sandbox", "tools.sandbox.tools", rules, asked, tool)


def _subagent(policy: Policy, asked: ToolRequest, tool: str) -> Iterator[Step | None]:
    if denied_by(NOT_FOR_SUBAGENTS, tool):
        yield Step("subagent", "denies", f"subagents never have {tool}")
    yield from _both("subagent", "tools.subagents.tools", (policy.subagents, policy.agent_subagents), asked, tool)


def _restricted(restriction: Restriction, tool: str) -> Step | None:
    about = f"{restriction.source}: {restriction.reason}"
    if restriction.only is not None and not allowed_by(restriction.only, tool):
        return Step("restriction", "denies", f"{about} (only {', '.join(restriction.only) or 'nothing'})")
    if entry := denied_by(restriction.deny, tool):
        return Step("restriction", "denies", about if entry == "*" else f"{about} (not {entry})")
    return None


def _both(layer: str, place: str, rules: tuple[Rules, Rules], asked: ToolRequest, tool: str) -> Iterator[Step | None]:
    everybody, agent = rules
    for scope in (PolicyScope(place, everybody), PolicyScope(f"agents.{asked.key.agent}.{place}", agent)):
        yield _allowance(layer, scope, tool)
        yield _denial(layer, scope, tool)
