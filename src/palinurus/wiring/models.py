"""From what config and environment say about models to the provider that answers."""

from __future__ import annotations

from palinurus.config.load import Loaded, resolve_secret, secret_providers
from palinurus.config.schema import ProviderEntry, SecretRef
from palinurus.config.settings import AgentSettings
from palinurus.context.epoch import Route
from palinurus.domain.clock import Clock
from palinurus.domain.errors import ConfigError, Failure, ProviderError
from palinurus.providers.choose import Choice, choose_model
from palinurus.providers.openai import OpenAIProvider
from palinurus.providers.provider import ModelRef, Provider
from palinurus.providers.scout import SCOUT, Scout
from palinurus.providers.unavailable import Unavailable

OUR_WIRES = ("", "openai-completions", "ollama")  # Ollama speaks the OpenAI format under /v1
LOOK_AGAIN_MS = 30_000  # a model server may be started at any time; asking it each turn would cost each turn


class Models:
    """Providers by name, made when first asked for and kept for their connections."""

    def __init__(self, loaded: Loaded, clock: Clock) -> None:
        self._loaded = loaded
        self._clock = clock
        self._providers: dict[str, Provider] = {}
        self._found: tuple[int, Choice] | None = None

    async def choose(self, wanted: str, settings: AgentSettings) -> tuple[Provider, Route]:
        """The provider for what a session or an agent wants, "" for whatever is there. Never raises."""
        try:
            choice = await self._choice(wanted or settings.model)
            provider = self._provider(choice)
        except ConfigError as error:
            ref = ModelRef.parse(wanted or settings.model)
            failure = ProviderError(error.message, kind=Failure.BAD_REQUEST, hint=error.hint)
            return Unavailable(ref.provider, failure), Route(ref.provider, ref.model, Unavailable.wire)
        thinking = settings.thinking_default or "off"
        return provider, Route(choice.ref.provider, choice.ref.model, provider.wire, thinking, choice.reason)

    async def close(self) -> None:
        for provider in self._providers.values():
            await provider.close()

    async def _choice(self, configured: str) -> Choice:
        if configured:
            return await choose_model(configured, self._loaded.env)
        now = self._clock.now_ms()
        if self._found is None or now - self._found[0] > LOOK_AGAIN_MS:
            self._found = (now, await choose_model(None, self._loaded.env))
        return self._found[1]

    def _provider(self, choice: Choice) -> Provider:
        known = self._providers.get(choice.ref.provider)
        if known is None:
            known = self._make(choice)
            self._providers[choice.ref.provider] = known
        return known

    def _make(self, choice: Choice) -> Provider:
        name = choice.ref.provider
        if name == SCOUT.provider:
            return Scout(self._clock)
        entry = self._loaded.config.models.providers.get(name)
        base_url = (entry.base_url if entry else None) or choice.base_url
        if not base_url:
            raise ConfigError(
                f"nothing is known about the provider {name!r}",
                hint=f"set models.providers.{name}.baseUrl in the config",
            )
        if entry and (entry.api or "") not in OUR_WIRES:
            raise ConfigError(
                f"provider {name} speaks {entry.api}, which this release does not", hint="use an openai-completions one"
            )
        return OpenAIProvider(
            name,
            base_url,
            self._key(entry, choice),
            headers=_headers(entry, self._loaded),
            windows=_windows(entry, choice),
            idle_timeout=(entry.timeout_seconds if entry else None) or 120.0,
            clock=self._clock,
        )

    def _key(self, entry: ProviderEntry | None, choice: Choice) -> str | None:
        own = _secret(entry.api_key, self._loaded) if entry else None
        return own or (self._loaded.env.get(choice.key_env) if choice.key_env else None)


def _secret(value: str | SecretRef | None, loaded: Loaded) -> str | None:
    return resolve_secret(value, loaded.env, secret_providers(loaded))


def _headers(entry: ProviderEntry | None, loaded: Loaded) -> dict[str, str]:
    if entry is None:
        return {}
    values = {name: _secret(value, loaded) for name, value in entry.headers.items()}
    return {name: value for name, value in values.items() if value is not None}


def _windows(entry: ProviderEntry | None, choice: Choice) -> dict[str, int]:
    own = {model.id: model.context_window for model in entry.models if model.context_window} if entry else {}
    return ({choice.ref.model: choice.window} if choice.window else {}) | own
