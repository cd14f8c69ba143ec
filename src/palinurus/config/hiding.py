"""Config data that may be shown to somebody, and taken back from them with its secrets put in again. Pure.

Hidden is what stands under a secret's name and whatever looks like a secret. Where the mark comes back, the old value
stays; a mark that nobody can read as one old value is refused, so no secret ever wanders to another place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from palinurus.config.secrets import MASK, is_reference, is_secret_name
from palinurus.config.source import JsonPath, format_path
from palinurus.domain.errors import BadRequest

MARKS = (MASK, "__OPENCLAW_REDACTED__")  # the second is what pages and programs made for OpenClaw send
_NOTHING = object()

Redact = Callable[[str], str]
"""Gives a text back without secrets; the same text when it holds none."""


def hidden(value: Any, redact: Redact, path: JsonPath = (), name: str = "") -> Iterator[JsonPath]:
    """The paths of all strings that must not be shown."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from hidden(item, redact, (*path, key), key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from hidden(item, redact, (*path, index), name)
    elif isinstance(value, str) and _is_secret(value, name, redact):
        yield path


def hide(value: Any, redact: Redact, name: str = "") -> Any:
    """The data with marks in the place of secrets."""
    if isinstance(value, dict):
        return {key: hide(item, redact, key) for key, item in value.items()}
    if isinstance(value, list):
        return [hide(item, redact, name) for item in value]
    return MASK if isinstance(value, str) and _is_secret(value, name, redact) else value


def restore(value: Any, old: Any, redact: Redact) -> Iterator[tuple[JsonPath, str]]:
    """For every mark in the data its path and the old value that stays there. Raises BadRequest for a stray mark."""
    return _restore(value, old, (), redact)


def _restore(value: Any, old: Any, path: JsonPath, redact: Redact) -> Iterator[tuple[JsonPath, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            before = old.get(key, _NOTHING) if isinstance(old, dict) else _NOTHING
            yield from _restore(item, before, (*path, key), redact)
    elif isinstance(value, list):
        known = old if isinstance(old, list) else []
        name = next((step for step in reversed(path) if isinstance(step, str)), "")
        for index, item in enumerate(value):
            yield from _restore(item, _counterpart(item, index, known, name, redact), (*path, index), redact)
    elif value in MARKS:
        if not isinstance(old, str):
            raise BadRequest(
                f"{format_path(path)} is {value}, and there is nothing of before to keep", hint="send the value itself"
            )
        yield path, old


def _counterpart(item: Any, index: int, known: list[Any], name: str, redact: Redact) -> Any:
    """Which element of the old list this one was. Elements move, so an index alone proves nothing."""
    if isinstance(item, dict) and isinstance(item.get("id"), str):
        return next((each for each in known if isinstance(each, dict) and each.get("id") == item["id"]), _NOTHING)
    alike = [at for at, each in enumerate(known) if hide(each, redact, name) == _plain(item)]
    if index in alike:
        return known[index]
    return known[alike[0]] if len(alike) == 1 else _NOTHING


def _plain(value: Any) -> Any:
    """With one kind of mark."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return MASK if isinstance(value, str) and value in MARKS else value


def _is_secret(value: str, name: str, redact: Redact) -> bool:
    if not value or is_reference(value):
        return False
    return is_secret_name(name) or redact(value) != value
