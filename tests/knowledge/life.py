"""Two years of somebody's notes, and an oracle that knows what was so: written before the parser, and apart from it.

600 days of notes with `## Retain` sections, forty people and places under several names, 120 changes of homes, jobs,
preferences, prices, plans and arrangements, statements that were wrong and dates that were wrong, each corrected weeks
later, and lies from web pages. `Life(seed)` writes with the sentences of `COMMON`, `Life(seed, OTHER)` with others, by
which the product was not made.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import combinations, pairwise

from palinurus.domain.messages import NOTED_OUTSIDE

FIRST, DAYS, NOTED = date(2024, 11, 18), 730, 600
LAST = FIRST + timedelta(DAYS - 1)

# Everybody, in circles that meet, each with the names that notes use; the first is the full one.
CIRCLES: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("Katharina Vogel", "Katharina", "Kathi", "Katarina Vogel"), ("Paul Winter", "Paul"), ("Paula Winter", "Paula"),
     ("Grandma", "Oma"), ("Sofia Marin", "Sofía Marín", "Sofia"), ("The Castle", "Castle"), ("Graz",)),
    (("Peter Hansen", "Peter", "Pete"), ("Andrew Clarke", "Andrew", "Andy"), ("Tomasz Nowak", "Tomasz", "Tomek"),
     ("Elizabeth Moore", "Elisabeth Moore", "Liz"), ("Brightwave", "Brightwave GmbH"), ("Project Heron",),
     ("Project Heron 2",), ("Nordlicht", "Nordlicht AG"), ("Linz",)),
    (("Peter Okafor", "Pete Okafor"), ("Maria Rossi",), ("Jan de Vries", "Jan"), ("Lake House", "Lakehouse"),
     ("Harbour Studio",), ("Harbour School",), ("Porto",), ("Lisbon",)),
    (("Maria Lopez", "Maria Lopes"), ("Robert Klein", "Bob"), ("Dr Weber", "Dr. Weber"), ("Jonas Weber",),
     ("Nadia Haddad", "Nadia", "Nadja Haddad"), ("Contoso Labs", "Contoso"), ("Vienna",)),
    (("Anna Berg", "Anna"), ("Hanna Berg", "Hanna"), ("Oliver Grant", "Oliver", "Olli"), ("Mei Chen",), ("Wei Chen",),
     ("Acme Tools", "Acme"), ("Fabrikam",), ("Oslo",), ("Bergen",)),
)  # fmt: skip
BOTH = "Maria"  # of two of them: it may be taken for neither
# Names that nothing but a sentence connects.
CALLED = (
    ("Robert Klein", "Bob", "Everybody calls @Robert-Klein @Bob."),
    ("Elizabeth Moore", "Liz", "@Liz is short for @Elizabeth-Moore."),
    ("Tomasz Nowak", "Tomek", "@Tomasz-Nowak, also known as @Tomek, writes the tests."),
    ("Grandma", "Oma", "@Grandma is called @Oma by the children."),
)
FALSELY_CALLED = "@Fabrikam is also known as @Brightwave."  # from a web page

CITIES = ("Lisbon", "Vienna", "Graz", "Linz", "Oslo", "Porto", "Bergen", "Zurich", "Ghent", "Turin", "Leeds", "Malmö")
EMPLOYERS = ("Brightwave", "Nordlicht", "Contoso Labs", "Acme Tools", "Fabrikam", "Harbour Studio", "Globex", "Initech")
RESIDENTS = ("Katharina Vogel", "Peter Hansen", "Peter Okafor", "Maria Rossi", "Andrew Clarke", "Tomasz Nowak",
             "Nadia Haddad", "Anna Berg", "Hanna Berg", "Oliver Grant", "Mei Chen", "")  # fmt: skip
EMPLOYEES = ("Paul Winter", "Paula Winter", "Elizabeth Moore", "Jan de Vries", "Maria Lopez", "Robert Klein",
             "Wei Chen", "Sofia Marin", "Anna Berg", "")  # fmt: skip
TASTES = (
    ("Katharina Vogel", "tea", "coffee"), ("Peter Hansen", "trains", "planes"), ("Andrew Clarke", "tabs", "spaces"),
    ("Nadia Haddad", "calls", "mails"), ("Jan de Vries", "sailing", "rowing"), ("Mei Chen", "cats", "dogs"),
    ("", "tea", "coffee"), ("", "mornings", "evenings"), ("", "Vim", "Emacs"), ("", "cash", "cards"),
)  # fmt: skip
PRICES = ("the studio", "the boat berth", "the cleaner", "the phone contract", "the kindergarten", "the server")
PLANS = (
    "the trip to Japan",
    "the wedding of Sofia",
    "the kitchen renovation",
    "the release of Heron",
    "the house sale",
)
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December")  # fmt: skip
ARRANGEMENTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("dentist", ("Dr Weber", "Dr Sommer", "Dr Yilmaz", "Dr Novak")),
    ("weekly call", ("Monday", "Tuesday", "Thursday", "Friday")),
    ("landlord", ("Mr Huber", "Ms Stein", "the Braun family")),
    ("accountant", ("Ms Keller", "Mr Lindt", "Ms Frank")),
    ("gym", ("Fitpark", "Kraftwerk", "Pulse")),
)

Phrases = Mapping[str, Sequence[str]]
# {v} is the new value, {o} the old one, {d} the day on which it begins, {x} what it is about.
COMMON: Phrases = {
    "home": ("Lives in {v}.", "Is based in {v} these days.", "Has a flat in {v}."),
    "home, changed": ("Moved to {v}.", "Moved from {o} to {v} on {d}.", "Lives in {v} now.", "Has left {o} for {v}.",
                      "Relocated to {v} on {d}.", "Gave up the flat in {o} and lives in {v}."),
    "home, later": ("Will move to {v} on {d}.", "Is going to move from {o} to {v} on {d}."),
    "home, corrected": ("Correction: lives in {v}, not in {o}.", "Does not live in {o} after all, but in {v}."),
    "home, redated": ("Correction: moved to {v} on {d}, not earlier.",),
    "own home": ("I live in {v}.", "We live in {v}."),
    "own home, changed": ("We moved from {o} to {v}.", "I live in {v} now.", "I moved to {v} on {d}."),
    "job": ("Works at {v}.", "Works for {v} as a designer.", "Is an engineer at {v}."),
    "job, changed": ("Started at {v} on {d}.", "Quit {o} and joined {v}.", "Has a new job at {v}.",
                     "Works for {v} now, no longer for {o}.", "Switched from {o} to {v}."),
    "own job": ("I work at {v}.", "I work for {v} four days a week."),
    "own job, changed": ("I started at {v} on {d}.", "I quit {o} and joined {v}.", "I work for {v} now."),
    "taste": ("Prefers {v} to {o}.", "Likes {v} more than {o}."),
    "taste, again": ("Still prefers {v} to {o}.", "Chose {v} over {o} again."),
    "taste, changed": ("Prefers {v} to {o} now.", "Would rather have {v} than {o} these days.",
                       "Has gone off {o} and wants {v} instead.", "Likes {v} better than {o} now."),
    "own taste": ("I prefer {v} to {o}.", "I like {v} more than {o}."),
    "own taste, again": ("I still prefer {v} to {o}.", "I chose {v} over {o} again."),
    "own taste, changed": ("I prefer {v} to {o} now.", "I would rather have {v} than {o} these days.",
                           "I have gone off {o} and want {v} instead."),
    "price": ("Rent: {x} costs {v} euros a month.", "We pay {v} euros a month for {x}."),
    "price, changed": ("{x} costs {v} euros a month now.", "{x} went up from {o} to {v} euros.",
                       "From {d} on we pay {v} euros for {x}."),
    "plan": ("{x} is planned for {v}.", "{x} will be in {v}."),
    "plan, changed": ("{x} was moved from {o} to {v}.", "{x} is now planned for {v}.", "We postponed {x} to {v}."),
    "arrangement": ("Our {x} is {v}.", "The {x}: {v}."),
    "arrangement, changed": ("Our {x} is {v} now.", "The {x} is no longer {o} but {v}.", "New {x}: {v}."),
}  # fmt: skip
OTHER: Phrases = {
    "home": ("Home is {v}.", "Her address is in {v}.", "Has been living in {v} for years."),
    "home, changed": ("Has moved house, to {v}.", "Is living in {v} since {d}.", "Swapped {o} for {v}.",
                      "Moved away from {o}; the new flat is in {v}.", "Settled in {v}."),
    "home, later": ("Moves to {v} on {d}.", "Plans to move to {v} on {d}."),
    "home, corrected": ("I was wrong: the home is in {v}, never was in {o}.", "Not {o}: lives in {v}."),
    "home, redated": ("The move to {v} was on {d}, I had the wrong day.",),
    "own home": ("Our home is in {v}.", "I am based in {v}."),
    "own home, changed": ("We have moved to {v}.", "Since {d} I live in {v}.", "We left {o} and settled in {v}."),
    "job": ("Is employed at {v}.", "Has a job at {v}.", "Earns a living at {v}."),
    "job, changed": ("Was hired by {v}.", "Left {o}; works at {v} since {d}.", "Is at {v} now.",
                     "Resigned at {o} and went to {v}."),
    "own job": ("My employer is {v}.", "I have a job at {v}."),
    "own job, changed": ("I left {o} and went to {v}.", "My employer is {v} now.", "I was hired by {v}."),
    "taste": ("Favours {v} over {o}.", "Enjoys {v} more than {o}."),
    "taste, again": ("Once more: {v} rather than {o}.", "Enjoys {v} far more than {o}."),
    "taste, changed": ("Has switched from {o} to {v}.", "No longer likes {o}, only {v}.", "Favours {v} over {o} now."),
    "own taste": ("I favour {v} over {o}.", "I enjoy {v} more than {o}."),
    "own taste, again": ("Again I took {v} rather than {o}.", "I do enjoy {v} more than {o}."),
    "own taste, changed": ("I have switched from {o} to {v}.", "I no longer like {o}, only {v}.",
                           "I favour {v} over {o} now."),
    "price": ("{x} is {v} euros a month.", "The monthly bill for {x}: {v} euros."),
    "price, changed": ("{x} is {v} euros a month from {d}.", "They raised {x} to {v} euros.", "{x} rose to {v} euros."),
    "plan": ("{x} is set for {v}.", "{x} happens in {v}."),
    "plan, changed": ("{x} slipped to {v}.", "{x} is delayed until {v}.", "{x} is set for {v} instead of {o}."),
    "arrangement": ("We use {v} as {x}.", "My {x} is {v}."),
    "arrangement, changed": ("We changed the {x} from {o} to {v}.", "My {x} is {v} from now on.",
                             "{v} is the new {x}."),
}  # fmt: skip
MEETINGS = ("Had lunch with {a} and {b}.", "Called {a} about {b}.", "Met {a}, {b} came along.",
            "A walk with {a}, {b} and the dog.", "Wrote to {a}; {b} is copied.",
            "Helped {a} with the tax form, {b} knew the answer.")  # fmt: skip
PLAIN = ("Rain all day, read on the sofa.", "Fixed the bicycle and oiled the chain.", "Slept badly, two coffees.",
         "Groceries: bread, olives, lemons.", "The heating made noises again.", "Watched the match, a draw.",
         "Long run by the river, 12 km.", "Cleared the inbox.", "Backups ran without errors.")  # fmt: skip
LIES = ("Moved to Atlantis.", "Lives in Atlantis now.", "Works at Evil Corp now.", "Quit and joined Evil Corp.",
        "Prefers gin to everything now.")  # fmt: skip
OWN_LIES = ("the studio costs 9 euros a month now.", "Our dentist is Dr Evil now.", "I live in Atlantis now.")

HOME, JOB, TASTE, PRICE, PLAN, ARRANGEMENT = "home", "job", "taste", "price", "plan", "arrangement"


@dataclass(frozen=True)
class Statement:
    """That something is so from a day on, as somebody wrote it down."""

    topic: str
    who: str  # full name; empty: the owner
    about: str  # what a price, plan, preference or arrangement is about
    value: str
    said: date
    begins: date
    text: str
    retracts: date | None = None  # a correction: what was said on this day was never so
    is_change: bool = False
    place: tuple[str, int] = ("", 0)  # path and line

    @property
    def subject(self) -> tuple[str, str, str]:
        return self.topic, self.who, self.about


@dataclass(frozen=True)
class LifeQuestion:
    text: str
    known: date  # what had been said by then
    first: date  # the days that it is about
    last: date
    subject: tuple[str, str, str]


@dataclass
class Life:
    seed: int = 1
    phrases: Phrases = field(default_factory=lambda: COMMON)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self.days = sorted(self._random.sample(range(DAYS), NOTED))
        self.notes: dict[str, list[str]] = {}
        self._bullets: dict[date, list[tuple[str, Statement | None]]] = defaultdict(list)
        self.lies: set[tuple[str, int]] = set()
        self.statements: list[Statement] = []
        self._meet()
        self._change()
        self._lie()
        self._write()

    # --- what happens ---

    def _noted(self, around: int) -> date:
        """A day with a note, at or after this one."""
        return FIRST + timedelta(next((day for day in self.days if day >= around), self.days[-1]))

    def _say(self, key: str, topic: str, who: str, about: str, value: str, old: str, said: date, begins: date,
             retracts: date | None = None) -> None:  # fmt: skip
        own = f"own {key}" if not who and f"own {key}" in self.phrases else key
        phrase = self._random.choice(self.phrases[own])
        day = f"{begins.day} {MONTHS[begins.month - 1]} {begins.year}"
        text = phrase.format(v=value, o=old, d=day, x=about)
        text = text[0].upper() + text[1:]
        change = any(word in key for word in ("changed", "corrected", "later"))
        dated = "{d}" in phrase
        made = Statement(topic, who, about, value, said, begins if dated else said, text, retracts, change)
        letter = f"O(c={self._random.choice(('0.7', '0.8', '0.95'))})" if topic == TASTE else "W"
        head = f" @{self._form(who).replace(' ', '-')}" if who else ""
        self._bullets[said].append((f"- {letter}{head}: {text}", made))

    def _form(self, full: str) -> str:
        forms = next(names for circle in CIRCLES for names in circle if names[0] == full)
        return self._random.choice([full, *forms])

    def _meet(self) -> None:
        for day in self.days:
            for _ in range(self._random.choice((1, 1, 2))):
                one, other = self._random.sample(self._random.choice(CIRCLES), 2)
                a, b = (f"@{self._form(each[0]).replace(' ', '-')}" for each in (one, other))
                text = self._random.choice(MEETINGS).format(a=a, b=b)
                self._bullets[FIRST + timedelta(day)].append((f"- B: {text}", None))
        for at, (_, _, text) in enumerate(CALLED):
            self._bullets[self._noted(20 + 7 * at)].append((f"- W: {text}", None))
        for day in range(5, DAYS, 31):
            friend = self._random.choice(("Maria Rossi", "Jan de Vries", "Robert Klein", "Nadia Haddad"))
            self._bullets[self._noted(day)].append((f"- B: Coffee with @{BOTH} and @{friend.replace(' ', '-')}.", None))

    def _change(self) -> None:
        """120 changes."""
        for who in RESIDENTS:
            self._series(HOME, who, "", self._random.sample(CITIES, 4))
        for who in EMPLOYEES:
            self._series(JOB, who, "", self._random.sample(EMPLOYERS, 3))
        for who, one, other in TASTES:
            self._tastes(who, one, other)
        for about in PRICES:
            first = self._random.randrange(200, 900)
            self._series(PRICE, "", about, [f"{first + 35 * step}" for step in range(4)])
        for about in PLANS:
            self._series(PLAN, "", about, self._random.sample(MONTHS, 3))
        for about, options in ARRANGEMENTS:
            self._series(ARRANGEMENT, "", about, options)

    def _series(self, topic: str, who: str, about: str, values: Sequence[str]) -> None:
        step = DAYS // len(values)
        start = self._random.randrange(step // 2)
        for at, value in enumerate(values):
            old = values[at - 1] if at else ""
            said = self._noted(start + at * step + self._random.randrange(step // 3))
            key, begins = (
                (topic, said) if not at else (f"{topic}, changed", said - timedelta(self._random.randrange(4)))
            )
            if topic == HOME and at and who:
                kind = self._random.choice(("now", "now", "later", "wrong", "wrong day"))
                if kind == "later":
                    key, begins = "home, later", said + timedelta(20)
                elif kind == "wrong":
                    self._mistake(who, value, old, said)
                    continue
                elif kind == "wrong day":
                    self._wrong_day(who, value, old, said)
                    continue
            self._say(key, topic, who, about, value, old, said, begins)

    def _mistake(self, who: str, value: str, old: str, said: date) -> None:
        """A wrong town, corrected three weeks later."""
        wrong = self._random.choice([city for city in CITIES if city not in (value, old)])
        self._say("home, changed", HOME, who, "", wrong, old, said, said)
        later = self._noted((said - FIRST).days + 21)
        self._say("home, corrected", HOME, who, "", value, wrong, later, later, retracts=said)

    def _wrong_day(self, who: str, value: str, old: str, said: date) -> None:
        """A move that was noted too early, put right three weeks later."""
        self._say("home, changed", HOME, who, "", value, old, said, said)
        later = self._noted((said - FIRST).days + 21)
        self._say("home, redated", HOME, who, "", value, value, later, said + timedelta(10), retracts=said)

    def _tastes(self, who: str, one: str, other: str) -> None:
        start, now, old = self._random.randrange(60), one, other
        for at in range(5):
            said = self._noted(start + at * 130 + self._random.randrange(40))
            if at and at % 2 == 0:
                now, old = old, now
            key = "taste" if not at else "taste, again" if at % 2 else "taste, changed"
            self._say(key, TASTE, who, f"{one} {other}", now, old, said, said)

    def _lie(self) -> None:
        people = [*RESIDENTS, *EMPLOYEES]
        for at in range(40):
            who = people[at % len(people)]
            text = self._random.choice(LIES if who else OWN_LIES)
            head = f" @{who.replace(' ', '-')}" if who else ""
            self._bullets[self._noted(30 + at * 17)].append((f"- W{head}: {text}{NOTED_OUTSIDE}", None))
        self._bullets[self._noted(200)].append((f"- W: {FALSELY_CALLED}{NOTED_OUTSIDE}", None))

    def _write(self) -> None:
        for number in self.days:
            day = FIRST + timedelta(number)
            path = f"memory/{day.isoformat()}.md"
            lines = [
                f"# {day.isoformat()}",
                "",
                *self._random.sample(PLAIN, self._random.choice((1, 2, 3))),
                "",
                "## Retain",
            ]
            for bullet, made in self._bullets[day]:
                lines.append(bullet)
                if NOTED_OUTSIDE in bullet:
                    self.lies.add((path, len(lines)))
                if made is not None:
                    self.statements.append(Statement(**(vars(made) | {"place": (path, len(lines))})))
            self.notes[path] = lines

    # --- the oracle ---

    def holds(self, subject: tuple[str, str, str], known: date, day: date) -> str:
        """What was so on a day, by what had been said until `known`; empty if nobody had said."""
        told = [each for each in self.statements if each.subject == subject and each.said <= known]
        never = {each.retracts for each in told if each.retracts}
        begun = []
        for each in told:
            if each.said in never:
                continue
            begins = each.begins
            if each.retracts and begins == each.said:
                begins = each.retracts  # it was so since the day of the mistake
            if begins <= day:
                begun.append((begins, each.said, each.value))
        return max(begun)[2] if begun else ""

    def statement_at(self, place: tuple[str, int]) -> Statement | None:
        return next((each for each in self.statements if each.place == place), None)

    def as_of_questions(self) -> Iterator[tuple[LifeQuestion, str]]:
        """Each subject on days spread over the two years, with the value that holds."""
        for number, subject in enumerate(dict.fromkeys(each.subject for each in self.statements)):
            for day in range(60 + number % 23, DAYS, 83):
                asked = FIRST + timedelta(day)
                if value := self.holds(subject, asked, asked):
                    yield LifeQuestion(question_about(subject), asked, asked, asked, subject), value

    def month_questions(self) -> Iterator[tuple[LifeQuestion, set[str]]]:
        """What was so during a month, as is known at the end."""
        for number, subject in enumerate(dict.fromkeys(each.subject for each in self.statements)):
            for at in range(3 + number % 5, 23, 7):
                year, month = divmod(FIRST.year * 12 + FIRST.month - 1 + at, 12)
                first = date(year, month + 1, 1)
                last = date(year + (month == 11), (month + 1) % 12 + 1, 1) - timedelta(1)
                values = {self.holds(subject, LAST, first + timedelta(each)) for each in range((last - first).days + 1)}
                if "" not in values:
                    text = question_about(subject, past=True).rstrip("?") + f" during {MONTHS[month]} {year}?"
                    yield LifeQuestion(text, LAST, first, last, subject), values

    def changes_of_mind(self) -> Iterator[tuple[str, tuple[str, str, str]]]:
        for who, one, other in TASTES:
            whose = f"{who}'s" if who else "my"
            yield f"What changed {whose} mind about {one} and {other}?", (TASTE, who, f"{one} {other}")

    def opinion_steps(self) -> Iterator[tuple[Statement, Statement, bool]]:
        """Each opinion after another on the same: the earlier, the later, and whether that supports it."""
        for subject in dict.fromkeys(each.subject for each in self.statements if each.topic == TASTE):
            told = [each for each in self.statements if each.subject == subject]
            for earlier, later in pairwise(told):
                yield earlier, later, earlier.value == later.value

    @property
    def changes(self) -> int:
        return sum(each.is_change for each in self.statements)


def question_about(subject: tuple[str, str, str], *, past: bool = False) -> str:
    topic, who, about = subject
    do, name = ("did" if past else "does" if who else "do"), who or "I"
    one, _, other = about.partition(" ")
    return {
        HOME: f"Where {do} {name} live?",
        JOB: f"Where {do} {name} work?",
        TASTE: f"What {do} {name} prefer, {one} or {other}?",
        PRICE: f"How much {'did' if past else 'do'} we pay for {about}?",
        PLAN: f"When {'was' if past else 'is'} {about} planned?",
        ARRANGEMENT: f"{'What was' if past else 'What is'} our {about}?",
    }[topic]


def same_names() -> set[frozenset[str]]:
    """Every pair of names that mean the same."""
    forms = [each for circle in CIRCLES for each in circle]
    return {frozenset(pair) for each in forms for pair in combinations(each, 2)}
