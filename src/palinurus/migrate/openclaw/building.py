"""Single settings put together to one config, and back: which of them are meant by a path of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from palinurus.config.explain import lookup
from palinurus.config.source import JsonPath
from palinurus.migrate.openclaw.settings import LISTED, Setting


def build(settings: Iterable[Setting]) -> tuple[dict[str, Any], dict[JsonPath, JsonPath]]:
    """The data, and for each setting's path the one it has there: lists close up where something was taken out."""
    root: dict[Any, Any] = {}
    placed = []
    for setting in settings:
        holder = root
        for step in setting.into[:-1]:
            holder = holder.setdefault(step, {})
        holder.setdefault(setting.into[-1], {} if setting.value == {} else setting.value)  # an object of its own
        placed.append(setting.into)
    order: dict[int, dict[Any, int]] = {}  # of the elements of each list, by the list
    return _closed_up(root), {into: _path(root, into, order) for into in placed}


def clashes(
    settings: Sequence[Setting], paths: Mapping[JsonPath, JsonPath], wrong: Mapping[JsonPath, str]
) -> dict[JsonPath, str]:
    """The settings that are meant by these paths of the data, with what is wrong. At least one, if there are any.

    A path may be inside a setting, or an object of several; where there is none (something is missing), what holds it
    is meant.
    """
    while wrong:
        inside = {path[:size]: path for path in wrong for size in range(len(path) + 1)}
        hit: dict[JsonPath, str] = {}
        for setting in settings:
            built = paths[setting.into]
            over = next((built[:size] for size in range(len(built) + 1) if built[:size] in wrong), inside.get(built))
            if over is not None:
                hit[setting.into] = wrong[over]
        if hit:
            return hit
        wrong = {path[:-1]: words for path, words in wrong.items() if path}
    return {}


def get(data: Any, path: JsonPath, missing: Any = None) -> Any:
    try:
        return lookup(data, path)
    except LookupError:
        return missing


def shown_paths(settings: Sequence[Setting]) -> dict[JsonPath, Setting]:
    """One line for each setting, or one for a whole list when all in it goes one way."""
    groups: dict[JsonPath, list[Setting]] = {}
    for setting in settings:
        groups.setdefault(list_of(setting.source), []).append(setting)
    shown: dict[JsonPath, Setting] = {}
    for path, group in groups.items():
        if len({(setting.outcome, setting.reason) for setting in group}) == 1:
            shown.setdefault(path, group[0])
        else:
            for setting in group:
                shown.setdefault(setting.source, setting)
    return shown


def list_of(path: JsonPath) -> JsonPath:
    """The path of the list of objects that it leads into, or the path itself. Agents are no such list."""
    start = 3 if path[:2] == LISTED else 0
    at = next((at for at, step in enumerate(path) if at >= start and isinstance(step, int)), len(path))
    return path[:at]


def _closed_up(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value and all(isinstance(key, int) for key in value):
        return [_closed_up(value[key]) for key in sorted(value)]
    return {key: _closed_up(item) for key, item in value.items()}


def _path(root: Any, into: JsonPath, order: dict[int, dict[Any, int]]) -> JsonPath:
    path: list[str | int] = []
    for step in into:
        if isinstance(step, int):
            if id(root) not in order:
                order[id(root)] = {key: index for index, key in enumerate(sorted(root))}
            path.append(order[id(root)][step])
        else:
            path.append(step)
        root = root[step]
    return tuple(path)
