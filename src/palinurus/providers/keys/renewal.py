"""Sign-ins that are about to end are renewed before they are used, one at a time.

A provider may take back the old refresh token when it gives a new one, so a token that was asked for twice, or asked
for and not stored, is a sign-in that is lost. So a renewal is never cut off half-way, turns of one process wait for the
same one, and a lock beside the file keeps other processes away; whoever gets it looks first whether it was done.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from palinurus.config.atomic import storage_error
from palinurus.domain.clock import Clock
from palinurus.domain.errors import ConfigError, Failure, PalinurusError, ProviderError, StorageError
from palinurus.providers.keys.credential_file import CredentialFile, profiles_of
from palinurus.providers.keys.credentials import Credential
from palinurus.providers.keys.oauth import SECONDS, OAuthClient, Tokens, log_in_again, renew_tokens

AHEAD_MS = 120_000  # before it ends
LOOK_SECONDS = 0.05  # between two looks whether the lock is free
LOCK_SECONDS = SECONDS * 2  # no renewal holds it longer

log = logging.getLogger(__name__)


class Renewals:
    """`client_of` raises ConfigError where nobody can sign in. `told` hears that a file was changed."""

    def __init__(
        self,
        clock: Clock,
        client_of: Callable[[str], OAuthClient],
        passphrase: Callable[[], str],
        told: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._client_of = client_of
        self._passphrase = passphrase
        self._told = told
        self._running: dict[tuple[Path, str], asyncio.Task[Credential]] = {}

    async def renew(self, credential: Credential, refused: str = "") -> Credential:
        """The credential as it can be used now. Raises ProviderError when its sign-in has ended and is not renewed.

        `refused` is an access token that the provider did not take, whatever its end was said to be.
        """
        if credential.file is None or not (self._due(credential) or (refused and credential.refresh)):
            return credential
        place = (credential.file, credential.id)
        task = self._running.get(place)
        if task is None:
            task = self._running[place] = asyncio.create_task(self._renewed(credential, credential.file, refused))
            task.add_done_callback(lambda _: self._running.pop(place, None))
        try:
            return await asyncio.shield(task)
        except PalinurusError as error:
            if not refused and not self._ended(credential):
                return credential  # it serves for a little while yet
            if isinstance(error, ProviderError):
                raise
            raise ProviderError(error.message, kind=Failure.AUTH, hint=error.hint) from None

    async def close(self) -> None:
        """Let what was begun come to its end: each has a limit of its own."""
        if self._running:
            await asyncio.wait(list(self._running.values()))

    async def _renewed(self, credential: Credential, path: Path, refused: str) -> Credential:
        file = CredentialFile(path, self._passphrase())
        async with _held(path):
            current = await asyncio.to_thread(_stored, file, credential)
            if current.secret != refused and not self._due(current):
                return current  # somebody else was quicker
            tokens = await renew_tokens(self._client_of(current.provider), current.refresh, self._clock.now_ms())
            try:
                await asyncio.to_thread(file.add, current.id, profile_of(current.provider, tokens))
            except StorageError as error:  # they serve until they end; after that somebody has to sign in again
                log.warning("the renewed sign-in %s could not be stored: %s", current.id, error)
        self._told()
        return replace(current, secret=tokens.access, refresh=tokens.refresh, expires_at=tokens.expires_at)

    def _due(self, credential: Credential) -> bool:
        ends = credential.expires_at
        return bool(credential.refresh) and ends is not None and ends - AHEAD_MS <= self._clock.now_ms()

    def _ended(self, credential: Credential) -> bool:
        return credential.expires_at is not None and credential.expires_at <= self._clock.now_ms()


def profile_of(provider: str, tokens: Tokens) -> dict[str, object]:
    """As it stands in the credentials file, in OpenClaw's form."""
    until = {"expires": tokens.expires_at} if tokens.expires_at is not None else {}
    return {"type": "oauth", "provider": provider, "access": tokens.access, "refresh": tokens.refresh, **until}


def _stored(file: CredentialFile, credential: Credential) -> Credential:
    """As the file has it now. Raises ProviderError when it is no longer there."""
    profile = profiles_of(file.read()).get(credential.id, {})
    access, refresh, expires = (profile.get(name) for name in ("access", "refresh", "expires"))
    if not isinstance(access, str) or not isinstance(refresh, str):
        said = f"the sign-in {credential.id} is gone from {file.path}"
        raise ProviderError(said, kind=Failure.AUTH, hint=log_in_again(credential.provider))
    until = int(expires) if isinstance(expires, int | float) and expires > 0 else None
    return replace(credential, secret=access, refresh=refresh, expires_at=until)


@asynccontextmanager
async def _held(path: Path) -> AsyncIterator[None]:
    """Nobody else renews a sign-in of this file meanwhile. Raises ConfigError when the lock does not become free."""
    try:
        lock = os.open(path.with_name(f"{path.stem}.renewal.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise storage_error(error, path) from None
    try:
        try:
            async with asyncio.timeout(LOCK_SECONDS):
                while not _is_locked(lock):  # noqa: ASYNC110  # another process has it, and tells nobody
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise ConfigError(f"another process renews sign-ins of {path} and does not end", hint="try again") from None
        yield
    finally:
        os.close(lock)


def _is_locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
