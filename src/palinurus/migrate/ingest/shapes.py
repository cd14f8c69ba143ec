"""The shapes by which people and projects are known in one fact. No model, and no list of names.

A page for somebody who is none is worse than a page too few. So a name needs a clear sign (a title, a kinship, a
handle, a heading, a file of its own), or two facts in which it does what people do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from palinurus.memory.dates import date_in_path
from palinurus.migrate.ingest.fact import Fact

LONGEST = 60
ENOUGH = 2  # faint signs that make a person

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
_CLEAR = tuple(  # each with letters of which it needs some: looking for those is much quicker
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


def project_names(fact: Fact) -> Iterator[str]:
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
    """Those who do what people do: a faint sign."""
    return _names(_ACTING, text)


def owning_names(text: str) -> set[str]:
    """Those who have something: fainter still, as a thing may too."""
    return _names(_OWNING, text) if "'s" in text or "’s" in text else set()


def _names(pattern: re.Pattern[str], text: str) -> set[str]:
    return {
        name
        for match in pattern.finditer(text)
        if not _A_THING.search(text, max(0, match.start() - 10), match.start())  # the word just before it
        and (name := _trimmed(match.group()))
    }


@lru_cache(4096)
def project_of_file(file: str) -> str:
    match = _PROJECT_FILE.search(file)
    return match[1] if match and date_in_path(file) is None else ""


@lru_cache(4096)
def person_of_file(file: str) -> str:
    match = _PERSON_FILE.search(file)
    return match[1].replace("-", " ").title() if match else ""


def clear_names(fact: Fact) -> Iterator[str]:
    text = fact.text
    said = [match[1] for hints, pattern in _CLEAR if _any_in(hints, text) for match in pattern.finditer(text)]
    said += [match[1] for heading in fact.under if (match := _ABOUT.match(heading))]
    yield from (name for each in said if (name := _trimmed(each)))
    yield from (handle for handle in fact.about if re.fullmatch(_NAME, handle))
    below = [heading for above, heading in zip(fact.under, fact.under[1:], strict=False) if _PEOPLE.fullmatch(above)]
    if fact.under and _PEOPLE.fullmatch(fact.under[-1]) and (label := _LABEL.match(fact.text)):
        below.append(label["name"].strip())
    yield from (name for name in below if re.fullmatch(_FULL, name))
    yield from (name for cite in fact.cites if (name := person_of_file(cite.file)))


def _any_in(hints: tuple[str, ...], text: str) -> bool:
    return not hints or any(hint in text for hint in hints)


def _trimmed(name: str) -> str:
    """Without words in front that only begin a sentence; empty when nothing is left that could be a name."""
    words = name.split()
    while words and words[0] in _NOT_NAMES:
        words.pop(0)
    return "" if not words or any(word in _NOT_NAMES for word in words) else " ".join(words)
