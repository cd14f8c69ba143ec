"""Who may write to the agents, in the form in which OpenClaw reads it: senders let in, channels, owners, bindings.

OpenClaw refuses a config with a key that it does not know, so only keys that it has are written. Secrets are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from palinurus.config.secrets import is_secret_name
from palinurus.dispatch.pairing import Pairing
from palinurus.dispatch.settings import DEFAULT_ACCOUNT
from palinurus.extensions.migrate.foreign import ForeignDocument, as_object, load_json
from palinurus.extensions.migrate.openclaw.pairings import pairings_in
from palinurus.sessions.transcript import timestamp

EVERY = frozenset({"enabled", "dmPolicy", "allowFrom", "groupPolicy", "historyLimit"})
GROUPS = EVERY | {"groups", "groupAllowFrom"}
CHANNELS: Mapping[str, frozenset[str]] = {  # what OpenClaw has on each channel that it shares with us
    "telegram": GROUPS,
    "discord": EVERY | {"guilds"},
    "slack": EVERY | {"channels"},
    "whatsapp": GROUPS - {"enabled"},
    "signal": GROUPS,
    "imessage": GROUPS,
}
ELSEWHERE = (("commands", "ownerAllowFrom"), ("session", "dmScope"), ("session", "identityLinks"), ("bindings",))
OPEN = "open"


def channel_config(data: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of our config that say who may write and which agent answers, without secrets."""
    found: dict[str, Any] = {}
    channels = {name: _channel(name, said) for name, said in as_object(data.get("channels")).items()}
    if channels := {name: said for name, said in channels.items() if said}:
        found["channels"] = channels
    for path in ELSEWHERE:
        value: Any = data
        for step in path:
            value = as_object(value).get(step)
        if value:
            holder = found.setdefault(path[0], {}) if len(path) > 1 else found
            holder[path[-1]] = value
    return found


def _channel(name: str, said: Any) -> dict[str, Any]:
    kept = _account(name, said)
    accounts = {account: _account(name, each) for account, each in as_object(as_object(said).get("accounts")).items()}
    if name in CHANNELS and accounts:
        default = as_object(said).get("defaultAccount")
        kept |= {"accounts": accounts} | ({"defaultAccount": default} if default else {})
    return kept


def _account(name: str, said: Any) -> dict[str, Any]:
    known = CHANNELS.get(name, frozenset())
    kept = {key: _without_secrets(value) for key, value in as_object(said).items() if key in known}
    if kept.get("dmPolicy") == OPEN and "*" not in kept.get("allowFrom", ()):  # which OpenClaw refuses
        kept["dmPolicy"] = "allowlist"
    return kept


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_secrets(item) for key, item in value.items() if not is_secret_name(key)}
    return [_without_secrets(item) for item in value] if isinstance(value, list) else value


def pairing_files(pairings: Iterable[Pairing], kept: Iterable[ForeignDocument], now: int) -> dict[str, str]:
    """The files of `credentials/` by their paths. One that came from another home stays as it was, byte for byte, while
    it still says what holds here; one whose senders were all removed is empty."""
    documents = {each.name: each for each in kept if each.name.startswith("credentials/")}
    files = dict(_pairing_files(pairings))
    for name, document in documents.items():
        if name.endswith("-pairing.json"):
            files.setdefault(name, document.text)  # requests of which all have expired
        elif _senders(document, now) != _senders(ForeignDocument("pairing", name, files.get(name, "{}")), now):
            files.setdefault(name, _listed("allowFrom", []))
        else:
            files[name] = document.text
    return files


def _pairing_files(pairings: Iterable[Pairing]) -> Iterator[tuple[str, str]]:
    def place(each: Pairing) -> tuple[str, str, str]:
        return each.channel, each.account, each.status

    for (channel, account, status), found in groupby(sorted(pairings, key=place), key=place):
        stem = channel if account == DEFAULT_ACCOUNT else f"{channel}-{account}"
        if status == "approved":
            yield f"credentials/{stem}-allowFrom.json", _listed("allowFrom", [each.sender for each in found])
        elif status == "pending":
            yield f"credentials/{stem}-pairing.json", _listed("requests", [_request(each) for each in found])


def _request(each: Pairing) -> dict[str, Any]:
    meta = {"firstName": each.sender_name} if each.sender_name else {}
    seen = timestamp(each.last_seen_at or each.asked_at)
    return {
        "id": each.sender,
        "code": each.code,
        "createdAt": timestamp(each.asked_at),
        "lastSeenAt": seen,
        "meta": meta,
    }


def _listed(key: str, values: list[Any]) -> str:
    return json.dumps({"version": 1, key: values}, indent=2, ensure_ascii=False)


def _senders(document: ForeignDocument, now: int) -> set[str]:
    if not isinstance(load_json(document.text), dict):
        return set()
    return {each.sender for each in pairings_in([document], now)}
