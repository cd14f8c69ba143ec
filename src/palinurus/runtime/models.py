"""From what config and environment say about models to the provider that answers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, NoReturn

import msgspec

from palinurus.config.agents import AgentSettings
from palinurus.config.load import LoadedConfig, resolve_secret, secret_providers
from palinurus.config.secrets import variable_named
from palinurus.context.epoch import Route
from palinurus.domain.clock import Clock
from palinurus.domain.errors import BadRequest, ConfigError, Failure, ProviderError
from palinurus.parts import SMALL_MODEL, resolve
from palinurus.providers.catalog import FREE, LISTED, catalog_of
from palinurus.providers.choose import (
    KNOWN,
    ReachableModel,
    choose_model,
    is_loopback,
    known_provider,
    needs_key,
    served_models,
    wire_at,
)
from palinurus.providers.failover import FailoverProvider, ModelCandidate, Renew, Sleep
from palinurus.providers.keys.credential_file import Credential, log_in_again
from palinurus.providers.keys.credentials import Credentials
from palinurus.providers.keys.pool import CredentialPool
from palinurus.providers.provider import (
    EMBEDDED,
    SCOUT,
    TALKER,
    ModelRef,
    Provider,
    Unavailable,
)
from palinurus.providers.settings import ModelsOptions, ProviderEntry
from palinurus.providers.smollm.packages import weights_file
from palinurus.runtime.extensions import LOADED
from palinurus.text.words import nearest

if TYPE_CHECKING:
    from palinurus.providers.scout.scout import Talk
    from palinurus.providers.smollm.smollm import SmolLM
    from palinurus.providers.wires.http import WireProvider

KEY_HEADER_WIRES = ("google-generative-ai",)  # where a key goes in a header that takes no sign-in
LOOK_AGAIN_MS = 30_000  # a model server may be started at any time; asking it each turn would cost each turn


class Models:
    """Providers by name, wire and key, made when first asked for and kept for their connections."""

    def __init__(
        self,
        loaded: LoadedConfig,
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
        said = loaded.config.section(ModelsOptions)
        self._entries = said.by_name
        self._providers: dict[tuple[str, ...], Provider] = {}
        self._found: dict[str, tuple[int, ReachableModel]] = {}
        self._served: dict[str, tuple[int, dict[str, int]]] = {}  # base URL -> when it was asked, and what it has
        self._windows: dict[str, dict[str, int]] = {}  # provider -> what its providers here go by
        self._embedded = EmbeddedModels(clock, small_talk=said.small_talk)

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
        once: dict[ModelRef, ModelCandidate] = {}
        for candidate, _ in found:
            once.setdefault(candidate.ref, candidate)
        candidates = list(once.values())
        provider = FailoverProvider(candidates, self._pool, sleep=self._sleep, renew=self._renew, redact=self._redact)
        ref, reason = candidates[0].ref, "; ".join(filter(None, (found[0][1], _why_not(candidates[0]))))
        return provider, Route(ref.provider, ref.model, provider.wire, settings.thinking_default or "off", reason)

    async def find(self, name: str, settings: AgentSettings) -> str:
        """The whole name of a model that a session may choose. Raises BadRequest for what cannot be asked.

        Whatever the config names is taken; of a provider that lists its models, or whose server here does, only those.
        """
        credentials = self._credentials(settings.agent_id)
        try:
            ref = self.catalog.resolve(name, trusted=name in (settings.model, *settings.fallbacks))
        except ConfigError as error:
            ref = await self._served_by(name) or _refuse(error)
        own = self._entries.get(ref.provider)
        if known_provider(ref.provider) is None and own is None and ref.provider not in FREE:
            near = nearest(ref.provider, [*self._entries, *(known.id for known in KNOWN)])
            also = f"; did you mean {near}/{ref.model}?" if near else ""
            raise BadRequest(f"unknown provider {ref.provider!r}{also}", hint="/model list shows them")
        choice = await choose_model(str(ref), self._loaded.env)
        base_url = self._base_url(choice)
        if not credentials.of(ref.provider) and needs_key(ref.provider, base_url) and not (own and own.headers):
            raise BadRequest(str(self._no_key(ref, credentials, _unset_variable(own))))
        listed = [entry.id for entry in own.models] if own else []
        listed += [model.id for model in self.catalog if model.provider == EMBEDDED == ref.provider]
        listed += await self._ask_server(base_url) if is_loopback(base_url) else []
        if listed and ref.model not in listed and not self._named(ref, settings) and self.catalog.find(ref) is None:
            near = nearest(ref.model, listed)
            also = f"; did you mean {ref.provider}/{near}?" if near else ""
            raise BadRequest(f"{ref.provider} has no model {ref.model!r}{also}", hint="/model list shows them")
        return str(ref)

    def _named(self, ref: ModelRef, settings: AgentSettings) -> bool:
        return str(ref) in (settings.model, *settings.fallbacks, *self.catalog.aliases.values())

    async def _served_by(self, name: str) -> ModelRef | None:
        """The one provider of the config that serves a model of this name from this machine."""
        near = [(provider, entry.base_url or "") for provider, entry in self._entries.items()]
        answers = [(provider, await self._ask_server(url)) for provider, url in near if is_loopback(url)]
        found = [provider for provider, served in answers if name in served]
        return ModelRef(found[0], name) if len(found) == 1 else None

    async def _ask_server(self, base_url: str) -> dict[str, int]:
        """What a server on this machine has: asked once, and again only after it had nothing to say."""
        asked, known = self._served.get(base_url, (-LOOK_AGAIN_MS, {}))
        now = self._clock.now_ms()
        if not known and now - asked >= LOOK_AGAIN_MS:
            known = await served_models(base_url)
            self._served[base_url] = (now, known)
        return known

    async def _probe(self, base_url: str) -> tuple[str, ...]:
        """Implements providers.choose.Probe; what is heard by the way, such as windows, is kept."""
        known = await served_models(base_url)
        self._served[base_url] = (self._clock.now_ms(), known)
        return tuple(known)

    async def _measure(self, choice: ReachableModel) -> None:
        """Learn the window of a model that neither table nor config tells, where its server is on this machine."""
        base_url, model = self._base_url(choice), choice.ref.model
        windows = self._windows.setdefault(choice.ref.provider, self.catalog.windows(choice.ref.provider))
        if model in windows:
            return
        if is_loopback(base_url):
            windows |= {each: size for each, size in (await self._ask_server(base_url)).items() if size} | windows
        if choice.window:
            windows.setdefault(model, choice.window)

    def _base_url(self, choice: ReachableModel) -> str:
        entry = self._entries.get(choice.ref.provider)
        return (entry.base_url if entry else None) or choice.base_url

    async def close(self) -> None:
        await self._embedded.close()
        for provider in self._providers.values():
            await provider.close()

    async def _candidate(self, name: str, credentials: Credentials, agent: str) -> tuple[ModelCandidate, str]:
        """A model to ask and why it. One that config names wrongly is a candidate that says so when it is asked."""
        try:
            choice = await self._choice(name, credentials, agent)
        except ConfigError as error:
            unusable = _unusable(ModelRef.parse(name), error)
            return ModelCandidate(ModelRef.parse(name), lambda _: unusable), ""
        own = credentials.of(choice.ref.provider)
        order = credentials.order.get(choice.ref.provider, ())
        return ModelCandidate(choice.ref, partial(self._open, choice, credentials), own, order), choice.reason

    async def _choice(self, name: str, credentials: Credentials, agent: str) -> ReachableModel:
        if name:
            choice = await choose_model(str(self.catalog.resolve(name, trusted=True)), self._loaded.env)
        else:
            now = self._clock.now_ms()
            if agent not in self._found or now - self._found[agent][0] > LOOK_AGAIN_MS:
                held = {credential.provider for credential in credentials.known}
                self._found[agent] = (now, await choose_model(None, self._loaded.env, self._probe, held=held))
            choice = self._found[agent][1]
        await self._measure(choice)
        return choice

    def _open(self, choice: ReachableModel, credentials: Credentials, credential: Credential | None) -> Provider:
        """Implements relay.Open."""
        entry = self._entries.get(choice.ref.provider)
        wire = _wire(entry, choice, self._base_url(choice))
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
        self, choice: ReachableModel, entry: ProviderEntry | None, wire: str, credential: Credential | None
    ) -> Provider | None:
        """None: it has no key."""
        name = choice.ref.provider
        base_url = self._base_url(choice)
        if not base_url:
            raise ConfigError(f"unknown provider {name!r}", hint=f"set models.providers.{name}.baseUrl in the config")
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
            windows=self._windows[name],  # what is learned later counts too
            idle_timeout=(entry.timeout_seconds if entry else None) or 120.0,
            clock=self._clock,
        )

    def _no_key(self, ref: ModelRef, credentials: Credentials, variable: str) -> ProviderError:
        """Asking the provider would only tell us the same, a second later and less clearly."""
        expired = [credential for credential in credentials.known if credential.provider == ref.provider]
        why, hint = "has no key", f"`pal models auth add {ref.provider}` stores one"
        if any(credential.kind == "oauth" for credential in expired):
            why, hint = "needs a key: its sign-in has expired", f"{log_in_again(ref.provider)}; or {hint}"
        elif expired:
            why = "needs a key: its key has expired"
        elif variable:
            why = f"needs a key: the variable {variable} is not set {lacking(self._process)}".strip()
        said = "; ".join((f"{ref} {why}", *credentials.troubles))
        return ProviderError(said, kind=Failure.AUTH, hint=hint)


def _why_not(candidate: ModelCandidate) -> str:
    """What keeps a model from being asked at all, for those who only want to know which one it is."""
    opened = candidate.open(next(iter(candidate.credentials), None))
    return f"cannot be used: {opened.error.message}" if isinstance(opened, Unavailable) else ""


def _refuse(error: ConfigError) -> NoReturn:
    near = "" if error.hint == LISTED else f"{error.hint} "
    raise BadRequest(error.message, hint=f"{near}/model list shows them")


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


def _wire(entry: ProviderEntry | None, choice: ReachableModel, base_url: str) -> str:
    """What the config says of the model, else of its provider, else what is known of the provider."""
    model = next((model for model in entry.models if model.id == choice.ref.model), None) if entry else None
    return (model.api if model else None) or (entry.api if entry else None) or wire_at(choice, base_url)


def _part(name: str, wire: str) -> type[WireProvider]:
    found: type[WireProvider] | None = LOADED.find_wire(wire)
    if found is None:
        raise ConfigError(
            f"provider {name} speaks {wire}, which this release does not",
            hint=f"it speaks {', '.join(LOADED.wire_names())}",
        )
    return found


def _headers(entry: ProviderEntry | None, loaded: LoadedConfig) -> dict[str, str]:
    if entry is None:
        return {}
    known = secret_providers(loaded)
    values = {name: resolve_secret(value, loaded.env, known) for name, value in entry.headers.items()}
    return {name: value for name, value in values.items() if value is not None}


class EmbeddedModels:
    """Scout and the small model of one config, made when first asked for."""

    def __init__(self, clock: Clock, *, small_talk: bool) -> None:
        self._clock = clock
        self._small_talk = small_talk

    @cached_property
    def _scout(self) -> Provider:
        from palinurus.providers.scout.scout import Scout  # who has a model does without

        return Scout(self._clock, self._find_talker)

    def open(self, ref: ModelRef) -> Provider:
        """Raises ConfigError for a model that is not in this program."""
        if ref == SCOUT:
            return self._scout
        if ref == TALKER:
            return self._small
        raise ConfigError(f"there is no model {ref} in this program", hint=f"there are {SCOUT} and {TALKER}")

    async def close(self) -> None:
        if "_small" in vars(self):
            await self._small.close()

    def _find_talker(self) -> Talk | None:
        """Implements scout.FindTalker. Looked for each time: it may be installed while we run."""
        return self._small.stream if self._small_talk and weights_file() is not None else None

    @cached_property
    def _small(self) -> SmolLM:
        make: type[SmolLM] = resolve(SMALL_MODEL)  # imported at the first small talk
        return make(self._clock)
