"""Skills recognised by their words: what is enough, what is not, and what it costs."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shelved import Shelf, a_skill, write_skill

from palinurus.domain.errors import NotFound
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin, ToolCall
from palinurus.domain.tool import ToolRun
from palinurus.skills.settings import SkillLimit, SkillsSettings
from palinurus.skills.skill import Skill
from palinurus.skills.use import LENGTH, MOST, Recogniser, telling_runs, words_of

RUN = ToolRun(SessionKey.main("main"), "run-1", private=True)
ENOUGH = 2 * LENGTH - 1
CALL = ToolCall("c1", "exec", {"command": "cat t*/*"})
HELD = "capabilities: {tools: [web_fetch]}\n"
TIDES = "Fetch the table of the harbour from the address that the almanac of this year names, and add an hour.\n"


def names(count: int, start: int = 0) -> list[str]:
    """So many different words."""
    return ["w" + f"{number:05}".translate(str.maketrans("0123456789", "abcdefghij")) for number in range(start, count)]


def skill_file(body: str, name: str = "tides") -> bytes:
    return f"---\nname: {name}\ndescription: Helps.\n---\n{body}".encode()


class Files:
    """SKILL.md files by name, and which were read."""

    def __init__(self, **bodies: str) -> None:
        self.data = {name: skill_file(body, name) for name, body in bodies.items()}
        self.read: list[str] = []

    @property
    def recogniser(self) -> Recogniser:
        return Recogniser([self._skill(name, data) for name, data in self.data.items()], self._read)

    def among(self, text: str) -> list[str]:
        return [skill.name for skill in self.recogniser.among(text)]

    def _skill(self, name: str, data: bytes) -> Skill:
        return Skill(a_skill(name).about, f"/x/{name}", "managed", hashlib.sha256(data).hexdigest())

    def _read(self, skill: Skill) -> bytes:
        self.read.append(skill.name)
        if not self.data[skill.name]:
            raise NotFound("it has gone")
        return self.data[skill.name]


@given(st.lists(st.sampled_from(names(400)), min_size=60, max_size=300, unique=True), st.data())
def test_so_many_words_in_a_row_are_always_enough(words: Sequence[str], data: st.DataObject) -> None:
    breaks = data.draw(st.lists(st.sampled_from(["\n", " ", ", ", "\n\n- ", "\n12. "]), min_size=1))
    body = "".join(word + breaks[at % len(breaks)] for at, word in enumerate(words))
    at = data.draw(st.integers(0, len(words) - ENOUGH))
    excerpt = "\n".join(f"{number:6}\t{word.upper()}" for number, word in enumerate(words[at : at + ENOUGH]))
    assert Files(tides=body).among(f"before\n{excerpt}\nafter") == ["tides"]


@given(st.lists(st.sampled_from(names(300)), min_size=LENGTH, max_size=200))
def test_fewer_words_than_a_run_are_never_enough(words: list[str]) -> None:
    assert Files(tides=" ".join(words)).among(" ".join(words[: LENGTH - 1])) == []


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (TIDES, f'{{"text": "# Tides\\n{TIDES.strip()}\\n"}}'),
        (TIDES, f"skills/tides/SKILL.md:7:{TIDES}"),
        (TIDES, TIDES.replace(" ", "\r\n   ")),
        (TIDES, TIDES.replace(" ", "_")),
        ("Мы идём в гавань и берём таблицу приливов из альманаха этого года, потом прибавляем час.", "1. {}"),
        ("从今年的历书所列地址取得港口潮汐表，加上夏令时的一小时，再说明什么时候水深足够可以出发。", "1. {}"),
    ],
)
def test_how_it_is_laid_out_does_not_matter(body: str, shown: str) -> None:
    assert Files(tides=body).among(shown.format(body) if shown == "1. {}" else shown) == ["tides"]


def test_what_two_skills_share_tells_of_neither_unless_there_is_nothing_else() -> None:
    licence, own = " ".join(names(40)), " ".join(names(80, 40))
    files = Files(one=f"{licence}\n", two=f"{licence}\n\n{own}", three=f"{own}\n{' '.join(names(120, 80))}")
    assert files.among(licence) == ["one"]
    assert files.among(f"{licence} {own}")[:1] == ["one"]
    assert files.among(" ".join(names(120, 80))) == ["three"]


def test_lines_that_stand_in_many_programs_tell_nothing() -> None:
    imports = "import argparse\nimport json\nimport os\nimport sys\nimport re\nfrom pathlib import Path\n"
    assert Files(tides=f"{imports}{TIDES}").among(f"{imports}import time\n") == []


def test_a_file_is_read_once_and_only_for_a_text_that_could_hold_it() -> None:
    files = Files(tides=TIDES, winds=" ".join(names(30)))
    recogniser = files.recogniser
    assert recogniser.among("few words") == ()
    assert files.read == []
    for _ in range(2):
        assert [skill.name for skill in recogniser.among(TIDES)] == ["tides"]
    assert files.read == ["tides", "winds"]


def test_a_file_that_has_gone_hides_no_other() -> None:
    files = Files(gone="", tides=TIDES)
    files.data["gone"] = b""
    assert files.among(TIDES) == ["tides"]


def test_a_huge_skill_is_known_by_some_of_its_words() -> None:
    words = names(40_000)
    runs = telling_runs(skill_file(" ".join(words)))
    assert MOST / 2 < len(runs) <= MOST
    assert Files(tides=" ".join(words)).among(" ".join(words[20_000:21_000])) == ["tides"]


# --- in a run ---


def test_only_skills_that_are_held_to_something_are_looked_for(shelf: Shelf) -> None:
    write_skill(shelf.skills, "free", body=" ".join(names(40)))
    write_skill(shelf.skills, "held", HELD, body=TIDES)
    skills = shelf.open()
    assert skills.after(RUN, CALL, " ".join(names(40))) is RUN
    later = skills.after(RUN, CALL, TIDES)
    assert (later.skills, later.origin) == (("held",), Origin.OWNER)
    assert [each.source for each in later.restrictions] == ["skill:held"]
    assert skills.after(later, CALL, TIDES) is later
    assert skills.shown(RUN, TIDES) == later


def test_words_that_a_registry_brought_are_from_outside_however_they_are_read(shelf: Shelf) -> None:
    write_skill(shelf.skills, "brought", body=TIDES)
    (shelf.skills / "brought" / ".clawhub").mkdir()
    (shelf.skills / "brought" / ".clawhub" / "origin.json").write_text('{"registry": "https://hub.example"}')
    skills = shelf.open()
    assert skills.after(RUN, CALL, TIDES).untrusted
    spelled = ToolCall("c1", "exec", {"command": "cat skills/brought/SKILL.md"})
    assert skills.after(skills.before(RUN, spelled), spelled).untrusted
    assert not skills.after(RUN, CALL, "nothing of it").untrusted


# --- what it costs ---


class Passes(str):
    """A text that counts how often somebody goes through it."""

    __slots__ = ("count",)
    count: int

    def replace(self, *arguments: object) -> str:  # type: ignore[override]
        self.count += 1
        return super().replace(*arguments)  # type: ignore[arg-type]

    def __iter__(self):  # type: ignore[no-untyped-def]
        raise AssertionError

    def __contains__(self, part: object) -> bool:
        raise AssertionError("one search for each skill would be too many")


@pytest.mark.slow
def test_a_long_result_is_gone_through_once_however_many_skills_there_are(shelf: Shelf) -> None:
    for number in range(1000):
        own = " ".join(names(90 * number + 90, 90 * number))
        write_skill(shelf.skills, f"s{number:04}", HELD if number % 20 == 0 else "", own)
    few = Shelf(shelf.base / "few")
    write_skill(few.skills, "one", HELD, TIDES)
    text = Passes(" ".join(names(240_000, 90_000)))
    text.count = 0
    assert len(text) > 1_000_000
    many = shelf.open(SkillsSettings(limits=SkillLimit(folders=2000, skills=2000)))
    listing = many.listing()
    assert (len(listing.usable), len(listing.restricted.skills)) == (1000, 50)
    assert many.after(RUN, CALL, text) is RUN
    assert text.count == 1
    assert _seconds(listing.restricted, text) < 5 * _seconds(few.open().listing().restricted, text)


def _seconds(recogniser: Recogniser, text: str) -> float:
    """The quickest of three, when everything has been read."""
    took = []
    for _ in range(4):
        began = time.process_time()
        recogniser.among(text)
        took.append(time.process_time() - began)
    return min(took[1:])


def test_words_are_what_a_person_would_call_so() -> None:
    assert words_of("1. Fetch the-table,\n\tnow_2!") == ["fetch", "the", "table", "now"]
    assert words_of("für 3 Häfen") == ["für", "häfen"]
