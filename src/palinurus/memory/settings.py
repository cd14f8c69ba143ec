"""How an agent's memory is indexed and searched, and which sessions may search it.

OpenClaw had three places for it over the years: `agents.defaults.memorySearch`, then `memory.search`, and `memory.qmd`
for its other engine. All three are read, the most specific wins, field by field; only collections are added up. Where
the source documents disagree (chunk sizes, weights, number of results), each default is what measures best on `make
eval`; the documents' values are presets of the config.
"""

import re
from collections.abc import Mapping, Sequence
from glob import escape
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.agents import agent_settings
from palinurus.config.home import Home
from palinurus.config.load import Config
from palinurus.config.section import HERE, Option, OptionForm, Secret, Section, build, dig, option, seconds

EMBEDDED, NOBODY = "embedded", "none"
OPENCLAW_CHAIN = ("openclaw", "openai", "gemini", "local")  # the order of OpenClaw's documents, under its name
BUILTIN = "builtin"
_OF_CORE = ("", BUILTIN, "memory-core")  # OpenClaw's name for the slot's own plugin
ALL_MARKDOWN = "**/*.md"
OPENCLAW_SEARCH: Mapping[str, Any] = {
    "chunking": {"tokens": 1024},
    "query": {"hybrid": {"vectorWeight": 0.6, "textWeight": 0.4}},
}
OPENCLAW_OVERLAP = 128  # tokens
MMR_LAMBDA, HALF_LIFE_DAYS = 0.7, 30.0  # OpenClaw's default if enabled without a number
RESERVED = frozenset({"memory", "sessions"})  # prefix of citations without a collection
LONGEST_NAME = 40
MILLISECONDS = OptionForm(int, lambda said: said / 1000, lambda value: round(value * 1000))


def _milliseconds(about: str, key: str, least: int = 0, most: int = 600_000) -> Option:
    return option(about, key, ge=least, le=most, form=MILLISECONDS)


def _share(about: str, key: str) -> Option:
    return option(about, key, ge=0, le=1)


def _odd_sources(said: Sequence[str]) -> str:
    odd = next((each for each in said if each not in RESERVED), None)
    return "" if odd is None else f"there is no source {odd!r}; there are memory and sessions"


def _provider(said: str) -> str:
    name = said.strip().lower()
    return EMBEDDED if name in ("", "auto") else name


def _names(said: str | Sequence[str]) -> tuple[str, ...]:
    """Model names keep their case: they stand behind a slash."""
    each = [said] if isinstance(said, str) else said
    split = [name.strip().partition("/") for name in each]
    return tuple(_provider(name) + slash + model for name, slash, model in split)


_PROVIDER = OptionForm(str, _provider, str)
_FALLBACK = OptionForm(str | tuple[str, ...], _names, list)
_SOURCES = OptionForm(
    tuple[str, ...], lambda said: tuple(dict.fromkeys(each for each in said if each in RESERVED)), lambda value: value
)
_ON_OFF = OptionForm(bool, lambda said: "on" if said else "off", lambda value: value == "on")


class ExtraPath(Section, frozen=True):
    path: Annotated[str, option("A folder or a markdown file; relative paths start at the workspace.", longest=4096)]
    name: Annotated[str | None, option("What the collection is called in citations. Unset: as the folder.")] = None
    pattern: Annotated[str | None, option(f"Which files of the folder, as a glob. Unset: {ALL_MARKDOWN}.")] = None


class Collection(Struct, frozen=True):
    """A folder of the user that is searched too."""

    name: str
    path: Path
    mask: str = ALL_MARKDOWN


class ScopeMatch(Section, frozen=True):
    foreign: ClassVar = {"": "rawKeyPrefix"}

    chat_type: Annotated[
        Literal["direct", "group", "channel", "thread", "room"] | None, option("direct, group, channel or thread.")
    ] = None
    channel: Annotated[str | None, option("A channel, such as telegram.")] = None
    key_prefix: Annotated[str | None, option("How the session's key begins, with or without agent:<id>:.")] = None


class ScopeEntry(Section, frozen=True):
    action: Annotated[Literal["allow", "deny"], option("The decision.")]
    match: Annotated[ScopeMatch | None, option("For which sessions. Unset: for all.")] = None


class ScopeOptions(Section, frozen=True):
    """Which sessions may search. Shared sessions get nothing, whatever is set here."""

    default: Annotated[Literal["allow", "deny"], option("When no rule matches.")] = "deny"
    rules: Annotated[
        tuple[ScopeEntry, ...] | None, option("The first that matches decides. Unset: direct chats may.")
    ] = None


class ScopeRule(Struct, frozen=True):
    """A rule about who may search. The first rule that matches a session decides."""

    action: Literal["allow", "deny"]
    chat_type: str = ""  # direct, group, channel; empty: any
    channel: str = ""
    key_prefix: str = ""


DIRECT_CHATS = (ScopeRule("allow", "direct"),)  # and nobody else


class Ranking(Section, frozen=True):
    """Weights of the rankings; they need not add up to one. See docs/decisions/0040-ranking.md for what was tried."""

    words: Annotated[
        float, _share("How much words count. OpenClaw has 0.3 or 0.4; ours measures best.", "query.hybrid.textWeight")
    ] = 0.5
    vector: Annotated[float, _share("Weight of the vector score.", "query.hybrid.vectorWeight")] = 0.5
    passage: float = 0.2  # of the passage's words, besides the chunk's own
    label: float = 0.3  # for a line that begins with the speaker or subject of the question
    date: float = 0.3  # for daily files of the days in the question
    neighbours: float = 0.5  # weight of a word in the neighbouring chunk
    late: bool = True  # whether the words of question and chunk are compared one by one, if the embedder can
    candidates: int = 65  # candidates per ranking
    min_score: Annotated[
        float,
        _share(
            "The builtin engine leaves out results below this, and those below a fifth of the best unless it is 0.",
            "query.minScore",
        ),
    ] = 0.08
    mmr_lambda: Annotated[
        float | None,
        _share(
            f"With mmr, which has similar results make room for others: 1 is relevance alone, 0 difference alone."
            f" Unset: {MMR_LAMBDA}.",
            "query.hybrid.mmr.lambda",
        ),
    ] = None
    half_life_days: Annotated[
        float | None,
        option(
            f"With decay, days after which a daily note counts half. Unset: {HALF_LIFE_DAYS:g}.",
            "query.hybrid.temporalDecay.halfLifeDays",
            gt=0,
        ),
    ] = None


class SearchLimits(Section, frozen=True):
    """Limits of one search."""

    characters: Annotated[int, option("Characters in all.", "limits.maxInjectedChars", ge=40, le=200_000)] = 4_000
    snippet: Annotated[int, option("Characters of one result.", "limits.maxSnippetChars", ge=40, le=20_000)] = 700
    results: Annotated[
        int | None,
        option(
            "Results at most. Unset: as many as fit; OpenClaw gives 6.",
            "query.maxResults",
            ge=1,
            le=100,
            also=("limits.maxResults",),
        ),
    ] = None
    seconds: Annotated[
        float,
        _milliseconds(
            "Milliseconds for an answer, of which the embedder has all but one second.", "limits.timeoutMs", 50, 60_000
        ),
    ] = 4.0
    tokens: int | None = None  # instead of the characters above: characters/4, whole lines


class Sync(Section, frozen=True):
    """When files are scanned."""

    foreign: ClassVar = {"": "onSessionStart onSearch embeddingBatchTimeoutSeconds", "sessions": "postCompactionForce"}

    watch: Annotated[bool, option("Whether changed files are indexed before a search.")] = True
    debounce_seconds: Annotated[
        float, _milliseconds("Milliseconds of quiet after a change before it is indexed.", "watchDebounceMs")
    ] = 1.5
    settle_seconds: Annotated[
        float, _milliseconds("Continuous changes are indexed after this at the latest.", "settleMs")
    ] = 15.0
    sweep_minutes: Annotated[
        float, option("Minutes between scans; 0: never. Searches always check.", "intervalMinutes", ge=0, le=10_000)
    ] = 5.0
    session_bytes: Annotated[
        int, option("New bytes after which a conversation is indexed again.", "sessions.deltaBytes", ge=0)
    ] = 100_000
    session_messages: Annotated[
        int, option("New messages after which it is indexed again.", "sessions.deltaMessages", ge=0)
    ] = 50
    session_days: Annotated[
        int | None, option("Older conversations are not searched.", "sessions.retentionDays", ge=1)
    ] = None


class BatchOptions(Section, frozen=True):
    foreign: ClassVar = {"": "wait concurrency"}

    enabled: Annotated[
        bool, option("Whether a large first index is embedded by OpenAI's Batch API: half the price, within a day.")
    ] = False
    poll_seconds: Annotated[
        float, _milliseconds("Milliseconds between two looks at a batch.", "pollIntervalMs", 100, 3_600_000)
    ] = 60.0
    least: Annotated[int, option("Fewer missing vectors than this are asked for directly.", ge=1)] = 2_000
    timeout_minutes: Annotated[float, option("After this a batch is given up.", ge=1, le=10_000)] = 1_500.0


class EmbedderOptions(Section, frozen=True):
    """The embedder that `provider` names. Its fallbacks have the addresses and keys of `models.providers`."""

    foreign: ClassVar = {"remote": "nonBatchConcurrency", "local": "modelCacheDir contextSize"}

    base_url: Annotated[
        str | None, option("Address of its API. Unset: the provider's own.", "remote.baseUrl", longest=4096)
    ] = None
    api_key: Annotated[
        Secret | None,
        option(
            "Its key. Unset: the provider's stored key, which is sent to the provider's own address only.",
            "remote.apiKey",
        ),
    ] = None
    headers: Annotated[dict[str, Secret], option("HTTP headers sent with every request.", "remote.headers")] = {}
    batch: Annotated[BatchOptions, option("OpenAI's Batch API.", "remote.batch")] = BatchOptions()
    tokens_per_day: Annotated[
        int | None,
        option("Tokens (estimated) that may be sent in a day. Unset: no limit.", "remote.tokensPerDay", ge=0),
    ] = None
    dimensions: Annotated[
        int | None,
        option("Numbers in a vector, where the model has a choice.", "outputDimensionality", ge=8, le=8_192),
    ] = None
    model_path: Annotated[
        str | None, option("A GGUF file, for the provider local.", "local.modelPath", longest=4096)
    ] = None


class QueryModels(Section, frozen=True):
    """GGUF files of yours that help with a question. Off by default."""

    rerank: Annotated[
        str | None, option("A GGUF reranker, which judges the best results.", "rerank.modelPath", longest=4096)
    ] = None
    judged: Annotated[int, option("How many it judges.", "rerank.candidates", ge=1, le=100)] = 12
    expand: Annotated[
        str | None,
        option("A GGUF model that chats, which names more words to look for.", "expansion.modelPath", longest=4096),
    ] = None


class MemorySettings(Section, frozen=True):
    """What is indexed and how it is searched."""

    foreign: ClassVar = {
        "": """cache experimental inputType documentInputType queryInputType multimodal qmd
        rememberAcrossConversations store""",
        "chunking": "overlap",
        "query.hybrid": "enabled candidateMultiplier",
    }

    enabled: Annotated[bool, option("Whether memory can be searched at all.")] = True
    backend: str = BUILTIN  # who indexes and searches: memory/backend.py
    sources: Annotated[
        tuple[str, ...],
        option("memory (the files), sessions (messages of private sessions).", form=_SOURCES, odd=_odd_sources),
    ] = ("memory",)
    collections: tuple[Collection, ...] = ()
    passage_tokens: Annotated[
        int, option("Size of a passage, whose words count for each line in it.", "chunking.tokens", ge=32, le=8_000)
    ] = 400
    overlap_tokens: int | None = None  # of windows of that size, which are the chunks then; None: chunks are lines
    embedder: Annotated[
        str,
        option(
            "Who makes vectors: embedded (auto means it too), none (words alone), or one to which texts are sent:"
            " openai, gemini, voyage, mistral, ollama, openai-compatible, a provider of models.providers; local: a GGUF"
            " file of yours. openclaw: openai, then gemini, then local.",
            "provider",
            form=_PROVIDER,
        ),
    ] = EMBEDDED
    model: Annotated[str, option("The embedder's model. Unset: the usual one of the provider.", longest=200)] = ""
    fallback: Annotated[
        tuple[str, ...] | None,
        option(
            "Who makes vectors while the provider does not work: one or a list, each a provider or provider/model;"
            " none: words alone. Unset: embedded.",
            form=_FALLBACK,
        ),
    ] = None
    embedding: Annotated[EmbedderOptions, option("", HERE)] = EmbedderOptions()
    models: Annotated[QueryModels, option("GGUF files that help with a question.", "query")] = QueryModels()
    embed_share: Annotated[float, option("Share of one core for computing vectors in the background.", gt=0, le=1)] = (
        0.5
    )
    ranking: Annotated[Ranking, option("", HERE)] = Ranking()
    budget: Annotated[SearchLimits, option("", HERE)] = SearchLimits()
    citations: Literal["auto", "on", "off"] = "auto"
    scope: tuple[ScopeRule, ...] = DIRECT_CHATS
    sync: Annotated[Sync, option("When files are scanned.")] = Sync()
    recall: Annotated[
        Literal["off", "on"],
        option("Whether the best snippets are added to each message automatically.", "recall.enabled", form=_ON_OFF),
    ] = "off"
    recall_characters: Annotated[int, option("Characters of them in all.", "recall.maxChars", ge=40, le=20_000)] = 1_200

    @property
    def embedders(self) -> tuple[str, ...]:
        """Who makes vectors, in order, each as provider or provider/model; empty: nobody."""
        first, fallback = self.embedder, self.fallback
        if first == OPENCLAW_CHAIN[0]:
            first, fallback = OPENCLAW_CHAIN[1], OPENCLAW_CHAIN[2:] if fallback is None else fallback
        named = (first if not self.model or first == EMBEDDED else f"{first}/{self.model}", *(fallback or (EMBEDDED,)))
        return () if first == NOBODY else tuple(dict.fromkeys(each for each in named if each != NOBODY))


class MemoryChoices(Section, frozen=True):
    """Options that are merged into the settings: see `memory_settings`."""

    extra_paths: Annotated[
        tuple[str | ExtraPath, ...],
        option("More markdown to search: folders or files, each a collection. The lists of all levels are combined."),
    ] = ()
    scope: Annotated[ScopeOptions | None, option("Who may search.")] = None
    mmr: Annotated[bool, option("Whether similar results are dropped.", "query.hybrid.mmr.enabled")] = False
    decay: Annotated[bool, option("Whether older daily notes count less.", "query.hybrid.temporalDecay.enabled")] = (
        False
    )

    preset: Annotated[
        Literal["openclaw"] | None,
        option(
            "openclaw: chunks of 1,024 tokens that overlap by 128, scored 0.6 by vector and 0.4 by words, as OpenClaw's"
            " documents say. Options that are set win. Unset: what measures best."
        ),
    ] = None


class MemoryEngine(Section, frozen=True):
    """Memory options for all agents."""

    backend: Annotated[
        Literal["builtin", "qmd"] | None,
        option(
            "Who indexes and searches; builtin leaves the section qmd unread. plugins.slots.memory may name others."
        ),
    ] = None
    citations: Annotated[
        Literal["auto", "on", "off"], option("Whether results carry path#L3-L9: auto (in direct chats), on, off.")
    ] = "auto"
    paths: Annotated[tuple[ExtraPath, ...], option("Collections of all agents.", "qmd.paths")] = ()
    sessions: Annotated[bool, option("Whether sessions are searched.", "qmd.sessions.enabled")] = False
    interval: Annotated[
        str, option("Time between scans, such as 5m; a bare number is minutes.", "qmd.update.interval")
    ] = ""


def memory_settings(config: Config, home: Home, agent_id: str | None = None) -> MemorySettings:
    """The merged memory settings of an agent, by default the default agent. Raises NotFound."""
    agent = agent_settings(config, home, agent_id)
    engine = config.section(MemoryEngine)
    is_read = engine.backend != "builtin"  # OpenClaw reads the section only for its other engine
    engine = engine if is_read else MemoryEngine(citations=engine.citations)

    def layers(model: type[Section]) -> list[Mapping[str, Any]]:
        found = config.layers(model, agent.agent_id)
        return [each.as_section for each in found if is_read or each.path[:2] != ("memory", "qmd")]

    chosen = [build(MemoryChoices, [layer]) for layer in layers(MemoryChoices)]
    joined = build(MemoryChoices, layers(MemoryChoices))
    preset = [OPENCLAW_SEARCH] if joined.preset else []
    said = build(MemorySettings, [*layers(MemorySettings), *preset, _of_engine(engine)])
    if joined.preset:
        alone = replace(said.ranking, passage=0.0, label=0.0, date=0.0, neighbours=0.0, late=False)
        said = replace(said, ranking=alone, overlap_tokens=OPENCLAW_OVERLAP)
    mmr = _switched(joined.mmr, said.ranking.mmr_lambda, MMR_LAMBDA)
    half_life = _switched(joined.decay, said.ranking.half_life_days, HALF_LIFE_DAYS)
    ranking = replace(said.ranking, mmr_lambda=mmr, half_life_days=half_life)
    paths = [*engine.paths, *(path for each in reversed(chosen) for path in each.extra_paths)]
    found, scope = _collections(paths, home, agent.workspace), _scope(joined.scope)
    said = replace(said, collections=found, ranking=ranking, citations=engine.citations, scope=scope)
    slot = _slot(config)
    if slot == NOBODY:
        return replace(said, enabled=False)
    return replace(said, backend=(engine.backend or BUILTIN) if slot in _OF_CORE else slot)


def _slot(config: Config) -> str:
    """`plugins.slots.memory`: the plugin that has the slot. Nothing else of `plugins` is read here."""
    said = dig(config.data, ("plugins", "slots", "memory"))
    return said.strip() if isinstance(said, str) else ""


def clean_name(text: str) -> str:
    """A collection's name in citations: lower case, other characters become hyphens."""
    plain = re.sub(r"[^a-z0-9_-]+", "-", text.strip().lower()).strip("-_")[:LONGEST_NAME].rstrip("-_")
    return plain or "notes"


def free_name(wanted: str, taken: Sequence[str]) -> str:
    """The name, with a number appended if it is taken."""
    name, number = clean_name(wanted), 2
    while name in RESERVED or name in taken:
        name = f"{clean_name(wanted)[: LONGEST_NAME - 5].rstrip('-_')}-{number}"
        number += 1
    return name


def collection_place(path: Path, pattern: str) -> tuple[Path, str, str]:
    """Folder, mask and name. A markdown file is its folder with a mask that matches only it."""
    if not pattern and path.suffix.lower() == ".md":
        return path.parent, escape(path.name), path.stem
    return path, pattern or ALL_MARKDOWN, path.name


def _of_engine(engine: MemoryEngine) -> dict[str, Any]:
    """The options of the engine's section, converted, as the least specific layer."""
    layer: dict[str, Any] = {"sources": ["memory", "sessions"]} if engine.sessions else {}
    try:
        return {**layer, "sync": {"intervalMinutes": seconds(engine.interval) / 60}}
    except ValueError:
        return layer


def _switched(on: bool, said: float | None, default: float) -> float | None:
    return (default if said is None else said) if on else None


def _scope(said: ScopeOptions | None) -> tuple[ScopeRule, ...]:
    if said is None or (said.rules is None and said.default != "allow"):
        return DIRECT_CHATS
    rules = [
        ScopeRule(entry.action, match.chat_type or "", match.channel or "", match.key_prefix or "")
        for entry in said.rules or ()
        for match in (entry.match or ScopeMatch(),)
    ]
    return (*rules, ScopeRule("allow")) if said.default == "allow" else tuple(rules)


def _collections(named: Sequence[str | ExtraPath], home: Home, workspace: Path) -> tuple[Collection, ...]:
    """Collections of all levels, those for all agents first. Names are made unique; duplicates are merged."""
    found: dict[tuple[Path, str], Collection] = {}
    for each in named:
        extra = ExtraPath(each) if isinstance(each, str) else each
        if not extra.path.strip():
            continue
        path, mask, own_name = collection_place(home.expand(extra.path.strip(), workspace), extra.pattern or "")
        if (path, mask) not in found:
            taken = [known.name for known in found.values()]
            found[path, mask] = Collection(free_name(extra.name or own_name, taken), path, mask)
    return tuple(found.values())
