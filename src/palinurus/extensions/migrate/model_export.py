"""Models, their providers and resets of sessions in OpenClaw's form, so that an exported home can answer there.

OpenClaw uses a provider that it does not know only with an address and a list of models, so the models that agents use
are listed. Keys are left out, except names of variables. A server on this machine that asks for no key gets a
placeholder, because OpenClaw calls none without a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from palinurus.config.risks import is_loopback
from palinurus.config.secrets import is_reference
from palinurus.extensions.migrate.foreign import as_object, as_text
from palinurus.extensions.migrate.report import SkippedItem
from palinurus.providers.provider import EMBEDDED

MODEL_FIELDS = ("id", "name", "api", "reasoning", "input", "cost", "contextWindow", "maxTokens")
PRICES = ("input", "output", "cacheRead", "cacheWrite")
NO_KEY = "not-needed"
CONFIG = "openclaw.json"
LEFT_OUT = "it is a secret and was left out; set it in that home"
LATEST_MINUTES = 10 * 366 * 24 * 60  # of idleness: OpenClaw before 2026.8 has no way to say never


class ExportedModels(Struct, frozen=True):
    config: dict[str, Any]
    by_agent: dict[str, Any]  # the model of each agent that has one of its own
    left_out: tuple[SkippedItem, ...]


def model_config(data: Mapping[str, Any]) -> ExportedModels:
    """`data` is our config with included files, in which variables are still names."""
    agents = as_object(data.get("agents"))
    default = _model(as_object(agents.get("defaults")).get("model"))
    by_agent = {name: model for name, each in _agents(agents) if (model := _model(as_object(each).get("model")))}
    used: dict[str, list[str]] = {}
    for model in (default, *by_agent.values()):
        for provider, _, name in (each.partition("/") for each in _refs(model)):
            used.setdefault(provider.strip().lower(), []).append(name)
    left_out: list[SkippedItem] = []
    providers = {}
    for name, entry in as_object(as_object(data.get("models")).get("providers")).items():
        if isinstance(entry, dict) and (made := _provider(name, entry, used.get(name.strip().lower(), []), left_out)):
            providers[name] = made
    config: dict[str, Any] = {"session": {"reset": _reset(as_object(data.get("session")))}}
    if default:
        config["agents"] = {"defaults": {"model": default}}
    if providers:
        config["models"] = {"mode": "merge", "providers": providers}
    return ExportedModels(config, by_agent, tuple(left_out))


def _agents(agents: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    listed = agents.get("list")
    for each in listed if isinstance(listed, list) else ():
        yield as_text(as_object(each).get("id")).lower(), each
    yield from as_object(agents.get("entries")).items()


def _model(said: Any) -> Any:
    """A name, or a name and those that follow when it fails; None for anything else, also a model that is only here."""
    if isinstance(said, str):
        return _elsewhere(said) or None
    primary = _elsewhere(as_text(as_object(said).get("primary")))
    fallbacks = as_object(said).get("fallbacks")
    listed = [each for each in (fallbacks if isinstance(fallbacks, list) else []) if isinstance(each, str)]
    names = [each for each in listed if _elsewhere(each)]
    return {"primary": primary} | ({"fallbacks": names} if names else {}) if primary else None


def _elsewhere(name: str) -> str:
    return "" if name.strip().partition("/")[0] == EMBEDDED else name.strip()


def _refs(model: Any) -> list[str]:
    if isinstance(model, str):
        return [model]
    return [model["primary"], *model.get("fallbacks", ())] if model else []


def _provider(name: str, entry: dict[str, Any], used: list[str], left_out: list[SkippedItem]) -> dict[str, Any]:
    """Empty for one without an address, which is built in there."""
    key, address = entry.get("apiKey"), as_text(entry.get("baseUrl"))
    is_named = isinstance(key, str) and is_reference(key)
    if (key and not is_named) or entry.get("headers"):
        field = "headers" if not key or is_named else "apiKey"
        left_out.append(SkippedItem(CONFIG, 0, f"models.providers.{name}.{field}: {LEFT_OUT}"))
    if not address:
        return {}
    listed = entry.get("models")
    models = [
        _entry(each) for each in (listed if isinstance(listed, list) else ()) if as_text(as_object(each).get("id"))
    ]
    there = {each["id"] for each in models}
    models += [{"id": model, "name": model} for model in dict.fromkeys(used) if model and model not in there]
    made: dict[str, Any] = {
        "baseUrl": address,
        "api": as_text(entry.get("api")) or "openai-completions",
        "models": models,
    }
    if is_named:
        made["apiKey"] = key
    elif is_loopback(address):
        made["apiKey"] = NO_KEY
    return made


def _entry(said: dict[str, Any]) -> dict[str, Any]:
    made = {field: said[field] for field in MODEL_FIELDS if said.get(field) is not None}
    made.setdefault("name", made["id"])
    if cost := as_object(made.pop("cost", None)):
        made["cost"] = {price: cost.get(price) or 0 for price in PRICES}
    return made


def _reset(session: Mapping[str, Any]) -> dict[str, Any]:
    """OpenClaw before 2026.8 begins a new session each day unless something else is said."""
    said = as_object(session.get("reset"))
    idle = said.get("idleMinutes") or session.get("idleMinutes")
    if said.get("mode") == "daily":
        daily = {"mode": "daily", "atHour": said.get("atHour"), "idleMinutes": idle}
        return {name: value for name, value in daily.items() if value is not None}
    return {"mode": "idle", "idleMinutes": idle if idle and said.get("mode") != "none" else LATEST_MINUTES}
