"""Who was let in by an OpenClaw home, and who waits there: from files of `credentials/` and rows of its database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from palinurus.dispatch.pairing import LIVES_MS, LONGEST, Pairing
from palinurus.dispatch.routing import sender_id
from palinurus.dispatch.settings import ACCESS_GROUP, ANY, DEFAULT_ACCOUNT
from palinurus.extensions.migrate.foreign import ForeignDocument, as_object, load_json

_WITH_HYPHEN = ("nextcloud-talk", "synology-chat")  # channels
MOST = 10_000


def pairings_in(documents: Iterable[ForeignDocument], now: int) -> tuple[Pairing, ...]:
    """Each sender once. A code that is older than an hour is left out, and so is `*`, which names nobody."""
    found: dict[tuple[str, str, str], Pairing] = {}
    for document in documents:
        if document.kind == "pairing":
            for each in _read(document, now):
                key = (each.channel, each.account, each.sender)
                if len(found) < MOST and (each.status == "approved" or key not in found):
                    found[key] = each
    return tuple(found.values())


def _read(document: ForeignDocument, now: int) -> Iterator[Pairing]:
    value = load_json(document.text)
    if document.name.endswith("channel_pairing_allow_entries"):
        for row in map(as_object, value if isinstance(value, list) else ()):
            yield from _approved(row.get("channel_key"), row.get("account_id"), row.get("entry"), now)
    elif document.name.endswith("channel_pairing_requests"):
        for row in map(as_object, value if isinstance(value, list) else ()):
            request = {"id": row.get("request_id"), "code": row.get("code"), "createdAt": row.get("created_at")}
            meta = load_json(str(row.get("meta_json") or "{}"))
            yield from _waiting(row.get("channel_key"), row.get("account_id"), {**request, "meta": meta}, now)
    elif document.name.endswith("-allowFrom.json"):
        channel, account = _of_file(document.name, "-allowFrom.json")
        listed = as_object(value).get("allowFrom")
        for entry in listed if isinstance(listed, list) else ():
            yield from _approved(channel, account, entry, now)
    elif document.name.endswith("-pairing.json"):
        channel, account = _of_file(document.name, "-pairing.json")
        listed = as_object(value).get("requests")
        for request in listed if isinstance(listed, list) else ():
            yield from _waiting(channel, account, as_object(request), now)


def _of_file(name: str, end: str) -> tuple[str, str]:
    """`credentials/telegram-bot2-allowFrom.json` is of the account bot2."""
    stem = name.rpartition("/")[2].removesuffix(end).lower()
    channel = next((each for each in _WITH_HYPHEN if stem.startswith(each)), stem.partition("-")[0])
    return channel, stem[len(channel) + 1 :]


def _approved(channel: Any, account: Any, entry: Any, now: int) -> Iterator[Pairing]:
    made = _identity(channel, account, entry)
    if made is not None:
        yield Pairing(*made, "approved", now, decided_at=now, decided_by="openclaw")


def _waiting(channel: Any, account: Any, request: dict[str, Any], now: int) -> Iterator[Pairing]:
    made, at = _identity(channel, account, request.get("id")), _time(request.get("createdAt"))
    code, meta = request.get("code"), as_object(request.get("meta"))
    if made is not None and isinstance(code, str) and 0 <= now - at < LIVES_MS:
        name = str(meta.get("firstName") or meta.get("username") or "")
        yield Pairing(*made, "pending", at, code[:LONGEST].upper(), name[:LONGEST], at)


def _identity(channel: Any, account: Any, sender: Any) -> tuple[str, str, str] | None:
    if not isinstance(channel, str) or not channel.strip() or not isinstance(sender, str | int):
        return None
    name = channel.strip().lower()
    known = sender_id(name, sender)[:LONGEST]
    if not known or known == ANY or known.startswith(ACCESS_GROUP):
        return None
    return name, str(account or "").strip().lower() or DEFAULT_ACCOUNT, known


def _time(text: Any) -> int:
    try:
        return int(datetime.fromisoformat(str(text)).timestamp() * 1000)
    except ValueError:
        return 0
