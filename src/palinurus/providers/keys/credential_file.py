"""The credentials file: OpenClaw's auth profiles, mode 0600, sealed when there is a passphrase.

    {"version": 1, "profiles": {"openai:work": {"type": "api_key", "provider": "openai", "key": "..."}}}

Unknown fields are kept. A sealed file is `{"version": 1, "sealed": {...}}` around the same. With a passphrase in the
environment the next write seals a plain file. No backup is kept beside it: a removed key shall be gone.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from palinurus.config.atomic import make_directory, storage_error, write_atomic
from palinurus.domain.errors import BadRequest, ConfigError, NotFound
from palinurus.providers.keys.sealed import seal, unseal

NAME = "credentials.json"
PROFILE_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}:[A-Za-z0-9][A-Za-z0-9@._+-]{0,127}")
MODE = 0o600


class CredentialFile:
    def __init__(self, path: Path, passphrase: str = "") -> None:
        self.path = path
        self._passphrase = passphrase

    def read(self) -> dict[str, Any]:
        """The whole content; empty when there is no file. Raises ConfigError when it cannot be used."""
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be read: {error.strerror}", hint="check who owns it") from None
        content = self._parsed(text)
        box = content.get("sealed")
        return self._parsed(unseal(box, self._passphrase, str(self.path))) if isinstance(box, dict) else content

    def add(self, profile_id: str, profile: dict[str, Any]) -> bool:
        """Put a profile in, in place of one of the same id; whether there was one. Raises what reading raises."""
        check_profile_id(profile_id)
        with self._one_editor():
            content = self.read()
            profiles: dict[str, Any] = profiles_of(content)
            known = profiles.get(profile_id)
            kept = known if known and known.get("type") == profile.get("type") else {}
            # A new secret takes the place of the old one whatever form that had; other fields stay.
            secretless = {name: value for name, value in kept.items() if name not in SECRET_FIELDS}
            profiles[profile_id] = {**secretless, **profile}
            self._write({**content, "profiles": profiles})
        return known is not None

    def prescribe(self, order: Mapping[str, Sequence[str]]) -> None:
        """Say which keys of a provider are asked first, where nothing is said about it yet."""
        with self._one_editor():
            content = self.read()
            there = content.get("order")
            known = there if isinstance(there, dict) else {}
            wanted = {**{provider: list(ids) for provider, ids in order.items()}, **known}
            if wanted != known:
                self._write({**content, "order": wanted})

    def remove(self, profile_id: str) -> dict[str, Any]:
        """Take a profile out and give it back. Raises NotFound."""
        with self._one_editor():
            content = self.read()
            profiles = profiles_of(content)
            if profile_id not in profiles:
                raise NotFound(f"{self.path} holds no {profile_id}", hint="`pal models auth list` shows what it holds")
            removed = profiles.pop(profile_id)
            self._write({**content, "profiles": profiles})
        return removed

    def trouble(self) -> str:
        """What is odd about the file itself, in one line."""
        try:
            mode = stat.S_IMODE(self.path.stat().st_mode)
        except OSError:
            return ""
        return f"{self.path} can be read by others (mode {mode:03o}); chmod 600 it" if mode & 0o077 else ""

    def _parsed(self, text: bytes) -> dict[str, Any]:
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):  # its message would quote the file
            raise ConfigError(f"{self.path} is not JSON", hint="mend it, or move it away") from None
        if not isinstance(content, dict):
            raise ConfigError(f"{self.path} should hold an object", hint="mend it, or move it away")
        return content

    def _write(self, content: dict[str, Any]) -> None:
        content = {"version": 1, **content}
        if self._passphrase:
            content = {"version": 1, "sealed": seal(json.dumps(content).encode(), self._passphrase)}
        try:
            self.path.chmod(MODE)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise storage_error(error, self.path) from None
        write_atomic(self.path, json.dumps(content, indent=2) + "\n", mode=MODE)

    @contextmanager
    def _one_editor(self) -> Iterator[None]:
        """Two editors at once would each write what the other had not seen."""
        make_directory(self.path.parent)
        try:
            lock = os.open(self.path.with_name(f"{self.path.stem}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
        except OSError as error:
            raise storage_error(error, self.path) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


SECRET_FIELDS = frozenset({"key", "keyRef", "token", "tokenRef", "access", "refresh", "expires"})


def check_profile_id(profile_id: str) -> str:
    """The same. Raises BadRequest for what can be none."""
    if not PROFILE_ID.fullmatch(profile_id):
        raise BadRequest(f"not a credential's id: {profile_id!r}", hint="provider:name, for example openai:work")
    return profile_id


def profiles_of(content: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found = content.get("profiles")
    pairs = found.items() if isinstance(found, dict) else ()
    return {str(name): profile for name, profile in pairs if isinstance(profile, dict)}


def credential_paths(root: Path, agent: str, main_agent: str) -> tuple[Path, ...]:
    """The files that hold for an agent, its own first; the main agent's is everybody's fallback."""
    shared = root / NAME
    return (shared,) if agent == main_agent else (root / "agents" / agent / NAME, shared)
