"""Models: which are known and usable, which one agents use, its state, and whether it answers.

All but the state and the test need no open home, only the config.
"""

from __future__ import annotations

import asyncio
import difflib
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Annotated

from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.agents import AgentEntry, ModelSelection, agent_ids, default_agent
from palinurus.config.load import LoadedConfig, load_config
from palinurus.context.epoch import Route
from palinurus.domain.errors import BadRequest, ConfigError, Failure, NotFound, ProviderError
from palinurus.domain.messages import Usage, UserMessage
from palinurus.operations.config import merge_config, set_option, unset_option
from palinurus.operations.operation import AgentRef, Metavar, OptionNames, Positional, Private, operation
from palinurus.operations.scopes import LOCAL, Caller
from palinurus.operations.services import Services
from palinurus.providers.catalog import ALIASES, FREE, Catalog, ModelInfo, catalog_of, config_aliases
from palinurus.providers.choose import (
    KNOWN,
    LOCAL_NAMES,
    Probe,
    is_loopback,
    key_variables,
    known_provider,
    list_models,
    served_models,
    talkers,
)
from palinurus.providers.keys.credentials import gather_credentials
from palinurus.providers.keys.pool import CredentialState
from palinurus.providers.provider import (
    TALKER,
    Head,
    ModelRef,
    ModelRequest,
    Provider,
    ReplyDone,
    ReplyFailed,
    ReplyNotice,
)
from palinurus.providers.settings import ModelsOptions
from palinurus.providers.smollm.packages import weights_file

MODEL = "agents.defaults.model"

PROBE_HEAD = Head("Answer: ok")
PROBE_TOKENS = 16  # the least that all vendors accept; a model that thinks may say nothing in so few, and has answered


class ModelStatus(Struct, frozen=True, rename="camel"):
    agent: str
    model: str
    reason: str
    wire: str
    context_window: int
    fallbacks: tuple[str, ...]
    credentials: tuple[CredentialState, ...]
    warnings: tuple[str, ...]


class ProbeReport(Struct, frozen=True, rename="camel"):
    ok: bool
    asked: str
    answered: str = ""
    first_ms: int = 0  # until something came
    total_ms: int = 0
    usage: Usage = Usage()
    notices: tuple[str, ...] = ()
    error: str = ""
    error_kind: str = ""
    hint: str = ""


@operation("models.status", scope="read")
async def show_model_status(
    services: Services, agent: Annotated[AgentRef, "Which agent. Default: the default agent."] = ""
) -> ModelStatus:
    """Show which model an agent uses, its fallbacks, and the state of its keys.

    Example:
      pal models status --agent main
    """
    agent_id = agent or services.agents.default
    provider, route = await services.models.choose(agent_id)
    return ModelStatus(
        agent=agent_id,
        model=f"{route.provider}/{route.model}",
        reason=route.reason,
        wire=route.wire,
        context_window=provider.context_window(route.model),
        fallbacks=tuple(services.models.fallbacks(agent_id)),
        credentials=tuple(services.models.credential_states(agent_id)),
        warnings=services.warnings(),
    )


@operation("models.test", scope="write")
async def probe_model(
    services: Services,
    ref: Annotated[
        str, Positional, Metavar("MODEL"), "provider/model or a short name; none: the model of the agent."
    ] = "",
    agent: Annotated[AgentRef, "With the keys of this agent."] = "",
    credential: Annotated[str, Private, "Ask with this key alone."] = "",
) -> ProbeReport:
    """Send one tiny request and show how long the answer took, or why there was none.

    Examples:
      pal models test
      pal models test openai/gpt-6-luna
    """
    agent_id = agent or services.agents.default
    return await probe(lambda name: services.models.choose(agent_id, name, credential), ref)


async def probe(choose: Callable[[str], Awaitable[tuple[Provider, Route]]], ref: str = "") -> ProbeReport:
    """One tiny request. It belongs to no session and is not stored."""
    provider, route = await choose(ref)
    asked = f"{route.provider}/{route.model}"
    request = ModelRequest(route.model, PROBE_HEAD, (UserMessage("ok?"),), max_tokens=PROBE_TOKENS)
    began, first, notices = time.monotonic(), 0, list[str]()
    outcome: ReplyDone | ReplyFailed | None = None
    async for event in provider.stream(request):
        first = first or _ms(began)
        match event:
            case ReplyNotice():
                notices.append(event.text)
            case ReplyDone() | ReplyFailed():
                outcome = event
            case _:
                pass
    if isinstance(outcome, ReplyDone):
        message = outcome.message
        answered = f"{message.provider}/{message.model}"
        return ProbeReport(True, asked, answered, first, _ms(began), message.usage, tuple(notices))
    lost = ProviderError("the stream ended without a reply", kind=Failure.MALFORMED)
    error = outcome.error if outcome else lost
    report = ProbeReport(False, asked, total_ms=_ms(began), notices=tuple(notices))
    return replace(report, error=error.message, error_kind=str(error.kind), hint=error.hint)


def _ms(began: float) -> int:
    return max(1, round((time.monotonic() - began) * 1000))


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


class DefaultModel(Struct, frozen=True):
    """The model of all agents, as the config names it."""

    primary: str
    fallbacks: tuple[str, ...]


class DefaultModelSet(Struct, frozen=True):
    model: str
    ok: bool = True


class RemovedAlias(Struct, frozen=True):
    removed: str


@operation("models.list", scope="read", needs_home=False)
async def list_known_models(
    services: Services,
    everything: Annotated[bool, OptionNames("--all"), "Also models of providers without a key."] = False,
) -> tuple[ListedModel, ...]:
    """List the models that are known: context window, prices, short names.

    Examples:
      pal models list
      pal models list --all --json
    """
    loaded = await asyncio.to_thread(load_config, services.home, services.env)
    near = {name: url for name, url in _addresses(loaded).items() if is_loopback(url)}
    answers = await asyncio.gather(*map(served_models, near.values()))
    served = [
        ModelInfo(name, model, context_window=window)
        for name, answer in zip(near, answers, strict=True)
        for model, window in answer.items()
        if talkers((model,))
    ]
    known = await asyncio.to_thread(lambda: tuple(_all_models(services, served)))
    return tuple(model for model in known if everything or model.usable)


def _all_models(services: Services, served: Sequence[ModelInfo]) -> Iterator[ListedModel]:
    """The table, what the config lists or only names, and what local servers have."""
    loaded = load_config(services.home, services.env)
    main = default_agent(loaded.config)
    keys = gather_credentials(loaded, services.home, main, key_variables(loaded.env))
    keyless = {name for name, address in _addresses(loaded).items() if address}  # perhaps they want no key
    ready = {credential.provider for credential in keys.known} | set(FREE) | keyless
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
    for ref, info in known.items():
        lacks = "" if info.provider in ready else "no key"
        if ref == TALKER and weights_file() is None:
            lacks = "not installed"
        yield ListedModel(str(ref), info, not lacks, tuple(names.get(ref, ())), lacks)


async def chat_models(services: Services) -> str:
    """What `/models` answers: the models that can be used, with their windows and short names."""
    usable = await list_known_models(services)
    width = max((len(model.ref) for model in usable), default=0)
    windows = [f"{model.info.context_window:,} tokens" if model.info.context_window else "" for model in usable]
    lines = [
        f"{model.ref:<{width}}  {window:>16}  {', '.join(model.aliases)}".rstrip()
        for model, window in zip(usable, windows, strict=True)
    ]
    return "\n".join([*lines, "/model NAME chooses one for this session, /model default goes back to the default."])


def _named(loaded: LoadedConfig, catalog: Catalog) -> Iterator[ModelRef]:
    """Models that the config names, of providers that something is known about."""
    addresses = _addresses(loaded)
    layers = [layer for agent in agent_ids(loaded.config) for layer in loaded.config.said(AgentEntry, agent)]
    for layer in layers:
        for name in layer.models_named:
            with suppress(ConfigError):
                ref = catalog.resolve(name, trusted=True)
                if ref.provider in addresses or known_provider(ref.provider):
                    yield ref


def _addresses(loaded: LoadedConfig) -> dict[str, str]:
    return {name: entry.base_url or "" for name, entry in loaded.config.section(ModelsOptions).by_name.items()}


def default_model(services: Services) -> DefaultModel:
    model = load_config(services.home, services.env).config.at(AgentEntry, "agents", "defaults").model
    if isinstance(model, ModelSelection):
        return DefaultModel(model.primary or "", model.fallbacks)
    return DefaultModel(model or "", ())


def model_problems(services: Services) -> tuple[str, ...]:
    """Why models that the config names cannot be used, one line each."""
    loaded, choice = load_config(services.home, services.env), default_model(services)
    problems = []
    for name in filter(None, (choice.primary, *choice.fallbacks)):
        try:
            usable_model(loaded, catalog_of(loaded.config), name, trusted=True)
        except (BadRequest, ConfigError) as error:
            problems.append(str(error))
    return tuple(problems)


@operation("models.set", scope="admin", strict=False, needs_home=False)
def set_model(
    services: Services,
    model: Annotated[str, "provider/model or a short name; empty: none, the first usable one is taken"],
    caller: Caller = LOCAL,
) -> DefaultModelSet:
    """Make MODEL the default model: provider/model or a short name. Fallbacks stay as they are.

    Examples:
      pal models set anthropic/claude-sonnet-5-5
      pal models set sonnet
    """
    loaded = load_config(services.home, services.env)
    ref = str(usable_model(loaded, catalog_of(loaded.config), model)) if model.strip() else None
    keeps_list = isinstance(loaded.config.at(AgentEntry, "agents", "defaults").model, ModelSelection)
    merge_config(services, {"agents": {"defaults": {"model": {"primary": ref} if keeps_list else ref}}}, caller)
    return DefaultModelSet(ref or "")


@operation("models.fallbacks.list", scope="read", local=True, needs_home=False)
def list_fallbacks(services: Services) -> tuple[str, ...]:
    """List the fallbacks in their order.

    Example:
      pal models fallbacks list
    """
    return default_model(services).fallbacks


@operation("models.fallbacks.add", scope="admin", local=True, needs_home=False)
def add_fallback(services: Services, model: str) -> tuple[str, ...]:
    """Put MODEL at the end of the fallbacks.

    Example:
      pal models fallbacks add openai/gpt-6-luna
    """
    loaded = load_config(services.home, services.env)
    ref = str(usable_model(loaded, catalog_of(loaded.config), model))
    known = default_model(services).fallbacks
    return known if ref in known else _set_fallbacks(services, (*known, ref))


@operation("models.fallbacks.remove", scope="admin", local=True, needs_home=False)
def remove_fallback(services: Services, model: str) -> tuple[str, ...]:
    """Remove MODEL from the fallbacks.

    Example:
      pal models fallbacks remove openai/gpt-6-luna
    """
    ref = str(catalog_of(load_config(services.home, services.env).config).resolve(model))
    known = default_model(services).fallbacks
    left = tuple(other for other in known if other not in (model, ref))
    if left == known:
        raise NotFound(f"{ref} is not a fallback", hint="`pal models fallbacks list` shows them")
    return _set_fallbacks(services, left)


@operation("models.fallbacks.clear", scope="admin", local=True, needs_home=False)
def clear_fallbacks(services: Services) -> tuple[str, ...]:
    """Remove all fallbacks.

    Example:
      pal models fallbacks clear
    """
    return _set_fallbacks(services, ()) if default_model(services).fallbacks else ()


@operation("models.aliases.list", scope="read", local=True, needs_home=False)
def list_aliases(services: Services) -> tuple[Alias, ...]:
    """List the short names.

    Example:
      pal models aliases list
    """
    own = config_aliases(load_config(services.home, services.env).config)
    merged = {**ALIASES, **own}
    return tuple(Alias(alias, merged[alias], alias not in own) for alias in sorted(merged))


@operation("models.aliases.add", scope="admin", local=True, needs_home=False)
def add_alias(services: Services, alias: str, model: str) -> Alias:
    """Make ALIAS a short name of MODEL.

    Example:
      pal models aliases add fast groq/openai/gpt-oss-120b
    """
    short = alias.strip().lower()
    if not short or "/" in short or any(char.isspace() or char == '"' for char in short):
        raise BadRequest(f"not a short name: {alias!r}", hint="a word without slashes, such as fast")
    loaded = load_config(services.home, services.env)
    ref = str(usable_model(loaded, catalog_of(loaded.config), model))
    for other, place in config_aliases(loaded.config).items():
        if other == short and place != ref:
            unset_option(services, _alias_path(place))
    set_option(services, _alias_path(ref), short)
    return Alias(short, ref, built_in=False)


@operation("models.aliases.remove", scope="admin", local=True, needs_home=False)
def remove_alias(services: Services, alias: str) -> RemovedAlias:
    """Remove a short name from the config.

    Example:
      pal models aliases remove fast
    """
    short = alias.strip().lower()
    own = config_aliases(load_config(services.home, services.env).config)
    if short not in own:
        known = f"{short} is built in; give the name to another model to change it" if short in ALIASES else ""
        raise NotFound(f"the config has no short name {short!r}", hint=known or "`pal models aliases list` shows them")
    unset_option(services, _alias_path(own[short]))
    return RemovedAlias(alias)


def _set_fallbacks(services: Services, fallbacks: tuple[str, ...]) -> tuple[str, ...]:
    model = load_config(services.home, services.env).config.at(AgentEntry, "agents", "defaults").model
    if isinstance(model, str):
        set_option(services, MODEL, {"primary": model, "fallbacks": list(fallbacks)})
    else:
        set_option(services, f"{MODEL}.fallbacks", list(fallbacks))
    return fallbacks


def _alias_path(ref: str) -> str:
    return f'agents.defaults.models."{ref}".alias'


def usable_model(loaded: LoadedConfig, catalog: Catalog, name: str, *, trusted: bool = False) -> ModelRef:
    """The model behind a name, of a provider that something is known about. Raises ConfigError or BadRequest.

    `trusted` as in `Catalog.resolve`: the name stands in the config already.
    """
    ref = catalog.resolve(name, trusted=trusted)
    own = loaded.config.section(ModelsOptions).by_name
    if known_provider(ref.provider) is None and ref.provider not in own and ref.provider not in FREE:
        meant = similar_provider(ref.provider, own)
        guess = f"did you mean {meant}/{ref.model}? Else " if meant else ""
        hint = f"{guess}set models.providers.{ref.provider}.baseUrl first"
        raise BadRequest(f"unknown provider {ref.provider!r}", hint=hint)
    if '"' in ref.model or "\\" in ref.model:
        raise BadRequest(f"not a model's name: {ref.model!r}")
    return ref


def similar_provider(name: str, own: Collection[str]) -> str:
    """The provider that was probably meant; empty when there is no guess."""
    known = [*own, *(provider.id for provider in KNOWN), *FREE]
    return next(iter(difflib.get_close_matches(name.lower(), known, 1)), "")


class LocalServer(Struct, frozen=True):
    provider: str
    name: str
    models: tuple[str, ...]


class KeyedProvider(Struct, frozen=True, rename="camel"):
    provider: str
    model: str  # the one to begin with
    has_key: bool


class OnboardingOptions(Struct, frozen=True, rename="camel"):
    servers: tuple[LocalServer, ...]  # those that answer
    providers: tuple[KeyedProvider, ...]
    first_model: str  # of what can be used right now; empty: nothing but scout


@operation("onboarding.look", scope="write", strict=False, needs_home=False)
async def list_model_options(services: Services) -> OnboardingOptions:
    """What a new user can choose from: model servers on this machine, and providers with or without a key."""
    return await find_model_options(services)


async def find_model_options(services: Services, probe: Probe = list_models) -> OnboardingOptions:
    """Sends requests to this machine only. Raises ConfigError when the config cannot be used."""
    loaded = load_config(services.home, services.env)
    main = default_agent(loaded.config)
    known = gather_credentials(loaded, services.home, main, key_variables(loaded.env)).known
    keys = {credential.provider for credential in known}
    own = _addresses(loaded)
    local = [(provider, own.get(provider.id) or provider.base_url) for provider in KNOWN if not provider.key_env]
    answers = await asyncio.gather(*(probe(base_url) for _, base_url in local))
    servers = [
        LocalServer(provider.id, LOCAL_NAMES[provider.id], models)
        for (provider, _), listed in zip(local, answers, strict=True)
        if (models := talkers(listed))
    ]
    keyed = [KeyedProvider(row.id, row.model, row.id in keys) for row in KNOWN if row.key_env]
    ready = [f"{each.provider}/{each.model}" for each in keyed if each.has_key]
    served = [f"{each.provider}/{each.models[0]}" for each in servers]
    return OnboardingOptions(tuple(servers), tuple(keyed), next(iter([*ready, *served]), ""))


def first_model_of(options: OnboardingOptions, provider: str) -> str:
    """The model to begin with of a provider. Raises BadRequest when none is known."""
    models = {each.provider: f"{each.provider}/{each.model}" for each in options.providers}
    models |= {each.provider: f"{each.provider}/{each.models[0]}" for each in options.servers}
    if model := models.get(provider.strip().lower()):
        return model
    known = ", ".join(each.provider for each in options.providers)
    raise BadRequest(f"no model of {provider!r} is known", hint=f"name one with --model; known are {known}")
