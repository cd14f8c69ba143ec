"""Daily notes that nobody wrote: the same from the same seed, and as awkward for a search as real ones.

Words follow Zipf's law over some 30,000 made-up ones behind the commonest real ones of English, so that a question has
words which stand in every file and words which stand in few. A file is a day of about 100 lines and 10 kB, with
headings, bullets, bullets that go on in a second line, tasks and a paragraph. Each file depends on its own number only:
the notes of 10,000 lines are the newest days of those of 1,000,000.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from itertools import accumulate
from pathlib import Path

SEED = 6
LINES_A_FILE = 100
NEWEST = date(2026, 11, 15)
STEMS = 10_200
_STOP = (
    "the to and a of in it was for on that with he she they we is at be this had not as but are his her by from or "
    "have an my our you so what if up out about who which when there were will would can could just been then than "
    "them some also more after before because into over only no their me all again one two still new do did has"
)
_COMMON = (
    "said say asked ask decided decide waiting wait settle settled meeting call called work week time day house plan "
    "project budget letter book garden money train doctor school friend kitchen office report contract morning monday"
)
_ONSETS = "b bl br c ch cl cr d dr f fl fr g gl gr h j k l m n p pl pr qu r s sc sh sl sp st t th tr v w"
_VOWELS = "a e i o u ai ea ee oa ou"
_CODAS = "b ck d ft g l ld lt m mp n nd ng nt p r rd rk rn rt s sh sk st t th x"
_ENDINGS = ("", "s", "ed", "ing", "er", "ly", "ness")  # forms that a stemmer brings together, more or less
_SECTIONS = ("Morning", "Calls", "Decisions", "Errands", "Reading", "Evening", "Open ends")
_TEMPLATES = (
    "what did {name} say about the {one} and the {two}?",
    "when was the {one} {two} decided with {name}?",
    "who asked {name} for the {one} before {two}?",
    "how did we settle the {one} of {two} in {month}?",
    "why is {name} still waiting for the {one}, {two} and {three}?",
)


@dataclass(frozen=True)
class Corpus:
    """Notes on the disk, and what is asked of them."""

    workspace: Path
    files: int
    lines: int
    characters: int
    rare: tuple[str, ...]  # each stands in one line
    questions: tuple[str, ...]


def write_corpus(workspace: Path, lines: int) -> Corpus:
    """Write `workspace/memory/*.md`."""
    folder = workspace / "memory"
    folder.mkdir(parents=True)
    count = max(1, lines // LINES_A_FILE)
    total_lines = characters = 0
    for number in range(count):
        text = day(number)
        (folder / f"{_date(number)}.md").write_text(text, encoding="utf-8")
        total_lines += text.count("\n")
        characters += len(text)
    numbers = [random.Random(f"{SEED} asked {at}").randrange(count) for at in range(200)]
    return Corpus(
        workspace,
        count,
        total_lines,
        characters,
        rare=tuple(_rare(number) for number in numbers[:50]),
        questions=tuple(_question(number, at) for at, number in enumerate(numbers)),
    )


def change(corpus: Corpus, share: float, edition: int) -> int:
    """Edit a line and add one, in so large a share of the files; every edition says something else."""
    paths = sorted((corpus.workspace / "memory").glob("*.md"))
    chosen = random.Random(f"{SEED} changed {edition}").sample(paths, max(1, round(len(paths) * share)))
    for at, path in enumerate(chosen):
        dice = random.Random(f"{SEED} changed {edition} {at}")
        lines = path.read_text(encoding="utf-8").splitlines()
        lines[len(lines) // 2] = f"- {_sentence(dice, 14)}"
        lines.append(f"- {_sentence(dice, 14)}")
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return len(chosen)


def day(number: int) -> str:
    dice = random.Random(f"{SEED} day {number}")
    lines = [f"# {_date(number):%Y-%m-%d %A}", ""]
    while len(lines) < LINES_A_FILE - 4:
        lines += [f"## {dice.choice(_SECTIONS)}", "", *_section(dice), ""]
    del lines[LINES_A_FILE - 2 :]
    lines.append(f"- {_name(dice)} calls it the {_rare(number)}: {_sentence(dice, 10)}")
    return "\n".join(lines) + "\n"


def _section(dice: random.Random) -> Iterator[str]:
    if dice.random() < 0.2:
        yield " ".join(_sentence(dice, 14) for _ in range(3))
        yield ""
    for _ in range(dice.randint(6, 18)):
        shape = dice.random()
        if shape < 0.5:
            yield f"- {_sentence(dice, 20)}"
        elif shape < 0.75:
            clock = f"{dice.randint(7, 22):02}:{dice.randrange(60):02}"
            yield f"- {clock} {_name(dice)}: {_sentence(dice, 18)}"
        elif shape < 0.85:
            yield f"- [{dice.choice(' x')}] {_sentence(dice, 12)}"
        else:
            yield f"- {_sentence(dice, 16)}"
            yield f"  {_sentence(dice, 14)}"


def _sentence(dice: random.Random, words: int) -> str:
    vocabulary, weights = _vocabulary()
    said = dice.choices(vocabulary, cum_weights=weights, k=max(3, words + dice.randint(-6, 6)))
    if dice.random() < 0.3:
        said[dice.randrange(len(said))] = _name(dice)
    return " ".join(said).capitalize() + "."


def _question(number: int, at: int) -> str:
    """About words that stand together in one line of that day, neither the commonest nor the rarest."""
    dice = random.Random(f"{SEED} question {at}")
    stop = set(_STOP.split())
    lines = [line for line in day(number).splitlines() if line.startswith("- ")]
    while True:
        words = [word for raw in dice.choice(lines)[2:].split() if (word := raw.strip(".:[]").lower()) not in stop]
        chosen = [word for word in words if word.isalpha() and len(word) > 3]
        if len(chosen) >= 3:
            one, two, three = dice.sample(chosen, 3)
            name, month = _name(dice), f"{_date(number):%B}"
            return dice.choice(_TEMPLATES).format(name=name, month=month, one=one, two=two, three=three)


def _date(number: int) -> date:
    return NEWEST - timedelta(days=number)


def _rare(number: int) -> str:
    """A word of that day alone."""
    dice = random.Random(f"{SEED} rare {number}")
    return "".join(_syllable(dice) for _ in range(3)) + "".join(chr(ord("a") + int(digit)) for digit in str(number))


@cache
def _vocabulary() -> tuple[list[str], list[float]]:
    dice = random.Random(f"{SEED} words")
    stems = list(dict.fromkeys(_word(dice) for _ in range(STEMS)))
    forms = list(dict.fromkeys(f"{stem}{ending}" for stem in stems for ending in dice.sample(_ENDINGS, 3)))
    # The forms of a stem do not stand beside each other in frequency, but the short ones are the more frequent.
    forms.sort(key=lambda form: len(form) + dice.random() * 8)
    words = [*_STOP.split(), *_COMMON.split(), *forms]
    return words, list(accumulate(1 / (rank + 2.7) ** 1.02 for rank in range(len(words))))


def _name(dice: random.Random) -> str:
    """A few people are in every note, most are in few."""
    names, weights = _names()
    return dice.choices(names, cum_weights=weights)[0]


@cache
def _names() -> tuple[list[str], list[float]]:
    dice = random.Random(f"{SEED} names")
    names = [_word(dice).capitalize() for _ in range(120)]
    return names, list(accumulate(1 / (rank + 1) for rank in range(len(names))))


def _word(dice: random.Random) -> str:
    return "".join(_syllable(dice) for _ in range(dice.choice((1, 2, 2, 2, 3))))


def _syllable(dice: random.Random) -> str:
    return "".join(dice.choice(part.split()) for part in (_ONSETS, _VOWELS, _CODAS))
