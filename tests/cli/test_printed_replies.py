"""Replies on standard output, where there is no screen: words around tool calls, tools, thinking, usage."""

from __future__ import annotations

from called import Pal
from served_model import ServedModel

from support.wire import Calls, Says

LOOK = Calls(("ls", {"path": "."}), text="let me look")
DONE = Says("done now")


def test_words_around_a_tool_call_are_paragraphs(pal_command: Pal, served: ServedModel) -> None:
    served.says(LOOK, DONE, LOOK, DONE, LOOK, DONE)
    assert pal_command("agent", "-m", "look").out == "let me look\n\ndone now\n"
    assert pal_command("chat", stdin="look\n").out == "let me look\n\ndone now\n"
    assert pal_command("agent", "-m", "look", "--json").json["text"] == "done now"


def test_two_calls_in_a_row_make_one_gap(pal_command: Pal, served: ServedModel) -> None:
    served.says(LOOK, Calls(("ls", {"path": "."})), DONE)
    assert pal_command("agent", "-m", "look").out == "let me look\n\ndone now\n"


def test_with_verbose_each_call_is_a_line(pal_command: Pal, served: ServedModel) -> None:
    pal_command("agent", "-m", "/verbose on")
    served.says(LOOK, DONE, LOOK, DONE)
    for told in (pal_command("agent", "-m", "look").out, pal_command("chat", stdin="look\n").out):
        first, tool, gap, last = told.splitlines()
        assert (first, gap, last) == ("let me look", "", "done now")
        assert tool.startswith("· ls . ")
        assert "SOUL.md" not in told


def test_with_verbose_full_the_result_is_shown_too_and_inside_a_message_for_it_only(
    pal_command: Pal, served: ServedModel
) -> None:
    served.says(LOOK, DONE, LOOK, DONE)
    assert "SOUL.md" in pal_command("agent", "-m", "/verbose full look").out
    assert "ls" not in pal_command("agent", "-m", "look").out


def test_thinking_is_shown_when_it_is_asked_for(pal_command: Pal, served: ServedModel) -> None:
    thought = Says("42", thinking="Six times seven.")
    served.says(thought, thought, thought)
    assert pal_command("agent", "-m", "how much?").out == "42\n"
    for level in ("on", "stream"):
        pal_command("agent", "-m", f"/reasoning {level}")
        assert pal_command("agent", "-m", "how much?").out == "Reasoning:\nSix times seven.\n\n42\n"


def test_usage_stands_below_the_reply(pal_command: Pal, served: ServedModel) -> None:
    pal_command("agent", "-m", "/usage tokens")
    served.says(DONE, DONE)
    assert pal_command("agent", "-m", "hi").out == "done now\n20 in, 5 out\n"
    assert pal_command("chat", stdin="hi\n").out == "done now\n20 in, 5 out\n"
