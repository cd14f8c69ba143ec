"""Loads a Config from the files: includes, variables, the checks of all sections, and the secrets to redact.

Nothing here changes a file. Odd values become warnings; errors become one ConfigError that lists every mistake with its
file, line and path.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from palinurus.config.config import Config
from palinurus.config.home import Home, env_value, expand_user
from palinurus.config.include import MergedSource, SourceLocation, assemble, include_roots, read_text
from palinurus.config.secrets import is_reference, secret_values, worth_redacting
from palinurus.config.section import SecretRef
from palinurus.config.source import JsonPath, format_path, lookup
from palinurus.config.tree import Findings, suggest_key
from palinurus.domain.errors import ConfigError

SHOWN = 5  # items listed on one line
_VARIABLE = re.compile(r"(\$?)\$\{([A-Z_][A-Z0-9_]*)\}")


class LoadedConfig(Struct, frozen=True):
    """A loaded config. It is replaced as a whole when the files change."""

    config: Config
    raw: dict[str, Any]  # with includes merged in, before ${NAME} is replaced
    warnings: tuple[str, ...]
    secrets: tuple[str, ...]  # exact values for the Redactor
    digest: str  # of the content with variables replaced: equal digests mean equal behaviour
    files: tuple[Path, ...]
    env: Mapping[str, str]  # the process's variables, then those of the config
    unused: tuple[str, ...] = ()  # known keys that we do not use, one line each
    missing: tuple[str, ...] = ()  # names of variables that the config uses and that are not set
    place: SourceLocation | None = None  # where each value is written


def load_config(home: Home, env: Mapping[str, str], *, thorough: bool = False) -> LoadedConfig:
    """Reads the home's config. A missing file means the defaults. Raises ConfigError.

    `thorough`: also checks sections of other packages, which imports them.
    """
    text = read_text(home.config_path)
    if text is None and not home.ours:
        raise ConfigError(
            f"there is no config file {home.config_path}", hint="check --config and PALINURUS_CONFIG_PATH"
        )
    return load_text(home, env, text, thorough=thorough)


def load_text(home: Home, env: Mapping[str, str], text: str | None, *, thorough: bool = False) -> LoadedConfig:
    """The same for the text of a config file. Raises ConfigError."""
    roots = include_roots(env_value(env, "PALINURUS_INCLUDE_ROOTS"))
    whole = assemble(home.config_path, "{}" if text is None else text, roots)
    if not isinstance(whole.value, dict):
        raise whole.place.error((), "the config should be an object, in braces")
    variables = {**_config_variables(whole.value), **{name: value for name, value in env.items() if value}}
    missing: list[tuple[JsonPath, str]] = []
    resolved = _substitute(whole.value, variables, (), missing)
    config = Config(resolved)
    findings = config.findings(whole.value, thorough=thorough)
    if findings.wrong:
        raise _refusal(findings.wrong, whole.place)
    secrets, complaints = _secrets(config, findings, resolved, variables)
    return LoadedConfig(
        config=config,
        raw=whole.value,
        warnings=(*_warnings(config, findings, whole, missing, thorough), *complaints),
        secrets=secrets,
        digest=hashlib.sha256(json.dumps(resolved).encode()).hexdigest(),
        files=() if text is None else whole.files,
        env=variables,
        unused=tuple(_unused(findings, whole)),
        missing=tuple(dict.fromkeys(name for _, name in missing)),
        place=whole.place,
    )


def check_data(data: dict[str, Any], env: Mapping[str, str]) -> Config | dict[JsonPath, str]:
    """Checks config data without a file: returns the config, or the errors by path. The messages may show values."""
    variables = {**_config_variables(data), **{name: value for name, value in env.items() if value}}
    config = Config(_substitute(data, variables, (), []))
    return config.findings(data).wrong or config


def _refusal(wrong: Mapping[JsonPath, str], place: SourceLocation) -> ConfigError:
    lines = [f"{place.where(path)}: {format_path(path) or 'config'}: {complaint}" for path, complaint in wrong.items()]
    return ConfigError("\n".join(lines), hint=f"in {place.document.path}")


def resolve_secret(
    value: str | SecretRef | None, env: Mapping[str, str], providers: Mapping[str, Any] | None = None
) -> str | None:
    """The secret of a config value; None if it is not available.

    `env` is LoadedConfig.env; `providers` is `secrets.providers` of the config, for references that name one. Raises
    ConfigError if a file of secrets cannot be read, and for unsupported kinds of references.
    """
    if value is None or isinstance(value, str):
        text = (value or "").strip()
        return None if not text or is_reference(text) else text
    if value.source == "env":
        return env_value(env, value.id) or None
    if value.source == "file":
        return _secret_from_file(value, env, (providers or {}).get(value.provider or ""))
    raise ConfigError(f"secrets from {value.source!r} cannot be read here", hint="use an env or file reference")


def secret_providers(loaded: LoadedConfig) -> Mapping[str, Any]:
    """`secrets.providers`, for `resolve_secret`."""
    return _secret_providers(loaded.config)


def _secret_providers(config: Config) -> Mapping[str, Any]:
    section = config.data.get("secrets")
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
    """`env.vars`, then what older configs put directly under `env`."""
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


def _secrets(
    config: Config, findings: Findings, resolved: Any, env: Mapping[str, str]
) -> tuple[tuple[str, ...], list[str]]:
    found = set(secret_values(resolved))
    complaints: list[str] = []
    for reference in findings.secrets:
        try:
            found.update(worth_redacting(resolve_secret(reference, env, _secret_providers(config)) or ""))
        except ConfigError as error:
            complaints.append(str(error))
    for name, value in env.items():
        if name.endswith(("_API_KEY", "_GATEWAY_TOKEN", "_GATEWAY_PASSWORD")):  # used if the config names no other
            found.update(worth_redacting(value))
    return tuple(sorted(found)), complaints


def _warnings(
    config: Config, findings: Findings, whole: MergedSource, missing: list[tuple[JsonPath, str]], thorough: bool
) -> Iterator[str]:
    def at(path: JsonPath, complaint: str) -> str:
        return f"{whole.place.where(path)}: {format_path(path)}: {complaint}"

    if findings.unknown:
        for path, known in findings.unknown:
            meant = suggest_key(path, known, thorough=thorough)
            yield at(path, f"unknown key, kept but not used{f'; did you mean {meant}?' if meant else ''}")
    for path, name in missing:
        yield at(path, f"the variable {name} is not set")
    if "agent" in config.data:
        yield at(("agent",), "an old form; write agents.defaults instead")
    for path, complaint in findings.odd:
        yield at(path, complaint)


WHY = {
    "agentDir": "keys and state of an agent are in the home, under agents/",
    "channels": "there are no channels yet; of their groups only the rules for tools are read",
    "canvasHost": "there is no canvas here",
}


def unused_in_short(loaded: LoadedConfig) -> tuple[str, ...]:
    """One line about all keys that this version does not use: a config of OpenClaw has dozens."""
    names = [line.split(": ")[1] for line in loaded.unused]
    if not names:
        return ()
    listed = ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
    what = "setting is" if len(names) == 1 else "settings are"
    return (f"{len(names)} {what} not used by this version ({listed}); `pal config validate` says more",)


def _unused(findings: Findings, whole: MergedSource) -> Iterator[str]:
    for path, why in findings.unused:
        because = why or WHY.get(str(path[-1]), "")
        reason = f": {because}" if because else ""
        yield f"{whole.place.where(path)}: {format_path(path)}: kept, and not used by this version{reason}"
