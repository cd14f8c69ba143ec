"""What no call may change in the config, whatever its credential: programs, their paths and surroundings, the walls
around them, and the locks of this very door.

A stolen token must not become a program that runs here. The table names places of the config with the reason; beside
it stand names that mean a program wherever they are, and values that make the config read files or variables of this
machine. All this is changed on the machine: in the file, or by `pal config set`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from palinurus.gateway.door.guard import Refused

Path = tuple[str, ...]


class Rule(Struct, frozen=True):
    """A place, with `*` for any one step, and everything below it. `may_go`: taking it away does no harm."""

    place: str
    reason: str
    may_go: bool = False


_PROGRAM = "it names a program or what it is given"
_WALLS = "it decides which walls commands have"
_ASKING = "it decides which commands run without asking"
_PLACE = "it decides which folder an agent can write to"
_READ = "it decides which folders of the machine are read"

AGENTS = ("agent", "agents.defaults", "agents.entries.*", "agents.list.*")  # `agent` is the oldest form
OF_AGENTS = (
    Rule("workspace", _PLACE, may_go=True),
    Rule("agentDir", _PLACE, may_go=True),
    Rule("cwd", _PLACE, may_go=True),
    Rule("repoRoot", _PLACE, may_go=True),
    Rule("sandbox", _WALLS),
    Rule("tools.exec", _ASKING),
    Rule("tools.elevated", _ASKING),
    Rule("tools.fs", _PLACE),
    Rule("runtime", _PROGRAM),
    Rule("cliBackends", _PROGRAM),
    Rule("memory.search.extraPaths", _READ),
    Rule("memorySearch.extraPaths", _READ),
)
RULES = (
    Rule("gateway", "it decides who may come in"),
    Rule("models.providers.*.oauth", "sign-ins of this machine would be sent to another address", may_go=True),
    Rule("mcp.servers.*.command", _PROGRAM, may_go=True),
    Rule("mcp.servers.*.args", _PROGRAM, may_go=True),
    Rule("mcp.servers.*.env", _PROGRAM, may_go=True),
    Rule("mcp.servers.*.cwd", _PROGRAM, may_go=True),
    Rule("tools.exec", _ASKING),
    Rule("tools.elevated", _ASKING),
    Rule("tools.fs", _PLACE),
    Rule("tools.untrusted", _ASKING),
    Rule("tools.sandbox", _WALLS),
    Rule("env", "variables decide which programs are found and how they run"),
    Rule("secrets", "it decides which files and programs secrets are read from"),
    Rule("plugins", "plugins are programs"),
    Rule("hooks", "hooks run programs and let strangers in"),
    Rule("skills.load", "skills bring programs"),
    Rule("skills.install", "skills bring programs"),
    Rule("logging", "it decides which file is written to"),
    Rule("approvals", _ASKING),
    Rule("memory.search.extraPaths", _READ),
    Rule("memory.qmd.paths", _READ),
    *(Rule(f"{agent}.{rule.place}", rule.reason, rule.may_go) for agent in AGENTS for rule in OF_AGENTS),
)

PROGRAM_NAMES = re.compile(
    r"command|cmd|args|argv|cwd|exec|executable|\w*executablePath|cliPath|bin|bins|binary|\w*binPath|\w*binaryPath"
    r"|program|script|shell|interpreter|module|setupCommand|dockerfile|entrypoint|\$include",
    re.IGNORECASE,
)
# Where keys go to. A server on this very machine may be named; it has no use for a key of somebody else's.
_ADDRESSES: tuple[Path, ...] = (("models", "providers", "*", "baseUrl"), ("tools", "web", "search", "baseUrl"))
_LOOPBACK = re.compile(r"https?://(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?(/|$)", re.IGNORECASE)
_RULES = tuple((tuple(rule.place.split(".")), rule) for rule in RULES)


def untouchable() -> dict[str, dict[str, object]]:
    """The table for those who show the config: places (`*` for any one step) and names, each with its reason."""
    places: dict[str, dict[str, object]] = {rule.place: {"readOnly": True, "reason": rule.reason} for rule in RULES}
    return {**places, "*names*": {"readOnly": True, "pattern": PROGRAM_NAMES.pattern, "reason": _PROGRAM}}


def check_change(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Raises Refused when the two configs (as they stand in the files, before ${NAME} is replaced) differ there."""
    old, new = dict(_leaves(before)), dict(_leaves(after))
    for path in sorted(old.keys() | new.keys()):
        if path in old and path in new and old[path] == new[path] and type(old[path]) is type(new[path]):
            continue
        reason = _reason(path, gone=not _is_there(after, path)) or _reads(path, after, new.get(path))
        if reason := reason or _sends(path, new.get(path)):
            raise Refused(
                403,
                "FORBIDDEN",
                f"{'.'.join(path)} cannot be set by a call: {reason}",
                details={"code": "UNTOUCHABLE", "path": ".".join(path), "hint": "change it on the machine itself"},
            )


def _reason(path: Path, *, gone: bool) -> str:
    for place, rule in _RULES:
        if _is_within(path, place) and not (gone and rule.may_go):
            return rule.reason
    return "" if gone or not any(PROGRAM_NAMES.fullmatch(step) for step in path) else _PROGRAM


def _reads(path: Path, after: Mapping[str, Any], value: Any) -> str:
    """Whether the change would have the config read something of this machine that the caller cannot see."""
    if isinstance(value, str) and "${" in value:
        return "it reads a variable of the machine"
    if path[-1] in ("source", "id", "provider") and _is_reference(after, path[:-1]):
        return "it reads a secret of the machine"
    return ""


def _sends(path: Path, value: Any) -> str:
    """Whether a key that is kept here would go to another address from now on."""
    if not any(_is_within(path, place) for place in _ADDRESSES) or value is None or _LOOPBACK.match(str(value)):
        return ""
    return "the keys of this machine would be sent to that address"


def _is_reference(after: Any, path: Path) -> bool:
    found = _at(after, path)
    return isinstance(found, Mapping) and "source" in found and "id" in found


def _is_within(path: Path, place: Path) -> bool:
    """Below the place, at it, or a change that replaces something above it."""
    return len(path) >= len(place) and all(want in ("*", step) for step, want in zip(path, place, strict=False))


def _is_there(data: Any, path: Path) -> bool:
    return _at(data, path) is not _NOTHING


_NOTHING = object()


def _at(data: Any, path: Path) -> Any:
    for step in path:
        if isinstance(data, Mapping) and step in data:
            data = data[step]
        elif isinstance(data, list) and step.isdigit() and int(step) < len(data):
            data = data[int(step)]
        else:
            return _NOTHING
    return data


def _leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value that is no object or list, and the empty ones of those, with its place."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, (*path, str(key)))
    elif isinstance(value, list | tuple) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, str(index)))
    elif path:
        yield path, value
