"""What holds for the memory of one agent: all that the config says about it, joined into one record.

The nearest place wins, field by field: the agent's own `memory.search` or `memorySearch`, the defaults of all agents,
`memory.search`, `memory.qmd`. Only collections are added up. It stands apart from remembering.py, whose records the
memory room uses without having read any config.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from glob import escape
from pathlib import Path
from typing import Any, NamedTuple

from palinurus.config.home import Home
from palinurus.config.memory import ExtraPath, MemorySearchOptions, QmdOptions, ScopeOptions
from palinurus.config.remembering import Budget, Collection, MemorySettings, Ranking, ScopeRule, Sync
from palinurus.config.schema import AgentOptions, Config
from palinurus.config.section import Section
from palinurus.config.settings import agent_layers, agent_settings
from palinurus.config.source import JsonPath

EMBEDDED, NOBODY = "embedded", "none"
ALL_MARKDOWN = "**/*.md"
MMR_LAMBDA, HALF_LIFE_DAYS = 0.7, 30.0  # OpenClaw's, where they are switched on without a number
RESERVED = frozenset({"memory", "sessions"})  # what citations of no collection begin with
LONGEST_NAME = 40
_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


class Said(NamedTuple):
    """One place of the config that speaks of memory."""

    path: JsonPath
    options: MemorySearchOptions


def memory_settings(config: Config, home: Home, agent_id: str | None = None) -> MemorySettings:
    """Everything that holds for an agent's memory, the default one's when none is named. Raises NotFound."""
    agent = agent_settings(config, home, agent_id)
    layers = [said.options for said in _of_agent(config, agent.agent_id)]
    qmd = _qmd(config)
    provider = _provider(layers)
    return MemorySettings(
        collections=_collections(layers, qmd, home, agent.workspace),
        sources=_sources(layers, qmd),
        embedder=NOBODY if provider == NOBODY else EMBEDDED,
        ranking=_ranking(layers),
        budget=_budget(layers, qmd),
        scope=_scope(_first([*layers, qmd], "scope")),
        sync=_sync(layers, qmd),
        **_given(
            enabled=_first(layers, "enabled"),
            passage_tokens=_first(layers, "chunking", "tokens"),
            embed_share=_first(layers, "embed_share"),
            citations=config.memory.citations,
            recall=_on_off(_first(layers, "recall", "enabled")),
            recall_characters=_first(layers, "recall", "max_chars"),
        ),
    )


def memory_complaints(config: Config) -> Iterator[tuple[JsonPath, str]]:
    """What the config wants of memory and does not get, with the place that wants it."""
    for path, options in _everywhere(config):
        provider = (options.provider or "").strip().lower()
        if provider not in ("", "auto", EMBEDDED, NOBODY):
            yield (*path, "provider"), f"{provider} makes no vectors here yet; the embedded model does"
        for source in options.sources or ():
            if source not in RESERVED:
                yield (*path, "sources"), f"there is no source {source!r}; there are memory and sessions"


def clean_name(text: str) -> str:
    """A collection's name as it stands in citations: lower case, other signs become hyphens."""
    plain = re.sub(r"[^a-z0-9_-]+", "-", text.strip().lower()).strip("-_")[:LONGEST_NAME].rstrip("-_")
    return plain or "notes"


def free_name(wanted: str, taken: Sequence[str]) -> str:
    """The name, with a number behind it when somebody has it already."""
    name, number = clean_name(wanted), 2
    while name in RESERVED or name in taken:
        name = f"{clean_name(wanted)[: LONGEST_NAME - 5].rstrip('-_')}-{number}"
        number += 1
    return name


def _everywhere(config: Config) -> Iterator[Said]:
    for agent_id, entry in config.agents.entries.items():
        yield from _in(entry, ("agents", "entries", agent_id))
    for index, listed in enumerate(config.agents.listed):
        yield from _in(listed, ("agents", "list", index))
    yield from _in(config.agents.defaults, ("agents", "defaults"))
    if config.agent is not None:
        yield from _in(config.agent, ("agent",))
    if config.memory.search is not None:
        yield Said(("memory", "search"), config.memory.search)


def _of_agent(config: Config, agent_id: str) -> Iterator[Said]:
    for layer in agent_layers(config, agent_id):
        yield from _in(layer, ())
    if config.memory.search is not None:
        yield Said(("memory", "search"), config.memory.search)


def _in(layer: AgentOptions, path: JsonPath) -> Iterator[Said]:
    if layer.memory is not None and layer.memory.search is not None:
        yield Said((*path, "memory", "search"), layer.memory.search)
    if layer.memory_search is not None:
        yield Said((*path, "memorySearch"), layer.memory_search)


def _qmd(config: Config) -> QmdOptions | None:
    """OpenClaw reads the section for its other engine only; here it is left out when the config says builtin."""
    return None if config.memory.backend == "builtin" else config.memory.qmd


def _first(sections: Sequence[Section | None], *steps: str) -> Any:
    """What the nearest section says at the end of these steps; None when none says anything."""
    for section in sections:
        value: Any = section
        for step in steps:
            value = getattr(value, step, None)
        if value is not None:
            return value
    return None


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _on_off(value: bool | None) -> str | None:
    return None if value is None else ("on" if value else "off")


def _provider(layers: Sequence[MemorySearchOptions]) -> str:
    return str(_first(layers, "provider") or "").strip().lower()


def _sources(layers: Sequence[MemorySearchOptions], qmd: QmdOptions | None) -> tuple[str, ...]:
    named = _first(layers, "sources")
    if named is None:
        return ("memory", "sessions") if _first([qmd], "sessions", "enabled") else ("memory",)
    return tuple(dict.fromkeys(source for source in named if source in RESERVED))


def _ranking(layers: Sequence[MemorySearchOptions]) -> Ranking:
    mmr = _first(layers, "query", "hybrid", "mmr", "enabled")
    decay = _first(layers, "query", "hybrid", "temporal_decay", "enabled")
    return Ranking(
        **_given(
            vector=_first(layers, "query", "hybrid", "vector_weight"),
            words=_first(layers, "query", "hybrid", "text_weight"),
            min_score=_first(layers, "query", "min_score"),
            mmr_lambda=_or(_first(layers, "query", "hybrid", "mmr", "lambda_"), MMR_LAMBDA) if mmr else None,
            half_life_days=_or(_first(layers, "query", "hybrid", "temporal_decay", "half_life_days"), HALF_LIFE_DAYS)
            if decay
            else None,
        )
    )


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _budget(layers: Sequence[MemorySearchOptions], qmd: QmdOptions | None) -> Budget:
    limits = [*(layer.limits for layer in layers), qmd.limits if qmd else None]
    milliseconds = _first(limits, "timeout_ms")
    return Budget(
        **_given(
            results=_first(layers, "query", "max_results") or _first(limits, "max_results"),
            characters=_first(limits, "max_injected_chars"),
            snippet=_first(limits, "max_snippet_chars"),
            seconds=milliseconds / 1000 if milliseconds else None,
        )
    )


def _scope(options: ScopeOptions | None) -> tuple[ScopeRule, ...]:
    if options is None:
        return MemorySettings().scope
    rules = [
        ScopeRule(
            entry.action,
            **_given(
                chat_type=_first([entry.match], "chat_type"),
                channel=_first([entry.match], "channel"),
                key_prefix=_first([entry.match], "key_prefix"),
            ),
        )
        for entry in options.rules
    ]
    if "rules" not in options.model_fields_set and options.default != "allow":
        return MemorySettings().scope
    return (*rules, ScopeRule("allow")) if options.default == "allow" else tuple(rules)


def _sync(layers: Sequence[MemorySearchOptions], qmd: QmdOptions | None) -> Sync:
    debounce, settle = _first(layers, "sync", "watch_debounce_ms"), _first(layers, "sync", "settle_ms")
    if settle is None:
        settle = _first([qmd], "update", "debounce_ms")
    minutes = _first(layers, "sync", "interval_minutes")
    if minutes is None:
        minutes = _minutes(_first([qmd], "update", "interval"))
    return Sync(
        **_given(
            watch=_first(layers, "sync", "watch"),
            debounce_seconds=None if debounce is None else debounce / 1000,
            settle_seconds=None if settle is None else settle / 1000,
            sweep_minutes=minutes,
            session_bytes=_first(layers, "sync", "sessions", "delta_bytes"),
            session_messages=_first(layers, "sync", "sessions", "delta_messages"),
            session_days=_first(layers, "sync", "sessions", "retention_days")
            or _first([qmd], "sessions", "retention_days"),
        )
    )


def _minutes(text: str | None) -> float | None:
    """`5m`, `300s`, `1h`; a bare number is minutes, as in OpenClaw. None for what is no time."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*+(ms|s|m|h|d|)\s*", text or "", re.IGNORECASE)
    if found is None:
        return None
    unit = found[2].lower()
    return float(found[1]) * (_UNITS[unit] / 60 if unit else 1.0)


def _collections(
    layers: Sequence[MemorySearchOptions], qmd: QmdOptions | None, home: Home, workspace: Path
) -> tuple[Collection, ...]:
    """Of all levels, what is said for all agents first. Names are made different; what stands twice is one."""
    named = [*(qmd.paths if qmd else ()), *(path for layer in reversed(layers) for path in layer.extra_paths)]
    found: dict[tuple[Path, str], Collection] = {}
    for extra in named:
        text, pattern, name = _parts(extra)
        if not text.strip():
            continue
        path, mask, own_name = collection_place(home.expand(text.strip(), workspace), pattern)
        if (path, mask) not in found:
            taken = [each.name for each in found.values()]
            found[path, mask] = Collection(free_name(name or own_name, taken), path, mask)
    return tuple(found.values())


def _parts(extra: str | ExtraPath) -> tuple[str, str, str]:
    if isinstance(extra, str):
        return extra, "", ""
    return extra.path, extra.pattern or "", extra.name or ""


def collection_place(path: Path, pattern: str) -> tuple[Path, str, str]:
    """Folder, mask and name. A markdown file is its folder with a mask that only it fits."""
    if not pattern and path.suffix.lower() == ".md":
        return path.parent, escape(path.name), path.stem
    return path, pattern or ALL_MARKDOWN, path.name
