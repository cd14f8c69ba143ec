"""Names of people and projects, and of the owner: found in all facts, then looked up in each fact.

They are found by patterns, without a model or a list of names. A wrong page is worse than a missing one, so a name
needs a clear sign (a title, a kinship, a handle, a heading, a file of its own), or two facts in which it acts like a
person.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from palinurus.extensions.migrate.ingest.facts import MergedFact
from palinurus.memory.terms import date_in_path

LONGEST = 60
ENOUGH = 2  # weak signs for a person
_NAME = r"[A-ZÀ-ÖØ-Þ][^\W\d_A-Z]+(?:-[A-ZÀ-ÖØ-Þ][^\W\d_]+)?"
_FULL = rf"{_NAME}(?: {_NAME}){{0,2}}"

_ROLE = (
    r"(?:wife|husband|partner|girlfriend|boyfriend|son|daughter|child|mother|father|mom|mum|dad|sister|brother|aunt"
    r"|uncle|cousin|grandmother|grandfather|friend|neighbou?r|colleague|coworker|boss|manager|teacher|doctor|dentist"
    r"|landlord|client|customer|designer|illustrator|developer|editor|accountant|lawyer|flatmate|roommate|frau|mann)"
)

_VERB = (
    r"(?:says?|said|takes?|lends?|wants?|prefers?|likes?|loves?|hates?|works? (?:at|for|as|in)|lives?|asks?|asked|told"
    r"|tells|owns?|writes?|wrote|runs (?:a|an|the)|thinks|thought|moved to|agreed|decided|suggested|brought|visits?"
    r"|visited|arrives?|has the|will (?:bring|take|send|call|come)"
    r"|is (?:coming|away|back|ill|sick|allergic|vegetarian))"
)

_CLEAR = tuple(  # each with texts of which it needs one: searching for those first is much faster
    (hints, re.compile(pattern))
    for hints, pattern in (
        (("Mr", "Ms", "Dr", "Prof", "Herr", "Frau"), rf"\b(?:Mr|Mrs|Ms|Dr|Prof|Herr|Frau)\.? ({_NAME}(?: {_NAME})?)"),
        ((), rf"\b(?i:my|our|his|her|their|meine?|unsere?) (?i:{_ROLE}),? (?:is |called |named |heißt )?({_FULL})"),
        ((" is ",), rf"\b({_FULL}) is (?:my|our|the|a|an|his|her|their) (?:\w+ )?{_ROLE}\b"),
        (("by ", "with ", "met "), rf"\b(?:by|with|met) ({_NAME} {_NAME})\b(?=[,.;]| \(|$)"),
    )
)

_ACTING = re.compile(rf"(?:^|(?<=[.!?:;,] )|(?<=[a-z] )|(?<=\d )){_FULL}(?= {_VERB}\b)")
_OWNING = re.compile(rf"\b{_NAME}(?=[’']s\b)")
_A_THING = re.compile(r"(?i:group|team|class|room|hall|street|company|firm|shop|box|deck|bed|plot|version|phase) $")
_ABOUT = re.compile(rf"^(?:About|Über) ({_FULL})$")
_PEOPLE = re.compile(r"(?i:people|persons?|contacts?|family|friends|team|personen|leute|kontakte)")
_PROJECTS = re.compile(r"(?i:(?:(?:active|current|side|my|our|open|past) )?(?:projects?|projekte?|repos(?:itories)?))")
_SLUG = re.compile(r"[A-Za-z0-9]+(?:[-_][A-Za-z0-9]+)+")
_LABEL = re.compile(r"^[*_`]*+(?P<name>[\w][\w .+-]{0,40}?)[*_`]*\s*(?::|—|–)[*_]*\s")

_NAMED_PROJECT = re.compile(
    r"\b(?i:project|projekt|repo|repository)[ :]+(?:`([\w][\w.-]{1,40})`|([a-z0-9]+(?:[-_][a-z0-9]+)+))"
)

_REPO = re.compile(
    r"(?:github|gitlab|codeberg|bitbucket)\.(?:com|org)[/:][\w.-]+/([\w-][\w.-]{0,60}?)(?:\.git)?(?=[/\s)`'\",]|\.?$)"
)

_SESSION = re.compile(r"^Session:\s+(\S+)", re.IGNORECASE)
_PROJECT_FILE = re.compile(r"(?:^|/)(?:notes|memory/projects?)/(?:[^/]+/)*([^/]+)\.md$", re.IGNORECASE)
_PERSON_FILE = re.compile(r"(?:^|/)memory/people/([^/]+)\.md$", re.IGNORECASE)

_NO_NAMES = """
The This That These Those There Then They Their We Our You Your He She His Her Its It I My Me And But Or Not No Yes If
When Where What Which Who Why How As At By For From In Into Of On To With Without After Before Until Since All Any Some
Each Every Both One Two Three First Second Third Last Next New Old Today Tomorrow Yesterday Now Here Also Just Only
Still Please Thanks Note Noted Understood Saved Added Keep Kept Use Uses Used Update Updated Monday Tuesday Wednesday
Thursday Friday Saturday Sunday January February March April May June July August September October November December
Mon Tue Wed Thu Fri Sat Sun Jan Feb Mar Apr Jun Jul Aug Sep Oct Nov Dec English German French Spanish Chinese Japanese
Der Die Das Ein Eine Und Wir Ich Es Assistant User System Agent Bot Everyone Everybody Nobody Somebody People Team
Customer Customers Project Session Memory Debugging Decision Rule Open Log
"""

_NOT_NAMES = frozenset(_NO_NAMES.split())


def project_names(fact: MergedFact) -> Iterator[str]:
    for above, heading in zip(fact.under, fact.under[1:], strict=False):
        if _PROJECTS.fullmatch(above.strip("*_: ")) and len(heading) <= LONGEST:
            yield heading.strip("*_`: ")
    if fact.under and _PROJECTS.fullmatch(fact.under[-1].strip("*_: ")) and (label := _LABEL.match(fact.text)):
        yield label["name"].strip()
    for heading in fact.under:
        if (session := _SESSION.match(heading)) and _SLUG.fullmatch(session[1]):
            yield session[1]
    small = fact.text.lower()
    if "proje" in small or "repo" in small:
        yield from (match[1] or match[2] for match in _NAMED_PROJECT.finditer(fact.text))
    if ".com" in fact.text or ".org" in fact.text:
        yield from (match[1] for match in _REPO.finditer(fact.text))
    yield from (handle for handle in fact.about if handle[0].islower())
    yield from (stem for cite in fact.cites if (stem := project_of_file(cite.file)))


def acting_names(text: str) -> set[str]:
    """Names that act like people: a weak sign."""
    return _names(_ACTING, text)


def owning_names(text: str) -> set[str]:
    """Names that own something: a weaker sign, because a thing may too."""
    return _names(_OWNING, text) if "'s" in text or "’s" in text else set()


def _names(pattern: re.Pattern[str], text: str) -> set[str]:
    found = pattern.finditer(text)
    # Not after a word such as `group`, which is looked for just before it.
    names = [each.group() for each in found if not _A_THING.search(text, max(0, each.start() - 10), each.start())]
    return set(filter(None, map(_trimmed, names)))


@lru_cache(4096)
def project_of_file(file: str) -> str:
    match = _PROJECT_FILE.search(file)
    return match[1] if match and date_in_path(file) is None else ""


@lru_cache(4096)
def person_of_file(file: str) -> str:
    match = _PERSON_FILE.search(file)
    return match[1].replace("-", " ").title() if match else ""


def clear_names(fact: MergedFact) -> Iterator[str]:
    text = fact.text
    possible = [pattern for hints, pattern in _CLEAR if not hints or any(hint in text for hint in hints)]
    said = [match[1] for pattern in possible for match in pattern.finditer(text)]
    said += [match[1] for heading in fact.under if (match := _ABOUT.match(heading))]
    yield from (name for each in said if (name := _trimmed(each)))
    yield from (handle for handle in fact.about if re.fullmatch(_NAME, handle))
    below = [heading for above, heading in zip(fact.under, fact.under[1:], strict=False) if _PEOPLE.fullmatch(above)]
    if fact.under and _PEOPLE.fullmatch(fact.under[-1]) and (label := _LABEL.match(fact.text)):
        below.append(label["name"].strip())
    yield from (name for name in below if re.fullmatch(_FULL, name))
    yield from (name for cite in fact.cites if (name := person_of_file(cite.file)))


def _trimmed(name: str) -> str:
    """Without words in front that only begin a sentence; empty when no name is left."""
    words = name.split()
    while words and words[0] in _NOT_NAMES:
        words.pop(0)
    return "" if not words or any(word in _NOT_NAMES for word in words) else " ".join(words)


OWNER = "owner"  # the page of the owner when the name is not known
_OWNER_FIELD = re.compile(r"^[*_]*(?:Name|(?:What to )?call them)[*_]*:[*_]*\s*(?P<name>[^\n(]{2,40})$", re.IGNORECASE)


class Name(Struct, frozen=True, order=True):
    kind: Literal["person", "project"]
    slug: str
    name: str

    @property
    def page(self) -> str:
        return f"{'people' if self.kind == 'person' else 'projects'}/{self.slug}"


class Names:
    def __init__(self, people: Iterable[Name], projects: Iterable[Name], owner: Name) -> None:
        self.owner = owner
        self.all = (*sorted(people), *sorted(projects))
        self._people = {name.name: name for name in self.all if name.kind == "person"}
        self._projects = {name.name.casefold(): name for name in self.all if name.kind == "project"}
        self._first = _first_names(self._people)
        self._of: dict[str, list[Name]] = {}  # by the key of a fact: it is needed for each page of the fact
        spelled = sorted({*self._people, *self._first, *self._projects}, key=lambda each: (-len(each), each))
        joined = "|".join(map(re.escape, spelled))
        self._pattern = re.compile(rf"(?<![\w/-])(?:{joined})(?![\w/-])", re.IGNORECASE) if joined else None

    def spans(self, text: str) -> Iterator[tuple[int, int, Name]]:
        """Where a text has a name."""
        for match in self._pattern.finditer(text) if self._pattern else ():
            if name := self.called(match.group()):
                yield match.start(), match.end(), name

    def called(self, word: str) -> Name | None:
        """A project in upper or lower case; a person only as written."""
        return self._projects.get(word.casefold()) or self._people.get(word) or self._first.get(word)

    def of(self, fact: MergedFact) -> list[Name]:
        """The names in a fact, in order."""
        if fact.key not in self._of:
            self._of[fact.key] = self._found_in(fact)
        return self._of[fact.key]

    def _found_in(self, fact: MergedFact) -> list[Name]:
        if fact.path:
            parts = fact.text.casefold().replace(".md", "").split("/")
            found = [name for part in parts if (name := self._projects.get(part))]
        else:
            found = [name for handle in fact.about if (name := self.called(handle))]
            found += [name for text in (fact.text, *fact.under) for _, _, name in self.spans(text)]
            stems = [project_of_file(cite.file) or person_of_file(cite.file) for cite in fact.cites]
            found += [name for stem in stems if (name := self.called(stem))]
            found += [self.owner] if _is_about_owner(fact) else []
        return list(dict.fromkeys(found))


def find_names(facts: Iterable[MergedFact]) -> Names:
    """The same facts give the same names in any order. Facts from outside are not used."""
    known, owning, plain = set[str](), set[str](), set[str]()
    acting: Counter[str] = Counter()
    owners: Counter[str] = Counter()
    projects: dict[str, str] = {}
    for fact in facts:
        if fact.path or fact.outside:
            continue
        if _is_about_owner(fact) and (match := _OWNER_FIELD.match(fact.text)):
            owners[match["name"].strip(" *_.")] += 1
        for each in project_names(fact):
            projects[each.casefold()] = min(each, projects.get(each.casefold(), each))
        known.update(clear_names(fact))
        acting.update(acting_names(fact.text))
        owning |= owning_names(fact.text)
        plain.update(filter(str.islower, fact.text.split()))
    owner = min(owners, key=lambda name: (-owners[name], name), default="")
    belongs = Name("person", slug(owner) or OWNER, owner)
    found = {belongs.slug: belongs} if slug(owner) else {}
    # A word that also occurs in lower case is no name: `Coffee` at the beginning of a sentence.
    signs = {name: count + (name in owning) for name, count in acting.items() if name.lower() not in plain}
    known |= {name for name, count in signs.items() if count >= ENOUGH}
    for name in sorted(known, key=lambda each: (-len(each), each)):
        if name.casefold() not in projects:
            found.setdefault(slug(name), Name("person", slug(name), name))
    kept = {slug(name): Name("project", slug(name), name) for name in sorted(projects.values()) if slug(name)}
    return Names(found.values(), kept.values(), belongs)


def slug(text: str) -> str:
    """A name as a file name: letters, digits and hyphens only."""
    return re.sub(r"\W+|_+", "-", text.casefold()).strip("-")[:LONGEST].strip("-")


def _is_about_owner(fact: MergedFact) -> bool:
    """Whether it is from the file about the owner."""
    return any(cite.file.rpartition("/")[2].lower() == "user.md" for cite in fact.cites)


def _first_names(people: dict[str, Name]) -> dict[str, Name]:
    """`Noor` is Noor Haddad, as long as there is no other Noor."""
    found: dict[str, Name | None] = {}
    for full, name in people.items():
        first = full.split()[0]
        if first != full:
            found[first] = None if first in found or first in people else name
    return {first: name for first, name in found.items() if name is not None}
