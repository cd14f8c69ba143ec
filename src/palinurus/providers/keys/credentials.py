"""Where keys come from: config, credentials file, keychain, environment, in this order of precedence.

The more specific source comes first: a key under `models.providers` names its provider; the file was written by `pal
models auth add`; the keychain holds what a profile of the file points to; an environment variable may be meant for
another program. A secret that is found twice counts once, with the highest precedence. The keychain needs the package
`keyring`, an extra; without it, or without a desktop, reads return nothing and writes raise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.agents import agent_folder
from palinurus.config.home import Home, env_value
from palinurus.config.load import LoadedConfig, resolve_secret, secret_providers
from palinurus.config.secrets import origin_of, worth_redacting
from palinurus.config.section import SecretRef
from palinurus.domain.errors import ConfigError, StorageError
from palinurus.providers.keys.credential_file import (
    KINDS,
    NAME,
    PASSPHRASE_ENV,
    TRUST,
    Credential,
    CredentialFile,
    Kind,
    Source,
    profiles_of,
)
from palinurus.providers.settings import ModelsOptions

SERVICE = "palinurus"


def _call_keychain(function: str, *arguments: str) -> Any:
    """Raises StorageError if there is no keychain, or if it is locked or has no backend or bus."""
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        hint = "install palinurus[keyring], or leave out --keyring"
        raise StorageError("the package keyring is not installed", hint=hint) from None
    try:
        return getattr(keyring, function)(SERVICE, *arguments)
    except (KeyringError, RuntimeError, OSError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        hint = "leave out --keyring to use the credentials file"
        raise StorageError(f"this machine's keychain cannot be used: {why}", hint=hint) from None


def read_keychain(name: str) -> str | None:
    """The secret of a name, or None if it is not available."""
    with suppress(StorageError):
        return cast("str | None", _call_keychain("get_password", name))
    return None


def write_keychain(name: str, secret: str) -> None:
    """Stores a secret. Raises StorageError if this machine has no working keychain."""
    _call_keychain("set_password", name, secret)


def drop_keychain(name: str) -> None:
    """Removes a secret, if it is there and the keychain works."""
    with suppress(StorageError):
        _call_keychain("delete_password", name)


_SECRET_OF: dict[Kind, str] = {"oauth": "access", "token": "token", "api_key": "key"}
ORIGIN = "origin"  # of a profile: scheme, host and port that its key was stored for
KEYCHAIN = "keyring"  # the source of a reference that points to the keychain


class Credentials(Struct, frozen=True):
    """All credentials of one agent."""

    known: tuple[Credential, ...] = ()
    order: dict[str, tuple[str, ...]] = {}  # provider -> ids, if the file sets an order
    troubles: tuple[str, ...] = ()  # why others could not be loaded, one line each
    secrets: tuple[str, ...] = ()  # for the Redactor: refresh tokens and expired keys included
    files: tuple[Path, ...] = ()

    def of(self, provider: str) -> tuple[Credential, ...]:
        return tuple(credential for credential in self.known if credential.provider == provider)


def gather_credentials(loaded: LoadedConfig, home: Home, agent: str, variables: Mapping[str, str]) -> Credentials:
    """The credentials of an agent. `variables` maps providers to the variables that hold their keys. Never raises."""
    own, shared = (
        agent_folder(loaded.config, home, agent) / NAME,
        home.root / NAME,
    )  # the second is the fallback for all
    paths = tuple(dict.fromkeys((own, shared)))
    troubles: list[str] = []
    found = list(_from_config(loaded))
    order: dict[str, tuple[str, ...]] = {}
    passphrase = env_value(loaded.env, PASSPHRASE_ENV)
    secrets = list(worth_redacting(passphrase))
    for path in paths:
        source: Source = "file" if path == shared else "agent file"
        file = CredentialFile(path, passphrase)
        try:
            content = file.read()
        except ConfigError as error:
            troubles.append(str(error))
            continue
        troubles += [line] if (line := file.trouble()) else []
        order = {**_order(content), **order}
        profiles = profiles_of(content)
        values = [
            profile.get(field) for profile in profiles.values() for field in ("key", "token", "access", "refresh")
        ]
        secrets += [part for value in values if isinstance(value, str) for part in worth_redacting(value)]
        found += [replace(each, file=path) for each in _from_profiles(profiles, source, loaded, troubles)]
    for provider, variable in variables.items():
        if secret := env_value(loaded.env, variable):
            found.append(Credential(f"{provider}:env", provider, "api_key", secret, "environment"))
    known = _first_of_each(sorted(found, key=lambda credential: TRUST.index(credential.source)))
    secrets += [part for credential in found for part in worth_redacting(credential.secret)]
    return Credentials(known, order, tuple(troubles), tuple(dict.fromkeys(secrets)), paths)


def read_profile(
    profile_id: str, profile: Mapping[str, Any], source: Source, loaded: LoadedConfig
) -> Credential | None:
    """A profile of the file as a credential; None if its secret is not found. Raises ConfigError for an invalid one."""
    kind, provider = profile.get("type"), profile.get("provider") or profile_id.partition(":")[0]
    if kind not in KINDS or not isinstance(provider, str):
        raise ConfigError(f"{profile_id} in the credentials file has an unknown type: {kind!r}")
    field = _SECRET_OF[cast("Kind", kind)]
    secret, reference = profile.get(field), profile.get(f"{field}Ref")
    if isinstance(reference, dict) and not secret:
        if reference.get("source") == KEYCHAIN:
            secret, source = read_keychain(str(reference.get("id") or profile_id)), "keychain"
        else:
            try:
                where = msgspec.convert(reference, SecretRef)
            except msgspec.ValidationError:
                raise ConfigError(
                    f"{profile_id} in the credentials file has an unknown kind of key reference"
                ) from None
            secret = resolve_secret(where, loaded.env, secret_providers(loaded))
    if not isinstance(secret, str) or not secret.strip():
        return None
    expires = profile.get("expires")
    moment = int(expires) if isinstance(expires, int | float) and expires > 0 else None
    owner = provider.strip().lower()
    refresh = _refresh_token(profile, owner, loaded) if kind == "oauth" else ""
    return Credential(profile_id, owner, cast("Kind", kind), secret.strip(), source, moment, refresh)


def _refresh_token(profile: Mapping[str, Any], provider: str, loaded: LoadedConfig) -> str:
    """Empty if there is none, or if it cannot be used here."""
    from palinurus.providers.keys.oauth import oauth_client  # needed only after a sign-in

    refresh = profile.get("refresh")
    try:
        oauth_client(loaded, provider)
    except ConfigError:
        return ""
    return refresh if isinstance(refresh, str) else ""


def _from_config(loaded: LoadedConfig) -> Iterator[Credential]:
    for provider, entry in loaded.config.section(ModelsOptions).by_name.items():
        try:
            secret = resolve_secret(entry.api_key, loaded.env, secret_providers(loaded))
        except ConfigError:
            continue  # the config's own warnings report it
        if secret:
            yield Credential(f"{provider}:config", provider, "api_key", secret, "config")


def _from_profiles(
    profiles: Mapping[str, dict[str, Any]], source: Source, loaded: LoadedConfig, troubles: list[str]
) -> Iterator[Credential]:
    for profile_id, profile in profiles.items():
        try:
            credential = read_profile(profile_id, profile, source, loaded)
        except ConfigError as error:
            troubles.append(str(error))
            continue
        if credential is None:
            troubles.append(f"{profile_id} is in the credentials file, but its key was not found")
            continue
        # The address for which the key was stored, if that is known, and the provider's.
        bound, now = profile.get(ORIGIN), origin_of(provider_address(loaded, credential.provider))
        if bound and now and bound != now:
            troubles.append(
                f"{profile_id} was stored for {bound}, and models.providers.{credential.provider}.baseUrl "
                f"names another address: `pal models auth add {credential.provider}` stores a key for that one"
            )
        else:
            yield credential


def provider_address(loaded: LoadedConfig, provider: str) -> str | None:
    """The configured address; None if the default is used."""
    entry = loaded.config.section(ModelsOptions).by_name.get(provider)
    return entry.base_url if entry else None


def _first_of_each(credentials: list[Credential]) -> tuple[Credential, ...]:
    known: dict[str, Credential] = {}
    for each in credentials:
        if not any((each.provider, each.secret) == (other.provider, other.secret) for other in known.values()):
            known.setdefault(each.id, each)
    return tuple(known.values())


def _order(content: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    order = content.get("order")
    pairs = order.items() if isinstance(order, dict) else ()
    return {provider: tuple(map(str, ids)) for provider, ids in pairs if isinstance(ids, list)}
