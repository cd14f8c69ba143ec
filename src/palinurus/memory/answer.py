"""What a search answers: where it is, what stands there, and how far the answer can be trusted."""

from __future__ import annotations

from msgspec import Struct

from palinurus.memory.document import Place


class Factor(Struct, frozen=True, rename="camel"):
    """One part of a score, for `--explain`: what it measured, its weight, and what it added."""

    name: str  # words, passage, vector, neighbours, recency, …
    value: float
    weight: float
    added: float


class Result(Struct, frozen=True, rename="camel", omit_defaults=True):
    path: str
    start_line: int
    end_line: int
    score: float  # 0 to 1, within this answer
    snippet: str
    source: str = "memory"
    citation: str = ""  # `path#L3-L9`, where citations are wanted
    under: str = ""  # the headings and the bullet it stands under, as far as its path does not tell
    factors: tuple[Factor, ...] = ()

    @property
    def place(self) -> Place:
        return Place(self.source, self.path)


class Freshness(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The truth about the index at the moment of the question (promise 11)."""

    state: str  # fresh: every file was compared; stale: some changes are not in the answer; unswept: no time to look
    compared: int  # files whose stamps were compared with the index
    caught_up: int = 0  # files that had changed and were read for this answer
    behind: tuple[str, ...] = ()  # paths that have changed and are not in the answer, the first few
    behind_count: int = 0
    vectors: str = "off"  # complete | partial | off | down
    embedded: int = 0
    pieces: int = 0
    why: str = ""  # of whatever is not as it should be, in one sentence


class Answer(Struct, frozen=True, rename="camel", omit_defaults=True):
    results: tuple[Result, ...]
    freshness: Freshness
    mode: str = "hybrid"  # hybrid | keyword
    took_ms: float = 0.0
    left_out: int = 0  # results that the budget had no room for
    refused: str = ""  # why this session gets nothing
