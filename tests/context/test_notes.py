"""Notes by rule: what the user states is kept, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from noted import NOON, model, result, user

from palinurus.context.budget import MANY
from palinurus.context.notes import AT_MOST, Weight, is_worth_asking, may_be_noted, weigh
from palinurus.context.notes import extract_notes as _extract_notes
from palinurus.context.view import Line
from palinurus.domain.messages import ContextNote, Origin, ToolCall
from palinurus.sessions.transcript import MessageEntry, encode_entry
from support import SOAK


def extract_notes(lines: list[Line], zone: tzinfo = UTC) -> str:
    """One statement a line, with its day."""
    return "\n".join(f"- {each.day} user: {each.text}" for each in _extract_notes(lines, zone=zone))


NO_NEWS = """
hello
again
done
yes, go ahead
thanks a lot!
HEARTBEAT_OK
If nothing needs attention, reply HEARTBEAT_OK.
/status
what colour is my bicycle?
what colour is my bicycle
do you remember my sister
What do you remember about me?
who are you and what can you do?
list files
read MEMORY.md
Please read the page.
Look through the workspace and tell me what is there.
ok now run the tests
can you check whether my bicycle is green
I want you to write a poem about the sea
it still fails with the same error
The tests are failing.
I am getting a KeyError in line 12 of app.py
I have a question
I'm back
One more thing
I love it!
I prefer the second one
I think the problem is in the parser
The file src/main.py has a bug in line 40
My question is about the parser
ValueError: my value is wrong
You are a helpful assistant.
make sure the tests pass
Ich habe eine Frage
我有一个问题
never mind
Remember this:
| Anna | 2026-11-17 | 12 |
BK-1001, BK-1002, BK-1003, src/x.py
pal/backups/IDENTITY.md, 2026-11-17.md
2026-11-17 10:00:01 ERROR failed to open /var/log/x
{"name": "Ada"}
Wie heißt meine Schwester?
Zeig mir die Dateien
我的护照在哪里？
嗯，好的，没问题。
"""
NEWS = """
my bicycle is green
hello, my name is Ada
I live in Lisbon.
I take my coffee without sugar
I'm allergic to nuts
Remember the milk.
Can you remember that my locker is number 4471?
Keep GI-4242-zz in mind.
Never call me before nine.
don't use emojis
Please call me Skipper from now on.
We decided to use Postgres instead of SQLite for the archive.
Please book the ferry to Bornholm, my reference is BK-2201-x7.
Anna's birthday is on 3 May.
The gate code of the marina is 7719.
I need to renew the boat insurance until 2026-12-31.
Meine Schwester wohnt in Bremen.
Merk dir: Die Rechnung 2026-0815 liegt in Ablage/2026/rechnung.pdf.
Bitte immer an wartung@werft-nord.example schreiben.
Mi hermana vive en Sevilla.
Je suis allergique aux noix.
Minha irmã mora em Lisboa.
Ik woon in Utrecht.
Моя сестра живет в Осло.
请记住，我的护照号码是E12345678，有效期到2031-05-04。
我住在上海。
合同放在 /home/王/合同/2026-终稿.pdf 里。
覚えておいて：会議は11月20日15:30、部屋はB-204です。
私は東京に住んでいます。
내 여동생은 부산에 살아요.
"""

ASKED = """
Don't forget the oars.
Make a note of the tide at nine.
Note: the key is under the mat.
Write this down: the gate is green.
Jot down that the pump leaks.
For the record, the mast is 12 metres long.
For future reference, the dock closes at six.
FYI the bridge is closed on Monday.
Remind me to pay Ole.
To-do: paint the hull.
TODO paint the hull
Denk daran, die Pumpe zu prüfen.
Vergiss nicht die Leinen.
Notiere die Nummer 4471.
Erinnere mich an Ole.
Recuerda que la puerta es verde.
No olvides las llaves de casa.
Anota que la puerta es verde.
Apunta que la puerta es verde.
Souviens-toi que la porte est verte.
Rappelle-moi de payer Ole.
N'oublie pas les clés de la maison.
Retiens que la porte est verte.
Lembre que a porta é verde.
Não esqueça as chaves de casa.
Ricorda che la porta è verde.
Non dimenticare le chiavi di casa.
Onthoud dat de deur groen is.
Vergeet niet de sleutels.
Herinner me aan Ole.
Запомни, что дверь зеленая.
Не забудь ключи от дома.
Напомни заплатить Оле.
Whenever it rains the hatch stays shut.
In the future the hatch stays shut.
You must not open the hatch at sea.
Stop calling me captain at home.
Avoid using the old winch at sea.
Wir essen nie wieder Muscheln.
Ab jetzt bleibt die Luke zu.
La puerta siempre está cerrada.
De ahora en adelante la puerta se cierra.
La porte est toujours fermée.
Désormais la porte est fermée.
D'ora in poi la porta resta chiusa.
De deur is altijd dicht.
Voortaan blijft de deur dicht.
Дверь всегда закрыта на замок.
记住门是绿色的。
覚えて、ドアは緑です。
"""


@pytest.mark.parametrize("said", NO_NEWS.strip().splitlines())
def test_what_states_nothing_is_not_noted(said: str) -> None:
    assert extract_notes([user(said), model("I see.")]) == ""


@pytest.mark.parametrize("said", NEWS.strip().splitlines())
def test_what_the_user_states_is_noted_as_it_was_said(said: str) -> None:
    assert extract_notes([user(said), model("I see.")]) == f"- 2025-11-15 user: {said}"


def test_nobody_but_the_owner_is_quoted() -> None:
    told = "My sister Ada lives in Oslo, at number 12."
    lines = [
        user("hello"),
        model(told),
        result(told),
        result(told, is_error=True),
        user(told, origin=Origin.OUTSIDE),
        user(told, origin=Origin.SYSTEM),
        user("hello", context=(ContextNote("recall", told), ContextNote("startup", told))),
    ]
    assert extract_notes(lines) == ""


def test_a_sentence_that_points_back_is_noted_with_what_it_points_to_and_not_alone() -> None:
    notes = extract_notes(
        [user("My sister is called Ada. She lives in Oslo. That is nice."), user("It has 12 wheels.")]
    )
    assert notes.splitlines() == [
        "- 2025-11-15 user: My sister is called Ada.",
        "- 2025-11-15 user: She lives in Oslo.",
    ]


def test_each_note_says_on_which_day_of_the_users_zone() -> None:
    late = NOON + 11 * 3_600_000 + 1_800_000  # 23:30 UTC: tomorrow in Berlin
    notes = extract_notes([user("Never call me before nine.", at=late)], zone=ZoneInfo("Europe/Berlin"))
    assert notes == "- 2025-11-16 user: Never call me before nine."


def test_what_was_said_twice_is_noted_once() -> None:
    notes = extract_notes([user("My locker is number 4471."), model("Noted."), user("my locker is number 4471!")])
    assert notes.count("4471") == 1


def test_what_was_written_into_memory_meanwhile_is_not_written_down_again() -> None:
    written = ToolCall("c", "memory_write", {"text": "my bicycle is green"})
    told = [user("remember that my bicycle is green"), model("", written)]
    assert extract_notes([*told, result("noted in memory/x.md#L3", tool="memory_write")]) == ""
    failed = result("the disk is full", tool="memory_write", is_error=True)
    assert "my bicycle is green" in extract_notes([*told, failed])


def test_facts_of_a_text_that_was_pasted_are_not_the_users() -> None:
    paste = "\n".join(f"The harbour of Port {number} has {number} berths." for number in range(2, 200))
    assert extract_notes([user(f"My boat is called Halcyon.\n{paste}")]) == (
        "- 2025-11-15 user: My boat is called Halcyon."
    )


def test_notes_are_bounded_and_what_was_asked_for_is_in_them_all_the_same() -> None:
    talk = [user(f"I own a boat with the number {number}, and it is of oak.") for number in range(1_000)]
    notes = extract_notes([user("Remember that Ada is allergic to walnuts."), *talk])
    assert len(notes) <= AT_MOST
    assert "walnuts" in notes
    assert "number 999," in notes


def test_of_very_many_lines_what_was_asked_for_is_found_however_old_and_in_any_language() -> None:
    news, asked = NEWS.strip().splitlines(), ASKED.strip().splitlines()
    assert [said for said in asked if weigh(said) < Weight.ASKED] == []
    long_ago = [user(said) for said in (*news, *asked)]
    talk = [user(f"I own boat {number}.", f"e{number}") for number in range(2 * MANY)]
    notes = extract_notes([*long_ago, *talk])
    assert [said for said in asked if said not in notes] == []
    assert [said for said in news if (said in notes) != (weigh(said) == Weight.ASKED)] == []  # newer ones fill the room
    assert f"boat {2 * MANY - 1}." in notes
    assert len(notes) <= AT_MOST
    rows = [encode_entry(MessageEntry(line.id, "", message=line.message)) for line in long_ago[len(news) :]]
    assert all(map(may_be_noted, rows))


def test_of_very_many_lines_that_leave_room_all_are_noted() -> None:
    talk = [user(f"what is {number} + 1?", f"e{number}") for number in range(2 * MANY)]
    notes = extract_notes([user("My aunt Eva lives in Rome."), *talk])
    assert notes == "- 2025-11-15 user: My aunt Eva lives in Rome."


@pytest.mark.parametrize(
    ("said", "is_worth"),
    [
        ("hello", False),
        ("thanks!", False),
        ("list files", False),
        ("what is 2 + 2?", False),
        ("Asun Helsingissä nyt.", True),
    ],
)
def test_a_model_is_asked_when_somebody_has_said_something(said: str, is_worth: bool) -> None:
    assert is_worth_asking([user(said), model("My sister Ada lives in Oslo.")]) is is_worth


@pytest.mark.parametrize(
    "piece", ["a. ", "a", "please ", "my x is\n", "keep ", "I was still ", "```\n~~~\n", "1. ", "is not "]
)
def test_a_long_text_of_anything_is_read_in_one_pass(
    piece: str, cpu_limit: Callable[[float], AbstractContextManager[None]]
) -> None:
    size = 1_000_000 if SOAK else 200_000
    with cpu_limit(size / 25_000):  # a fraction of a second; minutes where a pattern reads all of it for each part
        extract_notes([user(piece * (size // len(piece)))])


_words = st.text(max_size=80) | st.sampled_from([*NEWS.split("\n"), *NO_NEWS.split("\n")])
_lines = st.lists(st.one_of(st.builds(user, _words), st.builds(model, _words), st.builds(result, _words)), max_size=12)


@settings(max_examples=150, deadline=None)
@given(_lines)
def test_every_note_is_a_bullet_with_words_that_the_user_has_said(lines: list[Line]) -> None:
    said = "\n".join(" ".join(line.message.text.split()) for line in lines if line.id.startswith("u-"))
    for note in extract_notes(lines).split("\n"):
        assert not note or note.partition(" user: ")[2] in said
