"""What no call may change in the config, whatever its credential: programs, their paths and surroundings, the walls
around them, and the locks of this very door.

A stolen token must not become a program that runs here. The table (config/risks.py) names places of the config
with the reason; beside it stand names that mean a program wherever they are, and values that make the config read files
or variables of this machine. All this is changed on the machine: in the file, or by `pal config set`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from palinurus.config.risks import PROGRAM, PROGRAM_NAMES, RISKS, is_loopback, is_within
from palinurus.gateway.door.guard import Refused

Path = tuple[str, ...]

_RISKS = tuple((risk.steps, risk) for risk in RISKS if risk.by_call)
# Where keys go to. A server on this very machine may be named; it has no use for a key of somebody else's.
_FAR: tuple[Path, ...] = (
    ("models", "providers", "*", "baseUrl"),
    ("tools", "web", "search", "baseUrl"),
    ("diagnostics", "otel", "endpoint"),
)


def untouchable() -> dict[str, dict[str, object]]:
    """The table for those who show the config: places (`*` for any one step) and names, each with its reason."""
    places: dict[str, dict[str, object]] = {risk.place: {"readOnly": True, "reason": risk.reason} for _, risk in _RISKS}
    return {**places, "*names*": {"readOnly": True, "pattern": PROGRAM_NAMES.pattern, "reason": PROGRAM}}


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
    for place, risk in _RISKS:
        if is_within(path, place) and not (gone and risk.may_go):
            return risk.reason
    return "" if gone or not any(PROGRAM_NAMES.fullmatch(step) for step in path) else PROGRAM


def _reads(path: Path, after: Mapping[str, Any], value: Any) -> str:
    """Whether the change would have the config read something of this machine that the caller cannot see."""
    if isinstance(value, str) and "${" in value:
        return "it reads a variable of the machine"
    if path[-1] in ("source", "id", "provider") and _is_reference(after, path[:-1]):
        return "it reads a secret of the machine"
    return ""


def _sends(path: Path, value: Any) -> str:
    """Whether a key that is kept here would go to another address from now on."""
    if not any(is_within(path, place) for place in _FAR) or value is None or is_loopback(value):
        return ""
    return "the keys of this machine would be sent to that address"


def _is_reference(after: Any, path: Path) -> bool:
    found = _at(after, path)
    return isinstance(found, Mapping) and "source" in found and "id" in found


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
