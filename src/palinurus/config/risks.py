"""Config options that can run a program, move a secret or loosen a rule: one table of paths with reasons.

It guards changes that the user does not type: a call to the gateway may not set these paths at all
(gateway/auth/protected_config.py), and an import from another home skips them until a person names them
(migrate/openclaw/config_plan.py). A path covers everything below it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

Steps = tuple[str, ...]


class Risk(Struct, frozen=True):
    """A path, with `*` for any one step, and everything below it."""

    place: str
    reason: str
    may_go: bool = False  # removing it is harmless
    by_call: bool = True  # whether gateway calls may not set it either
    only: tuple[Any, ...] = ()  # the risky values; empty: any
    referring: bool = False  # for strings at this exact path, only those that name a variable of this machine

    @property
    def steps(self) -> Steps:
        return tuple(self.place.split("."))


PROGRAM = "it names a program or what it is given"
ADDRESS = "it decides where keys and words of this machine are sent"
_ISOLATION = "it decides how commands are isolated"
_ASKING = "it decides which commands run without asking"
_TOOLS = "it decides which tools may be used, and by whom"
_PLACE = "it decides which folder an agent can write to"
_READ = "it decides which folders of the machine are read"
_SKILL_VALUES = "it gives values of this machine to programs of a skill"
_SKILLS = "skills bring programs"

AGENTS = ("agent", "agents.defaults", "agents.entries.*", "agents.list.*")  # `agent` is the oldest form
_OF_TOOLS = (
    Risk("tools.exec", _ASKING),
    Risk("tools.elevated", _ASKING),
    Risk("tools.fs", _PLACE),
    Risk("tools.profile", _TOOLS, by_call=False, only=("full",)),
    Risk("tools.alsoAllow", _TOOLS, by_call=False),
    Risk("tools.toolsBySender", _TOOLS, by_call=False),
    Risk("tools.byProvider.*.profile", _TOOLS, by_call=False, only=("full",)),
    Risk("tools.byProvider.*.alsoAllow", _TOOLS, by_call=False),
    Risk("tools.subagents.tools.alsoAllow", _TOOLS, by_call=False),
)
_OF_AGENTS = (
    Risk("workspace", _PLACE, may_go=True),
    Risk("agentDir", _PLACE, may_go=True),
    Risk("cwd", _PLACE, may_go=True),
    Risk("repoRoot", _PLACE, may_go=True),
    Risk("sandbox", _ISOLATION),
    Risk("tools.sandbox", _ISOLATION),
    *_OF_TOOLS,
    Risk("runtime", PROGRAM),
    Risk("cliBackends", PROGRAM),
    Risk("memory.search.extraPaths", _READ),
    Risk("memorySearch.extraPaths", _READ),
)
RISKS = (
    Risk("gateway", "it decides who may come in"),
    Risk("models.providers.*.oauth", "sign-ins of this machine would be sent to another address", may_go=True),
    Risk("models.providers.*.baseUrl", ADDRESS, by_call=False),  # calls: see ADDRESSES
    Risk("mcp.servers.*.command", PROGRAM, may_go=True),
    Risk("mcp.servers.*.args", PROGRAM, may_go=True),
    Risk("mcp.servers.*.env", PROGRAM, may_go=True),
    Risk("mcp.servers.*.cwd", PROGRAM, may_go=True),
    Risk("mcp.servers.*.url", ADDRESS, by_call=False),
    *_OF_TOOLS,
    Risk("tools.untrusted", _ASKING),
    Risk("tools.sandbox", _ISOLATION),
    Risk("tools.web.search.baseUrl", ADDRESS, by_call=False),
    Risk("tools.web.fetch.allowPrivate", "it opens addresses of this machine and its network", may_go=True),
    Risk("env", "variables decide which programs are found and how they run"),
    Risk("secrets", "it decides which files and programs secrets are read from"),
    Risk("plugins", "plugins are programs"),
    Risk("hooks", "hooks run programs and let strangers in"),
    Risk("skills.load", _SKILLS),
    Risk("skills.install", _SKILLS),
    Risk("skills.registry.url", _SKILLS, may_go=True),
    Risk("skills.entries.*.env", _SKILL_VALUES, by_call=False),
    Risk("skills.entries.*.apiKey", _SKILL_VALUES, by_call=False, referring=True),
    Risk("skills.entries.*.sandboxEnv", _ISOLATION, by_call=False),
    Risk("diagnostics.otel.endpoint", ADDRESS, by_call=False),
    Risk("logging", "it decides which file is written to"),
    Risk("approvals", _ASKING),
    Risk("memory.search.extraPaths", _READ),
    Risk("memory.qmd.paths", _READ),
    *(
        Risk(f"{agent}.{risk.place}", risk.reason, risk.may_go, risk.by_call, risk.only)
        for agent in AGENTS
        for risk in _OF_AGENTS
    ),
)
PROGRAM_NAMES = re.compile(
    r"command|cmd|args|argv|cwd|exec|executable|\w*executablePath|cliPath|bin|bins|binary|\w*binPath|\w*binaryPath"
    r"|program|script|shell|interpreter|module|setupCommand|dockerfile|entrypoint|\$include",
    re.IGNORECASE,
)
ADDRESSES: tuple[Steps, ...] = (  # next to each are the secrets that are sent there
    ("models", "providers", "*", "baseUrl"),
    ("mcp", "servers", "*", "url"),
    ("tools", "web", "search", "baseUrl"),
    ("skills", "registry", "url"),
    ("diagnostics", "otel", "endpoint"),
)
# Options that only narrow, or are a matter of taste, inside such paths: the path's end, and the values (empty:
# any). The first group is weighed together with its neighbours (migrate/openclaw/holding.py).
_NARROWING: tuple[tuple[Steps, tuple[Any, ...]], ...] = (
    (("exec", "security"), ()),
    (("exec", "ask"), ()),
    (("exec", "askFallback"), ()),
    (("sandbox", "mode"), ()),
    (("sandbox", "network"), ()),
    (("docker", "network"), ()),
    (("tools", "untrusted"), ()),
    (("exec", "timeoutSec"), ()),
    (("exec", "backgroundMs"), ()),
    (("exec", "approvalTimeoutSec"), ()),
    (("exec", "applyPatch", "enabled"), (False,)),
    (("elevated", "enabled"), (False,)),
    (("fs", "workspaceOnly"), (True,)),
    (("tools", "deny"), ()),
    (("sandbox", "scope"), ()),
    (("sandbox", "workspaceAccess"), ("none", "ro")),
    (("gateway", "http", "endpoints", "chatCompletions", "enabled"), (False,)),
    (("gateway", "http", "endpoints", "responses", "enabled"), (False,)),
)
_LOOPBACK = re.compile(r"https?://(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?(/|$)", re.IGNORECASE)


def risk_of(path: Iterable[object], value: Any) -> str:
    """Why a setting of another home is not imported automatically; empty if it may be."""
    steps = tuple(map(str, path))
    if any(steps[-len(end) :] == end and _is_one_of(value, values) for end, values in _NARROWING):
        return ""
    for place, risk in _PLACES.get(steps[0], ()):
        if is_within(steps, place) and _is_one_of(value, risk.only):
            if risk.referring and len(steps) == len(place) and isinstance(value, str) and "${" not in value:
                continue
            return risk.reason
    return PROGRAM if PROGRAM_NAMES.fullmatch(steps[-1]) else ""


def is_loopback(value: Any) -> bool:
    return isinstance(value, str) and _LOOPBACK.match(value) is not None


def is_within(path: Steps, place: Steps) -> bool:
    """Whether a change is at the path, below it, or replaces something above it."""
    return len(path) >= len(place) and all(want in ("*", step) for step, want in zip(path, place, strict=False))


def _is_one_of(value: Any, values: tuple[Any, ...]) -> bool:
    return not values or any(value == each and type(value) is type(each) for each in values)


_PLACES: dict[str, list[tuple[Steps, Risk]]] = {}
for _risk in RISKS:
    _PLACES.setdefault(_risk.steps[0], []).append((_risk.steps, _risk))
