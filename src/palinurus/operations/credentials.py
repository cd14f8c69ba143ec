"""Store, list and remove keys. Needs no house: the holder of the home notices a changed file before its next turn."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct

from palinurus.config.home import env_value
from palinurus.config.load import Loaded, load_config
from palinurus.config.origins import origin_of
from palinurus.config.settings import agent_ids, default_agent
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.operations.catalog import similar_provider
from palinurus.operations.config import Ground
from palinurus.providers.choose import key_variables, known_provider
from palinurus.providers.keys.credential_file import CredentialFile, credential_paths, profiles_of
from palinurus.providers.keys.credentials import KEYCHAIN, ORIGIN, Kind, gather_credentials, provider_address
from palinurus.providers.keys.keychain import drop_keychain, write_keychain
from palinurus.providers.keys.sealed import PASSPHRASE_ENV

_FIELD: dict[Kind, str] = {"api_key": "key", "token": "token", "oauth": "access"}
_PROVIDER = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class ListedCredential(Struct, frozen=True, rename="camel"):
    """A key without its secret."""

    id: str
    provider: str
    kind: str
    source: str
    expires_at: int | None = None


class CredentialList(Struct, frozen=True):
    credentials: tuple[ListedCredential, ...]
    troubles: tuple[str, ...]


class Stored(Struct, frozen=True):
    id: str
    path: str
    replaced: bool
    sealed: bool
    keychain: bool
    unheard: str = ""  # what to say of a provider that nobody knows yet


def credentials_list(ground: Ground, agent: str = "") -> CredentialList:
    loaded = load_config(ground.home, ground.env)
    wanted, main = _agent(loaded, agent), default_agent(loaded.config)
    found = gather_credentials(loaded, ground.home.root, wanted, main, key_variables(loaded.env))
    listed = [
        ListedCredential(known.id, known.provider, known.kind, known.source, known.expires_at) for known in found.known
    ]
    return CredentialList(tuple(sorted(listed, key=lambda item: (item.provider, item.id))), found.troubles)


def credential_add(
    ground: Ground,
    provider: str,
    secret: str,
    *,
    name: str = "default",
    kind: Kind = "api_key",
    keychain: bool = False,
    agent: str = "",
) -> Stored:
    """Store a key in the credentials file, or in the keychain with a pointer to it in the file."""
    owner, secret = provider_id(provider), secret.strip()
    if not secret:
        raise BadRequest("the key is empty", hint="paste it at the prompt, or pipe it in")
    if not secret.isascii() or not secret.isprintable() or " " in secret:
        raise BadRequest("the key holds characters that no key has", hint="paste it again, without spaces")
    file, profile_id, field = credential_file(ground, agent), f"{owner}:{name.strip()}", _FIELD[kind]
    profile: dict[str, object] = {"type": kind, "provider": owner, field: secret}
    if keychain:
        write_keychain(profile_id, secret)
        profile = {"type": kind, "provider": owner, f"{field}Ref": {"source": KEYCHAIN, "id": profile_id}}
    if bound := origin_of(provider_address(load_config(ground.home, ground.env), owner)):
        profile[ORIGIN] = bound
    replaced = file.add(profile_id, profile)
    sealed = bool(env_value(ground.env, PASSPHRASE_ENV))
    return Stored(profile_id, str(file.path), replaced, sealed, keychain, _unheard(ground, owner))


def _unheard(ground: Ground, provider: str) -> str:
    own = {name.strip().lower() for name in load_config(ground.home, ground.env).config.models.providers}
    if known_provider(provider) is not None or provider in own:
        return ""
    meant = similar_provider(provider, own)
    guess = f"; did you mean {meant}? `pal models auth remove {provider}` takes it back" if meant else ""
    return f"nothing is known about a provider {provider} yet (models.providers.{provider}.baseUrl){guess}"


class Removed(Struct, frozen=True):
    id: str
    path: str


@contextmanager
def credential_on_trial(ground: Ground, provider: str, secret: str) -> Iterator[Callable[[], None]]:
    """Store a key as `credential_add` does, and take it back on leaving unless the callable given was called.

    A key that it replaced is then there again.
    """
    file, profile_id = credential_file(ground, ""), f"{provider.strip().lower()}:default"
    before = profiles_of(file.read()).get(profile_id)
    credential_add(ground, provider, secret)
    kept = False

    def keep() -> None:
        nonlocal kept
        kept = True

    try:
        yield keep
    finally:
        if not kept and before is not None:
            file.add(profile_id, before)
        elif not kept:
            file.remove(profile_id)


def credential_remove(ground: Ground, named: str, agent: str = "") -> Removed:
    """Forget a key, named by its id, or by its provider where that has one.

    Raises NotFound, and says where a key comes from that we do not keep.
    """
    file = credential_file(ground, agent)
    profile_id = _only_profile(ground, file, named.strip(), agent)
    elsewhere = {"env": "unset its variable", "config": "take apiKey out of models.providers"}
    source = elsewhere.get(profile_id.partition(":")[2], "")
    try:
        removed = file.remove(profile_id)
    except NotFound as error:
        raise NotFound(error.message, hint=source or error.hint) from None
    for field in _FIELD.values():
        reference = removed.get(f"{field}Ref")
        if isinstance(reference, dict) and reference.get("source") == KEYCHAIN:
            drop_keychain(str(reference.get("id") or profile_id))
    return Removed(profile_id, str(file.path))


def _only_profile(ground: Ground, file: CredentialFile, named: str, agent: str) -> str:
    """The id of the key that is meant. Raises BadRequest when the provider that was named has several."""
    if ":" in named:
        return named
    provider = named.lower()
    stored = sorted(id_ for id_ in profiles_of(file.read()) if id_.partition(":")[0] == provider)
    if len(stored) > 1:
        raise BadRequest(f"{provider} has several keys: {', '.join(stored)}", hint="name the one that shall go")
    known = [item.id for item in credentials_list(ground, agent).credentials if item.provider == provider]
    return next(iter([*stored, *known]), named)


def provider_id(text: str) -> str:
    """As it stands in ids of credentials. Raises BadRequest."""
    owner = text.strip().lower()
    if not _PROVIDER.fullmatch(owner):
        raise BadRequest(f"not a provider's id: {text!r}", hint="for example openai or anthropic")
    return owner


def credential_file(ground: Ground, agent: str) -> CredentialFile:
    """Where the keys of an agent are written; those of the main agent are everybody's. Raises NotFound."""
    loaded = load_config(ground.home, ground.env)
    path = credential_paths(ground.home.root, _agent(loaded, agent), default_agent(loaded.config))[0]
    return CredentialFile(path, env_value(loaded.env, PASSPHRASE_ENV))


def _agent(loaded: Loaded, agent: str) -> str:
    wanted = agent.strip().lower() or default_agent(loaded.config)
    if wanted not in agent_ids(loaded.config):
        raise NotFound(f"there is no agent {agent!r}", hint=f"the config has {', '.join(agent_ids(loaded.config))}")
    return wanted
