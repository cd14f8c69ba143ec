"""Who and what a home speaks of: its people, its projects and its owner, found in all facts and found again in each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

from palinurus.migrate.ingest.fact import Fact
from palinurus.migrate.ingest.shapes import (
    ENOUGH,
    LONGEST,
    acting_names,
    clear_names,
    owning_names,
    person_of_file,
    project_names,
    project_of_file,
)

OWNER = "owner"  # the page of whom the home belongs to, when nobody has said a name

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
        self._of: dict[str, list[Name]] = {}  # by the key of a fact: it is asked for each page that it stands on
        spelled = sorted({*self._people, *self._first, *self._projects}, key=lambda each: (-len(each), each))
        joined = "|".join(map(re.escape, spelled))
        self._pattern = re.compile(rf"(?<![\w/-])(?:{joined})(?![\w/-])", re.IGNORECASE) if joined else None

    def spans(self, text: str) -> Iterator[tuple[int, int, Name]]:
        """Where a text names them."""
        for match in self._pattern.finditer(text) if self._pattern else ():
            if name := self.called(match.group()):
                yield match.start(), match.end(), name

    def called(self, word: str) -> Name | None:
        """A project in any case; a person only as people are spelled."""
        return self._projects.get(word.casefold()) or self._people.get(word) or self._first.get(word)

    def of(self, fact: Fact) -> list[Name]:
        """Those that a fact is about, in the order in which it names them."""
        if (known := self._of.get(fact.key)) is None:
            known = self._of[fact.key] = self._found_in(fact)
        return known

    def _found_in(self, fact: Fact) -> list[Name]:
        if fact.path:
            parts = fact.text.casefold().replace(".md", "").split("/")
            found = [name for part in parts if (name := self._projects.get(part))]
        else:
            found = [name for handle in fact.about if (name := self.called(handle))]
            found += [name for text in (fact.text, *fact.under) for _, _, name in self.spans(text)]
            for cite in fact.cites:
                stem = project_of_file(cite.file) or person_of_file(cite.file)
                found += [name] if (name := self.called(stem)) else []
            found += [self.owner] if _is_of_the_owner(fact) else []
        return list(dict.fromkeys(found))


def find_names(facts: Iterable[Fact]) -> Names:
    """The same facts give the same names, in whatever order they come. Words from outside make nobody known."""
    known, owning, plain = set[str](), set[str](), set[str]()
    acting: Counter[str] = Counter()
    owners: Counter[str] = Counter()
    projects: dict[str, str] = {}
    for fact in facts:
        if fact.path or fact.outside:
            continue
        if _is_of_the_owner(fact) and (match := _OWNER_FIELD.match(fact.text)):
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
    # A word that is also written small is none of a person's: `Coffee` at the beginning of a sentence.
    known |= {
        name for name, signs in acting.items() if signs + (name in owning) >= ENOUGH and name.lower() not in plain
    }
    for name in sorted(known, key=lambda each: (-len(each), each)):
        if name.casefold() in projects:
            continue
        found.setdefault(slug(name), Name("person", slug(name), name))
    kept = {slug(name): Name("project", slug(name), name) for name in sorted(projects.values()) if slug(name)}
    return Names(found.values(), kept.values(), belongs)


def slug(text: str) -> str:
    """A name as a file: letters, digits and hyphens, nothing that could lead elsewhere."""
    return re.sub(r"\W+|_+", "-", text.casefold()).strip("-")[:LONGEST].strip("-")


def _is_of_the_owner(fact: Fact) -> bool:
    """Whether it stands in the file about them."""
    return any(cite.file.rpartition("/")[2].lower() == "user.md" for cite in fact.cites)


def _first_names(people: dict[str, Name]) -> dict[str, Name]:
    """`Noor` is Noor Haddad, as long as there is no other Noor."""
    found: dict[str, Name | None] = {}
    for full, name in people.items():
        first = full.split()[0]
        if first != full:
            found[first] = None if first in found or first in people else name
    return {first: name for first, name in found.items() if name is not None}
