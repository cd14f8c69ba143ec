"""A sealed text: scrypt turns a passphrase into a key, AES-GCM keeps the text and notices any change to it.

The package `cryptography` is an extra and is loaded only for a file that is sealed or shall be.
"""

from __future__ import annotations

import base64
import binascii
import os
from typing import Any

from palinurus.domain.errors import ConfigError

PASSPHRASE_ENV = "PALINURUS_PASSPHRASE"  # noqa: S105  # the variable's name
COST, BLOCK, LANES = 2**15, 8, 1  # 32 MB and a tenth of a second on a small machine: dear enough for guessing
COSTS = frozenset(2**power for power in range(1, 21))  # a forged file must not eat the memory


def seal(text: bytes, passphrase: str) -> dict[str, Any]:
    """The sealed form as JSON data. Raises ConfigError when `cryptography` is not installed."""
    salt, nonce = os.urandom(16), os.urandom(12)
    data = cipher(passphrase, salt, COST, BLOCK, LANES).encrypt(nonce, text, None)
    return {
        "kdf": "scrypt",
        "n": COST,
        "r": BLOCK,
        "p": LANES,
        "salt": _to_text(salt),
        "nonce": _to_text(nonce),
        "data": _to_text(data),
    }


def unseal(box: dict[str, Any], passphrase: str, where: str) -> bytes:
    """The text again. Raises ConfigError, naming `where`, for a wrong passphrase and for a damaged box."""
    if not passphrase:
        raise ConfigError(f"{where} is sealed", hint=f"set {PASSPHRASE_ENV} to its passphrase")
    unknown = ConfigError(f"{where} is sealed in a way that this release does not know", hint="is it of a newer one?")
    try:
        salt, nonce, data = (base64.b64decode(box[field], validate=True) for field in ("salt", "nonce", "data"))
        kdf, cost, block, lanes = box["kdf"], int(box["n"]), int(box["r"]), int(box["p"])
    except (KeyError, TypeError, ValueError, binascii.Error):
        raise unknown from None
    if kdf != "scrypt" or cost not in COSTS or not 1 <= block <= 32 or not 1 <= lanes <= 16:
        raise unknown
    return _opened(cipher(passphrase, salt, cost, block, lanes), nonce, data, where)


def _opened(cipher: Any, nonce: bytes, data: bytes, where: str) -> bytes:
    from cryptography.exceptions import InvalidTag

    try:
        text: bytes = cipher.decrypt(nonce, data, None)
    except (InvalidTag, ValueError):
        raise ConfigError(f"the passphrase does not open {where}", hint=f"check {PASSPHRASE_ENV}") from None
    return text


def cipher(passphrase: str, salt: bytes, cost: int, block: int, lanes: int) -> Any:
    """AES-GCM under the key that scrypt makes. Raises ConfigError when `cryptography` is not installed."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
    except ImportError:
        raise ConfigError(
            f"{PASSPHRASE_ENV} is set, and the package cryptography that seals with it is not installed",
            hint="install palinurus[sealed], or unset the passphrase",
        ) from None
    derived = Scrypt(salt=salt, length=32, n=cost, r=block, p=lanes).derive(passphrase.encode())
    return AESGCM(derived)


def _to_text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
