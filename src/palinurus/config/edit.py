"""Get, set and unset single values of the config file.

The text is edited in place (rewrite.py), so comments, order, unknown keys and formatting survive. Before the new text
replaces the file, it is checked against the schema and against what the change should have made of the data.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from palinurus.config.atomic import make_directory, rotate_backups, write_atomic
from palinurus.config.home import Home
from palinurus.config.include import parse_file, read_text
from palinurus.config.load import LoadedConfig, load_text
from palinurus.config.rewrite import DROP, drop, put, require_data
from palinurus.config.schema import check_new_keys
from palinurus.config.secrets import mask
from palinurus.config.section import dig
from palinurus.config.source import JsonPath, SourceMap, format_path, line_column, lookup, parse, parse_path, scan
from palinurus.config.tree import guess_path
from palinurus.domain.errors import BadRequest, ConfigError, NotFound

_NOTHING = object()
UNTOUCHED = "the file was not changed"


def get_value(loaded: LoadedConfig, dotted: str) -> Any:
    """The value of the config files at a path, with secrets as `***`. Raises NotFound if unset."""
    path = parse_path(dotted)
    try:
        value = lookup(loaded.raw, path)
    except LookupError as error:
        raise NotFound(f"{dotted} is not set", hint=guess_path(path)) from error
    return mask(value, path)


def set_value(home: Home, env: Mapping[str, str], dotted: str, value: Any, *, force: bool = False) -> tuple[str, ...]:
    """Writes one value and returns notices, one line each. With `force` also under an unknown key.

    Raises ConfigError if the config would be invalid or is not ours, BadRequest if the path or the value is invalid,
    and what `write_atomic` raises. After any of them the file is unchanged.
    """
    path = parse_path(dotted)
    text = own_text(home)
    sound(home, text)
    wanted = _plain(value, dotted)
    edited = _edited(text, path, wanted)
    after = _checked(home, env, edited)
    if _found(after.raw, path) != wanted:
        raise _included(path)
    before = _usable(home, env, text)
    if not force:
        check_new_keys(before.config if before else None, after.config, path)
    _replace_file(home, edited)
    return _news(before, after)


def unset_value(home: Home, env: Mapping[str, str], dotted: str) -> None:
    """Take one value out. Raises NotFound when the file does not hold it, else like `set_value`."""
    path = parse_path(dotted)
    text = own_text(home)
    if path not in sound(home, text).spans:
        raise NotFound(f"{dotted} is not set in {home.config_path}", hint=f"{guess_path(path)}; {UNTOUCHED}")
    edited = _edited(text, path, DROP)
    still_there = _found(_checked(home, env, edited).raw, path) is not _NOTHING
    if still_there and isinstance(path[-1], str):  # in a list the next element moves up
        raise _included(path)
    _replace_file(home, edited)


def replace_text(
    home: Home,
    env: Mapping[str, str],
    text: str,
    changes: Iterable[tuple[JsonPath, Any]] = (),
    *,
    dry_run: bool = False,
    force: bool = False,
) -> LoadedConfig:
    """Put a whole new text in the file's place, when it can be used; with `dry_run` only say whether it can.

    `changes` are values that must be in force afterwards. Raises like `set_value`.
    """
    current = own_text(home)  # is it ours?
    sound(home, text)
    loaded = _checked(home, env, text)
    if not force:
        before = _usable(home, env, current)
        check_new_keys(before.config if before else None, loaded.config)
    for path, wanted in changes:
        if _found(loaded.raw, path) != wanted:
            raise _included(path)
    if not dry_run:
        _replace_file(home, text)
    return loaded


def _checked(home: Home, env: Mapping[str, str], text: str) -> LoadedConfig:
    try:
        return load_text(home, env, text, thorough=True)
    except ConfigError as error:
        raise ConfigError(error.message, hint=UNTOUCHED) from error


def _usable(home: Home, env: Mapping[str, str], text: str) -> LoadedConfig | None:
    """What was in force before a change; None when nothing of it could be used."""
    try:
        return load_text(home, env, text)
    except ConfigError:
        return None


def _news(before: LoadedConfig | None, after: LoadedConfig) -> tuple[str, ...]:
    """What a change made odd. Lines are told apart without the place in the file, which moves."""
    old = {line.partition(": ")[2] for line in (*before.warnings, *before.unused)} if before else set()
    return tuple(line for line in (*after.warnings, *after.unused) if line.partition(": ")[2] not in old)


def _included(path: JsonPath) -> ConfigError:
    # What an included file says cannot be taken back here, and its lists are joined to ours.
    return ConfigError(f"{format_path(path)} comes from an included file; change it there", hint=UNTOUCHED)


def _replace_file(home: Home, text: str) -> None:
    target = home.config_path.resolve()  # a link to a file kept elsewhere stays a link
    make_directory(target.parent)
    rotate_backups(target)
    write_atomic(target, text)


def _edited(text: str, path: JsonPath, wanted: Any) -> str:
    """The text after one change. It says what the old one said, save for this one value."""
    edited = drop(text, path) if wanted is DROP else put(text, path, wanted)
    data = expected = parse(text)
    for step, following in pairwise(path):
        if dig(data, (step,)) is None:
            _put(data, step, {} if isinstance(following, str) else [])
        data = data[step]
    if wanted is DROP:
        del data[path[-1]]
    else:
        _put(data, path[-1], wanted)
    return require_data(edited, expected)


def _put(data: Any, step: str | int, value: Any) -> None:
    if isinstance(data, list) and step == len(data):
        data.append(value)
    else:
        data[step] = value


def _found(data: Any, path: JsonPath) -> Any:
    try:
        return lookup(data, path)
    except LookupError:
        return _NOTHING


def _plain(value: Any, dotted: str) -> Any:
    """The value after a round trip through JSON."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError) as error:
        raise BadRequest(f"the value for {dotted} cannot be written to a config: {error}") from error
    return json.loads(text)


def own_text(home: Home) -> str:
    """The text of the file to edit, an empty object if there is none. Raises ConfigError."""
    if not home.ours:
        raise ConfigError(
            f"{home.config_path} is not the config of this home, so it is only read",
            hint=f"without --config, {home.root / 'palinurus.json'} is written",
        )
    text = read_text(home.config_path)
    return "{}\n" if text is None else text


def sound(home: Home, text: str) -> SourceMap:
    """The source map of an editable text. Raises ConfigError for one that must be fixed by hand first."""
    name = home.config_path.name
    if not isinstance(parse_file(text, name, hint=UNTOUCHED), dict):
        raise ConfigError(f"{name}:1: the config should be an object, in braces", hint=UNTOUCHED)
    source = scan(text)
    if source.repeated:
        line, _ = line_column(text, source.spans[source.repeated[0]].begin)
        complaint = f"{name}:{line}: {format_path(source.repeated[0])}: this key is written twice"
        raise ConfigError(complaint, hint=f"keep one of them; {UNTOUCHED}")
    return source
