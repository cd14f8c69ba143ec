"""From the files on disk to one frozen Config: includes, variables, the schema, and what must never be shown.

Nothing here changes a file. What is merely odd becomes a warning; what is wrong becomes one ConfigError that lists
every mistake with its file, line and path.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from pydantic import ValidationError

from palinurus.config.explain import complaints, explain, lookup
from palinurus.config.home import Home, env_value, expand_user
from palinurus.config.include import Assembled, assemble, include_roots, read_text
from palinurus.config.memory_settings import memory_complaints
from palinurus.config.schema import Config, parse_config, unknown_keys
from palinurus.config.secrets import is_reference, secret_values, worth_redacting
from palinurus.config.section import SecretRef
from palinurus.config.settings import known_zone
from palinurus.config.skills import skill_secrets
from palinurus.config.source import JsonPath, format_path
from palinurus.config.unused import suggest_key, unused_keys
from palinurus.domain.errors import ConfigError

_VARIABLE = re.compile(r"(\$?)\$\{([A-Z_][A-Z0-9_]*)\}")


class Loaded(Struct, frozen=True):
    """A config in force. It is replaced whole when the files change."""

    config: Config
    raw: dict[str, Any]  # with includes merged in, before ${NAME} is replaced
    warnings: tuple[str, ...]
    secrets: tuple[str, ...]  # exact values for the Redactor
    digest: str  # of the content with variables replaced: equal digests, equal behaviour
    files: tuple[Path, ...]
    env: Mapping[str, str]  # the process's variables, and behind them those of the config
    unused: tuple[str, ...] = ()  # keys that we know and do not use, one line each
    missing: tuple[str, ...] = ()  # names of variables that the config wants and nobody has set


def load_config(home: Home, env: Mapping[str, str]) -> Loaded:
    """Read the home's config. A missing file means the defaults. Raises ConfigError."""
    text = read_text(home.config_path)
    if text is None and not home.ours:
        raise ConfigError(
            f"there is no config file {home.config_path}", hint="check --config and PALINURUS_CONFIG_PATH"
        )
    return load_text(home, env, text)


def load_text(home: Home, env: Mapping[str, str], text: str | None) -> Loaded:
    """The same for a text that would stand in the config file. Raises ConfigError."""
    roots = include_roots(env_value(env, "PALINURUS_INCLUDE_ROOTS"))
    whole = assemble(home.config_path, "{}" if text is None else text, roots)
    if not isinstance(whole.value, dict):
        raise whole.place.error((), "the config should be an object, in braces")
    variables = {**_config_variables(whole.value), **{name: value for name, value in env.items() if value}}
    missing: list[tuple[JsonPath, str]] = []
    resolved = _substitute(whole.value, variables, (), missing)
    data = json.dumps(resolved).encode()
    config = _checked(data, whole)
    secrets, complaints = _secrets(config, resolved, variables)
    return Loaded(
        config=config,
        raw=whole.value,
        warnings=(*_warnings(config, whole, missing), *complaints),
        secrets=secrets,
        digest=hashlib.sha256(data).hexdigest(),
        files=() if text is None else whole.files,
        env=variables,
        unused=tuple(_unused(config, whole)),
        missing=tuple(dict.fromkeys(name for _, name in missing)),
    )


def check_data(data: dict[str, Any], env: Mapping[str, str]) -> Config | dict[JsonPath, str]:
    """Config data that stands in no file: the config, or what is wrong with it by path. The words may show values."""
    variables = {**_config_variables(data), **{name: value for name, value in env.items() if value}}
    try:
        return parse_config(json.dumps(_substitute(data, variables, (), [])).encode())
    except ValidationError as error:
        return complaints([dict(item) for item in error.errors(include_url=False)], data)


def resolve_secret(
    value: str | SecretRef | None, env: Mapping[str, str], providers: Mapping[str, Any] | None = None
) -> str | None:
    """The secret behind a config value; None when there is none to be had.

    `env` is Loaded.env; `providers` is `secrets.providers` of the config, for references that name one. Raises
    ConfigError when a file of secrets cannot be read, and for kinds of reference that we cannot follow.
    """
    if value is None or isinstance(value, str):
        text = (value or "").strip()
        return None if not text or is_reference(text) else text
    if value.source == "env":
        return env_value(env, value.id) or None
    if value.source == "file":
        return _secret_from_file(value, env, (providers or {}).get(value.provider or ""))
    raise ConfigError(f"secrets kept by {value.source!r} cannot be read here", hint="use an env or file reference")


def secret_providers(loaded: Loaded) -> Mapping[str, Any]:
    """`secrets.providers`, for `resolve_secret`."""
    return _secret_providers(loaded.config)


def _secret_providers(config: Config) -> Mapping[str, Any]:
    section = (config.model_extra or {}).get("secrets")
    providers = section.get("providers") if isinstance(section, dict) else None
    return providers if isinstance(providers, dict) else {}


def _secret_from_file(ref: SecretRef, env: Mapping[str, str], provider: Any) -> str | None:
    named = provider.get("path") if isinstance(provider, dict) else None
    path = expand_user(named if isinstance(named, str) else ref.id, Path(env_value(env, "HOME") or Path.home()))
    if not path.is_absolute():
        raise ConfigError(f"the secret's file {path} should be an absolute path")
    text = read_text(path)
    if text is None:
        raise ConfigError(f"there is no file of secrets {path}")
    if not isinstance(named, str) or provider.get("mode") == "singleValue":
        return text.strip() or None
    try:
        found = lookup(json.loads(text), tuple(_unescaped(step) for step in ref.id.strip("/").split("/")))
    except (ValueError, LookupError):
        return None
    return found if isinstance(found, str) and found else None


def _unescaped(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")


def _config_variables(value: dict[str, Any]) -> dict[str, str]:
    """`env.vars`, and behind them what older configs put right under `env`."""
    section = value.get("env")
    if not isinstance(section, dict):
        return {}
    inner = section.get("vars")
    pairs = {**section, **(inner if isinstance(inner, dict) else {})}
    return {name: text for name, text in pairs.items() if isinstance(text, str) and text}


def _substitute(value: Any, env: Mapping[str, str], path: JsonPath, missing: list[tuple[JsonPath, str]]) -> Any:
    if isinstance(value, dict):
        return {key: _substitute(item, env, (*path, key), missing) for key, item in value.items()}
    if isinstance(value, list):
        return [_substitute(item, env, (*path, index), missing) for index, item in enumerate(value)]
    if not isinstance(value, str) or "${" not in value:
        return value

    def replaced(match: re.Match[str]) -> str:
        escaped, name = match.groups()
        if escaped:
            return match[0][1:]
        if name not in env:
            missing.append((path, name))
        return env.get(name, match[0])

    return _VARIABLE.sub(replaced, value)


def _checked(data: bytes, whole: Assembled) -> Config:
    try:
        return parse_config(data)
    except ValidationError as error:
        # pydantic's own exception would carry the whole input, secrets included, into any traceback.
        raise explain([dict(item) for item in error.errors(include_url=False)], whole.value, whole.place) from None


def _secrets(config: Config, resolved: Any, env: Mapping[str, str]) -> tuple[tuple[str, ...], list[str]]:
    found = set(secret_values(resolved))
    complaints: list[str] = []
    named = [
        value
        for provider in config.models.providers.values()
        for value in (
            provider.api_key,
            provider.oauth.client_secret if provider.oauth else None,
            *provider.headers.values(),
        )
    ]
    if config.gateway.auth is not None:
        named += [config.gateway.auth.token, config.gateway.auth.password]
    if config.diagnostics.otel is not None:
        named += config.diagnostics.otel.headers.values()
    for server in config.mcp.servers.values():
        named += [*server.env.values(), *server.headers.values()]
    named += skill_secrets(config.skills)
    for value in named:
        if isinstance(value, SecretRef):
            try:
                found.update(worth_redacting(resolve_secret(value, env, _secret_providers(config)) or ""))
            except ConfigError as error:
                complaints.append(str(error))
    for name, value in env.items():
        if name.endswith(("_API_KEY", "_GATEWAY_TOKEN", "_GATEWAY_PASSWORD")):  # taken when the config names no other
            found.update(worth_redacting(value))
    return tuple(sorted(found)), complaints


def _warnings(config: Config, whole: Assembled, missing: list[tuple[JsonPath, str]]) -> Iterator[str]:
    def at(path: JsonPath, complaint: str) -> str:
        return f"{whole.place.where(path)}: {format_path(path)}: {complaint}"

    for path, known in unknown_keys(config):
        meant = suggest_key(path, known)
        yield at(path, f"unknown key, kept but not used{f'; did you mean {meant}?' if meant else ''}")
    for path, name in missing:
        yield at(path, f"the variable {name} is not set")
    if config.agent is not None:
        yield at(("agent",), "an old form; write agents.defaults instead")
    if config.session.main_key not in (None, "main"):
        yield at(("session", "mainKey"), "not used; the main session is always called main")
    for path, complaint in (*memory_complaints(config), *_address_complaints(config)):
        yield at(path, complaint)
    for path, zone in _zones(config):
        if zone and known_zone(zone) is None:
            yield at(path, f"this machine knows no time zone {zone}; its own zone is used")


def _address_complaints(config: Config) -> Iterator[tuple[JsonPath, str]]:
    for name, entry in config.models.providers.items():
        if entry.base_url and not entry.base_url.strip().lower().startswith(("http://", "https://", "${")):
            yield ("models", "providers", name, "baseUrl"), "is no address; one begins with http:// or https://"


def _unused(config: Config, whole: Assembled) -> Iterator[str]:
    for path, why in unused_keys(config):
        because = f": {why}" if why else ""
        yield f"{whole.place.where(path)}: {format_path(path)}: kept, and not used by this version{because}"


def _zones(config: Config) -> Iterator[tuple[JsonPath, str | None]]:
    yield ("agents", "defaults", "userTimezone"), config.agents.defaults.user_timezone
    for index, agent in enumerate(config.agents.listed):
        yield ("agents", "list", index, "userTimezone"), agent.user_timezone
    for agent_id, entry in config.agents.entries.items():
        yield ("agents", "entries", agent_id, "userTimezone"), entry.user_timezone
