"""What helps typing: completion and history."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from palinurus.cli.terminal.input import KEPT, CompletionWords, TypedLines, WorkspaceNames, offers
from palinurus.cli.terminal.reply import session_lines, wanted_session
from palinurus.config.secrets import Redactor
from palinurus.domain.errors import NotFound
from palinurus.sessions.session import Session
from palinurus.workspace.boundary import Boundary

FILES = ("AGENTS.md", "notes/boat.md", "notes/two words.md", "boat-plan.md", "x/y/raboat.md")
WORDS = CompletionWords(
    {"/help": "this list", "/resume": "another", "/reset": "anew"},
    {"resume": lambda: [("agent:main:main", ""), ("agent:main:explicit:holiday", "")]},
    lambda: FILES,
)


@pytest.mark.parametrize(
    ("before", "found"),
    [
        ("/re", ["/resume", "/reset"]),
        ("/", ["/help", "/resume", "/reset"]),
        ("say /re", []),
        ("/resume hol", ["agent:main:explicit:holiday"]),
        ("/resume ", ["agent:main:main", "agent:main:explicit:holiday"]),
        ("/help x", []),
        ("see @boat", ["@boat-plan.md", "@notes/boat.md", "@x/y/raboat.md"]),
        ("@two", ['@"notes/two words.md"']),
        ('@"notes/two w', ['@"notes/two words.md"']),
        ("me@boat", []),
        ("hello", []),
    ],
)
def test_what_stands_before_the_cursor_decides_what_is_offered(before: str, found: list[str]) -> None:
    assert [offer.text for offer in offers(before, WORDS)] == found


def test_an_offer_takes_the_place_of_what_was_typed() -> None:
    (offer,) = offers("look at @raboat", WORDS)
    assert "look at @raboat"[: -offer.replaces] + offer.text == "look at @x/y/raboat.md"


def test_names_of_the_workspace_are_looked_up_again_after_a_while(tmp_path: Path) -> None:
    moment = [0.0]
    names = WorkspaceNames(Boundary(tmp_path), lambda: moment[0])
    assert names() == ()
    (tmp_path / "new.md").write_text("x")
    assert names() == ()
    moment[0] = 60.0
    assert names() == ("new.md",)
    assert WorkspaceNames(Boundary(tmp_path / "gone"))() == ()


def test_what_was_typed_is_there_again_newest_first_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "history"
    lines = TypedLines(path, str)
    lines.add("first")
    TypedLines(path, str).add("second\nwith a line break")
    assert lines.newest_first() == ["second\nwith a line break", "first"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_secret_that_was_typed_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "history"
    TypedLines(path, Redactor(["correct-horse-battery"]).redact).add("it is correct-horse-battery")
    assert b"correct-horse" not in path.read_bytes()


def test_a_damaged_history_and_one_that_cannot_be_written_cost_nothing(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_bytes(b'"good"\n{broken\n\xff\xfe\n17\n')
    assert TypedLines(path, str).newest_first() == ["good"]
    TypedLines(tmp_path / "no" / "folder", str).add("lost")


def test_a_long_history_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text("".join(json.dumps(str(number)) + "\n" for number in range(3 * KEPT)))
    assert TypedLines(path, str).newest_first()[0] == str(3 * KEPT - 1)
    assert len(path.read_text().splitlines()) == KEPT


def session(key: str) -> Session:
    return Session(key, key, "main", "direct", 0, 0, 0, 0)


SESSIONS = [session(key) for key in ("agent:main:main", "agent:main:explicit:holiday", "agent:main:explicit:holy")]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("2", "agent:main:explicit:holiday"),
        ("holiday", "agent:main:explicit:holiday"),
        ("main", "agent:main:main"),
        ("holy", "agent:main:explicit:holy"),
        ("Agent:main:direct:alice", "agent:main:direct:alice"),
    ],
)
def test_a_conversation_is_named_by_number_key_or_a_part_of_it(name: str, key: str) -> None:
    assert wanted_session(name, SESSIONS) == key


@pytest.mark.parametrize(("name", "why"), [("hol", "may be"), ("9", "there is no"), ("boat", "there is no")])
def test_a_name_that_fits_none_or_several_is_refused(name: str, why: str) -> None:
    with pytest.raises(NotFound, match=why):
        wanted_session(name, SESSIONS)


def test_a_conversation_is_named_by_what_people_call_it() -> None:
    named = msgspec.structs.replace(SESSIONS[1], label="To the lakes")
    assert wanted_session("to the Lakes", [SESSIONS[0], named]) == "agent:main:explicit:holiday"


def test_the_list_marks_the_conversation_that_one_is_in() -> None:
    lines = ["".join(text for _, text in line) for line in session_lines(SESSIONS, "agent:main:main", 80)]
    assert "here" in lines[0]
    assert not any("here" in line for line in lines[1:])
