"""What a person has to do for the channels of an OpenClaw home: tokens that were not imported, WhatsApp by QR code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from palinurus.dispatch.settings import DEFAULT_ACCOUNT
from palinurus.extensions.migrate.files import folders
from palinurus.extensions.migrate.foreign import as_object
from palinurus.extensions.migrate.report import FoundSetting, Losses

WHATSAPP = "whatsapp"
LOGIN = "creds.json"  # of an account that was paired by QR code
BY_QR = (
    "is paired by QR code, which is not carried over: set up a number of the Cloud API here"
    " (channels.whatsapp.phoneNumberId, accessToken, appSecret), or leave WhatsApp to OpenClaw"
)
MOST_ACCOUNTS = 20


def channel_notes(data: Mapping[str, Any], root: Path, settings: Iterable[FoundSetting]) -> list[str]:
    """`data` is the config of the home, `settings` what became of it."""
    notes = [f"whatsapp: account {account} {BY_QR}" for account in _accounts_by_qr(data, root)]
    by_channel: dict[str, list[FoundSetting]] = {}
    for each in settings:
        section, _, rest = each.path.partition(".")
        if section == "channels" and rest:
            by_channel.setdefault(rest.partition(".")[0], []).append(each)
    for channel, found in by_channel.items():
        secret = [each.path for each in found if each.outcome == "secret"]
        if secret:
            set_them = ", ".join(f"`pal config set {path}`" for path in secret)
            notes.append(f"{channel}: its secrets are imported by `--keys`; or {set_them}")
    return notes


def _accounts_by_qr(data: Mapping[str, Any], root: Path) -> list[str]:
    """Accounts with a stored login, and those that the config names without keys of the Cloud API, which it has not."""
    logins = root / "credentials" / WHATSAPP
    stored = folders(logins, f"credentials/{WHATSAPP}", Losses())
    stored = [name for name in stored if (logins / name / LOGIN).exists()]
    older = [DEFAULT_ACCOUNT] if (root / "credentials" / LOGIN).exists() else []
    channels = as_object(data.get("channels"))
    named = [str(each) for each in as_object(as_object(channels.get(WHATSAPP)).get("accounts"))]
    if WHATSAPP in channels and not (named or stored or older):
        named = [DEFAULT_ACCOUNT]
    return list(dict.fromkeys((*stored, *older, *named)))[:MOST_ACCOUNTS]
