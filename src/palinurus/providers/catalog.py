"""What is known about models: the built-in table with the config's words over it, short names, and what calls cost."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from palinurus.config.schema import Config, ModelCost, ModelEntry, ProviderEntry
from palinurus.domain.errors import ConfigError
from palinurus.domain.messages import Usage
from palinurus.domain.suggestion import nearest
from palinurus.providers.offers import ALIASES, EMBEDDED, FREE, OFFERS, ModelInfo, Price
from palinurus.providers.provider import ModelRef

MILLION = 1_000_000
LISTED = "`pal models list` shows them"
NOTHING = Price(0, 0, 0, 0)


class Catalog:
    """Models and short names that can be asked for.

    `providers` are those that the config has; `default` is the one of them whose model it names first, if any.
    """

    def __init__(
        self,
        models: Iterable[ModelInfo] = OFFERS,
        aliases: Mapping[str, str] = ALIASES,
        providers: Collection[str] = (),
        default: str = "",
    ) -> None:
        self._models = {ModelRef(model.provider, model.id): model for model in models}
        self.aliases = {alias.lower(): ref for alias, ref in aliases.items()}
        self.providers = tuple(providers)
        self._default = default

    def __iter__(self) -> Iterator[ModelInfo]:
        return iter(self._models.values())

    def find(self, ref: ModelRef) -> ModelInfo | None:
        return self._models.get(ref)

    def resolve(self, text: str, *, trusted: bool = False) -> ModelRef:
        """The model behind a short name, `provider/model`, or the bare name of a model that one provider has.

        `trusted`: a bare name that the config's own providers do not list is a model of the one that lists none. Raises
        ConfigError for what is no model, and for a name that several providers have.
        """
        wanted = text.strip()
        ref = ModelRef.parse(self.aliases.get(wanted.lower(), wanted))
        if ref.provider and ref.model:
            return ref
        carriers = self._carriers(wanted, trusted=trusted and bool(wanted) and "/" not in wanted)
        if len(carriers) > 1:
            several = " or ".join(f"{provider}/{wanted}" for provider in carriers[:4])
            raise ConfigError(f"{wanted!r} may be a model of several providers", hint=f"say which: {several}")
        if not carriers:
            near = nearest(wanted, [*self.aliases, *map(str, self._models), *(ref.model for ref in self._models)])
            raise ConfigError(
                f"{text!r} is no model: a model is named provider/model, or by one of its short names",
                hint=f"did you mean {near}?" if near else LISTED,
            )
        return ModelRef(carriers[0], wanted)

    def _carriers(self, name: str, *, trusted: bool) -> list[str]:
        """Providers that have a model of this name, those of the config before all others."""
        found = [model.provider for model in self if model.id == name]
        likely = [provider for provider in found if provider in self.providers]
        if trusted and not likely:
            listing = {model.provider for model in self}
            silent = [provider for provider in self.providers if provider not in listing]
            likely = silent or ([] if found else list(self.providers))
        return [self._default] if self._default in likely else likely or found

    def windows(self, provider: str) -> dict[str, int]:
        """Context windows of a provider's models, where they are known."""
        return {model.id: model.context_window for model in self if model.provider == provider and model.context_window}

    def cost(self, ref: ModelRef, usage: Usage) -> float | None:
        """What a call cost in US dollars; None when nobody told the price. What runs on this machine is free."""
        info = self.find(ref)
        if info is None and ref.provider in FREE:
            return cost_of(usage, NOTHING)
        return cost_of(usage, info.price if info else None)


def cost_of(usage: Usage, price: Price | None) -> float | None:
    """US dollars for these tokens. None means unpriced, which is not the same as free."""
    if price is None:
        return None
    cached = price.input if price.cache_read is None else price.cache_read
    stored = price.input if price.cache_write is None else price.cache_write
    bill = usage.input * price.input + usage.output * price.output
    return (bill + usage.cache_read * cached + usage.cache_write * stored) / MILLION


def catalog_of(config: Config) -> Catalog:
    """The built-in table with `models.providers` over it, and the aliases of `agents.defaults.models`."""
    built_in = [model for model in OFFERS if config.models.mode == "merge" or model.provider == EMBEDDED]
    known = {ModelRef(model.provider, model.id): model for model in built_in}
    for name, provider in config.models.providers.items():
        for entry in provider.models:
            ref = ModelRef(name.strip().lower(), entry.id)
            known[ref] = _merged(known.get(ref), ref, entry, provider)
    providers = [name.strip().lower() for name in config.models.providers]
    first = config.agents.defaults.model or (config.agent.model if config.agent else None)
    named = ModelRef.parse((first if isinstance(first, str) else first.primary or "") if first else "")
    default = named.provider if named.model and named.provider in providers else ""
    return Catalog(known.values(), {**ALIASES, **config_aliases(config)}, providers, default)


def config_aliases(config: Config) -> dict[str, str]:
    """Alias -> provider/model, as the config names them; the nearer layer wins."""
    layers = [config.agent, config.agents.defaults]
    return {
        options.alias.strip().lower(): ref
        for layer in layers
        if layer is not None
        for ref, options in (layer.models or {}).items()
        if options.alias and options.alias.strip()
    }


def _merged(known: ModelInfo | None, ref: ModelRef, entry: ModelEntry, provider: ProviderEntry) -> ModelInfo:
    base = known or ModelInfo(ref.provider, ref.model)
    said: dict[str, Any] = {
        "context_window": entry.context_window,
        "max_output": entry.max_tokens,
        "reasoning": entry.reasoning,
        "name": entry.name,
        "wire": entry.api or provider.api,
        "inputs": entry.input if "input" in entry.model_fields_set else None,
        "price": _price(entry.cost),
    }
    fields = {field: getattr(base, field) for field in base.__struct_fields__}
    return ModelInfo(**{**fields, **{field: value for field, value in said.items() if value is not None}})


def _price(cost: ModelCost | None) -> Price | None:
    if cost is None or cost.input is None or cost.output is None:
        return None
    return Price(cost.input, cost.output, cost.cache_read, cost.cache_write)
