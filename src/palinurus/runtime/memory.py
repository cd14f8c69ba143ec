"""The memories of the agents, each made when it is first asked for and made anew when its config has changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palinurus.domain.clock import Clock, local_time
from palinurus.domain.errors import EmbedderError, NotFound, PalinurusError
from palinurus.memory.settings import BUILTIN, EMBEDDED, MemorySettings
from palinurus.sessions.store import SessionStore

if TYPE_CHECKING:
    from palinurus.config.load import Config
    from palinurus.config.section import Secret
    from palinurus.dispatch.jobs import Jobs
    from palinurus.ledger.usage import UsageLedger
    from palinurus.memory.backend import AgentMemory, OpenBackend
    from palinurus.memory.embedder import Embedder, EmbedderChain, EmbedderPlace, OpenEmbedder, Space
    from palinurus.memory.search import QueryHelpers
    from palinurus.memory.store import MemoryStore

log = logging.getLogger(__name__)
T = TypeVar("T")
LOCAL = "local"  # OpenClaw's name for a GGUF file; without one it is the embedded model
PROVIDERS = {"gemini": "google"}  # embedders whose provider of models has another name
BOOKED = "memory"  # stands where the session of a model call stands


def _embedded_model() -> Embedder:
    from palinurus.memory.embedders.embedded import EmbeddedModel

    return EmbeddedModel()


class AgentMemories(Struct, frozen=True):
    """What decides about an agent's memory."""

    workspace: Path
    settings: MemorySettings
    config: Config | None = None  # where it matters: other backends and embedders have options of their own


class BackendSource(Struct, frozen=True):
    """What other backends than the builtin one are found and opened with."""

    find: Callable[[str], OpenBackend]  # raises NotFound
    env: Mapping[str, str]
    redact: Callable[[str], str]


class EmbedderSource(Struct, frozen=True):
    """What other embedders than the embedded one are found and opened with. All but `find` are asked while they work,
    for an agent and a provider.
    """

    find: Callable[[str], OpenEmbedder]  # raises NotFound
    address: Callable[[str], str]  # of a provider of models in the config; empty: none is set
    stored_key: Callable[[str, str], str]  # empty: there is none
    secret: Callable[[Secret], str | None]
    usage: Callable[[], UsageLedger]
    new_id: Callable[[], str]
    jobs: Callable[[], Jobs]


BATCH_JOB = "memory.embedding-batch"
AGAIN_MS = 24 * 3600 * 1000  # after a batch that gave nothing, texts are embedded directly for so long


class BatchOrder(Struct, frozen=True):
    """A job: the vectors of an agent's pieces up to one, in a space, are made by a batch of its service."""

    agent: str
    space: str
    last: int


class EmbeddingBatches(Struct, frozen=True):
    """Implements memory.fill.VectorBatches with durable jobs."""

    jobs: Callable[[], Jobs]
    agent: str
    least: int
    clock: Clock

    async def covered(self, embedder: Embedder, store: MemoryStore) -> int:
        from palinurus.memory.embedder import BatchEmbedder

        if not isinstance(embedder, BatchEmbedder) or not embedder.takes_batches:
            return 0
        jobs, space, now = self.jobs(), embedder.space.id, self.clock.now_ms()
        for job in await jobs.of_lane(BATCH_JOB, self.agent, 1):
            order = msgspec.json.decode(job.payload, type=BatchOrder)
            if job.state in ("waiting", "running", "retry"):
                return order.last if order.space == space else 0
            if order.space == space and job.state != "done" and now - job.added_at < AGAIN_MS:
                return 0
        totals = await store.totals()
        if not jobs.stays or totals.pieces - totals.embedded.get(space, 0) < self.least:
            return 0
        last = await store.last_piece()
        await jobs.add(BATCH_JOB, BatchOrder(self.agent, space, last), f"{self.agent}:{now}", lane=self.agent)
        return last


class EmbedderMeter:
    """Books the tokens that are sent to an embedder, and keeps them within those of a day."""

    def __init__(
        self, source: EmbedderSource, provider: str, agent: str, most: int | None, clock: Clock, *, books: bool
    ) -> None:
        self._source = source
        self._provider, self._agent, self._most = provider, agent, most
        self._clock = clock
        self._books = books
        self._day: date | None = None
        self._spent = 0

    async def reserve(self, model: str, tokens: int) -> None:
        """Implements EmbedderPlace.reserve."""
        from palinurus.domain.messages import Usage
        from palinurus.ledger.usage import UsageRow

        if self._most is not None:
            await self._look_at_the_day(model)
            if self._spent + tokens > self._most:
                said = f"{self._provider} has been sent the {self._most:,} tokens of today"
                raise EmbedderError(said, hint="memorySearch.remote.tokensPerDay sets how many")
        self._spent += tokens
        if self._books:
            source, now = self._source, self._clock.now_ms()
            row = UsageRow(source.new_id(), now, "", BOOKED, self._agent, self._provider, model, Usage(input=tokens))
            await source.usage().append(row)

    async def _look_at_the_day(self, model: str) -> None:
        now = local_time(self._clock)
        if now.date() != self._day:
            began = round(now.replace(hour=0, minute=0, second=0, microsecond=0).timestamp() * 1000)
            totals = await self._source.usage().totals("model", zone=self._clock.zone, since=began, agent=self._agent)
            if now.date() != self._day:  # else somebody was faster, and has reserved since
                name = f"{self._provider}/{model}"
                self._spent = sum(each.usage.input for each in totals if each.name == name)
                self._day = now.date()


class Memories:
    def __init__(
        self,
        folder: Path,
        current: Callable[[str], AgentMemories],
        sessions: SessionStore,
        clock: Clock,
        *,
        readonly: bool = False,
        backends: BackendSource | None = None,
        embedders: EmbedderSource | None = None,
    ) -> None:
        self._folder = folder
        self._current = current
        self._sessions = sessions
        self._clock = clock
        self._readonly = readonly
        self._backends = backends
        self._sources = embedders
        self._opened: dict[tuple[str, ...], Any] = {}  # embedders, and what helps with questions
        self._made: dict[str, tuple[AgentMemories, AgentMemory]] = {}
        self._keeping_up = False
        self._retiring: set[asyncio.Task[None]] = set()

    def of(self, agent_id: str) -> AgentMemory:
        wanted = self._current(agent_id)
        known, memory = self._made.get(agent_id, (None, None))
        if memory is None or known != wanted:
            retired = None if memory is None else self._retire(memory)
            memory = self._make(agent_id, wanted, retired)
            self._made[agent_id] = (wanted, memory)
            if self._keeping_up:
                memory.start()
        return memory

    def keep_up(self, agents: Iterable[str]) -> None:
        """From now on memories are indexed in the background: for processes that stay."""
        self._keeping_up = True
        for agent_id in agents:
            self.of(agent_id).start()

    async def close(self) -> None:
        await asyncio.gather(*(memory.close() for _, memory in self._made.values()), *self._retiring)
        for embedder in self._opened.values():
            await embedder.close()

    def _make(self, agent_id: str, wanted: AgentMemories, after: asyncio.Future[None] | None) -> AgentMemory:
        """`after`: its forerunner has gone. What that one writes last would be unknown to this one."""
        from palinurus.memory.conversations import StoredDocuments
        from palinurus.memory.document import SESSIONS
        from palinurus.memory.index import MemoryIndex
        from palinurus.memory.memory import Memory, Watcher
        from palinurus.memory.scan import Scanner
        from palinurus.memory.store import MemoryStore

        settings = wanted.settings
        path = self._folder / f"{agent_id}.sqlite"
        store = MemoryStore(path, readonly=self._readonly, after=after)
        scanner = Scanner(wanted.workspace, settings.collections, sources=settings.sources)
        stored = StoredDocuments(
            self._sessions, agent_id, self._clock, settings.sync, conversations=SESSIONS in settings.sources
        )
        index = MemoryIndex(store, scanner, self._clock, settings, conversations=stored, agent=agent_id)
        watcher = Watcher(scanner, settings.sync) if settings.sync.watch else None
        embedder = self._chain(agent_id, settings) if settings.embedders else None
        batches, batch = None, settings.embedding.batch
        if batch.enabled and self._sources is not None and not self._readonly:
            batches = EmbeddingBatches(self._sources.jobs, agent_id, batch.least, self._clock)
        builtin = Memory(settings, store, index, embedder, self._clock, watcher, batches, self._helpers(settings))
        if settings.backend == BUILTIN or self._backends is None or wanted.config is None:
            return builtin
        from palinurus.memory.backend import BackendPlace, FallbackMemory

        name, source = settings.backend, self._backends
        # Of its own: what one of the two has seen is not known to the other.
        scanner = Scanner(wanted.workspace, settings.collections, sources=settings.sources)
        stored = StoredDocuments(
            self._sessions, agent_id, self._clock, settings.sync, conversations=SESSIONS in settings.sources
        )
        made = partial(
            BackendPlace,
            agent_id,
            self._folder.parent / name / agent_id,
            wanted.workspace,
            settings,
            wanted.config,
            source.env,
            self._clock,
            scanner,
            stored,
            source.redact,
            readonly=self._readonly,
        )
        return FallbackMemory(name, builtin, lambda tell: source.find(name)(made(tell)), self._clock)

    def _helpers(self, settings: MemorySettings) -> QueryHelpers:
        from palinurus.memory.search import QueryHelpers

        models = settings.models
        if not (models.rerank or models.expand):
            return QueryHelpers()
        from palinurus.memory.embedders.gguf import GgufExpander, GgufReranker

        reranker = self._helper(GgufReranker, models.rerank) if models.rerank else None
        expander = self._helper(GgufExpander, models.expand) if models.expand else None
        return QueryHelpers(reranker, models.judged, expander)

    def _helper(self, kind: Callable[[Path], T], path: str) -> T:
        key = (kind.__name__, path)
        helper = self._opened.get(key) or kind(Path(path).expanduser())
        self._opened[key] = helper
        return cast("T", helper)

    def _chain(self, agent_id: str, settings: MemorySettings) -> EmbedderChain:
        from palinurus.memory.embedder import EmbedderChain

        names = settings.embedders
        members = [self._embedder(name, agent_id, settings, is_first=name is names[0]) for name in names]

        def older(space: Space) -> Embedder | None:
            """Of another model of the same provider, or what sends nothing away: nobody else may be asked."""
            first, _, _ = names[0].partition("/")
            if space.provider not in (EMBEDDED, first):
                return None
            whole = space.provider if space.provider == EMBEDDED else f"{space.provider}/{space.model}"
            found = self._embedder(whole, agent_id, settings, is_first=space.provider == first)
            return found if found.space.fits(space) else None

        return EmbedderChain(members, older)

    def _embedder(self, name: str, agent_id: str, settings: MemorySettings, *, is_first: bool) -> Embedder:
        """Made once for the agents that have the same. `name` is a provider or provider/model."""
        from palinurus.memory.embedder import Space, UnusableEmbedder

        provider, _, model = name.partition("/")
        if provider == EMBEDDED or (provider == LOCAL and not settings.embedding.model_path):
            return self._kept((EMBEDDED,), _embedded_model)
        if self._sources is None:
            raise NotFound(f"no embedder but the embedded one can be opened here, not {name}")
        place = self._place(provider, model, agent_id, settings, is_first=is_first)

        def opened() -> Embedder:
            try:
                return self._opener(provider, place.address)(place)
            except PalinurusError as error:
                why = EmbedderError(error.message, hint=error.hint, lasting=True)
            except Exception as error:  # code of a plugin
                log.warning("the embedder %s cannot be opened", provider, exc_info=error)
                said = f"{provider} cannot be opened: {type(error).__name__}: {error}"
                why = EmbedderError(said, lasting=True)
            return UnusableEmbedder(Space(provider, model, 0), why)

        return self._kept((provider, model, agent_id, place.address, repr(place.options)), opened)

    def _opener(self, provider: str, address: str) -> OpenEmbedder:
        """Raises NotFound. A provider of models.providers that is not known here speaks OpenAI's protocol."""
        assert self._sources is not None  # noqa: S101  whoever asks has looked
        try:
            return self._sources.find(provider)
        except NotFound:
            if not address:
                raise
            return self._sources.find("openai-compatible")

    def _place(
        self, provider: str, model: str, agent_id: str, settings: MemorySettings, *, is_first: bool
    ) -> EmbedderPlace:
        from palinurus.memory.embedder import EmbedderPlace

        source, options = self._sources, settings.embedding
        assert source is not None  # noqa: S101  whoever asks has looked
        if not is_first:  # address and key are meant for the first one
            batch = replace(options.batch, enabled=False)
            options = replace(options, base_url=None, api_key=None, headers={}, dimensions=None, batch=batch)
        models = PROVIDERS.get(provider, provider)
        meter = EmbedderMeter(source, provider, agent_id, options.tokens_per_day, self._clock, books=not self._readonly)
        return EmbedderPlace(
            provider,
            model,
            agent_id,
            options,
            source.address(models),
            partial(source.stored_key, agent_id, models),
            source.secret,
            meter.reserve,
            self._clock,
        )

    def _kept(self, key: tuple[str, ...], opened: Callable[[], Embedder]) -> Embedder:
        if key not in self._opened:
            self._opened[key] = opened()
        embedder: Embedder = self._opened[key]
        return embedder

    def _retire(self, memory: AgentMemory) -> asyncio.Future[None]:
        """Whoever still asks it is answered; then it goes."""
        task = asyncio.ensure_future(memory.close())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)
        return task
