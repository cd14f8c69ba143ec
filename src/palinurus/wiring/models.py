"""From what config and environment say about models to the provider that answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Protocol

import msgspec

from palinurus.config.load import Loaded, resolve_secret, secret_providers
from palinurus.config.schema import ProviderEntry
from palinurus.config.secrets import variable_named
from palinurus.config.section import SecretRef
from palinurus.config.settings import AgentSettings
from palinurus.context.epoch import Route
from palinurus.domain.clock import Clock
from palinurus.domain.errors import ConfigError, Failure, ProviderError
from palinurus.providers.catalog import catalog_of
from palinurus.providers.choose import Choice, choose_model, needs_key
from palinurus.providers.keys.credentials import Credential, Credentials
from palinurus.providers.keys.oauth import log_in_again
from palinurus.providers.keys.pool import CredentialPool
from palinurus.providers.provider import ModelRef, Provider
from palinurus.providers.relay import Candidate, FailoverProvider, Renew, Sleep
from palinurus.providers.scout.scout import SCOUT
from palinurus.providers.unavailable import Unavailable
from palinurus.wiring.embedded import Embedded

WIRES: dict[str, tuple[str, str]] = {
    "openai-completions": ("palinurus.providers.wires.openai", "OpenAIProvider"),
    "ollama": ("palinurus.providers.wires.openai", "OpenAIProvider"),  # it speaks the OpenAI format under /v1
    "anthropic-messages": ("palinurus.providers.wires.anthropic", "AnthropicProvider"),
    "google-generative-ai": ("palinurus.providers.wires.google", "GoogleProvider"),
}
"""The table of parts: what speaks a wire. Imported when first asked for, so that an unused one costs nothing."""

KEY_HEADER_WIRES = ("google-generative-ai",)  # where a key goes in a header that takes no sign-in
LOOK_AGAIN_MS = 30_000  # a model server may be started at any time; asking it each turn would cost each turn


class WireProvider(Protocol):
    """What every class in the table of parts is made with. Raises ConfigError for a base URL that is none."""

    def __call__(
        self,
        name: str,
        base_url: str,
        api_key: str | None,
        /,
        *,
        windows: Mapping[str, int],
        clock: Clock,
        headers: Mapping[str, str],
        idle_timeout: float,
    ) -> Provider: ...


class Models:
    """Providers by name, wire and key, made when first asked for and kept for their connections."""

    def __init__(
        self,
        loaded: Loaded,
        clock: Clock,
        credentials: Callable[[str], Credentials],
        pool: CredentialPool,
        redact: Callable[[str], str],
        sleep: Sleep,
        renew: Renew | None = None,
        process: str = "",
    ) -> None:
        """`process` is who asks for others, as they are told of it; empty when nobody else can be meant."""
        self._process = process
        self.catalog = catalog_of(loaded.config)
        self._loaded = loaded
        self._clock = clock
        self._credentials = credentials
        self._pool = pool
        self._redact = redact
        self._sleep = sleep
        self._renew = renew
        self._entries = {name.strip().lower(): entry for name, entry in loaded.config.models.providers.items()}
        self._providers: dict[tuple[str, ...], Provider] = {}
        self._found: dict[str, tuple[int, Choice]] = {}
        self._embedded = Embedded(clock, small_talk=loaded.config.models.small_talk)

    async def choose(self, wanted: str, settings: AgentSettings, credential: str = "") -> tuple[Provider, Route]:
        """The provider for what a session or an agent wants, "" for whatever is there. Never raises.

        A model that a session chose stands alone; the agent's own goes on to its fallbacks. With a `credential` that is
        known, no other key is asked.
        """
        credentials = self._credentials(settings.agent_id)
        if only := tuple(each for each in credentials.known if each.id == credential):
            credentials = msgspec.structs.replace(credentials, known=only)
        names = [wanted] if wanted else [settings.model, *settings.fallbacks]
        found = [await self._candidate(name, credentials, settings.agent_id) for name in names]
        once: dict[ModelRef, Candidate] = {}
        for candidate, _ in found:
            once.setdefault(candidate.ref, candidate)
        candidates = list(once.values())
        provider = FailoverProvider(candidates, self._pool, sleep=self._sleep, renew=self._renew, redact=self._redact)
        ref, reason = candidates[0].ref, "; ".join(filter(None, (found[0][1], _why_not(candidates[0]))))
        return provider, Route(ref.provider, ref.model, provider.wire, settings.thinking_default or "off", reason)

    async def close(self) -> None:
        await self._embedded.close()
        for provider in self._providers.values():
            await provider.close()

    async def _candidate(self, name: str, credentials: Credentials, agent: str) -> tuple[Candidate, str]:
        """A model to ask and why it. One that config names wrongly is a candidate that says so when it is asked."""
        try:
            choice = await self._choice(name, credentials, agent)
        except ConfigError as error:
            unusable = _unusable(ModelRef.parse(name), error)
            return Candidate(ModelRef.parse(name), lambda _: unusable), ""
        own = credentials.of(choice.ref.provider)
        order = credentials.order.get(choice.ref.provider, ())
        return Candidate(choice.ref, partial(self._open, choice, credentials), own, order), choice.reason

    async def _choice(self, name: str, credentials: Credentials, agent: str) -> Choice:
        if name:
            return await choose_model(str(self.catalog.resolve(name)), self._loaded.env)
        now = self._clock.now_ms()
        if agent not in self._found or now - self._found[agent][0] > LOOK_AGAIN_MS:
            held = {credential.provider for credential in credentials.known}
            self._found[agent] = (now, await choose_model(None, self._loaded.env, held=held))
        return self._found[agent][1]

    def _open(self, choice: Choice, credentials: Credentials, credential: Credential | None) -> Provider:
        """Implements relay.Open."""
        entry = self._entries.get(choice.ref.provider)
        wire = _wire(entry, choice)
        place = (choice.ref.provider, wire, *((credential.id, credential.secret) if credential else ()))
        known = self._providers.get(place)
        if known is None:
            try:
                if choice.ref.provider == SCOUT.provider:
                    return self._embedded.open(choice.ref)
                known = self._make(choice, entry, wire, credential)
            except ConfigError as error:
                return _unusable(choice.ref, error)
            if known is None:
                window = self.catalog.windows(choice.ref.provider).get(choice.ref.model, choice.window) or 32_000
                lacks = self._no_key(choice.ref, credentials, _unset_variable(entry))
                return Unavailable(choice.ref.provider, lacks, wire=wire, window=window)
            self._providers[place] = known
        return known

    def _make(
        self, choice: Choice, entry: ProviderEntry | None, wire: str, credential: Credential | None
    ) -> Provider | None:
        """None: it needs a key and there is none."""
        name = choice.ref.provider
        base_url = (entry.base_url if entry else None) or choice.base_url
        if not base_url:
            raise ConfigError(
                f"nothing is known about the provider {name!r}",
                hint=f"set models.providers.{name}.baseUrl in the config",
            )
        headers = _headers(entry, self._loaded)
        if credential is None and not headers and (needs_key(name, base_url) or _unset_variable(entry)):
            return None
        secret = credential.secret if credential else None
        if credential and credential.kind == "oauth" and wire in KEY_HEADER_WIRES:
            headers, secret = {"Authorization": f"Bearer {credential.secret}", **headers}, None
        return _part(name, wire)(
            name,
            base_url,
            secret,
            headers=headers,
            windows=({choice.ref.model: choice.window} if choice.window else {}) | self.catalog.windows(name),
            idle_timeout=(entry.timeout_seconds if entry else None) or 120.0,
            clock=self._clock,
        )

    def _no_key(self, ref: ModelRef, credentials: Credentials, variable: str) -> ProviderError:
        """Asking the provider would only tell us the same, a second later and less clearly."""
        expired = [credential for credential in credentials.known if credential.provider == ref.provider]
        why, hint = "there is none", f"`pal models auth add {ref.provider}` stores one"
        if any(credential.kind == "oauth" for credential in expired):
            why, hint = "the sign-in it had has expired", f"{log_in_again(ref.provider)}; or {hint}"
        elif expired:
            why = "the key it had has expired"
        elif variable:
            why = f"the variable {variable} is not set {lacking(self._process)}".strip()
        said = "; ".join((f"{ref} needs a key and {why}", *credentials.troubles))
        return ProviderError(said, kind=Failure.AUTH, hint=hint)


def _why_not(candidate: Candidate) -> str:
    """What keeps a model from being asked at all, for those who only want to know which one it is."""
    opened = candidate.open(next(iter(candidate.credentials), None))
    return f"cannot be used: {opened.error.message}" if isinstance(opened, Unavailable) else ""


def _unusable(ref: ModelRef, error: ConfigError) -> Unavailable:
    return Unavailable(ref.provider, ProviderError(error.message, kind=Failure.BAD_REQUEST, hint=error.hint))


def _unset_variable(entry: ProviderEntry | None) -> str:
    """The variable in which the config looks for the key. Whoever asks with a key of another kind need not care."""
    if entry is None or entry.api_key is None:
        return ""
    if isinstance(entry.api_key, str):
        return variable_named(entry.api_key.strip())
    return entry.api_key.id if entry.api_key.source == "env" else ""


def lacking(process: str) -> str:
    """The end of a sentence about a variable that another process lacks."""
    return f"in {process}, which holds the home: start it again with the variable" if process else ""


def _wire(entry: ProviderEntry | None, choice: Choice) -> str:
    """What the config says of the model, else of its provider, else what is known of the provider."""
    model = next((model for model in entry.models if model.id == choice.ref.model), None) if entry else None
    return (model.api if model else None) or (entry.api if entry else None) or choice.wire


def _part(name: str, wire: str) -> WireProvider:
    if wire not in WIRES:
        raise ConfigError(
            f"provider {name} speaks {wire}, which this release does not", hint=f"it speaks {', '.join(WIRES)}"
        )
    module, part = WIRES[wire]
    found: WireProvider = getattr(import_module(module), part)
    return found


def _secret(value: str | SecretRef | None, loaded: Loaded) -> str | None:
    return resolve_secret(value, loaded.env, secret_providers(loaded))


def _headers(entry: ProviderEntry | None, loaded: Loaded) -> dict[str, str]:
    if entry is None:
        return {}
    values = {name: _secret(value, loaded) for name, value in entry.headers.items()}
    return {name: value for name, value in values.items() if value is not None}
