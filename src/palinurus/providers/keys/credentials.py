"""Where keys come from: config, credentials file, keychain, environment, in this order of trust.

Each place says more plainly than the next which key its owner means: a key under `models.providers` names the
provider it is for; the file was written by `pal models auth add`; the keychain holds what a profile of the file points
to; a variable of the environment may be there for another program. All of them are candidates, and one secret that
is found in two places counts once, where it is trusted most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.home import env_value
from palinurus.config.load import Loaded, resolve_secret, secret_providers
from palinurus.config.origins import origin_of
from palinurus.config.secrets import worth_redacting
from palinurus.config.section import SecretRef
from palinurus.domain.errors import ConfigError
from palinurus.providers.keys.credential_file import CredentialFile, credential_paths, profiles_of
from palinurus.providers.keys.keychain import read_keychain
from palinurus.providers.keys.oauth import oauth_client
from palinurus.providers.keys.sealed import PASSPHRASE_ENV

Kind = Literal["oauth", "token", "api_key"]
Source = Literal["config", "agent file", "file", "keychain", "environment"]
TRUST: tuple[Source, ...] = ("config", "agent file", "file", "keychain", "environment")
KINDS: tuple[Kind, ...] = ("oauth", "token", "api_key")
_SECRET_OF: dict[Kind, str] = {"oauth": "access", "token": "token", "api_key": "key"}
ORIGIN = "origin"  # of a profile: scheme, host and port that its key was stored for
KEYCHAIN = "keyring"  # the source of a reference that points to the keychain


class Credential(Struct, frozen=True):
    """A key and where it comes from. Its repr leaves the secret out, so that no traceback holds it."""

    id: str  # provider:name
    provider: str
    kind: Kind
    secret: str
    source: Source
    expires_at: int | None = None  # milliseconds; None: does not expire, or nobody knows when
    refresh: str = ""  # brings a new secret when this one ends
    file: Path | None = None  # that a new one is written to

    def __repr__(self) -> str:
        return f"Credential({self.id}, {self.kind}, {self.source})"


class Credentials(Struct, frozen=True):
    """All that are known for one agent."""

    known: tuple[Credential, ...] = ()
    order: dict[str, tuple[str, ...]] = {}  # provider -> ids, where the file prescribes an order
    troubles: tuple[str, ...] = ()  # what kept others from being known, one line each
    secrets: tuple[str, ...] = ()  # for the Redactor: refresh tokens and expired keys included
    files: tuple[Path, ...] = ()

    def of(self, provider: str) -> tuple[Credential, ...]:
        return tuple(credential for credential in self.known if credential.provider == provider)


def gather_credentials(
    loaded: Loaded, root: Path, agent: str, main_agent: str, variables: Mapping[str, str]
) -> Credentials:
    """What is known for an agent. `variables` maps providers to the variables that hold their keys. Never raises."""
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


def read_profile(profile_id: str, profile: Mapping[str, Any], source: Source, loaded: Loaded) -> Credential | None:
    """A profile of the file as a credential; None when its secret is nowhere. Raises ConfigError for a wrong one."""
    kind, provider = profile.get("type"), profile.get("provider") or profile_id.partition(":")[0]
    if kind not in KINDS or not isinstance(provider, str):
        raise ConfigError(f"{profile_id} in the credentials file has no type that we know: {kind!r}")
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


def _refresh_token(profile: Mapping[str, Any], provider: str, loaded: Loaded) -> str:
    """Empty when there is none, or when nobody here can use it."""
    refresh = profile.get("refresh")
    try:
        oauth_client(loaded, provider)
    except ConfigError:
        return ""
    return refresh if isinstance(refresh, str) else ""


def _reference(profile_id: str, reference: dict[str, Any]) -> SecretRef:
    try:
        return SecretRef.model_validate(reference)
    except ValueError:
        raise ConfigError(
            f"{profile_id} in the credentials file refers to its key in a way that we do not know"
        ) from None


def _from_config(loaded: Loaded) -> Iterator[Credential]:
    for name, entry in loaded.config.models.providers.items():
        try:
            secret = resolve_secret(entry.api_key, loaded.env, secret_providers(loaded))
        except ConfigError:
            continue  # the config's own warnings say it
        if secret:
            provider = name.strip().lower()
            yield Credential(f"{provider}:config", provider, "api_key", secret, "config")


def _from_profiles(
    profiles: Mapping[str, dict[str, Any]], source: Source, loaded: Loaded, troubles: list[str]
) -> Iterator[Credential]:
    for profile_id, profile in profiles.items():
        try:
            credential = read_profile(profile_id, profile, source, loaded)
        except ConfigError as error:
            troubles.append(str(error))
            continue
        if credential is None:
            troubles.append(f"{profile_id} is in the credentials file and its key is not to be found")
        elif _is_elsewhere(profile, credential, loaded):
            troubles.append(
                f"{profile_id} was stored for {profile[ORIGIN]}, and models.providers.{credential.provider}.baseUrl "
                f"names another address: `pal models auth add {credential.provider}` stores a key for that one"
            )
        else:
            yield credential


def provider_address(loaded: Loaded, provider: str) -> str | None:
    """What the config says; None when it leaves it to us."""
    entries = loaded.config.models.providers.items()
    return next((entry.base_url for name, entry in entries if name.strip().lower() == provider), None)


def _is_elsewhere(profile: Mapping[str, Any], credential: Credential, loaded: Loaded) -> bool:
    """Whether the provider has another address than the one for which the key was stored, as far as that is known."""
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
