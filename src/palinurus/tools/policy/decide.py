"""Who may use which tool: one pure function over layers, each of which can only take away.

The layers, in order: profile, allow, deny, owner-only, provider, elevated, sandbox, subagent, restriction. A tool may
be used when the profile has it (or an `alsoAllow` adds it to the profile) and no layer denies it; the first that does
is the one that decided. Inside allow and deny stand the scopes: what is said for everybody, for the agent, for the
group and for the sender (see scopes.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec
from msgspec import Struct

from palinurus.domain.keys import SessionKey
from palinurus.domain.tool import Restriction, Tool
from palinurus.tools.policy.names import (
    NOT_FOR_SUBAGENTS,
    NOT_SANDBOXED,
    OWNER_ONLY,
    PROFILES,
    allowed_by,
    canonical,
    denied_by,
)
from palinurus.tools.policy.scopes import (
    Asked,
    Policy,
    Profile,
    Rules,
    Scope,
    any_sender,
    both_scopes,
    fitting,
    scopes_of,
)

__all__ = ["Asked", "Policy", "Profile", "Rules", "Step", "Verdict", "decide", "explain", "must_ask", "offered"]


class Step(Struct, frozen=True, rename="camel"):
    """What one layer says."""

    layer: str  # profile, allow, deny, owner-only, provider, elevated, sandbox, subagent, restriction
    verdict: Literal["allows", "denies", "silent"]
    why: str


class Verdict(Struct, frozen=True, rename="camel"):
    """The decision, the layer that made it, and the whole chain for who wants to know."""

    allowed: bool
    layer: str
    why: str
    chain: tuple[Step, ...] = ()


def decide(policy: Policy, asked: Asked) -> Verdict:
    """Pure. Deny wins whatever the order; a restriction never grants. The chain is left out: see `explain`."""
    return _verdict(_steps(policy, asked))


def explain(policy: Policy, asked: Asked) -> Verdict:
    """The same decision with the whole chain, layers behind the one that denied included."""
    chain = tuple(_steps(policy, asked))
    return msgspec.structs.replace(_verdict(chain), chain=chain)


def offered(policy: Policy, tools: Iterable[Tool], asked: Asked) -> tuple[Tool, ...]:
    """The tools that somebody may use in this session, whoever it is: those that the model is told about.

    Senders, ownership and restrictions change from message to message, and the head of a request must not (promise
    20), so they are left out here and narrow at the gate. `asked.tool`, `owner` and `sender` do not matter.
    """
    return tuple(
        tool
        for tool in tools
        if _verdict(_steps(policy, msgspec.structs.replace(asked, tool=tool.spec.name), whoever=True)).allowed
    )


def must_ask(restrictions: Iterable[Restriction], tool: str) -> str:
    """Why a person approves each call of this tool; empty when no restriction wants it."""
    for each in restrictions:
        if denied_by(each.ask, tool):
            return f"{each.source} wants a person to approve {canonical(tool)}: {each.reason}"
    return ""


def default_profile(key: SessionKey, owner: bool) -> tuple[str, tuple[str, ...]]:
    """What holds when no config names a profile: a sentence's worth of name, and the tools.

    The owner's private sessions also have `message`, which the profile coding lacks: an agent that may not write to
    anybody is no use to its owner.
    """
    if key.is_private and owner:
        return "the profile coding with message, the default of the owner's private sessions,", OWNERS_DEFAULT
    return "the profile messaging, the default outside the owner's private sessions,", PROFILES["messaging"]


OWNERS_DEFAULT = (*PROFILES["coding"], "message")


_NO_ALLOW = Step("allow", "silent", "no scope has an allow list")
_NO_DENY = Step("deny", "silent", "no scope denies it")
_NOT_OWNER_ONLY = Step("owner-only", "silent", "it is not for the owner alone")
_OWNER_ASKS = Step("owner-only", "allows", "it is for the owner alone, who asks")
_NO_OWNER = Step("owner-only", "denies", "it is for the owner alone, and somebody else asks")
_NO_PROVIDER = Step("provider", "silent", "nothing is said for this provider or model")
_NOT_EXEC = Step("elevated", "silent", "concerns exec alone")
_MAY_LEAVE = Step("elevated", "silent", "exec may ask to leave the sandbox")
_STAYS = Step("elevated", "silent", "exec may not leave the sandbox")
_NO_SANDBOX = Step("sandbox", "silent", "the session is not one that must be sandboxed")
_SANDBOX = Step("sandbox", "silent", "the session is sandboxed, which does not matter to it")
_NO_SUBAGENT = Step("subagent", "silent", "the session is no subagent's")
_SUBAGENT = Step("subagent", "silent", "subagents may have it")
_UNRESTRICTED = Step("restriction", "silent", "no restriction of this turn speaks of it")


def _verdict(steps: Iterable[Step]) -> Verdict:
    """The first that denies, else the last that allows, which is the most particular."""
    decisive = None
    for step in steps:
        if step.verdict == "denies":
            return Verdict(False, step.layer, step.why)
        if step.verdict == "allows":
            decisive = step
    if decisive is None:
        return Verdict(False, "profile", "nothing allows it")
    return Verdict(True, decisive.layer, decisive.why)


def _steps(policy: Policy, asked: Asked, whoever: bool = False) -> Iterator[Step]:
    tool = canonical(asked.tool)
    scopes = scopes_of(policy, asked, whoever)
    yield from _profile(policy, asked, tool, [*scopes, *(any_sender(policy, asked) if whoever else ())], whoever)
    yield from _each(_allowance("allow", scope, tool) for scope in scopes) or (_NO_ALLOW,)
    yield from _each(_denial("deny", scope, tool) for scope in scopes) or (_NO_DENY,)
    if not whoever:
        yield _owner_only(asked, tool)
    yield from _provider(policy, asked, tool) or (_NO_PROVIDER,)
    yield _NOT_EXEC if tool != "exec" else _MAY_LEAVE if asked.elevated_allowed else _STAYS
    yield from _sandbox(policy, asked, tool)
    yield from _subagent(policy, asked, tool)
    if not whoever:
        yield from _each(_restricted(each, tool) for each in asked.restrictions) or (_UNRESTRICTED,)


def _profile(policy: Policy, asked: Asked, tool: str, scopes: list[Scope], whoever: bool) -> Iterator[Step]:
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


def _allowance(layer: str, scope: Scope, tool: str) -> Step | None:
    if scope.rules.allow is None:
        return None
    if entry := allowed_by(scope.rules.allow, tool):
        return Step(layer, "allows", f"{scope.where}.allow has {entry}")
    return Step(layer, "denies", f"{scope.where}.allow names all that is allowed, and {tool} is not among it")


def _denial(layer: str, scope: Scope, tool: str) -> Step | None:
    entry = denied_by(scope.rules.deny, tool) if scope.rules.deny else ""
    return Step(layer, "denies", f"{scope.where}.deny has {entry}") if entry else None


def _owner_only(asked: Asked, tool: str) -> Step:
    if not asked.owner_only and not denied_by(OWNER_ONLY, tool):
        return _NOT_OWNER_ONLY
    return _OWNER_ASKS if asked.owner else _NO_OWNER


def _provider(policy: Policy, asked: Asked, tool: str) -> list[Step]:
    if not asked.provider or not (policy.by_provider or policy.agent_by_provider):
        return []
    provider = asked.provider.lower()
    keys = (f"{provider}/{asked.model.lower()}", provider)
    own = f"agents.{asked.key.agent}.tools.byProvider"
    found = [*fitting(policy.by_provider, keys, "tools.byProvider"), *fitting(policy.agent_by_provider, keys, own)]
    return _each(step for scope in found for step in _by_provider(scope, tool))


def _by_provider(scope: Scope, tool: str) -> Iterator[Step | None]:
    profile = scope.rules.profile
    if profile:
        has = allowed_by(PROFILES[profile], tool) or allowed_by(scope.rules.also_allow, tool)
        why = f"{scope.where}: the profile {profile} has {'' if has else 'no '}{tool}"
        yield Step("provider", "allows" if has else "denies", why)
    yield _allowance("provider", scope, tool)
    yield _denial("provider", scope, tool)


def _sandbox(policy: Policy, asked: Asked, tool: str) -> Iterable[Step]:
    if not asked.sandboxed:
        return (_NO_SANDBOX,)
    scopes = both_scopes(policy.sandboxed, policy.agent_sandboxed, asked, "sandbox")
    added = any(allowed_by(scope.rules.also_allow, tool) for scope in scopes)
    never = None
    if denied_by(NOT_SANDBOXED, tool) and not added:
        never = Step("sandbox", "denies", f"not in sandboxed sessions, unless {scopes[0].where}.alsoAllow adds it")
    return _each([never, *_both("sandbox", scopes, tool)]) or (_SANDBOX,)


def _subagent(policy: Policy, asked: Asked, tool: str) -> Iterable[Step]:
    if not asked.key.is_subagent:
        return (_NO_SUBAGENT,)
    scopes = both_scopes(policy.subagents, policy.agent_subagents, asked, "subagents")
    never = Step("subagent", "denies", f"subagents never have {tool}") if denied_by(NOT_FOR_SUBAGENTS, tool) else None
    return _each([never, *_both("subagent", scopes, tool)]) or (_SUBAGENT,)


def _restricted(restriction: Restriction, tool: str) -> Step | None:
    about = f"{restriction.source}: {restriction.reason}"
    if restriction.only is not None and not allowed_by(restriction.only, tool):
        return Step("restriction", "denies", f"{about} (only {', '.join(restriction.only) or 'nothing'})")
    if entry := denied_by(restriction.deny, tool):
        return Step("restriction", "denies", f"{about} (not {entry})")
    return None


def _both(layer: str, scopes: Iterable[Scope], tool: str) -> Iterator[Step | None]:
    for scope in scopes:
        yield _allowance(layer, scope, tool)
        yield _denial(layer, scope, tool)


def _each(steps: Iterable[Step | None]) -> list[Step]:
    return [step for step in steps if step is not None]
