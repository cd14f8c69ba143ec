"""A workspace of several kinds of notes, made up for the tests, and a memory over it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

from palinurus.domain.clock import Clock
from palinurus.memory.answer import SearchAnswer
from palinurus.memory.embedder import Embedder
from palinurus.memory.index import MemoryIndex
from palinurus.memory.question import Question
from palinurus.memory.scan import Scanner
from palinurus.memory.search import MemorySearch
from palinurus.memory.settings import MemorySettings, SearchLimits
from palinurus.memory.store import MemoryStore
from palinurus.testing.fakes import FakeClock

KINDS = {
    "MEMORY.md": """
        # About me
        - Lives in Ghent with Ines and a dog called Mosse
        - Allergic to walnuts; drinks oat milk
        - Prefers trains over planes

        ## People
        - Ines: partner, cellist, birthday on 4 March
        - Tomás: brother, moved to Valparaíso in 2024
        """,
    "memory/2026-11-10.md": """
        - Dentist said the crown can wait until January
        - Lent the ladder to Wouter from number 14
        - Slept badly
        """,
    "memory/2026-11-12.md": """
        - Mosse ate half a sock; the vet in Brugge says wait and see
        - Renewed the passport, number ends in 881
        """,
    "memory/2026-11-14.md": """
        # Saturday

        Went to the flea market with Ines. She found a brass lamp for the hall and we
        carried it home in the rain. In the evening Wouter brought the ladder back.
        """,
    "memory/meetings/2026-10-02-kickoff.md": """
        # Kickoff Lighthouse

        Attendees: Priya, Jonas, me

        ## Decisions
        - Postgres instead of Mongo
          because Jonas has to run it
        - Weekly release on Thursdays

        ## Open questions
        - Who pays for the load test?
          - Priya asks finance

        | item | owner | due |
        |------|-------|-----|
        | staging cluster | Jonas | 9 October |
        | contract draft | Priya | 20 October |
        """,
    "memory/howto/printer.md": """
        # Printer

        When it says E04 the drum is full.

        ```sh
        lpadmin -p attic -E -v ipp://attic.local/ipp/print
        cupsenable attic
        ```

        Paper is on the second shelf.
        """,
    "memory/talk.md": """
        Lena: how was the concert in Antwerp last night?
        Rafael: loud! The drummer broke two sticks.
        Lena: and did you meet the singer afterwards?
        Rafael: only for a minute, she signed my ticket.
        Lena: I stayed in and baked a plum cake.
        """,
    "memory/essay.md": (
        "The garden was begun in 1987 by my grandfather, who planted the quince first. "
        + "Each year he wrote down the frost, the first bees and the weight of the harvest in a grey notebook. " * 8
        + "The notebook itself is kept in the drawer under the barometer."
    ),
    "memory/日記.md": """
        - 今日は東京タワーに登った。天気がよかった。
        - 猫の名前はタマです。三歳。
        - 来週、大阪へ出張する予定。
        """,
    "memory/中文.md": """
        ## 采购
        - 昨天在超市买了三斤苹果和一瓶酱油
        - 冰箱的保修到明年六月
        """,
}


def write(workspace: Path, files: Mapping[str, str] = KINDS) -> None:
    for path, text in files.items():
        file = workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text).strip("\n") + "\n", encoding="utf-8")


def search_over(
    workspace: Path,
    store: MemoryStore,
    embedder: Embedder | None = None,
    settings: MemorySettings | None = None,
    clock: Clock | None = None,
) -> MemorySearch:
    settings, clock = settings or MemorySettings(), clock or FakeClock()
    index = MemoryIndex(store, Scanner(workspace, (), sources=settings.sources), clock, settings)
    return MemorySearch(index, store, embedder, settings, clock)


async def asked(search: MemorySearch, query: str, budget: SearchLimits | None = None) -> SearchAnswer:
    return await search.ask(Question(query, budget or SearchLimits()))
