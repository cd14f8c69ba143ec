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

from palinurus.config.home import env_value
from palinurus.config.load import LoadedConfig, resolve_secret, secret_providers
from palinurus.config.secrets import origin_of, worth_redacting
from palinurus.config.section import SecretRef
from palinurus.domain.errors import ConfigError, StorageError
from palinurus.providers.keys.credential_file import (
    KINDS,
    PASSPHRASE_ENV,
    TRUST,
    Credential,
    CredentialFile,
    Kind,
    Source,
    credential_paths,
    profiles_of,
)
from palinurus.providers.settings import ModelsOptions

SERVICE = "palinurus"


def _keyring() -> tuple[Any, tuple[type[Exception], ...]] | None:
    """The package, and what it raises if it is locked or has no backend or bus; None: not installed."""
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        return None
    return keyring, (KeyringError, RuntimeError, OSError)


def read_keychain(name: str) -> str | None:
    """The secret of a name, or None if it is not available."""
    if (found := _keyring()) is None:
        return None
    keyring, failures = found
    try:
        secret: str | None = keyring.get_password(SERVICE, name)
    except failures:
        return None
    return secret


def write_keychain(name: str, secret: str) -> None:
    """Stores a secret. Raises StorageError if this machine has no working keychain."""
    if (found := _keyring()) is None:
        raise StorageError(
            "the package keyring is not installed", hint="install palinurus[keyring], or leave out --keyring"
        )
    keyring, failures = found
    try:
        keyring.set_password(SERVICE, name, secret)
    except failures as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise StorageError(
            f"this machine's keychain cannot be used: {why}", hint="leave out --keyring to use the credentials file"
        ) from None


def drop_keychain(name: str) -> None:
    """Removes a secret, if it is there and the keychain works."""
    if (found := _keyring()) is not None:
        keyring, failures = found
        with suppress(*failures):
            keyring.delete_password(SERVICE, name)


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


def gather_credentials(
    loaded: LoadedConfig, root: Path, agent: str, main_agent: str, variables: Mapping[str, str]
) -> Credentials:
    """The credentials of an agent. `variables` maps providers to the variables that hold their keys. Never raises."""
    paths = credential_paths(root, agent, main_agent)
    troubles: list[str] = []
    found = list(_from_config(loaded))
    order: dict[str, tuple[str, ...]] = {}
    passphrase = env_value(loaded.env, PASSPHRASE_ENV)
    secrets = list(worth_redacting(passphrase))
    for path in paths:
        source: Source = "agent file" if len(paths) > 1 and path == paths[0] else "file"
        file = CredentialFile(path, passphrase)
        try:
            content = file.read()
        except ConfigError as error:
            troubles.append(str(error))
            continue
        troubles += [line] if (line := file.trouble()) else []
        order = {**_order(content), **order}
        profiles = profiles_of(content)
        secrets += _all_secrets(profiles)
        found += [replace(each, file=path) for each in _from_profiles(profiles, source, loaded, troubles)]
    found += _from_environment(loaded.env, variables)
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
            secret = resolve_secret(_reference(profile_id, reference), loaded.env, secret_providers(loaded))
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


def _reference(profile_id: str, reference: dict[str, Any]) -> SecretRef:
    try:
        return msgspec.convert(reference, SecretRef)
    except msgspec.ValidationError:
        raise ConfigError(f"{profile_id} in the credentials file has an unknown kind of key reference") from None


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
        elif _is_elsewhere(profile, credential, loaded):
            troubles.append(
                f"{profile_id} was stored for {profile[ORIGIN]}, and models.providers.{credential.provider}.baseUrl "
                f"names another address: `pal models auth add {credential.provider}` stores a key for that one"
            )
        else:
            yield credential


def provider_address(loaded: LoadedConfig, provider: str) -> str | None:
    """The configured address; None if the default is used."""
    entry = loaded.config.section(ModelsOptions).by_name.get(provider)
    return entry.base_url if entry else None


def _is_elsewhere(profile: Mapping[str, Any], credential: Credential, loaded: LoadedConfig) -> bool:
    """Whether the provider's address differs from the one for which the key was stored, if that is known."""
    bound, now = profile.get(ORIGIN), origin_of(provider_address(loaded, credential.provider))
    return bool(bound and now and bound != now)


def _from_environment(env: Mapping[str, str], variables: Mapping[str, str]) -> Iterator[Credential]:
    for provider, variable in variables.items():
        if secret := env_value(env, variable):
            yield Credential(f"{provider}:env", provider, "api_key", secret, "environment")


def _first_of_each(credentials: list[Credential]) -> tuple[Credential, ...]:
    by_secret: dict[tuple[str, str], Credential] = {}
    ids: set[str] = set()
    for credential in credentials:
        place = (credential.provider, credential.secret)
        if place not in by_secret and credential.id not in ids:
            by_secret[place] = credential
            ids.add(credential.id)
    return tuple(by_secret.values())


def _order(content: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    order = content.get("order")
    pairs = order.items() if isinstance(order, dict) else ()
    return {provider: tuple(map(str, ids)) for provider, ids in pairs if isinstance(ids, list)}


def _all_secrets(profiles: Mapping[str, dict[str, Any]]) -> list[str]:
    fields = ("key", "token", "access", "refresh")
    values = [profile.get(field) for profile in profiles.values() for field in fields]
    return [part for value in values if isinstance(value, str) for part in worth_redacting(value)]
