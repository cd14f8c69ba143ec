"""The core block: what an agent should know of its user at all times, in a few lines of `.pal/core.md`.

It is made of the facts, for they are the truth: statements of the owner about himself that still hold, the surest and
newest first, as many as fit. The head of a prompt shows the file, and a later change of it rides in the newest message,
as with any file of the workspace. Groups do not see it. Who the agent is stands in IDENTITY.md and SOUL.md beside it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterator, Sequence
from datetime import date, timedelta
from typing import Annotated

from palinurus.config.section import Section, option
from palinurus.domain.clock import local_time
from palinurus.domain.errors import NotFound
from palinurus.domain.hooks import HookEvent
from palinurus.domain.messages import Origin
from palinurus.extensions.knowledge.beliefs import beliefs_of
from palinurus.extensions.knowledge.facts import Fact
from palinurus.extensions.knowledge.knowledge import Knowledge
from palinurus.extensions.knowledge.store import StoredFact
from palinurus.extensions.knowledge.topics import topics_of
from palinurus.operations.services import Services
from palinurus.text.tokens import estimate_tokens
from palinurus.workspace.files import CORE_FILE
from palinurus.workspace.write import rewrite

BELIEVED = 0.6  # confidence from which an opinion counts
OVER = timedelta(7)  # days after which what was ahead is of no use
LONGEST = 300  # characters of one line
_OWN = re.compile(r"\b(?:I|I['’]m|my|our|we|me|user|owner|ich|mein\w*|wir|unser\w*)\b|我", re.IGNORECASE)
_ASKED = re.compile(r"(?:please )?(?:remember|note|keep in mind|don['’]t forget)(?: that)?[:,]? ", re.IGNORECASE)


class CoreBlockSettings(Section, frozen=True):
    """Key facts about you that every new prompt of your own sessions shows."""

    tokens: Annotated[int, option("How many tokens they may have. 0: none.", ge=0, le=4_000)] = 300


async def refresh_after_notes(services: Services, event: HookEvent) -> None:
    await refresh_core_block(services, str(event.context["agentId"]))


async def refresh_core_block(services: Services, agent: str) -> None:
    """Writes the file, if it has changed. Raises NotFound for an unknown agent, WorkspaceError."""
    own = await services.keep(Knowledge).of(agent)
    settings = services.config.section(CoreBlockSettings)
    facts = await own.store.all_facts() if settings.tokens else []
    listed, today = await own.store.names(), local_time(services.clock).date()

    def write() -> None:
        ended = {number for topic in topics_of(facts, listed) for number in topic.ends("9999")}
        data = core_block(facts, ended, today, settings.tokens).encode("utf-8", "replace")
        try:
            before = own.boundary.read_bytes(CORE_FILE)
        except NotFound:
            before = b""
        if data != before:
            rewrite(own.boundary, CORE_FILE, lambda _, __: data, create=True, mode=0o600)

    await asyncio.to_thread(write)


def core_block(facts: Sequence[StoredFact], ended: Collection[int], today: date, tokens: int) -> str:
    """The lines, the most telling first. `ended`: numbers of facts that hold no more."""
    lines: dict[str, str] = {}
    for _, text in sorted(_scored(facts, ended, today), key=lambda each: -each[0]):
        words = _ASKED.sub("", text, count=1) if _ASKED.match(text) else text
        lines.setdefault(words.casefold(), f"- {words}\n")
    shown, left = "", tokens
    for line in lines.values():
        left -= estimate_tokens(line)
        if left < 0:
            break
        shown += line
    return shown


def _scored(facts: Sequence[StoredFact], ended: Collection[int], today: date) -> Iterator[tuple[float, str]]:
    opinions = [each for each in facts if each.fact.kind == "opinion"]
    for belief in beliefs_of(opinions, today):
        if belief.confidence >= BELIEVED and _is_told(belief.statement) and (not belief.entities or belief.is_by_hand):
            yield 2 * belief.confidence + 2 * belief.is_by_hand + _recency(belief.last_day, today), belief.statement
    files: dict[str, set[str]] = {}
    known = [each.fact for each in facts if _is_key(each.fact) and each.number not in ended]
    for fact in known:
        files.setdefault(fact.text.casefold(), set()).add(fact.path)
    for fact in reversed(known):  # of equal ones the newest first
        repeated = min(3, len(files[fact.text.casefold()])) - 1
        if not _is_over(fact, today):
            yield 1 + repeated + 3 * fact.is_by_hand + _recency(fact.said_on, today), fact.text


def _is_key(fact: Fact) -> bool:
    return fact.origin == Origin.OWNER and fact.kind in ("world", "observation") and _is_told(fact.text)


def _is_told(text: str) -> bool:
    return len(text) <= LONGEST and bool(_OWN.search(text))


def _is_over(fact: Fact, today: date) -> bool:
    """Whether it was ahead when it was said, and is no more."""
    return bool(fact.last_day) and fact.last_day >= fact.said_on and fact.last_day < (today - OVER).isoformat()


def _recency(day: str, today: date) -> float:
    age = (today - date.fromisoformat(day)).days if day else 365
    return 1 / (1 + max(age, 0) / 90)
