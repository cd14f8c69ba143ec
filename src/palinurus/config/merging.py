"""A merge patch (RFC 7396) on the text of a config: only what changes is touched, comments and order stay. Pure.

Objects are merged key by key and null takes a key out. Lists are replaced whole, save for lists whose elements have an
`id`, which are merged by it: an element that the patch does not name stays.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from palinurus.config.rewrite import drop, put
from palinurus.config.source import JsonPath, format_path, parse
from palinurus.domain.errors import ConfigError

Change = tuple[JsonPath, Any]


class _Drop:
    """In the place of a value: take the key out."""


DROP = _Drop()


def apply_changes(text: str, edits: Iterable[Change], expected: Any) -> str:
    """The text with the edits made. Raises ConfigError when it would then say anything but what is expected."""
    for path, value in edits:
        text = drop(text, path) if value is DROP else put(text, path, value)
    if _canonical(parse(text)) != _canonical(expected):
        raise ConfigError("this change cannot be made safely in this text", hint="edit the file by hand")
    return text


def with_values(data: Any, values: Iterable[Change]) -> Any:
    """The data with other values at some paths that are there."""
    for path, value in values:
        data = _with_value(data, path, value)
    return data


def _with_value(data: Any, path: JsonPath, value: Any) -> Any:
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(data, list):
        return [_with_value(item, rest, value) if at == step else item for at, item in enumerate(data)]
    return {**data, step: _with_value(data[step], rest, value)}


def changes(data: Any, patch: dict[str, Any], replace: Collection[str] = ()) -> Iterator[Change]:
    """The single edits of which a patch consists, in an order in which they can be made."""
    return _changes(data, patch, (), frozenset(replace))


def merged(data: Any, patch: Any, replace: Collection[str] = (), path: JsonPath = ()) -> Any:
    """The data with the patch merged in."""
    if isinstance(patch, dict):
        result = dict(data) if isinstance(data, dict) else {}
        for key, value in patch.items():
            if value is None:
                result.pop(key, None)
            else:
                result[key] = merged(result.get(key), value, replace, (*path, key))
        return result
    if _has_ids(patch) and format_path(path) not in replace:
        before = data if _has_ids(data) else []
        named = {item["id"]: item for item in patch}
        kept = [merged(item, named.pop(item["id"], {}), replace, (*path, at)) for at, item in enumerate(before)]
        fresh = enumerate(named.values(), start=len(kept))
        return kept + [merged(None, item, replace, (*path, at)) for at, item in fresh]
    return patch


def _changes(data: Any, patch: Any, path: JsonPath, replace: frozenset[str]) -> Iterator[Change]:
    if isinstance(patch, dict) and isinstance(data, dict):
        for key, value in patch.items():
            if value is None and key in data:
                yield (*path, key), DROP
            elif value is not None:
                yield from _changes(data.get(key), value, (*path, key), replace)
    elif _has_ids(data) and _has_ids(patch) and format_path(path) not in replace:
        places = {item["id"]: at for at, item in enumerate(data)}
        for item in patch:
            at = places.setdefault(item["id"], len(places))
            yield from _changes(data[at] if at < len(data) else None, item, (*path, at), replace)
    elif _canonical(wanted := merged(data, patch, replace, path)) != _canonical(data):
        yield path, wanted


def _has_ids(value: Any) -> bool:
    """Whether it is a list of things with ids, each of which stands in it once."""
    if not isinstance(value, list) or not value:
        return False
    ids = [item.get("id") if isinstance(item, dict) else None for item in value]
    return all(isinstance(each, str) for each in ids) and len(set(ids)) == len(ids)


def _canonical(data: Any) -> str:
    return json.dumps(data, sort_keys=True)
