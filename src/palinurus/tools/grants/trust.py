"""Trust in text from outside: grants that name a source, or one text by its digest, instead of a command.

    host:docs.example.org   host:*.example.org   file:docs/   file:inbox/1.eml   mcp:calendar   skill:pdf   text:DIGEST

Words of other people (`sender:`) and of other programs cannot be declared trusted: who may speak as the owner is said
elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from palinurus.domain.errors import BadRequest
from palinurus.domain.keys import SessionKey
from palinurus.domain.provenance import OutsideText
from palinurus.tools.grants.grants import Grant, GrantDraft, GrantStore

TRUST = "trust"  # in place of a tool's name
KINDS = ("host", "file", "mcp", "skill", "text")
FORMS = "a host, a file, a folder that ends with /, mcp:NAME or skill:NAME"
_HOST = re.compile(r"(\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)+|\[[0-9a-f:]+\]|localhost")
_URL = re.compile(r"https?://(\[[0-9a-f:]+\]|[^/:?#@\s]+)", re.IGNORECASE)


class GrantedTrust(Struct, frozen=True):
    """Implements domain.provenance.Trust."""

    sources: frozenset[str]

    def covers(self, text: OutsideText) -> bool:
        return bool(self.sources) and not self.sources.isdisjoint(_names(text))


def granted_trust(grants: Iterable[Grant]) -> GrantedTrust:
    named = (source for grant in grants if grant.tool == TRUST for source in grant.args)
    return GrantedTrust(frozenset(filter(is_trustable, named)))


async def trust_in(grants: GrantStore, key: SessionKey, now: int) -> GrantedTrust:
    """What is trusted in a session at this moment."""
    return granted_trust(await grants.active(agent=key.agent, session_key=str(key), now=now))


def is_trustable(source: str) -> bool:
    kind, _, name = source.partition(":")
    return kind in KINDS and bool(name)


def trust_draft(source: str) -> GrantDraft:
    return GrantDraft(TRUST, args=(source,))


def read_source(word: str, known: Sequence[OutsideText] = ()) -> str:
    """The source that somebody means who says this word where these texts are. Raises BadRequest."""
    for text in known:
        if word and is_trustable(text.source) and word in (text.source, text.source.partition(":")[2]):
            return text.source
    if is_trustable(word):
        return word
    if url := _URL.match(word):
        return f"host:{url[1].lower()}"
    if "/" in word and not word.startswith(("/", "~", "../")):
        return f"file:{word.removeprefix('./')}"
    if _HOST.fullmatch(word.lower()):
        return f"host:{word.lower()}"
    raise BadRequest(f"{word!r} is nothing that can be trusted", hint=f"name {FORMS}")


def _names(text: OutsideText) -> Iterator[str]:
    """All that would cover it: the text, its source, the folders and domains that the source lies in."""
    if text.digest:
        yield f"text:{text.digest}"
    yield text.source
    kind, _, name = text.source.partition(":")
    if kind == "host":
        labels = name.split(".")
        yield from (f"host:*.{'.'.join(labels[at:])}" for at in range(len(labels)))
    elif kind == "file":
        parts = name.split("/")
        yield from (f"file:{'/'.join(parts[:at])}/" for at in range(1, len(parts)))
