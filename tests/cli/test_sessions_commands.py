"""`pal sessions reset|rename|delete` on a real home: what they do and what they say."""

from __future__ import annotations

from called import Pal

MAIN = "agent:main:main"


def test_a_conversation_is_named_started_over_and_ended(pal_command: Pal) -> None:
    pal_command("agent", "--message", "hello there")
    named = pal_command("sessions", "rename", MAIN, "The  boat")
    assert (named.code, named.out, named.err) == (0, f"{MAIN} is called 'The boat'.\n", "")
    assert pal_command("sessions", "list", "--json").json["sessions"][0]["label"] == "The boat"
    assert pal_command("sessions", "rename", MAIN, "").out == f"{MAIN} has no name.\n"

    reset = pal_command("sessions", "reset", MAIN)
    assert (reset.code, reset.out) == (0, f"{MAIN} starts over with the next message.\n")
    shown = pal_command("sessions", "show", MAIN).out
    assert "hello there" in shown
    assert "a fresh start" in shown

    ended = pal_command("sessions", "delete", MAIN, "--yes", "--json").json
    assert (ended["ok"], ended["deleted"], len(ended["archived"])) == (True, True, 1)
    assert pal_command("sessions", "list", "--json").json["sessions"] == []
    assert pal_command("sessions", "search", "hello", "--json").json["hits"]
    assert pal_command("sessions", "delete", MAIN, "--yes").out == f"There is no session {MAIN}.\n"


def test_nothing_is_deleted_unasked_and_wrong_keys_are_one_clear_line(pal_command: Pal) -> None:
    pal_command("agent", "--message", "hello")
    unasked = pal_command("sessions", "delete", MAIN)
    assert (unasked.code, unasked.err) == (2, f"pal: nobody is here to be asked whether to end {MAIN} (say --yes)\n")
    assert len(pal_command("sessions", "list", "--json").json["sessions"]) == 1
    nobody = pal_command("sessions", "reset", "agent:nobody:main")
    assert (nobody.code, nobody.err) == (1, "pal: there is no agent 'nobody' (configured: main)\n")
