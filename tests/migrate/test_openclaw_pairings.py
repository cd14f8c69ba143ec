"""Who was let in by an OpenClaw home is let in here, and nobody else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from palinurus.extensions.migrate.foreign import ForeignDocument
from palinurus.extensions.migrate.openclaw.pairings import pairings_in

NOW = 1_763_460_000_000  # 2025-11-18 10:00 UTC


def found(name: str, value: Any) -> list[tuple[str, str, str, str]]:
    document = ForeignDocument("pairing", name, json.dumps(value))
    made = pairings_in([document], NOW)
    return [(each.channel, each.account, each.sender, each.status) for each in made]


@pytest.mark.parametrize(
    ("name", "account"),
    [
        ("credentials/telegram-allowFrom.json", ("telegram", "default")),
        ("credentials/telegram-bot2-allowFrom.json", ("telegram", "bot2")),
        ("credentials/nextcloud-talk-allowFrom.json", ("nextcloud-talk", "default")),
        ("credentials/synology-chat-a-b-allowFrom.json", ("synology-chat", "a-b")),
    ],
)
def test_a_list_is_of_the_account_that_its_file_names(name: str, account: tuple[str, str]) -> None:
    assert found(name, {"version": 1, "allowFrom": ["7"]}) == [(*account, "7", "approved")]


def test_what_names_nobody_lets_nobody_in() -> None:
    entries = ["*", "", " ", None, {"id": 1}, "accessGroup:ops", "telegram:5", 6, "TG:7"]
    assert [each[2] for each in found("credentials/telegram-allowFrom.json", {"allowFrom": entries})] == ["5", "6", "7"]
    for value in ({}, [], 5, {"allowFrom": "7"}, {"allowFrom": {"a": 1}}):
        assert found("credentials/telegram-allowFrom.json", value) == []
        assert found("credentials/telegram-pairing.json", value) == []
        assert found("state/openclaw.sqlite#channel_pairing_requests", value) == []


def test_a_request_comes_over_while_its_code_is_good() -> None:
    fresh = {"id": "7", "code": "ABCD2345", "createdAt": "2025-11-18T09:30:00.000Z", "meta": {"firstName": "Eve"}}
    old = {**fresh, "id": "8", "createdAt": "2025-11-18T08:30:00.000Z"}
    document = ForeignDocument(
        "pairing", "credentials/telegram-pairing.json", json.dumps({"requests": [fresh, old, 5]})
    )
    (made,) = pairings_in([document], NOW)
    assert (made.sender, made.code, made.sender_name, made.status) == ("7", "ABCD2345", "Eve", "pending")


def test_rows_of_the_database_come_over_and_an_approval_counts_more_than_a_request() -> None:
    allowed = [{"channel_key": "telegram", "account_id": "default", "entry": "7", "sort_order": 0, "updated_at": 1}]
    asked = [
        {"channel_key": "telegram", "account_id": "default", "request_id": name, "code": "ABCD2345",
         "created_at": "2025-11-18T09:59:00.000Z", "last_seen_at": "", "meta_json": '{"username": "eve"}'}
        for name in ("7", "8")
    ]  # fmt: skip
    documents = [
        ForeignDocument("pairing", "state/openclaw.sqlite#channel_pairing_requests", json.dumps(asked)),
        ForeignDocument("pairing", "state/openclaw.sqlite#channel_pairing_allow_entries", json.dumps(allowed)),
    ]
    for order in (documents, documents[::-1]):
        made = {each.sender: each.status for each in pairings_in(order, NOW)}
        assert made == {"7": "approved", "8": "pending"}
