"""What no call may change in the config, whatever its credential: programs, their paths and environment, the sandbox,
and the authentication of the gateway.

A stolen token must not become a program that runs here. The table (config/risks.py) lists paths of the config with the
reason. In addition there are names that mean a program wherever they are, and values that make the config read files or
variables of this machine. A secret is bound to the address next to it: a change of the address needs another secret or
none. All this can be changed on the machine: in the file, or by `pal config set`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from palinurus.config.risks import ADDRESSES, PROGRAM, PROGRAM_NAMES, RISKS, is_loopback, is_within
from palinurus.config.secrets import PLACEHOLDERS, origin_of
from palinurus.gateway.protocol import Refused
from palinurus.providers.choose import known_provider

Path = tuple[str, ...]

_ON_MACHINE = "change it on the machine itself"
_SECRETS = ("apiKey", "headers", "token", "oauth")  # next to an address, and sent there
_RISKS = tuple((risk.steps, risk) for risk in RISKS if risk.by_call)
# Where keys are sent to. A server on this machine is allowed.
_FAR: tuple[Path, ...] = (
    ("models", "providers", "*", "baseUrl"),
    ("tools", "web", "search", "baseUrl"),
    ("diagnostics", "otel", "endpoint"),
)


def protected_paths() -> dict[str, dict[str, object]]:
    """The table for those who show the config: paths (`*` is any one step) and names, each with its reason."""
    places: dict[str, dict[str, object]] = {risk.place: {"readOnly": True, "reason": risk.reason} for _, risk in _RISKS}
    return {**places, "*names*": {"readOnly": True, "pattern": PROGRAM_NAMES.pattern, "reason": PROGRAM}}


def check_change(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Raises Refused when the two configs (as in the files, before ${NAME} is replaced) differ there."""
    old, new = dict(_leaves(before)), dict(_leaves(after))
    for path in sorted(old.keys() | new.keys()):
        if path in old and path in new and old[path] == new[path] and type(old[path]) is type(new[path]):
            continue
        reason = _reason(path, gone=_at(after, path) is _NOTHING) or _reads(path, after, new.get(path))
        if reason := reason or _sends(path, new.get(path)):
            raise _refused(path, reason, _ON_MACHINE)
    for place in ADDRESSES:
        for entry in _entries(after, place[:-1]):
            _check_origin(before, after, entry, place[-1])


def _check_origin(before: Mapping[str, Any], after: Mapping[str, Any], entry: Path, name: str) -> None:
    """Raises Refused when secrets that the caller need not know would be sent to another address than before."""
    address = (*entry, name)
    old, new = _at(before, address), _at(after, address)
    if not isinstance(new, str) or origin_of(old) == origin_of(new):  # without one it is the provider's own
        return
    if entry[:2] == ("models", "providers") and _has_keys(after, entry):
        raise _refused(address, "the keys of this machine would be sent to that address", _ON_MACHINE)
    for key in _SECRETS:
        for path, value in _leaves(_at(after, (*entry, key)), (*entry, key)):
            if value and value is not _NOTHING and value not in PLACEHOLDERS and _at(before, path) == value:
                hint = f"send another {'.'.join((*entry, key))} in the same change, or null to take it out"
                raise _refused(address, f"{'.'.join(path)} would be sent to another address than before", hint)


def _has_keys(after: Mapping[str, Any], entry: Path) -> bool:
    """Whether a provider has keys in another place: in the environment, or under another spelling of its name."""
    name = entry[-1].strip().lower()
    known = known_provider(name)
    others = (str(other) for other in _at(after, entry[:-1]) if other != entry[-1])
    return (known is not None and bool(known.key_env)) or any(other.strip().lower() == name for other in others)


def _entries(data: Mapping[str, Any], place: Path) -> list[Path]:
    """The objects at this path."""
    found: list[Path] = [()]
    for step in place:
        inside = [(path, _at(data, path)) for path in found]
        found = [
            (*path, str(key))
            for path, value in inside
            if isinstance(value, Mapping)
            for key in (value if step == "*" else (step,))
        ]
    return [path for path in found if isinstance(_at(data, path), Mapping)]


def _refused(path: Path, reason: str, hint: str) -> Refused:
    where = ".".join(path)
    details = {"code": "UNTOUCHABLE", "path": where, "hint": hint}
    return Refused(403, "FORBIDDEN", f"{where} cannot be set by a call: {reason}", details=details)


def _reason(path: Path, *, gone: bool) -> str:
    for place, risk in _RISKS:
        if is_within(path, place) and not (gone and risk.may_go):
            return risk.reason
    return "" if gone or not any(PROGRAM_NAMES.fullmatch(step) for step in path) else PROGRAM


def _reads(path: Path, after: Mapping[str, Any], value: Any) -> str:
    """Whether the change would have the config read something of this machine that the caller cannot see."""
    if isinstance(value, str) and "${" in value:
        return "it reads a variable of the machine"
    beside = _at(after, path[:-1])
    is_reference = isinstance(beside, Mapping) and "source" in beside and "id" in beside
    return "it reads a secret of the machine" if is_reference and path[-1] in ("source", "id", "provider") else ""


def _sends(path: Path, value: Any) -> str:
    """Whether a key of this machine would be sent to another address."""
    if not any(is_within(path, place) for place in _FAR) or value is None or is_loopback(value):
        return ""
    return "the keys of this machine would be sent to that address"


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
    """Every value that is not an object or list, and the empty ones of those, with its path."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, (*path, str(key)))
    elif isinstance(value, list | tuple) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, str(index)))
    elif path:
        yield path, value
