"""Text from outside in a session: list it, and declare its sources trusted, from every surface and by `/trust`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Struct

from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest, PalinurusError
from palinurus.domain.events import visible
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import OutsideText
from palinurus.operations.approvals import OWNER, GrantList
from palinurus.operations.operation import Days, operation
from palinurus.operations.services import Services
from palinurus.tools.grant_issuer import GrantTerms
from palinurus.tools.grants import FORMS, Grant, Scope, is_trustable, read_source, trust_draft, trust_in

ALL = "all"
USAGE = f"/trust SOURCE|NUMBER|all: {FORMS}"


class ShownText(Struct, frozen=True, rename="camel"):
    source: str  # empty: not known
    digest: str
    trusted: bool


class OutsideList(Struct, frozen=True, rename="camel"):
    session_key: str
    texts: tuple[ShownText, ...]


@operation("approvals.outside", scope="read")
async def list_outside_texts(services: Services, session: str = "", agent: str = "") -> OutsideList:
    """What a conversation holds from outside, and what of it is trusted."""
    key = await _key(services, session, agent)
    return OutsideList(str(key), tuple(await _shown(services, key)))


@operation("approvals.trust", scope="approvals")
async def trust_sources(
    services: Services,
    sources: Annotated[tuple[str, ...], "As a person says them; `all`: every text that it holds now, as it is."],
    session: str = "",
    agent: str = "",
    scope: Scope = "agent",
    days: Days | None = None,
) -> GrantList:
    """Declare sources of a conversation's text from outside trusted."""
    key = await _key(services, session, agent)
    return GrantList(tuple(await _declare(services, key, sources, OWNER, scope, days)))


async def trust_command(services: Services, key: SessionKey, words: str, by: str, *, owner: bool) -> str:
    """What `/trust` answers. Never raises a PalinurusError: who types gets told."""
    if not owner:
        return "Only the owner can trust a source."
    try:
        if not words.strip():
            return _listed(await _shown(services, key))
        scope: Scope = "session" if words.split() == [ALL] else "agent"
        given = await _declare(services, key, words.split(), by, scope)
    except PalinurusError as error:
        return str(error)
    rules = [f"{grant.id}  {visible(grant.args[0])}" for grant in given]
    return "\n".join(["Now trusted:", *rules, "`pal approvals revoke ID` takes it back."])


async def _key(services: Services, session: str, agent: str) -> SessionKey:
    if session:
        return await services.dispatcher.place(Inbound("", "", session_key=session, agent=agent))
    key = SessionKey.main(agent or services.agents.default)
    services.agents.get(key.agent)  # raises NotFound
    return key


async def _shown(services: Services, key: SessionKey) -> list[ShownText]:
    texts = (await services.turns.history.view_of(key)).outside_texts
    trust = await trust_in(services.grants, key, services.clock.now_ms())
    return [ShownText(text.source, text.digest, trust.covers(text)) for text in texts]


async def _declare(
    services: Services, key: SessionKey, words: Sequence[str], by: str, scope: Scope, days: float | None = None
) -> list[Grant]:
    known = (await services.turns.history.view_of(key)).outside_texts
    sources = dict.fromkeys(source for word in words for source in _meant(word, known))
    if not sources:
        raise BadRequest("there is nothing to trust", hint=f"name {FORMS}")
    terms = GrantTerms([trust_draft(source) for source in sources], scope, days)
    return await services.approvals.issuer.issue(terms, session_key=str(key), by=by)


def _meant(word: str, known: Sequence[OutsideText]) -> list[str]:
    if word == ALL:
        return [f"text:{text.digest}" for text in known if text.digest]
    if word.isdecimal():
        if not 0 < int(word) <= len(known):
            raise BadRequest(f"there is no text {word} in this session", hint="/trust lists them")
        text = known[int(word) - 1]
        if not is_trustable(text.source) and not text.digest:
            raise BadRequest(f"text {word} is not known well enough to be trusted", hint="/new starts without it")
        return [text.source if is_trustable(text.source) else f"text:{text.digest}"]
    return [read_source(word, known)]


def _listed(shown: Sequence[ShownText]) -> str:
    if not shown:
        return "This session contains no untrusted text."
    lines = [
        f"{number:>3}  {visible(each.source) or 'unknown source'}{'  trusted' if each.trusted else ''}"
        for number, each in enumerate(shown, start=1)
    ]
    return "\n".join(["Untrusted text in this session:", *lines, USAGE])
