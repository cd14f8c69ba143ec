"""Whatever the parser accepts means to it what it means to a real shell, and reading it takes one pass."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palinurus.tools.commands.shell import (
    MAX_CHARACTERS,
    Opaque,
    Pipeline,
    Script,
    Segment,
    parse_shell,
    quote_word,
    render_script,
)
from support import examples

SHELLS = [shell for shell in ("/bin/sh", "/bin/bash") if Path(shell).exists()]
END = "-end-of-argv-"


def test_programs_are_joined_as_they_were_written() -> None:
    assert parse_shell("a 'b c' | d && e || f; g\nh") == Script(
        (
            Pipeline((Segment(("a", "b c")), Segment(("d",)))),
            Pipeline((Segment(("e",)),), "&&"),
            Pipeline((Segment(("f",)),), "||"),
            Pipeline((Segment(("g",)),), ";"),
            Pipeline((Segment(("h",)),), ";"),
        )
    )


TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc", "Cf"), include_characters="\n\t"), max_size=12)


def _in_single_quotes(text: str) -> str:
    return "'" + text.replace("'", "'\"'\"'") + "'"


def _in_double_quotes(text: str) -> str:
    return '"' + "".join("\\" + char if char in '$`"\\' else char for char in text) + '"'


def _with_backslashes(text: str) -> str:
    return "".join("'\n'" if char == "\n" else "\\" + char for char in text) or "''"


QUOTINGS = st.sampled_from([_in_single_quotes, _in_double_quotes, _with_backslashes])


@given(st.lists(st.tuples(TEXTS, QUOTINGS), min_size=1, max_size=5))
def test_every_text_comes_through_every_kind_of_quotes(words: list[tuple[str, Callable[[str], str]]]) -> None:
    script = parse_shell(" ".join(["p", *(quote(text) for text, quote in words)]))
    assert isinstance(script, Script)
    assert script.segments == (Segment(("p", *(text for text, _ in words))),)


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_a_script_is_shown_on_one_line_that_hides_nothing(words: list[str]) -> None:
    shown = render_script(Script((Pipeline((Segment(("p", *words)),)),)))
    assert shown.isprintable()
    if "$'" not in shown:
        assert parse_shell(shown) == Script((Pipeline((Segment(("p", *words)),)),))


@pytest.mark.parametrize("word", ["=", "=ls", "~", "#x", "a=b"])
def test_words_that_a_shell_would_expand_are_shown_in_quotes(word: str) -> None:
    script = Script((Pipeline((Segment(("p", word)),)),))
    assert parse_shell(render_script(script)) == script


def test_characters_that_cannot_be_seen_are_written_out() -> None:
    assert quote_word("a\nb'\\\u202e\U000e0041") == "$'a\\nb\\'\\\\\\u202e\\U000e0041'"


# ——— beside real shells


class Witness:
    """Directories with two programs that note their argv: `p` succeeds and `q` fails."""

    def __init__(self, root: Path) -> None:
        self.log, self.bin, self.empty = root / "log", root / "bin", root / "empty"
        self.bin.mkdir()
        self.empty.mkdir()
        for name, code in (("p", 0), ("q", 1)):
            program = self.bin / name
            program.write_text(f'#!/bin/sh\nprintf \'%s\\0\' {name} "$@" {END} >> "$LOG"\nexit {code}\n')
            program.chmod(0o755)

    def ran(self, shell: str, text: str) -> list[tuple[str, ...]]:
        self.log.write_bytes(b"")
        env = {"PATH": str(self.bin), "LOG": str(self.log), "HOME": "/nowhere", "LC_ALL": "C.UTF-8"}
        quiet = subprocess.DEVNULL
        subprocess.run(
            [shell, "-c", text],
            env=env,
            cwd=self.empty,
            stdin=quiet,
            stdout=quiet,
            stderr=quiet,
            timeout=60,
            check=False,
        )
        records = self.log.read_bytes().decode().split(f"{END}\0")[:-1]
        return sorted(tuple(record.split("\0")[:-1]) for record in records)


def expected(script: Script) -> list[tuple[str, ...]]:
    """What runs if the script means what it says: by the codes of p, q and of what is not found."""
    ran, code = list[tuple[str, ...]](), 0
    for pipeline in script.pipelines:
        if (pipeline.connector == "&&" and code) or (pipeline.connector == "||" and not code):
            continue
        ran += [segment.argv for segment in pipeline.segments if segment.argv[0] in ("p", "q")]
        code = {"p": 0, "q": 1}.get(pipeline.segments[-1].argv[0], 127)
    return sorted(ran)


@pytest.fixture(scope="module")
def witness(tmp_path_factory: pytest.TempPathFactory) -> Witness:
    return Witness(tmp_path_factory.mktemp("witness"))


PIECES = [
    "p",
    "q",
    "p a",
    "q 'b'",
    " ",
    " ",
    "\t",
    "\n",
    ";",
    "|",
    "||",
    "&&",
    "'",
    '"',
    "\\",
    "a",
    "-x",
    "=",
    "~",
    "#",
    "!",
]
PIECES += [
    "$",
    "`",
    "^",
    "%",
    "é",
    "\u00a0",
    "\u3000",
    "ā",
    ":",
    ",",
    "]",
    "@",
    "+",
    "0",
    "1",
    "..",
    "_",
    "İ",
    "𝛼",
    "☃",
]
PIECES += [
    "''",
    '""',
    "'c d'",
    '"e f"',
    '"\\""',
    '"\\a"',
    '"\\\\"',
    "\\'",
    "\\ ",
    "\\;",
    "'\n'",
    '"\n"',
    '"\\$"',
    "\\\\",
]
WORDS = st.lists(st.sampled_from([*PIECES[9:], "a", "b"]), min_size=1, max_size=4).map("".join)
COMMANDS = st.tuples(st.sampled_from(["p", "q", "'p'", "\\q", "nosuch"]), st.lists(WORDS, max_size=3)).map(
    lambda command: " ".join([command[0], *command[1]])
)
LISTS = st.lists(
    st.tuples(COMMANDS, st.sampled_from([";", "\n", "&&", "||", " | ", "|\n", " &&\n\n"])), max_size=4
).map(lambda rows: "".join(command + joint for command, joint in rows) + "p last")
SOUPS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)

KNOWN = [
    "p 'a b' \"c d\" e\\ f|q g;p h&&p i||p j",
    "q||p a&&q b||p c",
    "q a && p b\np c",
    "p a#b 'c'#d e=f !g h! ! i^j k~ HEAD~1 %1 ] a] @x +y",
    'p "a\\b\\$c\\`d\\"e\\\\f" \'g\\h\' i\\j\\\\k',
    "p 'new\nline' \"and\nanother\" 'tab\t'",
    "p a\u00a0b 'c\u2028d' \u3000 é ā 𝛼",
    "p '' \"\" ''\"\"a",
    "\n\n p a |\n\n q b &&\n p c;\n p d;",
    "nosuch a || p b",
]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("text", KNOWN, ids=ascii)
def test_a_real_shell_runs_the_same_programs_with_the_same_words(witness: Witness, shell: str, text: str) -> None:
    script = parse_shell(text)
    assert isinstance(script, Script), script
    assert witness.ran(shell, text) == expected(script)


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
@settings(max_examples=examples(400))
@given(text=LISTS | SOUPS)
def test_whatever_is_accepted_a_real_shell_understands_in_the_same_way(witness: Witness, shell: str, text: str) -> None:
    script = parse_shell(text)
    if isinstance(script, Script):
        assert witness.ran(shell, text) == expected(script)


@given(LISTS | SOUPS | st.text(max_size=40))
def test_every_text_is_understood_or_refused_with_a_reason(text: str) -> None:
    found = parse_shell(text)
    assert isinstance(found, Script) or found.reason


# ——— the time it takes, in steps


def steps(text: str) -> int:
    """Calls that reading takes, ours and Python's own. The patterns are possessive, so a call looks at a text once."""
    count = 0

    def note(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        parse_shell(text)
    finally:
        sys.setprofile(before)
    return count


@given(LISTS | SOUPS | st.text(max_size=40))
def test_reading_takes_a_bounded_number_of_steps_for_each_character(text: str) -> None:
    assert steps(text) <= 100 + 20 * len(text)


@pytest.mark.parametrize(
    "unit", ["a", "'a'", '"a', "\\", "'", '"\\a"', "a ", "''", "a\\b", "\n", "a=~", '"\\', "é\u00a0", "a|"]
)
def test_twice_the_text_takes_no_more_than_twice_the_steps(unit: str) -> None:
    once, twice = (steps("p " + unit * (size // len(unit))) for size in (2_000, 4_000))
    assert twice <= 2 * once + 100


@pytest.mark.parametrize("unit", ["a", "'a'", "\\", "'", '"', "'\"", '"\\a"', "a ", "''", "\\a"])
def test_the_longest_text_is_read_and_a_longer_one_is_not(unit: str) -> None:
    longest = "p " + unit * ((MAX_CHARACTERS - 2) // len(unit))
    assert steps(longest) <= 20 * MAX_CHARACTERS
    assert isinstance(parse_shell(longest + unit * 2), Opaque)
