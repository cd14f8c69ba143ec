"""Sign in at a provider. Needs no house, as storing a key does not."""

from __future__ import annotations

from palinurus.config.home import env_value
from palinurus.config.load import load_config
from palinurus.domain.clock import Clock
from palinurus.operations.config import Ground
from palinurus.operations.credentials import Stored, credential_file, provider_id
from palinurus.providers.keys.credential_file import check_profile_id
from palinurus.providers.keys.oauth import oauth_client
from palinurus.providers.keys.renewal import profile_of
from palinurus.providers.keys.sealed import PASSPHRASE_ENV
from palinurus.providers.keys.sign_in import Show, sign_in_with_browser, sign_in_with_device


async def sign_in(
    ground: Ground,
    clock: Clock,
    provider: str,
    show: Show,
    *,
    name: str = "default",
    device: bool = False,
    agent: str = "",
) -> Stored:
    """Wait until a person has signed in, and store what the provider gives for it."""
    owner = provider_id(provider)
    profile_id = check_profile_id(f"{owner}:{name.strip()}")
    file = credential_file(ground, agent)
    client = oauth_client(load_config(ground.home, ground.env), owner)
    tokens = await (sign_in_with_device if device else sign_in_with_browser)(client, clock, show)
    replaced = file.add(profile_id, profile_of(owner, tokens))
    return Stored(profile_id, str(file.path), replaced, bool(env_value(ground.env, PASSPHRASE_ENV)), False)
