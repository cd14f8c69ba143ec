"""The config from every surface: look at it, change it, check it; and make a home.

No open home is needed, so this works when the config is broken or another process holds the home; that process notices
a changed file before its next run. A lock file beside the config lets one writer in at a time. The plain functions
block; the operations run them in a thread.

Who replaces or patches the whole file says by a hash which text they have seen, and is refused when the file has
changed since. Secrets are shown as a mark, and a mark that comes back keeps the secret.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from msgspec import Struct

from palinurus.config.agents import agent_ids, agent_settings
from palinurus.config.atomic import make_directory, storage_error, write_atomic
from palinurus.config.edit import get_value, own_text, replace_text, set_value, sound, unset_value
from palinurus.config.home import Home
from palinurus.config.include import INCLUDE, MAX_BYTES, read_text
from palinurus.config.load import load_config, load_text
from palinurus.config.rewrite import DROP, Change, apply_changes, changes, merged, put, with_values
from palinurus.config.schema import OptionExplanation, explain_option
from palinurus.config.secrets import MASK, Redactor, hidden, hide, restore
from palinurus.config.source import SyntaxFault, line_column, lookup, parse
from palinurus.domain.errors import BadRequest, ConfigError, Stale
from palinurus.operations.operation import AgentRef, FromStdin, Metavar, Private, operation
from palinurus.operations.scopes import LOCAL, Caller
from palinurus.operations.services import Services
from palinurus.workspace.seed import SeedReport, seed_workspace

FIRST_CONFIG = """{
  // Palinurus reads this file; `pal config schema` lists the keys, `pal config set` changes it.
}
"""


ConfigValue = dict[str, Any] | list[Any] | str | float | bool | None


class ConfigReport(Struct, frozen=True):
    file: str
    exists: bool
    files: tuple[str, ...]
    warnings: tuple[str, ...]
    unused: tuple[str, ...] = ()  # keys that we know and do not use


class ConfigEdit(Struct, frozen=True):
    """One value of the config that was changed."""

    path: str
    warnings: tuple[str, ...] = ()


class SetupReport(Struct, frozen=True):
    home: str
    config: str
    workspaces: dict[str, str]  # agent -> folder
    created: tuple[str, ...]
    kept: tuple[str, ...]


@operation("config.value.get", scope="admin", local=True, needs_home=False)
def get_config_value(services: Services, path: str) -> ConfigValue:
    """Print a value. Secrets are shown as ***.

    Example:
      pal config get agents.defaults.model
    """
    value: ConfigValue = get_value(load_config(services.home, services.env), path)
    return value


@operation("config.value.set", scope="admin", local=True, needs_home=False)
def set_config_value(
    services: Services,
    path: str,
    value: str,
    string: Annotated[bool, "Take the value as text, even if it reads as JSON."] = False,
    force: Annotated[bool, "Allow an unknown key."] = False,
) -> ConfigEdit:
    """Set a value. It is read as JSON or JSON5 if possible, else as text. The file is checked before it is replaced.

    An unknown key is refused, with the key that was probably meant.

    Examples:
      pal config set agents.defaults.model ollama/qwen3
      pal config set agents.defaults.bootstrapMaxChars 12000
      pal config set 'models.providers."my.host".baseUrl' http://127.0.0.1:8080/v1
    """
    return ConfigEdit(path, set_option(services, path, value if string else _read_value(value), force=force))


def _read_value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:  # as people write it in the file; a single word is text all the same
        return parse(text) if text.lstrip().startswith(("{", "[")) else text
    except SyntaxFault:
        return text


@operation("config.value.unset", scope="admin", local=True, needs_home=False)
def unset_config_value(services: Services, path: str) -> ConfigEdit:
    """Remove a value.

    Example:
      pal config unset agents.defaults.model
    """
    unset_option(services, path)
    return ConfigEdit(path)


def set_option(services: Services, path: str, value: Any, *, force: bool = False) -> tuple[str, ...]:
    """Set a value; returns warnings, one line each. With `force` also under an unknown key."""
    with one_editor(services.home):
        return set_value(services.home, services.env, path, value, force=force)


def unset_option(services: Services, path: str) -> None:
    with one_editor(services.home):
        unset_value(services.home, services.env, path)


@operation("config.validate", scope="admin", local=True, needs_home=False)
def validate_config(services: Services) -> ConfigReport:
    """Check the config and say what is wrong, with file, line and path.

    Example:
      pal config validate && echo good
    """
    loaded = load_config(services.home, services.env, thorough=True)  # raises ConfigError with every mistake
    files = tuple(map(str, loaded.files))
    path = services.home.config_path
    return ConfigReport(str(path), _is_there(path), files, loaded.warnings, loaded.unused)


@operation("config.explain", scope="admin", local=True, needs_home=False)
def explain_config(
    services: Services, path: str, agent: Annotated[AgentRef, "For this agent, where agents can differ."] = ""
) -> OptionExplanation:
    """Show the value of a config key, what it means, and which line sets it.

    Examples:
      pal config explain tools.exec.ask
      pal config explain agents.defaults.tools.exec.ask --agent main
    """
    return explain_option(load_config(services.home, services.env, thorough=True), path, agent)


def setup(services: Services, *, complete: bool = True) -> SetupReport:
    """Make the home, its config and the workspace of every agent. Nothing that exists is touched.

    A folder that is there gets the files that it lacks, unless `complete` is false.
    """
    home = services.home
    make_directory(home.root)
    created: list[str] = []
    if home.ours and not _is_there(home.config_path):
        write_atomic(home.config_path, FIRST_CONFIG)
        created.append(str(home.config_path))
    loaded = load_config(home, services.env)
    reports: dict[Path, SeedReport] = {}
    workspaces: dict[str, str] = {}
    for agent_id in agent_ids(loaded.config):
        settings = agent_settings(loaded.config, home, agent_id)
        workspaces[agent_id] = str(settings.workspace)
        if not complete and _is_there(settings.workspace):
            continue
        reports[settings.workspace] = seed_workspace(
            settings.workspace,
            skip_bootstrap=settings.skip_bootstrap,
            skip_optional=settings.skip_optional_bootstrap_files,
        )
    created += [str(root / name) for root, report in reports.items() for name in report.created]
    kept = [str(root / name) for root, report in reports.items() for name in report.kept]
    return SetupReport(str(home.root), str(home.config_path), workspaces, tuple(created), tuple(kept))


@contextmanager
def one_editor(home: Home) -> Iterator[None]:
    """Two editors at once would each write what the other had not seen."""
    if not home.ours:  # refused below, with the reason
        yield
        return
    make_directory(home.root)
    path = home.root / "config.lock"
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise storage_error(error, path) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _is_there(path: Path) -> bool:
    """Path.exists raises where a folder on the way may not be entered; for us, what nobody can see is not there."""
    return os.access(path, os.F_OK)


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


class ConfigChange(Struct, frozen=True):
    path: str
    hash: str
    config: Any
    warnings: tuple[str, ...] = ()
    noop: bool = False
    ok: bool = True
    written: bool = True  # False: nothing changes, or it was only checked


@operation("config.get", scope="admin", strict=False, needs_home=False)
def show_config(services: Services) -> ConfigView:
    """The config, secrets as marks, and its hash."""
    path = str(services.home.config_path)
    text = read_text(services.home.config_path)
    exists, digest = text is not None, text_hash(text)
    try:
        loaded = load_text(services.home, services.env, text)
    except ConfigError as error:
        issues = tuple(ConfigIssue("", line) for line in error.message.splitlines())
        shown, parsed = _shown(text or "{}", Redactor())
        return ConfigView(path, exists, False, digest, shown if exists else None, parsed, {}, issues)
    redactor = Redactor(loaded.secrets)
    shown, parsed = _shown(text or "{}", redactor)
    whole = hide(loaded.raw, redactor.redact)
    odd = (*loaded.warnings, *loaded.unused)
    return ConfigView(path, exists, True, digest, shown if exists else None, parsed, whole, (), odd)


Force = Annotated[bool, "Allow unknown keys."]
DryRun = Annotated[bool, "Check it and write nothing."]
Edit = Callable[[str], tuple[str, list[Change]]]


@operation("config.set", scope="admin", strict=False, needs_home=False)
def replace_config(
    services: Services,
    raw: Annotated[str, "The whole text, JSON5."],
    base_hash: str = "",
    dry_run: DryRun = False,
    force: Force = False,
    caller: Caller = LOCAL,
) -> ConfigChange:
    """Replace the whole text of the config file."""

    def edit(text: str) -> tuple[str, list[Change]]:
        new, old = _object(raw, "the config"), parse(text)
        edited = raw
        for path, value in restore(new, old, _redactor(services, text).redact):
            edited = put(edited, path, value)
        return edited, []

    return _change(services, edit, base_hash, caller, dry_run=dry_run, force=force)


@operation("config.patch", scope="admin", strict=False, needs_home=False)
def patch_config(
    services: Services,
    raw: Annotated[str, Metavar("PATCH"), FromStdin, "An object, JSON5; null removes a key."],
    base_hash: Annotated[str, Private] = "",
    replace_paths: Annotated[
        tuple[str, ...], Private, "Lists that are replaced whole though their elements have ids."
    ] = (),
    force: Force = False,
    dry_run: DryRun = False,
    caller: Caller = LOCAL,
) -> ConfigChange:
    """Merge PATCH, an object in JSON5, into the config; null removes a key. `-` reads it from standard input.

    Examples:
      pal config patch '{agents: {defaults: {model: "ollama/qwen3", timeoutSeconds: 300}}}'
      pal config patch - < changes.json5
    """
    return _change(services, _merge(services, raw, replace_paths), base_hash, caller, dry_run=dry_run, force=force)


def _merge(services: Services, raw: str, replace: Collection[str]) -> Edit:
    def edit(text: str) -> tuple[str, list[Change]]:
        patch, old = _object(raw, "the patch"), parse(text)
        wanted = merged(old, patch, replace)
        kept = list(restore(wanted, old, _redactor(services, text).redact))
        whole = with_values(wanted, kept)
        unchanged = {path for path, _ in kept}  # a mark by itself; one inside a new value was put in its place
        edits = [
            (path, value if value is DROP else lookup(whole, path))
            for path, value in changes(old, patch, replace)
            if path not in unchanged
        ]
        return apply_changes(text, edits, whole), edits

    return edit


def merge_config(services: Services, patch: Mapping[str, Any], caller: Caller) -> ConfigChange:
    """Merge data of our own into the file, whatever it holds now."""
    return _change(services, _merge(services, json.dumps(patch), ()), None, caller)


def edit_config(services: Services, edit: Callable[[str], str], caller: Caller) -> ConfigChange:
    """Change the text of the file by a function of what it holds."""
    return _change(services, lambda text: (edit(text), []), None, caller, force=True)


def text_hash(text: str | None) -> str:
    return hashlib.sha256(text.encode()).hexdigest() if text is not None else ""


def _change(
    services: Services, edit: Edit, base_hash: str | None, caller: Caller, *, dry_run: bool = False, force: bool = False
) -> ConfigChange:
    """Raises Stale, BadRequest, ConfigError, and what the caller's check raises."""
    with one_editor(services.home):
        current = read_text(services.home.config_path)
        if base_hash is not None and (base_hash or not caller.is_local):
            _check_hash(current, base_hash)
        text = own_text(services.home)
        sound(services.home, text)
        edited, edits = edit(text)
        if edited == text:
            return _describe(services, current, noop=True, written=False)
        caller.check_config(parse(text), _object(edited, "the config"))
        if INCLUDE in text:  # what stands beside a setting may stand in another file
            caller.check_config(_whole(services, text), _whole(services, edited))
        kept = [each for each in edits if each[1] is not DROP]
        replace_text(services.home, services.env, edited, kept, dry_run=dry_run, force=force)
        return _describe(services, edited, noop=False, written=not dry_run)


def _whole(services: Services, text: str) -> Any:
    """The data with what it includes; the text's own where that cannot be read, which is refused later."""
    try:
        return load_text(services.home, services.env, text).raw
    except ConfigError:
        return parse(text)


def _describe(services: Services, text: str | None, *, noop: bool, written: bool) -> ConfigChange:
    loaded = load_text(services.home, services.env, text)
    shown = hide(loaded.raw, Redactor(loaded.secrets).redact)
    path = str(services.home.config_path)
    return ConfigChange(path, text_hash(text), shown, loaded.warnings, noop, written=written)


def _check_hash(text: str | None, base_hash: str) -> None:
    if text is not None and not base_hash:
        raise BadRequest("baseHash is missing: the hash of the config that you have read", hint="config.get returns it")
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
        raise BadRequest(f"{what} ends in the middle of a character") from None
    if not isinstance(found, dict):
        raise BadRequest(f"{what} should be an object, in braces")
    return found


def _redactor(services: Services, text: str) -> Redactor:
    """Of the config in force; one that is broken has no secrets but those that look like some."""
    try:
        return Redactor(load_text(services.home, services.env, text).secrets)
    except ConfigError:
        return Redactor()
