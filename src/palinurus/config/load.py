"""The config: loaded from the files, checked, and each section as a frozen record on demand.

Loading resolves includes and variables, runs the checks of all sections and collects the secrets to redact. Nothing
here changes a file. Odd values become warnings; errors become one ConfigError that lists every mistake with its file,
line and path.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct

from palinurus.config.home import Home, env_value, expand_user
from palinurus.config.include import MergedSource, SourceLocation, assemble, include_roots, read_text
from palinurus.config.secrets import is_reference, secret_values, worth_redacting
from palinurus.config.section import AGENT, REGISTRY, SecretRef, Steps, build, dig, nested
from palinurus.config.source import JsonPath, format_path, lookup, map_strings
from palinurus.config.tree import CORE, Findings, inspect, shown_value, suggest_key
from palinurus.domain.errors import ConfigError
from palinurus.domain.keys import AGENT_ID, DEFAULT_AGENT
from palinurus.parts import CONFIG_CHECKS, resolve

S = TypeVar("S", bound=Struct)
SHARED: tuple[JsonPath, ...] = (AGENT, ("agent",))  # `agent` is the oldest form
OF_ONE_AGENT = ("agentDir", "default")


class Layer(NamedTuple):
    """One place of the config that sets options of a section."""

    path: JsonPath
    data: Mapping[str, Any]
    inside: Steps = ()  # the part of the section at that place

    @property
    def as_section(self) -> Mapping[str, Any]:
        data = nested(self.inside, self.data)
        return data if isinstance(data, dict) else {}


class Config:
    """Immutable. Two configs with the same data are equal."""

    def __init__(self, data: Mapping[str, Any] | None = None) -> None:
        self.data: dict[str, Any] = _without_nulls(data or {})
        self._made: dict[tuple[type[Struct], str], Any] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and other.data == self.data

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def own_places(self) -> dict[str, list[JsonPath]]:
        """The configured agents in order, each with its own places, the most specific first."""
        found: dict[str, list[JsonPath]] = {}
        for index, agent in enumerate(dig(self.data, ("agents", "list")) or ()):
            found.setdefault(normal_agent_id(agent["id"]), []).append(("agents", "list", index))
        for name in dig(self.data, ("agents", "entries")) or ():
            found.setdefault(normal_agent_id(name), []).insert(0, ("agents", "entries", name))
        return found

    @property
    def agent_ids(self) -> tuple[str, ...]:
        return tuple(self.own_places) or (DEFAULT_AGENT,)

    def layers(self, model: type[Struct], agent_id: str = "") -> list[Layer]:
        """The places that set options of a section, the most specific first: an agent's own before the defaults."""
        mounts = REGISTRY.of(model)
        own = [*self.own_places.get(agent_id, ()), *SHARED]
        places = [((*place, *mount.of_agent), mount) for place in own for mount in mounts if mount.of_agent is not None]
        places += [(mount.place, mount) for mount in mounts if mount.of_agent is None]
        found = ((path, dig(self.data, path), mount.inside) for path, mount in places)
        return [Layer(*each) for each in found if each[1] is not None]

    def sets(self, section: str) -> bool:
        """Whether anything sets options of a section, for whichever agent. "module:Class": nothing is imported."""
        own = [*(place for places in self.own_places.values() for place in places), *SHARED]
        places = (
            (*place, *(mount.of_agent or ()))
            for mount in REGISTRY.mounts[section]
            for place in (own if mount.of_agent is not None else [mount.place])
        )
        return any(_is_set(self.data, place) for place in places)

    def section(self, model: type[S], agent_id: str = "") -> S:
        """The merged section, for one agent if agents can differ. Raises ConfigError for an invalid section of another
        package: those are checked on demand.
        """
        if (model, agent_id) not in self._made:
            layers = self.layers(model, agent_id)
            if model.__module__ not in CORE:
                self._check(layers)
            self._made[model, agent_id] = build(model, [layer.as_section for layer in layers])
        made: S = self._made[model, agent_id]
        return made

    def said(self, model: type[S], agent_id: str = "") -> list[S]:
        """The data of each place, the most specific first."""
        return [build(model, [layer.as_section]) for layer in self.layers(model, agent_id)]

    def at(self, model: type[S], *path: str | int) -> S:
        """The data of one place."""
        found = dig(self.data, path)
        return build(model, [found] if isinstance(found, dict) else [])

    def findings(self, shown: Any = None, *, thorough: bool = False) -> Findings:
        """What is wrong, unknown, unused or odd; the messages show values of `shown`."""
        shown = self.data if shown is None else shown
        told = inspect(self.data, shown, thorough=thorough)
        told.unused.extend(
            ((*place, key), "it is about one agent, so it belongs in that agent's own entry")
            for place in SHARED
            for key in OF_ONE_AGENT
            if dig(self.data, (*place, key)) is not None
        )
        for path, text in _agents_wrong(self.data, told):
            told.wrong[path] = f"{text}, got {shown_value(dig(shown, path), path)}"
        for check in dict.fromkeys(check for key, check in CONFIG_CHECKS.items() if key in self.data):
            resolve(check)(self, told)
        return told

    def _check(self, layers: list[Layer]) -> None:
        wrong = [
            f"{format_path(path)}: {text}"
            for path, text in self.findings().wrong.items()
            if any(path[: len(layer.path)] == layer.path for layer in layers)
        ]
        if wrong:
            raise ConfigError("\n".join(wrong))


def _is_set(data: Any, place: JsonPath) -> bool:
    """Whether there is something at a path, in which `*` is any name."""
    if "*" not in place:
        return dig(data, place) is not None
    at = place.index("*")
    many = dig(data, place[:at])
    return isinstance(many, dict) and any(_is_set(each, place[at + 1 :]) for each in many.values())


def normal_agent_id(text: str) -> str:
    """The id as used in session keys: lower case, other characters become hyphens."""
    cleaned = re.sub(r"[^a-z0-9_-]+", "-", text.strip().lower()).strip("-_")
    if not AGENT_ID.fullmatch(cleaned):
        raise ValueError("is not an agent's id: letters, digits, - and _, at most 64")
    return cleaned


def _agents_wrong(data: dict[str, Any], told: Findings) -> Iterator[tuple[JsonPath, str]]:
    """Errors across agents: invalid and duplicate ids."""
    entries, listed = dig(data, ("agents", "entries")), dig(data, ("agents", "list"))
    for name in entries if isinstance(entries, dict) else ():
        try:
            normal_agent_id(name)
        except ValueError as error:
            yield ("agents", "entries", name), str(error)
    if isinstance(listed, list) and not any(path[:2] == ("agents", "list") for path in told.wrong):
        ids = [normal_agent_id(agent["id"]) for agent in listed]
        if twice := next((each for each in ids if ids.count(each) > 1), ""):
            yield ("agents", "list"), f"holds the agent {twice} twice"


def _without_nulls(value: Any) -> Any:
    """Data without nulls: null means unset."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


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
        missing = f"there is no config file {home.config_path}"
        raise ConfigError(missing, hint="check --config and PALINURUS_CONFIG_PATH")
    return load_text(home, env, text, thorough=thorough)


def load_text(home: Home, env: Mapping[str, str], text: str | None, *, thorough: bool = False) -> LoadedConfig:
    """The same for the text of a config file. Raises ConfigError."""
    roots = include_roots(env_value(env, "PALINURUS_INCLUDE_ROOTS"))
    whole = assemble(home.config_path, "{}" if text is None else text, roots)
    if not isinstance(whole.value, dict):
        raise whole.place.error((), "the config should be an object, in braces")
    variables = _variables(whole.value, env)
    missing: list[tuple[JsonPath, str]] = []
    resolved = _substitute(whole.value, variables, missing)
    config = Config(resolved)
    findings = config.findings(whole.value, thorough=thorough)
    if findings.wrong:
        lines = [
            whole.place.complaint(path, text if path else f"config: {text}") for path, text in findings.wrong.items()
        ]
        raise ConfigError("\n".join(lines), hint=f"in {whole.place.document.path}")
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
    config = Config(_substitute(data, _variables(data, env), []))
    return config.findings(data).wrong or config


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
    providers = dig(config.data, ("secrets", "providers"))
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
        steps = (step.replace("~1", "/").replace("~0", "~") for step in ref.id.strip("/").split("/"))
        found = lookup(json.loads(text), tuple(steps))
    except (ValueError, LookupError):
        return None
    return found if isinstance(found, str) and found else None


def _variables(value: dict[str, Any], env: Mapping[str, str]) -> dict[str, str]:
    """`env.vars`, what older configs put directly under `env`, and the process's own, which win."""
    section, inner = dig(value, ("env",)), dig(value, ("env", "vars"))
    pairs = (section if isinstance(section, dict) else {}) | (inner if isinstance(inner, dict) else {})
    said = {name: text for name, text in pairs.items() if isinstance(text, str) and text}
    return said | {name: text for name, text in env.items() if text}


def _substitute(value: Any, env: Mapping[str, str], missing: list[tuple[JsonPath, str]]) -> Any:
    def resolved(text: str, path: JsonPath) -> str:
        def replaced(match: re.Match[str]) -> str:
            escaped, name = match.groups()
            if escaped:
                return match[0][1:]
            if name not in env:
                missing.append((path, name))
            return env.get(name, match[0])

        return _VARIABLE.sub(replaced, text)

    return map_strings(value, resolved)


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
    at = whole.place.complaint
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
        reasons = filter(None, ("kept, and not used by this version", why or WHY.get(str(path[-1]))))
        yield whole.place.complaint(path, ": ".join(reasons))
