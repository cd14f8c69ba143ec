"""Say what is wrong with a config in words for a person: one line per mistake, with file, line and path."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from palinurus.config.include import Place
from palinurus.config.secrets import MASK, is_secret_name, mask
from palinurus.config.source import JsonPath, format_path
from palinurus.domain.errors import ConfigError

# pydantic's names of a wrong type, and what should stand there instead.
WANTED = {
    "bool_type": "true or false",
    "dict_type": "an object",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_attributes_type": "an object",
    "model_type": "an object",
    "string_type": "text",
    "tuple_type": "a list",
}


def explain(errors: Iterable[Mapping[str, Any]], data: Any, place: Place) -> ConfigError:
    """One ConfigError for all of pydantic's errors.

    `data` is what the files say, not what came of it: the error shows values, and a variable may hold a secret.
    """
    lines = [
        f"{place.where(path)}: {format_path(path) or 'config'}: {complaint}"
        for path, complaint in complaints(errors, data).items()
    ]
    return ConfigError("\n".join(lines), hint=f"in {place.document.path}")


def complaints(errors: Iterable[Mapping[str, Any]], data: Any) -> dict[JsonPath, str]:
    """What is wrong at each path, in words. They show values of `data`."""
    found: dict[JsonPath, list[Mapping[str, Any]]] = {}
    for error in errors:
        found.setdefault(_real_path(error, data), []).append(error)
    holders = {path[:size] for path in found for size in range(len(path))}
    told = {}
    for path, here in found.items():
        # A value that may be text or an object fails as both; when it is an object, what is wrong inside it says more.
        telling = [error for error in here if path not in holders or error["type"] not in WANTED]
        if telling:
            told[path] = _complaint(telling, data, path)
    return told


def lookup(data: Any, path: JsonPath) -> Any:
    """The value at a path. Raises LookupError when there is none."""
    for step in path:
        if not _has(data, step):
            raise LookupError(step)
        data = data[step]
    return data


def shown(value: Any, path: JsonPath) -> str:
    """A value in an error: short, and without the secret it may hold."""
    name = next((step for step in reversed(path) if isinstance(step, str)), "")
    if is_secret_name(name) and not isinstance(value, dict | list):
        return MASK
    text = json.dumps(mask(value, name), ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _has(data: Any, step: str | int) -> bool:
    if isinstance(data, list):
        return isinstance(step, int) and step < len(data)
    return isinstance(data, dict) and step in data


def _real_path(error: Mapping[str, Any], data: Any) -> JsonPath:
    """pydantic's path without the names it gives to the branches of a union, and to keys."""
    path: list[str | int] = []
    steps = error["loc"]
    for index, step in enumerate(steps):
        last = index == len(steps) - 1
        if _has(data, step):
            data = data[step]
        elif not (last and error["type"] == "missing"):
            continue
        path.append(step)
    return tuple(path)


def _complaint(errors: list[Mapping[str, Any]], data: Any, path: JsonPath) -> str:
    kinds = [error["type"] for error in errors]
    if all(kind in WANTED for kind in kinds):
        wanted = " or ".join(dict.fromkeys(WANTED[kind] for kind in kinds))
        return f"should be {wanted}, got {_got(data, path)}"
    error = next(error for error in errors if error["type"] not in WANTED)
    return _sentence(error, data, path)


def _sentence(error: Mapping[str, Any], data: Any, path: JsonPath) -> str:
    context = error.get("ctx", {})
    got = f"got {_got(data, path)}"
    match error["type"]:
        case "missing":
            return "is missing"
        case "value_error":
            return f"{context['error']}, {got}"
        case "literal_error":
            return f"should be {context['expected'].replace(chr(39), '')}, {got}"
        case "greater_than":
            return f"should be more than {context['gt']}, {got}"
        case "greater_than_equal":
            return f"should be {context['ge']} or more, {got}"
        case "less_than_equal":
            return f"should be {context['le']} or less, {got}"
        case "string_too_short":
            return "should not be empty"
        case _:
            return f"{error['msg'][:1].lower()}{error['msg'][1:]}, {got}"


def _got(data: Any, path: JsonPath) -> str:
    try:
        return shown(lookup(data, path), path)
    except LookupError:
        return "nothing"
