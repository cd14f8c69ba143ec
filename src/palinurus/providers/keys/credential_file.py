"""The credentials file: OpenClaw's auth profiles, mode 0600, encrypted when there is a passphrase.

    {"version": 1, "profiles": {"openai:work": {"type": "api_key", "provider": "openai", "key": "..."}}}

Unknown fields stay. An encrypted file is `{"version": 1, "sealed": {...}}` around the same: scrypt turns the
passphrase into a key, and AES-GCM protects the text. With a passphrase in the environment the next write encrypts a
plain file. The package `cryptography` is an extra and is loaded only then. There is no backup: a removed key shall be
gone.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from palinurus.config.atomic import make_directory, storage_error, write_atomic
from palinurus.domain.errors import BadRequest, ConfigError, NotFound

Kind = Literal["oauth", "token", "api_key"]
Source = Literal["config", "agent file", "file", "keychain", "environment"]
TRUST: tuple[Source, ...] = ("config", "agent file", "file", "keychain", "environment")
KINDS: tuple[Kind, ...] = ("oauth", "token", "api_key")
PASSPHRASE_ENV = "PALINURUS_PASSPHRASE"  # noqa: S105  # the variable's name
COST, BLOCK, LANES = 2**15, 8, 1  # 32 MB and a tenth of a second on a small machine: expensive enough against guessing
COSTS = frozenset(2**power for power in range(1, 21))  # a forged file must not exhaust the memory


class Credential(Struct, frozen=True):
    """A key and where it comes from. Its repr leaves the secret out, so that no traceback holds it."""

    id: str  # provider:name
    provider: str
    kind: Kind
    secret: str
    source: Source
    expires_at: int | None = None  # milliseconds; None: does not expire, or not known
    refresh: str = ""  # gets a new secret when this one expires
    file: Path | None = None  # the file that a new one is written to

    def __repr__(self) -> str:
        return f"Credential({self.id}, {self.kind}, {self.source})"


def seal(text: bytes, passphrase: str) -> dict[str, Any]:
    """The encrypted form as JSON data. Raises ConfigError if `cryptography` is not installed."""
    salt, nonce = os.urandom(16), os.urandom(12)
    data = cipher(passphrase, salt, COST, BLOCK, LANES).encrypt(nonce, text, None)
    parts = {"salt": salt, "nonce": nonce, "data": data}
    numbers = {"kdf": "scrypt", "n": COST, "r": BLOCK, "p": LANES}
    return numbers | {name: base64.b64encode(part).decode("ascii") for name, part in parts.items()}


def unseal(box: dict[str, Any], passphrase: str, where: str) -> bytes:
    """The decrypted text. Raises ConfigError, naming `where`, for a wrong passphrase or damaged data."""
    if not passphrase:
        raise ConfigError(f"{where} is encrypted", hint=f"set {PASSPHRASE_ENV} to its passphrase")
    unknown = ConfigError(f"{where} is encrypted in a form that this version does not know", hint="update palinurus")
    try:
        salt, nonce, data = (base64.b64decode(box[field], validate=True) for field in ("salt", "nonce", "data"))
        kdf, cost, block, lanes = box["kdf"], int(box["n"]), int(box["r"]), int(box["p"])
    except (KeyError, TypeError, ValueError, binascii.Error):
        raise unknown from None
    if kdf != "scrypt" or cost not in COSTS or not 1 <= block <= 32 or not 1 <= lanes <= 16:
        raise unknown
    opener = cipher(passphrase, salt, cost, block, lanes)
    from cryptography.exceptions import InvalidTag

    try:
        text: bytes = opener.decrypt(nonce, data, None)
    except (InvalidTag, ValueError):
        raise ConfigError(f"the passphrase does not open {where}", hint=f"check {PASSPHRASE_ENV}") from None
    return text


def cipher(passphrase: str, salt: bytes, cost: int, block: int, lanes: int) -> Any:
    """AES-GCM with the key from scrypt. Raises ConfigError if `cryptography` is not installed."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
    except ImportError:
        said = f"{PASSPHRASE_ENV} is set, and the package cryptography, which it needs, is not installed"
        raise ConfigError(said, hint="install palinurus[sealed], or unset the passphrase") from None
    derived = Scrypt(salt=salt, length=32, n=cost, r=block, p=lanes).derive(passphrase.encode())
    return AESGCM(derived)


NAME = "credentials.json"
PROFILE_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}:[A-Za-z0-9][A-Za-z0-9@._+-]{0,127}")
MODE = 0o600


class CredentialFile:
    def __init__(self, path: Path, passphrase: str = "") -> None:
        self.path = path
        self._passphrase = passphrase

    def read(self) -> dict[str, Any]:
        """The whole content; empty if there is no file. Raises ConfigError if it cannot be used."""
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
        """Adds a profile, replacing one of the same id. Returns whether there was one. Raises what `read` raises."""
        check_profile_id(profile_id)
        with self._one_editor():
            content = self.read()
            profiles: dict[str, Any] = profiles_of(content)
            known = profiles.get(profile_id)
            same_kind = known if known and known.get("type") == profile.get("type") else {}
            # The new secret replaces the old one in every form; other fields stay.
            secretless = {name: value for name, value in same_kind.items() if name not in SECRET_FIELDS}
            profiles[profile_id] = {**secretless, **profile}
            self._write({**content, "profiles": profiles})
        return known is not None

    def prescribe(self, order: Mapping[str, Sequence[str]]) -> None:
        """Sets the order of a provider's keys, if none is set yet."""
        with self._one_editor():
            content = self.read()
            there = content.get("order")
            known = there if isinstance(there, dict) else {}
            wanted = {**{provider: list(ids) for provider, ids in order.items()}, **known}
            if wanted != known:
                self._write({**content, "order": wanted})

    def remove(self, profile_id: str) -> dict[str, Any]:
        """Removes a profile and returns it. Raises NotFound."""
        with self._one_editor():
            content = self.read()
            profiles = profiles_of(content)
            if profile_id not in profiles:
                raise NotFound(f"{self.path} has no key {profile_id}", hint="`pal models auth list` shows its keys")
            removed = profiles.pop(profile_id)
            self._write({**content, "profiles": profiles})
        return removed

    def trouble(self) -> str:
        """A problem with the file itself, in one line."""
        try:
            mode = stat.S_IMODE(self.path.stat().st_mode)
        except OSError:
            return ""
        return f"{self.path} can be read by others (mode {mode:03o}); chmod 600 it" if mode & 0o077 else ""

    def _parsed(self, text: bytes) -> dict[str, Any]:
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):  # its message would quote the file
            raise ConfigError(f"{self.path} is not JSON", hint="repair it, or move it away") from None
        if not isinstance(content, dict):
            raise ConfigError(f"{self.path} should hold an object", hint="repair it, or move it away")
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
        """Locks the file, so that two editors do not overwrite each other."""
        make_directory(self.path.parent)
        lock = open_lock(self.path, ".lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def open_lock(path: Path, suffix: str) -> int:
    """The descriptor of a lock file beside this one."""
    try:
        return os.open(path.with_name(f"{path.stem}{suffix}"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
    except OSError as error:
        raise storage_error(error, path) from None


SECRET_FIELDS = frozenset({"key", "keyRef", "token", "tokenRef", "access", "refresh", "expires"})


def check_profile_id(profile_id: str) -> str:
    """Returns the id. Raises BadRequest if it is invalid."""
    if not PROFILE_ID.fullmatch(profile_id):
        raise BadRequest(f"not a credential's id: {profile_id!r}", hint="provider:name, for example openai:work")
    return profile_id


def profiles_of(content: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found = content.get("profiles")
    pairs = found.items() if isinstance(found, dict) else ()
    return {str(name): profile for name, profile in pairs if isinstance(profile, dict)}


def log_in_again(provider: str) -> str:
    return f"log in again: pal models auth login {provider}"
