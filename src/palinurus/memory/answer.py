"""The results of memory: search answers with their freshness, index reports, and the status of the index."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field


class Factor(Struct, frozen=True, rename="camel"):
    """One part of a score, for `--explain`: what it measured, its weight, and its contribution."""

    name: str  # words, passage, vector, neighbours, recency, …
    value: float
    weight: float
    added: float


class SearchResult(Struct, frozen=True, rename="camel", omit_defaults=True):
    path: str
    start_line: int
    end_line: int
    score: float  # 0 to 1, within this answer
    snippet: str
    source: str = "memory"
    citation: str = ""  # `path#L3-L9`, if citations are wanted
    under: str = ""  # its headings and parent bullet, unless its path already shows them
    factors: tuple[Factor, ...] = ()


class IndexFreshness(Struct, frozen=True, rename="camel", omit_defaults=True):
    """How far the index agrees with the files at the time of the search (promise 11)."""

    state: str  # fresh: every file was compared; stale: some changes are not in the answer; unswept: no time to compare
    compared: int  # files whose stamps were compared with the index
    caught_up: int = 0  # changed files that were read for this answer
    behind: tuple[str, ...] = ()  # changed paths that are not in the answer, the first few
    behind_count: int = 0
    vectors: str = "off"  # complete | partial | off | down
    embedded: int = 0
    pieces: int = 0
    why: str = ""  # the problem, in one sentence

    @property
    def is_good(self) -> bool:
        """Whether nothing is missing: all files were compared, and vectors, if any, are complete."""
        return self.state == "fresh" and self.vectors in ("complete", "off") and not self.why


class EmbedderFallback(Struct, frozen=True, rename={"from_": "from"}):
    """Another embedder than the first one makes vectors."""

    from_: str  # the provider that does not work
    reason: str


class SearchAnswer(Struct, frozen=True, rename="camel", omit_defaults=True):
    results: tuple[SearchResult, ...]
    freshness: IndexFreshness
    mode: str = "hybrid"  # hybrid | keyword
    took_ms: float = 0.0
    left_out: int = 0  # results that exceeded the budget
    refused: str = ""  # why this session gets nothing
    backend: str = ""  # who answered, where the config names another backend than the builtin one
    provider: str = ""  # who embedded the question; empty: it was searched by words alone
    model: str = ""
    fallback: EmbedderFallback | None = None


class Progress(Struct, frozen=True):
    """The progress of a long operation, for a progress bar."""

    stage: str  # scan | text | vectors
    done: int
    total: int


OnProgress = Callable[[Progress], None]
"""Called on the event loop, often. Neither blocks nor raises."""


class SkippedFile(Struct, frozen=True, rename="camel"):
    path: str
    reason: str


class SyncReport(Struct, frozen=True, rename="camel", omit_defaults=True):
    compared: int  # files whose stamps were compared
    added: int = 0
    changed: int = 0
    removed: int = 0
    pieces: int = 0  # pieces written
    embedded: int = 0  # new vectors
    cached: int = 0  # cached vectors
    skipped: tuple[SkippedFile, ...] = ()
    behind: tuple[str, ...] = ()  # changed but not read, because time was up
    took_ms: float = 0.0
    trouble: str = ""  # of the index
    embedder_trouble: str = ""  # problems with vectors; the words are indexed all the same


class VectorSpace(Struct, frozen=True, rename="camel"):
    """The vectors of one embedder in an index."""

    id: str
    provider: str
    model: str
    dimensions: int
    embedded: int  # pieces that have a vector
    pieces: int
    state: str  # searched | filling: it takes over when it is complete | kept: its embedder does not work now


class IndexExport(Struct, frozen=True):
    """What an export has written."""

    path: str
    files: int
    chunks: int
    vectors: int  # distinct ones


class Difference(Struct, frozen=True, rename="camel"):
    """A file that differs between the disk and the index."""

    path: str
    what: str  # missing in the index | gone from the disk | changed | other pieces than the text has


class MemoryStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Computed from the disk on each call; no stored flag is trusted."""

    agent: str
    enabled: bool
    files: int
    pieces: int
    passages: int
    text_bytes: int
    index_bytes: int
    sources: dict[str, int]  # files by source
    embedder: str  # space id; empty: none
    embedded: int = 0
    to_embed: int = 0
    by_batch: bool = False  # a batch of the service makes those, in its own time
    provider: str = ""  # of the space that is searched; without one, of the one that will be
    model: str = ""
    fallback: EmbedderFallback | None = field(default_factory=lambda: None)  # told also when there is none
    shadow: str = ""  # a space that is being filled and not searched yet
    shadow_embedded: int = 0
    differences: tuple[Difference, ...] = ()  # by stamps; with `deep` by reading every file
    difference_count: int = 0
    deep: bool = False
    skipped: tuple[SkippedFile, ...] = ()
    watching: bool = False
    last_sweep_at: int | None = None
    trouble: str = ""
    index_path: str = ""
    backend: str = ""  # which one served the last search, or would serve the next
    backend_wanted: str = ""  # by the config, if that is another than the builtin one
    backend_reason: str = ""  # why the wanted one does not serve
