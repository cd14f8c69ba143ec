"""Look at the models that are known, and choose among them in the config. Needs no house, only its ground."""

from __future__ import annotations

import asyncio
import difflib
import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.include import read_text
from palinurus.config.load import Loaded, load_config
from palinurus.config.schema import ModelChoice
from palinurus.config.settings import agent_ids, agent_layers, default_agent
from palinurus.domain.errors import BadRequest, ConfigError, NotFound
from palinurus.operations.config import Ground, config_set, config_unset
from palinurus.operations.config_changes import Check, config_merge, text_hash
from palinurus.providers.catalog import Catalog, catalog_of, config_aliases
from palinurus.providers.choose import KNOWN, key_variables, known_provider, talkers
from palinurus.providers.keys.credentials import gather_credentials
from palinurus.providers.loopback import is_loopback, served_models
from palinurus.providers.offers import ALIASES, FREE, ModelInfo
from palinurus.providers.provider import ModelRef
from palinurus.providers.scout.smalltalk import TALKER
from palinurus.providers.smollm.packages import weights_file

MODEL = "agents.defaults.model"


class ListedModel(Struct, frozen=True):
    ref: str
    info: ModelInfo
    usable: bool
    aliases: tuple[str, ...]
    lacks: str = ""  # what it would need to be usable


class Alias(Struct, frozen=True):
    alias: str
    ref: str
    built_in: bool


class Choice(Struct, frozen=True):
    """What the config says about the model of all agents."""

    primary: str
    fallbacks: tuple[str, ...]


async def models_here(ground: Ground) -> tuple[ListedModel, ...]:
    """All that are known, with those that servers on this machine have, as they say it at this moment."""
    loaded = await asyncio.to_thread(load_config, ground.home, ground.env)
    near = {name: url for name, url in _addresses(loaded).items() if is_loopback(url)}
    answers = await asyncio.gather(*map(served_models, near.values()))
    served = [
        ModelInfo(name, model, context_window=window)
        for name, answer in zip(near, answers, strict=True)
        for model, window in answer.items()
        if talkers((model,))
    ]
    return await asyncio.to_thread(models_list, ground, served)


def models_list(ground: Ground, served: Sequence[ModelInfo] = ()) -> tuple[ListedModel, ...]:
    """The table, what the config lists or only names, and what was `served`."""
    loaded = load_config(ground.home, ground.env)
    main = default_agent(loaded.config)
    keys = gather_credentials(loaded, ground.home.root, main, main, key_variables(loaded.env))
    ready = {credential.provider for credential in keys.known} | set(FREE) | _keyless(loaded)
    catalog = catalog_of(loaded.config)
    names: dict[ModelRef, list[str]] = {}
    for alias, target in catalog.aliases.items():
        names.setdefault(ModelRef.parse(target), []).append(alias)
    known = {ModelRef(info.provider, info.id): info for info in catalog}
    for info in served:
        there = known.setdefault(ModelRef(info.provider, info.id), info)
        if not there.context_window:
            known[ModelRef(info.provider, info.id)] = replace(there, context_window=info.context_window)
    for ref in _named(loaded, catalog):
        known.setdefault(ref, ModelInfo(ref.provider, ref.model))
    listed = []
    for ref, info in known.items():
        lacks = "" if info.provider in ready else "no key"
        if ref == TALKER and weights_file() is None:
            lacks = "not installed"
        listed.append(ListedModel(str(ref), info, not lacks, tuple(names.get(ref, ())), lacks))
    return tuple(listed)


async def chat_models(ground: Ground) -> str:
    """What `/models` says: those that can be asked, with their windows and short names, and how to choose one."""
    usable = [model for model in await models_here(ground) if model.usable]
    width = max((len(model.ref) for model in usable), default=0)
    windows = [f"{model.info.context_window:,} tokens" if model.info.context_window else "" for model in usable]
    lines = [
        f"{model.ref:<{width}}  {window:>16}  {', '.join(model.aliases)}".rstrip()
        for model, window in zip(usable, windows, strict=True)
    ]
    return "\n".join([*lines, "/model NAME chooses one for this session, /model default goes back."])


def _named(loaded: Loaded, catalog: Catalog) -> Iterator[ModelRef]:
    """Models that the config names, of providers that something is known about."""
    addresses = _addresses(loaded)
    layers = [layer for agent in agent_ids(loaded.config) for layer in agent_layers(loaded.config, agent)]
    for model in (layer.model for layer in layers if layer.model):
        for name in (model,) if isinstance(model, str) else (model.primary or "", *model.fallbacks):
            with suppress(ConfigError):
                ref = catalog.resolve(name, trusted=True)
                if ref.provider in addresses or known_provider(ref.provider):
                    yield ref


def _addresses(loaded: Loaded) -> dict[str, str]:
    return {name.strip().lower(): entry.base_url or "" for name, entry in loaded.config.models.providers.items()}


def models_choice(ground: Ground) -> Choice:
    model = load_config(ground.home, ground.env).config.agents.defaults.model
    if isinstance(model, ModelChoice):
        return Choice(model.primary or "", model.fallbacks)
    return Choice(model or "", ())


def choice_trouble(ground: Ground) -> tuple[str, ...]:
    """What keeps the models that the config names from being asked, one line each."""
    loaded, choice = load_config(ground.home, ground.env), models_choice(ground)
    troubles = []
    for name in filter(None, (choice.primary, *choice.fallbacks)):
        try:
            usable_model(loaded, catalog_of(loaded.config), name, trusted=True)
        except (BadRequest, ConfigError) as error:
            troubles.append(str(error))
    return tuple(troubles)


def models_set(ground: Ground, name: str) -> str:
    """Make a model the one that is asked first; gives its full name. Fallbacks stay as they are."""
    loaded = load_config(ground.home, ground.env)
    ref = str(usable_model(loaded, catalog_of(loaded.config), name))
    keeps_list = isinstance(loaded.config.agents.defaults.model, ModelChoice)
    config_set(ground, f"{MODEL}.primary" if keeps_list else MODEL, ref)
    return ref


def model_choose(ground: Ground, name: str, check: Check) -> str:
    """The same from another door, which may refuse the change; without a name, back to whatever is there."""
    loaded = load_config(ground.home, ground.env)
    ref = str(usable_model(loaded, catalog_of(loaded.config), name)) if name.strip() else None
    keeps_list = isinstance(loaded.config.agents.defaults.model, ModelChoice)
    patch = {"agents": {"defaults": {"model": {"primary": ref} if keeps_list else ref}}}
    config_merge(ground, json.dumps(patch), text_hash(read_text(ground.home.config_path)), check)
    return ref or ""


def fallbacks_add(ground: Ground, name: str) -> tuple[str, ...]:
    loaded = load_config(ground.home, ground.env)
    ref = str(usable_model(loaded, catalog_of(loaded.config), name))
    known = models_choice(ground).fallbacks
    return known if ref in known else _set_fallbacks(ground, (*known, ref))


def fallbacks_remove(ground: Ground, name: str) -> tuple[str, ...]:
    loaded = load_config(ground.home, ground.env)
    ref = str(catalog_of(loaded.config).resolve(name))
    known = models_choice(ground).fallbacks
    left = tuple(other for other in known if other not in (name, ref))
    if left == known:
        raise NotFound(f"{ref} is no fallback", hint="`pal models fallbacks list` shows them")
    return _set_fallbacks(ground, left)


def fallbacks_clear(ground: Ground) -> tuple[str, ...]:
    return _set_fallbacks(ground, ()) if models_choice(ground).fallbacks else ()


def aliases_list(ground: Ground) -> tuple[Alias, ...]:
    own = config_aliases(load_config(ground.home, ground.env).config)
    merged = {**ALIASES, **own}
    return tuple(Alias(alias, merged[alias], alias not in own) for alias in sorted(merged))


def alias_add(ground: Ground, alias: str, name: str) -> Alias:
    short = alias.strip().lower()
    if not short or "/" in short or any(char.isspace() or char == '"' for char in short):
        raise BadRequest(f"not a short name: {alias!r}", hint="a word without slashes, such as fast")
    loaded = load_config(ground.home, ground.env)
    ref = str(usable_model(loaded, catalog_of(loaded.config), name))
    for other, place in config_aliases(loaded.config).items():
        if other == short and place != ref:
            config_unset(ground, _alias_path(place))
    config_set(ground, _alias_path(ref), short)
    return Alias(short, ref, built_in=False)


def alias_remove(ground: Ground, alias: str) -> None:
    short = alias.strip().lower()
    own = config_aliases(load_config(ground.home, ground.env).config)
    if short not in own:
        known = f"{short} is built in; give the name to another model to change it" if short in ALIASES else ""
        raise NotFound(f"the config has no short name {short!r}", hint=known or "`pal models aliases list` shows them")
    config_unset(ground, _alias_path(own[short]))


def _set_fallbacks(ground: Ground, fallbacks: tuple[str, ...]) -> tuple[str, ...]:
    model = load_config(ground.home, ground.env).config.agents.defaults.model
    if isinstance(model, str):
        config_set(ground, MODEL, {"primary": model, "fallbacks": list(fallbacks)})
    else:
        config_set(ground, f"{MODEL}.fallbacks", list(fallbacks))
    return fallbacks


def _alias_path(ref: str) -> str:
    return f'agents.defaults.models."{ref}".alias'


def usable_model(loaded: Loaded, catalog: Catalog, name: str, *, trusted: bool = False) -> ModelRef:
    """The model behind a name, of a provider that something is known about. Raises ConfigError or BadRequest.

    `trusted` as in `Catalog.resolve`: the name stands in the config already.
    """
    ref = catalog.resolve(name, trusted=trusted)
    own = {provider.strip().lower() for provider in loaded.config.models.providers}
    if known_provider(ref.provider) is None and ref.provider not in own and ref.provider not in FREE:
        meant = similar_provider(ref.provider, own)
        guess = f"did you mean {meant}/{ref.model}? Else " if meant else ""
        raise BadRequest(
            f"nothing is known about the provider {ref.provider!r}",
            hint=f"{guess}set models.providers.{ref.provider}.baseUrl first",
        )
    if '"' in ref.model or "\\" in ref.model:
        raise BadRequest(f"not a model's name: {ref.model!r}")
    return ref


def similar_provider(name: str, own: Collection[str]) -> str:
    """The provider that was probably meant; empty when there is no guess."""
    known = [*own, *(provider.id for provider in KNOWN), *FREE]
    return next(iter(difflib.get_close_matches(name.lower(), known, 1)), "")


def _keyless(loaded: Loaded) -> set[str]:
    """Providers of the config with an address of their own: whether they want a key is their business."""
    return {name for name, address in _addresses(loaded).items() if address}
