"""`pal sessions reset|rename|compact|delete` on a real home: what they do and what they say."""

from __future__ import annotations

from called import Pal

MAIN = "agent:main:main"


def test_a_conversation_is_named_started_over_and_ended(pal_command: Pal) -> None:
    pal_command("agent", "--message", "hello there")
    named = pal_command("sessions", "rename", MAIN, "The  boat")
    assert (named.code, named.out, named.err) == (0, f"{MAIN} is now named 'The boat'.\n", "")
    assert pal_command("sessions", "list", "--json").json["sessions"][0]["label"] == "The boat"
    assert pal_command("sessions", "rename", MAIN, "").out == f"{MAIN} has no name.\n"

    reset = pal_command("sessions", "reset", MAIN)
    assert (reset.code, reset.out) == (0, f"{MAIN} is reset.\n")
    shown = pal_command("sessions", "show", MAIN).out
    assert "hello there" in shown
    assert "session reset" in shown

    ended = pal_command("sessions", "delete", MAIN, "--yes", "--json").json
    assert (ended["ok"], ended["deleted"], len(ended["archived"])) == (True, True, 1)
    assert pal_command("sessions", "list", "--json").json["sessions"] == []
    assert pal_command("sessions", "search", "hello", "--json").json["hits"]
    again = pal_command("sessions", "delete", MAIN, "--yes")
    assert (again.code, again.out) == (1, "")
    assert f"{MAIN} had ended before" in again.err


def test_nothing_is_deleted_unasked_and_wrong_keys_are_one_clear_line(pal_command: Pal) -> None:
    pal_command("agent", "--message", "hello")
    unasked = pal_command("sessions", "delete", MAIN)
    assert (unasked.code, unasked.err) == (2, "pal: pal sessions delete needs a terminal (use --yes)\n")
    assert len(pal_command("sessions", "list", "--json").json["sessions"]) == 1
    nobody = pal_command("sessions", "reset", "agent:nobody:main")
    assert (nobody.code, nobody.err) == (1, "pal: there is no agent 'nobody' (configured: main)\n")


def test_a_conversation_is_summed_up_and_its_words_stay(pal_command: Pal) -> None:
    nobody = pal_command("sessions", "compact", MAIN)
    assert (nobody.code, nobody.err) == (1, f"pal: there is no session '{MAIN}' (`pal sessions list` shows them)\n")
    for number in range(3):
        pal_command(
            "agent", "--message", f"Booking BK-{number:04d}-x7 is ours. " + "The boat lies in the harbour. " * 20
        )
    done = pal_command("sessions", "compact", MAIN, "--focus", "the boat", "--json").json
    assert (done["ok"], done["compacted"], done["entry"]["compactionCount"]) == (True, True, 1)
    assert done["tokensAfter"] < done["tokensBefore"]
    assert "BK-0000-x7" in done["summary"]
    shown = pal_command("sessions", "show", MAIN).out
    assert "—— summary ——" in shown
    assert "Booking BK-0000-x7" in shown
    assert pal_command("sessions", "search", "BK-0001-x7", "--json").json["hits"]
