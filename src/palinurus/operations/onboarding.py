"""What a newcomer has to choose from: model servers on this machine, keys that are there, providers that want one."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from palinurus.config.load import load_config
from palinurus.config.settings import default_agent
from palinurus.domain.errors import BadRequest
from palinurus.operations.config import Ground
from palinurus.providers.choose import KNOWN, LOCAL_NAMES, Probe, key_variables, talkers
from palinurus.providers.keys.credentials import gather_credentials
from palinurus.providers.loopback import list_models


class LocalServer(Struct, frozen=True):
    provider: str
    name: str
    models: tuple[str, ...]


class KeyedProvider(Struct, frozen=True):
    provider: str
    model: str  # the one to begin with
    has_key: bool


class Surroundings(Struct, frozen=True):
    servers: tuple[LocalServer, ...]  # those that answer
    providers: tuple[KeyedProvider, ...]

    def first_model(self, provider: str = "") -> str:
        """The model to begin with: of this provider, or of the first that can be used; empty for none."""
        served = {server.provider: f"{server.provider}/{server.models[0]}" for server in self.servers}
        keyed = {known.provider: f"{known.provider}/{known.model}" for known in self.providers}
        if provider:
            return served.get(provider) or keyed.get(provider, "")
        ready = [keyed[known.provider] for known in self.providers if known.has_key]
        return next(iter([*ready, *served.values()]), "")


async def look_around(ground: Ground, probe: Probe = list_models) -> Surroundings:
    """Asks only this machine. Raises ConfigError when the config cannot be used."""
    loaded = load_config(ground.home, ground.env)
    main = default_agent(loaded.config)
    known = gather_credentials(loaded, ground.home.root, main, main, key_variables(loaded.env)).known
    keys = {credential.provider for credential in known}
    own = {name.strip().lower(): entry.base_url for name, entry in loaded.config.models.providers.items()}
    local = [(provider, own.get(provider.id) or provider.base_url) for provider in KNOWN if not provider.key_env]
    answers = await asyncio.gather(*(probe(base_url) for _, base_url in local))
    servers = [
        LocalServer(provider.id, LOCAL_NAMES[provider.id], models)
        for (provider, _), listed in zip(local, answers, strict=True)
        if (models := talkers(listed))
    ]
    keyed = [KeyedProvider(row.id, row.model, row.id in keys) for row in KNOWN if row.key_env]
    return Surroundings(tuple(servers), tuple(keyed))


def begin_with(around: Surroundings, provider: str) -> str:
    """The model to begin with of a provider. Raises BadRequest when nobody knows one."""
    model = around.first_model(provider.strip().lower())
    if not model:
        known = ", ".join(row.provider for row in around.providers)
        raise BadRequest(f"no model of {provider!r} is known", hint=f"name one with --model; known are {known}")
    return model
