"""One resolver for session names: whatever a conversation is called, every command means the same one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from called import Pal

TRIP = "agent:main:explicit:trip"
TIME = "2026-01-01T00:00:00Z"


def keys(pal_command: Pal, *options: str) -> list[str]:
    return [each["key"] for each in pal_command("sessions", "list", "--json", *options).json["sessions"]]


def test_a_name_means_the_session_that_it_began(pal_command: Pal) -> None:
    pal_command("agent", "-m", "remember the red kayak", "--session-key", "trip")
    assert pal_command("sessions", "rename", "trip", "To the lakes").out == f"{TRIP} is now named 'To the lakes'.\n"
    assert "red kayak" in pal_command("sessions", "show", "trip").out
    assert "red kayak" in pal_command("sessions", "show", "to the LAKES").out
    assert "red kayak" in pal_command("sessions", "export", "trip", "--format", "markdown").out
    assert "red kayak" in pal_command("sessions", "export", "trip").out
    assert TRIP in pal_command("context", "--session-key", "trip").out
    assert TRIP in pal_command("tools", "list", "--session-key", "trip").out
    assert pal_command("runs", "list", "--session-key", "trip", "--json").json["runs"]
    assert pal_command("sessions", "compact", "trip").code == 0
    assert pal_command("sessions", "reset", "trip").out == f"{TRIP} is reset.\n"
    assert "session reset" in pal_command("sessions", "show", "trip").out
    assert keys(pal_command) == [TRIP]
    assert pal_command("sessions", "delete", "trip", "--yes").out.startswith(f"{TRIP} has ended")
    assert keys(pal_command) == []


@pytest.mark.parametrize(
    "command",
    [
        ("reset", "tripp"),
        ("rename", "tripp", "X"),
        ("delete", "tripp", "--yes"),
        ("compact", "tripp"),
        ("show", "tripp"),
        ("export", "tripp"),
        ("export", "tripp", "--format", "markdown"),
        ("reset", "agent:main:trip"),
        ("rename", "agent:main:trip", "X"),
        ("delete", "agent:main:trip", "--yes"),
    ],
)
def test_what_does_not_exist_is_not_acted_on_and_what_comes_near_is_named(
    pal_command: Pal, command: tuple[str, ...]
) -> None:
    pal_command("agent", "-m", "hello", "--session-key", "trip")
    ended = pal_command("sessions", *command)
    assert (ended.code, ended.out) == (1, "")
    assert f"did you mean {TRIP}?" in ended.err
    assert keys(pal_command, "--archived") == [TRIP]


def test_a_session_of_an_older_home_is_spoken_to_by_its_name_and_a_whole_key_means_itself(pal_command: Pal) -> None:
    pal_command("agent", "-m", "hello", "--session-key", "agent:main:trip")
    assert pal_command("agent", "-m", "hi", "--session-key", "trip", "--json").json["sessionKey"] == "agent:main:trip"
    pal_command("agent", "-m", "hello", "--session-key", TRIP)
    assert pal_command("agent", "-m", "hi", "--session-key", "trip", "--json").json["sessionKey"] == TRIP
    assert sorted(keys(pal_command)) == [TRIP, "agent:main:trip"]


def test_a_name_that_two_sessions_have_is_refused_with_both(pal_command: Pal) -> None:
    for name in ("one", "two"):
        pal_command("agent", "-m", "hello", "--session-key", name)
        pal_command("sessions", "rename", name, "Boat")
    ended = pal_command("sessions", "reset", "boat")
    assert ended.code == 2
    assert "agent:main:explicit:one" in ended.err
    assert "agent:main:explicit:two" in ended.err


def test_an_ended_session_is_shown_and_exported_by_its_id_its_key_and_its_name(pal_command: Pal) -> None:
    pal_command("agent", "-m", "remember the red kayak", "--session-key", "trip")
    pal_command("sessions", "rename", "trip", "To the lakes")
    ended = pal_command("sessions", "delete", "trip", "--yes", "--json").json["archived"][0]
    for name in (ended, ended[:8], TRIP, "trip", "to the lakes"):
        shown = pal_command("sessions", "show", name).out
        assert "red kayak" in shown, name
        assert f"archived ({ended})" in shown, name
        text = pal_command("sessions", "export", name, "--format", "markdown").out
        assert "red kayak" in text, name
        assert "*Archived: this conversation has ended" in text, name
        assert "red kayak" in pal_command("sessions", "export", name, "--format", "json").out, name
        assert "red kayak" in pal_command("sessions", "export", name).out, name
    reset = pal_command("sessions", "reset", "trip")
    assert reset.code == 1
    assert f"pal sessions show {ended}" in reset.err


def test_the_list_has_the_names_of_imported_sessions(pal_command: Pal, tmp_path: Path) -> None:
    old = tmp_path / "old"
    folder = old / "agents" / "main" / "sessions"
    folder.mkdir(parents=True)
    (old / "openclaw.json").write_text("{}")
    rows: dict[str, dict[str, object]] = {
        "agent:main:main": {"sessionId": "11111111-aaaa", "updatedAt": 1_700_000_000_000, "label": "The harbour"},
        "agent:main:telegram:group:-7": {
            "sessionId": "22222222-bbbb",
            "updatedAt": 1_700_000_000_000,
            "displayName": "telegram:Rowing club",
        },
        "agent:main:discord:channel:9": {
            "sessionId": "33333333-cccc",
            "updatedAt": 1_700_000_000_000,
            "subject": "Sails",
        },
    }
    (folder / "sessions.json").write_text(json.dumps(rows))
    for row in rows.values():
        said = {"type": "message", "id": "m1", "message": {"role": "user", "content": "ahoy"}}
        header = {"type": "session", "version": 3, "id": row["sessionId"], "timestamp": "2026-01-01T00:00:00Z"}
        lines = [json.dumps(header), json.dumps({**said, "timestamp": "2026-01-01T00:00:01Z", "parentId": None})]
        (folder / f"{row['sessionId']}.jsonl").write_text("\n".join(lines) + "\n")
    done = pal_command("migrate", "openclaw", str(old), "--apply")
    assert done.code == 0, done.err
    listed = pal_command("sessions", "list", "--archived").out
    for name in ("The harbour", "Rowing club", "Sails"):
        assert name in listed
    assert "ahoy" in pal_command("sessions", "show", "the harbour").out


def test_what_other_programs_said_and_openclaw_put_away_is_shown_and_exported(pal_command: Pal, tmp_path: Path) -> None:
    claude, old = tmp_path / "claude", tmp_path / "old"
    (claude / "projects" / "-boat").mkdir(parents=True)
    talk = "5f3c0000-1111-2222-3333-444455556666"
    message = {"role": "user", "content": "mend the rudder"}
    line = {"type": "user", "sessionId": talk, "uuid": "u1", "parentUuid": None, "message": message}
    lines = [{"type": "summary", "summary": "Boat work", "leafUuid": "u1"}, {**line, "timestamp": TIME}]
    (claude / "projects" / "-boat" / f"{talk}.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    assert pal_command("migrate", "claude-code", str(claude), "--apply").code == 0
    folder = old / "agents" / "main" / "sessions"
    folder.mkdir(parents=True)
    (old / "openclaw.json").write_text("{}")
    (folder / "sessions.json").write_text("{}")
    for kind in ("reset", "deleted"):
        header = {"type": "session", "version": 3, "id": f"{kind}-aaaa", "timestamp": TIME}
        said = {"type": "message", "id": "m1", "parentId": None, "timestamp": TIME}
        words = {**said, "message": {"role": "user", "content": f"words that were {kind}"}}
        text = f"{json.dumps(header)}\n{json.dumps(words)}\n"
        (folder / f"{kind}-aaaa.jsonl.{kind}.2026-01-02T00-00-00.000Z").write_text(text)
    assert pal_command("migrate", "openclaw", str(old), "--apply").code == 0
    wanted = {talk: "mend the rudder", "boat work": "mend the rudder"}
    wanted |= {f"{kind}-aaaa": f"words that were {kind}" for kind in ("reset", "deleted")}
    for name, words in wanted.items():
        for command in (("show", name), ("export", name, "--format", "markdown")):
            shown = pal_command("sessions", *command)
            assert shown.code == 0, (command, shown.err)
            assert words in shown.out, command
            assert "rchived" in shown.out, command
