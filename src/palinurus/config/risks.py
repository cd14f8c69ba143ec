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
from msgspec.structs import replace

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


def _risks(reason: str, places: str, **more: Any) -> tuple[Risk, ...]:
    return tuple(Risk(place, reason, **more) for place in places.split())


_ADDRESSES = "models.providers.*.baseUrl mcp.servers.*.url tools.web.search.baseUrl diagnostics.otel.endpoint"
_OF_TOOLS = (
    *_risks(_ASKING, "tools.exec tools.elevated"),
    *_risks(_PLACE, "tools.fs"),
    *_risks(_TOOLS, "tools.profile tools.byProvider.*.profile", by_call=False, only=("full",)),
    *_risks(_TOOLS, "tools.alsoAllow tools.toolsBySender tools.byProvider.*.alsoAllow", by_call=False),
    *_risks(_TOOLS, "tools.subagents.tools.alsoAllow", by_call=False),
)
_OF_AGENTS = (
    *_risks(_PLACE, "workspace agentDir cwd repoRoot", may_go=True),
    *_risks(_ISOLATION, "sandbox tools.sandbox"),
    *_OF_TOOLS,
    *_risks(PROGRAM, "runtime cliBackends"),
    *_risks(_READ, "memory.search.extraPaths memorySearch.extraPaths"),
    *_risks(ADDRESS, "memory.search.remote.baseUrl memorySearch.remote.baseUrl", may_go=True),
)
_OF_CHANNELS = tuple(
    Risk(f"{place}.{key}", "it lets anybody speak to an agent", by_call=False, only=only)
    for place in ("channels.*", "channels.*.accounts.*")
    for key, only in (
        ("dmPolicy", ("open",)), ("groupPolicy", ("open",)), ("allowFrom", ("*",)), ("groupAllowFrom", ("*",))
    )
)  # fmt: skip
RISKS = (
    Risk("gateway", "it decides who may come in"),
    Risk("commands.ownerAllowFrom", "it decides who is the owner"),
    Risk("commands.allowFrom", "it decides who may use commands"),
    *_OF_CHANNELS,
    Risk("models.providers.*.oauth", "sign-ins of this machine would be sent to another address", may_go=True),
    *_risks(ADDRESS, _ADDRESSES, by_call=False),  # calls: see ADDRESSES
    *_risks(PROGRAM, "mcp.servers.*.command mcp.servers.*.args mcp.servers.*.env mcp.servers.*.cwd", may_go=True),
    *_OF_TOOLS,
    *_risks(_ASKING, "tools.untrusted approvals"),
    *_risks(_ISOLATION, "tools.sandbox"),
    Risk("tools.web.fetch.allowPrivate", "it opens addresses of this machine and its network", may_go=True),
    Risk("env", "variables decide which programs are found and how they run"),
    Risk("secrets", "it decides which files and programs secrets are read from"),
    Risk("plugins", "plugins are programs"),
    Risk("hooks", "hooks run programs and let strangers in"),
    *_risks(_SKILLS, "skills.load skills.install"),
    *_risks(_SKILLS, "skills.registry.url", may_go=True),
    *_risks(_SKILL_VALUES, "skills.entries.*.env", by_call=False),
    *_risks(_SKILL_VALUES, "skills.entries.*.apiKey", by_call=False, referring=True),
    *_risks(_ISOLATION, "skills.entries.*.sandboxEnv", by_call=False),
    Risk("logging", "it decides which file is written to"),
    *_risks(_READ, "memory.search.extraPaths memory.qmd.paths"),
    *_risks(ADDRESS, "memory.search.remote.baseUrl", may_go=True),
    *_risks(PROGRAM, "memory.qmd.command", may_go=True),
    *(replace(risk, place=f"{agent}.{risk.place}") for agent in AGENTS for risk in _OF_AGENTS),
)
PROGRAM_NAMES = re.compile(
    r"command|cmd|args|argv|cwd|exec|executable|\w*executablePath|cliPath|bin|bins|binary|\w*binPath|\w*binaryPath"
    r"|program|script|shell|interpreter|module|setupCommand|dockerfile|entrypoint|\$include",
    re.IGNORECASE,
)
# Next to each are the secrets that are sent there.
ADDRESSES: tuple[Steps, ...] = tuple(tuple(place.split(".")) for place in (*_ADDRESSES.split(), "skills.registry.url"))
_BUNDLED_HOOKS = "boot-md session-memory command-logger bootstrap-extra-files compaction-notifier"  # code of ours
# Options that only narrow, or are a matter of taste, inside such paths: the path's end, and the values (empty:
# any). The first group is weighed together with its neighbours (migrate/openclaw/holding.py).
_NARROWING: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("exec.security exec.ask exec.askFallback sandbox.mode sandbox.network docker.network tools.untrusted", ()),
    ("exec.timeoutSec exec.backgroundMs exec.approvalTimeoutSec tools.deny sandbox.scope", ()),
    ("exec.applyPatch.enabled elevated.enabled gateway.http.endpoints.chatCompletions.enabled", (False,)),
    ("gateway.http.endpoints.responses.enabled", (False,)),
    ("fs.workspaceOnly", (True,)),
    ("sandbox.workspaceAccess", ("none", "ro")),
    (" ".join(f"hooks.internal.entries.{name}.enabled" for name in _BUNDLED_HOOKS.split()), ()),
)
_NARROW_ENDS = {tuple(end.split(".")): values for ends, values in _NARROWING for end in ends.split()}
_LOOPBACK = re.compile(r"https?://(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?(/|$)", re.IGNORECASE)


def risk_of(path: Iterable[object], value: Any) -> str:
    """Why a setting of another home is not imported automatically; empty if it may be."""
    steps = tuple(map(str, path))
    if any(steps[-len(end) :] == end and _is_one_of(value, values) for end, values in _NARROW_ENDS.items()):
        return ""
    for place, risk in _PLACES.get(steps[0], ()):
        listed = value if isinstance(value, list) else [value]
        if is_within(steps, place) and (not risk.only or any(_is_one_of(each, risk.only) for each in listed)):
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
