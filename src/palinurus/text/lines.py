"""A text as lines with their styles: what all dialects have in common. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Literal

from msgspec import Struct

BOLD, ITALIC, STRIKE, CODE = 1, 2, 4, 8
STYLES = (BOLD, ITALIC, STRIKE, CODE)
SCHEMES = ("http://", "https://", "mailto:", "tel:")  # of links; others stay text
LONGEST_LINK = 1000  # characters; longer ones stay text
_URL = re.compile(r"\bhttps?://[^\s<>\"`，。、；：！？（）「」『』【】《》]+", re.IGNORECASE)


class Span(Struct, frozen=True):
    """Text of one style. `link` is where it leads to."""

    text: str
    style: int = 0
    link: str = ""

    @property
    def is_address(self) -> bool:
        """Whether the text is the address itself."""
        return self.link in (self.text, f"mailto:{self.text}", f"tel:{self.text}")


class LineContainer(Struct, frozen=True):
    """A quotation, or an item of a list, in which a line stands."""

    kind: Literal["quote", "item"]
    id: int
    list_id: int = 0
    number: int = -1  # of an ordered list
    depth: int = 0  # of lists around it


class LineBlock(Struct, frozen=True):
    """The paragraph, heading, table, rule or code that a line is part of."""

    kind: Literal["paragraph", "heading", "code", "table", "rule"]
    id: int
    level: int = 0  # of a heading
    language: str = ""  # of code
    is_tight: bool = False  # a paragraph of a list without blank lines
    aligns: tuple[str, ...] = ()  # of the columns of a table: left, right, center or empty


class TextLine(Struct, frozen=True):
    spans: tuple[Span, ...]
    block: LineBlock
    path: tuple[LineContainer, ...] = ()
    fresh: int = 0  # containers from this one on begin with this line
    gap: bool = False  # whether a blank line stands before it
    cells: tuple[tuple[Span, ...], ...] = ()  # of a row of a table; `spans` is the row as aligned text
    is_head: bool = False  # the first row of a table

    @property
    def is_code(self) -> bool:
        return self.block.kind == "code"

    @property
    def text(self) -> str:
        return "".join(span.text for span in self.spans)


def tidied(spans: Sequence[Span]) -> tuple[Span, ...]:
    """The spans of a line: joined, addresses found, no space at the edge of a style."""
    if len(spans) == 1 and not spans[0].style and not spans[0].link and "://" not in spans[0].text:
        return (Span(spans[0].text.strip()),)  # most lines
    found: list[Span] = []
    for span in _with_addresses(_joined(_one_link_each(spans))):
        found += [span] if span.style & CODE else _apart_from_space(span)
    for index, span in enumerate(found):
        if span.text.isspace() and not span.style & CODE and not span.link:
            before = found[index - 1].style if index else 0
            after = found[index + 1].style if index + 1 < len(found) else 0
            found[index] = Span(span.text, before & after & ~CODE)
    return _joined(found)


def split_spans(spans: Sequence[Span], place: int) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """The spans before and after a place in their text."""
    for index, span in enumerate(spans):
        if place < len(span.text):
            link = "" if span.is_address else span.link  # a part of an address is none
            first = (Span(span.text[:place], span.style, link),) if place else ()
            return (*spans[:index], *first), (Span(span.text[place:], span.style, link), *spans[index + 1 :])
        place -= len(span.text)
    return tuple(spans), ()


def is_longer(spans: Iterable[Span], length: int) -> bool:
    """Whether their text has more characters. Only as many spans are read as it takes."""
    for span in spans:
        length -= len(span.text)
        if length < 0:
            return True
    return False


def unlinked(span: Span) -> Iterator[Span]:
    """A link as text: `text (address)`."""
    if not span.link or span.is_address:
        yield Span(span.text, span.style)
    else:
        yield from (Span(span.text, span.style), Span(f" ({span.link.removeprefix('mailto:').removeprefix('tel:')})"))


def plain_text(spans: Iterable[Span]) -> str:
    return "".join(part.text for span in spans for part in unlinked(span))


def _joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    groups = groupby(spans, key=lambda span: (span.style, span.link))
    joined = (Span("".join(span.text for span in group), style, link) for (style, link), group in groups)
    return tuple(span for span in joined if span.text)


def _one_link_each(spans: Sequence[Span]) -> Iterator[Span]:
    """A link has one style: that which all its parts have."""
    for link, group in groupby(spans, key=lambda span: span.link):
        parts = list(group)
        if not link:
            yield from parts
            continue
        style = parts[0].style
        for part in parts:
            style &= part.style
        span = Span("".join(part.text for part in parts) or link, style, link)
        usable = len(link) <= LONGEST_LINK and link.lower().startswith(SCHEMES)
        yield from [span] if usable else unlinked(span)


def _with_addresses(spans: Iterable[Span]) -> Iterator[Span]:
    for span in spans:
        if span.link or span.style & CODE or "://" not in span.text:
            yield span
            continue
        at = 0
        for found in _URL.finditer(span.text):
            url = _bare_url(found.group())
            if len(url) > LONGEST_LINK:
                continue
            yield from (Span(span.text[at : found.start()], span.style), Span(url, span.style, url))
            at = found.start() + len(url)
        yield Span(span.text[at:], span.style)


def _bare_url(url: str) -> str:
    """Without the punctuation of the sentence."""
    bare = url.rstrip(".,;:!?'*_~")
    extra = bare.count(")") - bare.count("(")
    tail = len(bare) - len(bare.rstrip(")"))
    return bare[: len(bare) - max(0, min(extra, tail))].rstrip(".,;:!?'*_~")


def _apart_from_space(span: Span) -> Iterator[Span]:
    stripped = span.text.strip()
    if not stripped or span.text == stripped or not (span.style or span.link):
        yield span
        return
    start = span.text.index(stripped)
    yield Span(span.text[:start])
    yield Span(stripped, span.style, span.link)
    yield Span(span.text[start + len(stripped) :])
