"""The config as a whole from any door: looked at without its secrets, replaced, and patched.

Who writes says by a hash which text they went by, and is told when the file has changed since. Secrets are shown as a
mark, and a mark that comes back keeps the secret. Needs no house, only its ground; everything here blocks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection
from typing import Any

from msgspec import Struct

from palinurus.config.edit import own_text, replace_text, sound
from palinurus.config.explain import lookup
from palinurus.config.hiding import hidden, hide, restore
from palinurus.config.include import INCLUDE, MAX_BYTES, read_text
from palinurus.config.load import load_text
from palinurus.config.merging import DROP, Change, apply_changes, changes, merged, with_values
from palinurus.config.rewrite import put
from palinurus.config.secrets import MASK, Redactor
from palinurus.config.source import SyntaxFault, line_column, parse
from palinurus.domain.errors import BadRequest, ConfigError, Stale
from palinurus.operations.config import Ground, one_editor

Check = Callable[[Any, Any], None]
"""Is shown the file's data before and after, secrets included, and raises to refuse the change. Where files are
included it is shown the whole before and after as well."""


class ConfigIssue(Struct, frozen=True):
    path: str
    message: str


class ConfigView(Struct, frozen=True):
    """`raw` and `parsed` are the file's own; `config` has what it includes merged in. Secrets are marks in all."""

    path: str
    exists: bool
    valid: bool
    hash: str  # of the file's bytes; empty when there is no file
    raw: str | None
    parsed: Any
    config: Any
    issues: tuple[ConfigIssue, ...] = ()
    warnings: tuple[str, ...] = ()


class ConfigWritten(Struct, frozen=True):
    path: str
    hash: str
    config: Any
    warnings: tuple[str, ...] = ()
    noop: bool = False
    ok: bool = True


def config_look(ground: Ground) -> ConfigView:
    path = str(ground.home.config_path)
    text = read_text(ground.home.config_path)
    exists, digest = text is not None, text_hash(text)
    try:
        loaded = load_text(ground.home, ground.env, text)
    except ConfigError as error:
        issues = tuple(ConfigIssue("", line) for line in error.message.splitlines())
        shown, parsed = _shown(text or "{}", Redactor())
        return ConfigView(path, exists, False, digest, shown if exists else None, parsed, {}, issues)
    redactor = Redactor(loaded.secrets)
    shown, parsed = _shown(text or "{}", redactor)
    whole = hide(loaded.raw, redactor.redact)
    odd = (*loaded.warnings, *loaded.unused)
    return ConfigView(path, exists, True, digest, shown if exists else None, parsed, whole, (), odd)


def config_replace(
    ground: Ground, raw: str, base_hash: str, check: Check, *, dry_run: bool = False, force: bool = False
) -> ConfigWritten:
    """Put a whole text in the file's place. Raises Stale, BadRequest, ConfigError, and what `check` raises.

    With `dry_run` everything is checked and nothing written; with `force` new keys that nobody knows are kept.
    """

    def edit(text: str) -> tuple[str, list[Change]]:
        new, old = _object(raw, "the config"), parse(text)
        edited = raw
        for path, value in restore(new, old, _redactor(ground, text).redact):
            edited = put(edited, path, value)
        return edited, []

    return _edited(ground, edit, base_hash, check, dry_run=dry_run, force=force)


def config_merge(
    ground: Ground,
    raw: str,
    base_hash: str,
    check: Check,
    replace: Collection[str] = (),
    *,
    dry_run: bool = False,
    force: bool = False,
) -> ConfigWritten:
    """Merge a patch into the file. Raises as `config_replace` does."""

    def edit(text: str) -> tuple[str, list[Change]]:
        patch, old = _object(raw, "the patch"), parse(text)
        wanted = merged(old, patch, replace)
        kept = list(restore(wanted, old, _redactor(ground, text).redact))
        whole = with_values(wanted, kept)
        unchanged = {path for path, _ in kept}  # a mark by itself; one inside a new value was put in its place
        edits = [
            (path, value if value is DROP else lookup(whole, path))
            for path, value in changes(old, patch, replace)
            if path not in unchanged
        ]
        return apply_changes(text, edits, whole), edits

    return _edited(ground, edit, base_hash, check, dry_run=dry_run, force=force)


def config_edit(ground: Ground, edit: Callable[[str], str], check: Check) -> ConfigWritten:
    """Change the text of the file by a function that looks at what is there."""
    return _edited(ground, lambda text: (edit(text), []), None, check, force=True)


def text_hash(text: str | None) -> str:
    return hashlib.sha256(text.encode()).hexdigest() if text is not None else ""


def _edited(
    ground: Ground,
    edit: Callable[[str], tuple[str, list[Change]]],
    base_hash: str | None,
    check: Check,
    *,
    dry_run: bool = False,
    force: bool = False,
) -> ConfigWritten:
    with one_editor(ground.home):
        current = read_text(ground.home.config_path)
        if base_hash is not None:
            _check_hash(current, base_hash)
        text = own_text(ground.home)
        sound(ground.home, text)
        edited, edits = edit(text)
        if edited == text:
            return _written(ground, current, noop=True)
        check(parse(text), _object(edited, "the config"))
        if INCLUDE in text:  # what stands beside a setting may stand in another file
            check(_whole(ground, text), _whole(ground, edited))
        kept = [each for each in edits if each[1] is not DROP]
        replace_text(ground.home, ground.env, edited, kept, dry_run=dry_run, force=force)
        return _written(ground, edited, noop=False)


def _whole(ground: Ground, text: str) -> Any:
    """The data with what it includes; the text's own where that cannot be read, which is refused later."""
    try:
        return load_text(ground.home, ground.env, text).raw
    except ConfigError:
        return parse(text)


def _written(ground: Ground, text: str | None, *, noop: bool) -> ConfigWritten:
    loaded = load_text(ground.home, ground.env, text)
    shown = hide(loaded.raw, Redactor(loaded.secrets).redact)
    return ConfigWritten(str(ground.home.config_path), text_hash(text), shown, loaded.warnings, noop)


def _check_hash(text: str | None, base_hash: str) -> None:
    if text is not None and not base_hash:
        raise BadRequest("the hash of the config that you went by is missing", hint="config.get tells it: baseHash")
    if base_hash.lower() != text_hash(text):
        raise Stale("the config has changed since it was read", hint="call config.get again, then decide")


def _shown(text: str, redactor: Redactor) -> tuple[str | None, Any]:
    """Text and data with marks; nothing of a text that cannot be read, because nobody knows where its secrets are."""
    try:
        parsed = parse(text)
    except SyntaxFault:
        return None, None
    shown = text
    for path in hidden(parsed, redactor.redact):
        shown = put(shown, path, MASK)
    return shown, hide(parsed, redactor.redact)


def _object(raw: str, what: str) -> dict[str, Any]:
    if len(raw) > MAX_BYTES:
        raise BadRequest(f"{what} is larger than 2 MiB")
    try:
        found = parse(raw)
    except SyntaxFault as fault:
        line, column = line_column(raw, fault.offset)
        raise BadRequest(f"{what} cannot be read: line {line}, column {column}: {fault.reason}") from None
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadRequest(f"{what} holds half of a character") from None
    if not isinstance(found, dict):
        raise BadRequest(f"{what} should be an object, in braces")
    return found


def _redactor(ground: Ground, text: str) -> Redactor:
    """Of the config in force; one that is broken has no secrets but those that look like some."""
    try:
        return Redactor(load_text(ground.home, ground.env, text).secrets)
    except ConfigError:
        return Redactor()
