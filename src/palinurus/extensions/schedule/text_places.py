"""Where cron jobs hold text. Their due times are jobs like others, whose text dispatch declares."""

from __future__ import annotations

import json

from palinurus.domain.text_places import TextRows, Words, forget_in_json

FORGOTTEN = "was disabled: words of it were forgotten"


def forget_in_cron_job(payload: str, words: Words, *, whole: bool = False) -> str:
    """Its name is text too. One that has lost words is disabled: nobody wants to be reminded of a gap."""
    value = json.loads(payload)
    value["title"] = value.pop("name", "")
    before = json.dumps(value, ensure_ascii=False)
    cleaned = forget_in_json(before, words, whole=whole)
    if cleaned == before:
        return payload
    value = json.loads(cleaned)
    value["name"] = value.pop("title")
    value |= {"enabled": False, "nextRunAtMs": 0, "state": {**value.get("state", {}), "disabledWhy": FORGOTTEN}}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


PLACES = (
    TextRows(
        "cron_jobs", "cron jobs and reminders", "tombstone", "schedule_places", __file__, clean=forget_in_cron_job
    ),
)
