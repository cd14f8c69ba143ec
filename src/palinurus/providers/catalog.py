"""Known models: context windows, limits, prices and short names, the config over the built-in table.

Prices are in US dollars per million tokens, as known in November 2026: the newer models of OpenAI, Anthropic and Google
from public pages, the rest (older models, other providers, several windows) from memory and unchecked. The price is
that of a prompt of ordinary length where long ones cost more. The config under `models.providers` takes precedence, and
a model that is in neither place has no price.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.agents import AgentEntry
from palinurus.config.load import Config
from palinurus.domain.errors import ConfigError
from palinurus.domain.messages import Usage
from palinurus.providers.provider import EMBEDDED, ModelRef
from palinurus.providers.settings import ModelCost, ModelEntry, ModelsOptions, ProviderEntry
from palinurus.text.words import nearest

OPENAI, ANTHROPIC, GOOGLE = "openai-completions", "anthropic-messages", "google-generative-ai"


class Price(Struct, frozen=True, rename="camel"):
    """US dollars per million tokens. An unknown cache price counts as the price of input."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None


class ModelInfo(Struct, frozen=True, rename="camel"):
    """Known facts about one model. 0 and None: not known."""

    provider: str
    id: str
    wire: str = OPENAI
    context_window: int = 0
    max_output: int = 0
    price: Price | None = None
    inputs: tuple[str, ...] = ("text",)
    reasoning: bool = False
    name: str = ""


_Row = tuple[str, str, int, int, tuple[float, ...] | None, str]
"""Provider and id, name, context window, maximum reply tokens, price of input, output, cached and stored, abilities."""
_WIRES = {"openai": "openai-responses", "anthropic": ANTHROPIC, "google": GOOGLE, EMBEDDED: EMBEDDED}
"""All others speak OpenAI's older one."""

# fmt: off
_ROWS: tuple[_Row, ...] = (
    ("openai/gpt-6-astra", "GPT-6 Astra", 922_000, 128_000, (10, 50, 1), "image reasoning"),
    ("openai/gpt-6-sol", "GPT-6 Sol", 922_000, 128_000, (2, 10, 0.2, 2.5), "image reasoning"),
    ("openai/gpt-6-luna", "GPT-6 Luna", 922_000, 128_000, (0.1, 0.5, 0.01, 0.125), "image reasoning"),
    ("openai/gpt-5.6-sol", "GPT-5.6 Sol", 272_000, 128_000, (4, 20, 0.4), "image reasoning"),
    ("openai/gpt-5.6-terra", "GPT-5.6 Terra", 272_000, 128_000, (2, 12, 0.2), "image reasoning"),
    ("openai/gpt-5.6-luna", "GPT-5.6 Luna", 272_000, 128_000, (0.2, 1.2, 0.02), "image reasoning"),
    ("openai/gpt-5.4", "GPT-5.4", 272_000, 128_000, (2.5, 15, 0.25), "image reasoning"),
    ("openai/gpt-5.4-mini", "GPT-5.4 mini", 272_000, 128_000, (0.75, 4.5, 0.075), "image reasoning"),
    ("openai/gpt-5", "GPT-5", 272_000, 128_000, (1.25, 10, 0.125), "image reasoning"),
    ("openai/gpt-5-mini", "GPT-5 mini", 272_000, 128_000, (0.25, 2, 0.025), "image reasoning"),
    ("openai/gpt-5-nano", "GPT-5 nano", 272_000, 128_000, (0.05, 0.4, 0.005), "image reasoning"),
    ("openai/gpt-4.1", "GPT-4.1", 1_047_576, 32_768, (2, 8, 0.5), "image"),
    ("openai/gpt-4o-mini", "GPT-4o mini", 128_000, 16_384, (0.15, 0.6, 0.075), "image"),
    # Anthropic charges more for cache writes than for plain input.
    ("anthropic/claude-fable-5-1", "Fable 5.1", 1_000_000, 128_000, (10, 50), "image reasoning"),
    ("anthropic/claude-opus-5-5", "Opus 5.5", 1_000_000, 128_000, (4, 20, 0.2, 5), "image reasoning"),
    ("anthropic/claude-sonnet-5-5", "Sonnet 5.5", 1_000_000, 128_000, (2, 10, 0.2, 2.5), "image reasoning"),
    ("anthropic/claude-haiku-5-5", "Haiku 5.5", 1_000_000, 128_000, (0.1, 0.5), "image reasoning"),
    ("anthropic/claude-opus-5", "Opus 5", 1_000_000, 128_000, (5, 25, 0.5, 6.25), "image reasoning"),
    ("anthropic/claude-sonnet-5", "Sonnet 5", 1_000_000, 128_000, (2, 10, 0.2, 2.5), "image reasoning"),
    ("anthropic/claude-sonnet-4-6", "Sonnet 4.6", 200_000, 64_000, (3, 15, 0.3, 3.75), "image reasoning"),
    ("anthropic/claude-haiku-4-5", "Haiku 4.5", 200_000, 64_000, (1, 5, 0.1, 1.25), "image reasoning"),
    ("google/gemini-3.8-flash", "Gemini 3.8 Flash", 1_048_576, 65_536, None, "image reasoning"),
    ("google/gemini-3.5-flash", "Gemini 3.5 Flash", 1_048_576, 65_536, (1.5, 9), "image reasoning"),
    ("google/gemini-3.1-pro-preview", "Gemini 3.1 Pro", 1_048_576, 65_536, (2, 12, 0.2), "image reasoning"),
    ("google/gemini-3.1-flash-lite", "Gemini 3.1 Flash Lite", 1_048_576, 65_536, (0.25, 1.5, 0.025), "image reasoning"),
    ("google/gemini-2.5-pro", "Gemini 2.5 Pro", 1_048_576, 65_536, (1.25, 10, 0.125), "image reasoning"),
    ("google/gemini-2.5-flash", "Gemini 2.5 Flash", 1_048_576, 65_536, (0.3, 2.5, 0.03), "image reasoning"),
    ("xai/grok-4", "Grok 4", 256_000, 0, (3, 15, 0.75), "image reasoning"),
    ("xai/grok-4-fast", "Grok 4 fast", 2_000_000, 0, (0.2, 0.5, 0.05), "image reasoning"),
    ("xai/grok-code-fast-1", "Grok Code", 256_000, 0, (0.2, 1.5, 0.02), "reasoning"),
    ("deepseek/deepseek-chat", "DeepSeek", 128_000, 8_192, (0.28, 0.42, 0.028), ""),
    ("deepseek/deepseek-reasoner", "DeepSeek R", 128_000, 65_536, (0.28, 0.42, 0.028), "reasoning"),
    ("mistral/mistral-large-latest", "Mistral Large", 262_144, 0, (0.5, 1.5), "image"),
    ("mistral/mistral-medium-latest", "Mistral Medium", 131_072, 0, (0.4, 2), "image"),
    ("mistral/mistral-small-latest", "Mistral Small", 131_072, 0, (0.1, 0.3), "image"),
    ("mistral/codestral-latest", "Codestral", 256_000, 0, (0.3, 0.9), ""),
    ("groq/openai/gpt-oss-120b", "", 131_072, 65_536, (0.15, 0.6, 0.075), "reasoning"),
    ("groq/openai/gpt-oss-20b", "", 131_072, 65_536, (0.075, 0.3, 0.0375), "reasoning"),
    ("groq/llama-3.3-70b-versatile", "", 131_072, 32_768, (0.59, 0.79), ""),
    ("cerebras/gpt-oss-120b", "", 131_072, 0, (0.35, 0.75), "reasoning"),
    ("together/meta-llama/Llama-3.3-70B-Instruct-Turbo", "", 131_072, 0, (0.88, 0.88), ""),
    # It routes each request to a model of its choice, so it has no price of its own.
    ("openrouter/openrouter/auto", "OpenRouter's choice", 128_000, 0, None, "image reasoning"),
    ("embedded/scout", "Scout", 32_000, 0, (0, 0, 0, 0), ""),
    ("embedded/smollm2", "SmolLM2 135M, for small talk", 2_048, 60, (0, 0, 0, 0), ""),
)
# fmt: on


def _offer(row: _Row) -> ModelInfo:
    ref, name, window, output, price, able = row
    provider, _, model = ref.partition("/")
    inputs = ("text", "image") if "image" in able else ("text",)
    cost, wire = Price(*price) if price else None, _WIRES.get(provider, OPENAI)
    return ModelInfo(provider, model, wire, window, output, cost, inputs, "reasoning" in able, name)


OFFERS = tuple(map(_offer, _ROWS))

# Providers that run on this machine: every model is free.
FREE = (EMBEDDED, "ollama", "lmstudio")
ALIASES: dict[str, str] = {
    "opus": "anthropic/claude-opus-5-5",
    "sonnet": "anthropic/claude-sonnet-5-5",
    "haiku": "anthropic/claude-haiku-5-5",
    "gpt": "openai/gpt-6-sol",
    "gpt-mini": "openai/gpt-6-luna",
    "gemini": "google/gemini-3.1-pro-preview",
    "gemini-flash": "google/gemini-3.8-flash",
    "grok": "xai/grok-4",
    "deepseek": "deepseek/deepseek-chat",
    "mistral": "mistral/mistral-medium-latest",
    "scout": "embedded/scout",
    "smollm": "embedded/smollm2",
}
MILLION = 1_000_000
LISTED = "`pal models list` shows them"
NOTHING = Price(0, 0, 0, 0)


class Catalog:
    """Models and their short names.

    `providers` are those in the config; `default` is the provider of its first model, if any.
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
        """The model of a short name, `provider/model`, or the bare name of a model that one provider has.

        `trusted`: a bare name that no configured provider lists is a model of the one that lists none. Raises
        ConfigError if it is not a model, or if several providers have it.
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
            hint = f"did you mean {near}?" if near else LISTED
            raise ConfigError(f"{text!r} is not a model; use provider/model or a short name", hint=hint)
        return ModelRef(carriers[0], wanted)

    def _carriers(self, name: str, *, trusted: bool) -> list[str]:
        """Providers that have a model of this name, those of the config first."""
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
        """The cost of a call in US dollars; None if the price is not known. Models on this machine are free."""
        if info := self.find(ref):
            return cost_of(usage, info.price)
        return cost_of(usage, NOTHING) if ref.provider in FREE else None


def cost_of(usage: Usage, price: Price | None) -> float | None:
    """US dollars for these tokens. None means unpriced, which is not free."""
    if price is None:
        return None
    cached = price.input if price.cache_read is None else price.cache_read
    stored = price.input if price.cache_write is None else price.cache_write
    bill = usage.input * price.input + usage.output * price.output
    return (bill + usage.cache_read * cached + usage.cache_write * stored) / MILLION


def catalog_of(config: Config) -> Catalog:
    """The built-in table with `models.providers` over it, and the aliases of `agents.defaults.models`."""
    said = config.section(ModelsOptions)
    built_in = [model for model in OFFERS if said.mode == "merge" or model.provider == EMBEDDED]
    known = {ModelRef(model.provider, model.id): model for model in built_in}
    for name, provider in said.by_name.items():
        for entry in provider.models:
            ref = ModelRef(name, entry.id)
            known[ref] = _merged(known.get(ref), ref, entry, provider)
    providers = list(said.by_name)
    first = config.section(AgentEntry).model
    named = ModelRef.parse((first if isinstance(first, str) else first.primary or "") if first else "")
    default = named.provider if named.model and named.provider in providers else ""
    return Catalog(known.values(), {**ALIASES, **config_aliases(config)}, providers, default)


def config_aliases(config: Config) -> dict[str, str]:
    """Alias -> provider/model from the config; the more specific layer wins."""
    return {
        options.alias.strip().lower(): ref
        for layer in reversed(config.said(AgentEntry))
        for ref, options in layer.models.items()
        if options.alias and options.alias.strip()
    }


def _merged(known: ModelInfo | None, ref: ModelRef, entry: ModelEntry, provider: ProviderEntry) -> ModelInfo:
    said: dict[str, Any] = {
        "context_window": entry.context_window,
        "max_output": entry.max_tokens,
        "reasoning": entry.reasoning,
        "name": entry.name,
        "wire": entry.api or provider.api,
        "inputs": entry.input,
        "price": _price(entry.cost),
    }
    changes = {field: value for field, value in said.items() if value is not None}
    return replace(known or ModelInfo(ref.provider, ref.model), **changes)


def _price(cost: ModelCost | None) -> Price | None:
    if cost is None or cost.input is None or cost.output is None:
        return None
    return Price(cost.input, cost.output, cost.cache_read, cost.cache_write)
