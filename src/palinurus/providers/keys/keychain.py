"""The keychain of the desktop, where there is one.

The package `keyring` is an extra; on a machine without a desktop it is there and refuses to work. Both are ordinary:
reading gives nothing, writing says why.
"""

from __future__ import annotations

from palinurus.domain.errors import StorageError

SERVICE = "palinurus"


def read_keychain(name: str) -> str | None:
    """The secret under a name, or None when there is none to be had."""
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        return None
    try:
        secret: str | None = keyring.get_password(SERVICE, name)
    except (KeyringError, RuntimeError, OSError):  # locked, no backend, no bus
        return None
    return secret


def write_keychain(name: str, secret: str) -> None:
    """Raises StorageError when this machine has no keychain that works."""
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        raise StorageError(
            "the package keyring is not installed", hint="install palinurus[keyring], or leave out --keyring"
        ) from None
    try:
        keyring.set_password(SERVICE, name, secret)
    except (KeyringError, RuntimeError, OSError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise StorageError(
            f"this machine's keychain cannot be used: {why}",
            hint="leave out --keyring: the credentials file serves",
        ) from None


def drop_keychain(name: str) -> None:
    """Take a secret out, if it is there and the keychain works."""
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        return
    try:
        keyring.delete_password(SERVICE, name)
    except (KeyringError, RuntimeError, OSError):
        return
