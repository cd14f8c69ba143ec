"""A loaded config: the data of the files, and each section as a frozen record on demand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct

from palinurus.config.section import AGENT, REGISTRY, Steps, build, dig
from palinurus.config.source import JsonPath, format_path
from palinurus.config.tree import CORE, Findings, inspect, shown_value
from palinurus.domain.errors import ConfigError
from palinurus.domain.keys import AGENT_ID, DEFAULT_AGENT

S = TypeVar("S", bound=Struct)
SHARED: tuple[JsonPath, ...] = (AGENT, ("agent",))  # `agent` is the oldest form


class Layer(NamedTuple):
    """One place of the config that sets options of a section."""

    path: JsonPath
    data: Mapping[str, Any]
    inside: Steps = ()  # the part of the section at that place

    @property
    def as_section(self) -> Mapping[str, Any]:
        data: Any = self.data
        for step in reversed(self.inside):
            data = {step: data}
        return data if isinstance(data, dict) else {}


class Config:
    """Immutable. Two configs with the same data are equal."""

    def __init__(self, data: Mapping[str, Any] | None = None) -> None:
        self.data: dict[str, Any] = _without_nulls(data or {})
        self._made: dict[tuple[type[Struct], str], Any] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and other.data == self.data

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def own_places(self) -> dict[str, list[JsonPath]]:
        """The configured agents in order, each with its own places, the most specific first."""
        found: dict[str, list[JsonPath]] = {}
        for index, agent in enumerate(dig(self.data, ("agents", "list")) or ()):
            found.setdefault(normal_agent_id(agent["id"]), []).append(("agents", "list", index))
        for name in dig(self.data, ("agents", "entries")) or ():
            found.setdefault(normal_agent_id(name), []).insert(0, ("agents", "entries", name))
        return found

    @property
    def agent_ids(self) -> tuple[str, ...]:
        return tuple(self.own_places) or (DEFAULT_AGENT,)

    def layers(self, model: type[Struct], agent_id: str = "") -> list[Layer]:
        """The places that set options of a section, the most specific first: an agent's own before the defaults."""
        mounts = REGISTRY.of(model)
        own = [*self.own_places.get(agent_id, ()), *SHARED]
        places = [((*place, *mount.of_agent), mount) for place in own for mount in mounts if mount.of_agent is not None]
        places += [(mount.place, mount) for mount in mounts if mount.of_agent is None]
        found = ((path, dig(self.data, path), mount.inside) for path, mount in places)
        return [Layer(*each) for each in found if each[1] is not None]

    def section(self, model: type[S], agent_id: str = "") -> S:
        """The merged section, for one agent if agents can differ. Raises ConfigError for an invalid section of another
        package: those are checked on demand.
        """
        if (model, agent_id) not in self._made:
            layers = self.layers(model, agent_id)
            if model.__module__ not in CORE:
                self._check(layers)
            self._made[model, agent_id] = build(model, [layer.as_section for layer in layers])
        made: S = self._made[model, agent_id]
        return made

    def said(self, model: type[S], agent_id: str = "") -> list[S]:
        """The data of each place, the most specific first."""
        return [build(model, [layer.as_section]) for layer in self.layers(model, agent_id)]

    def at(self, model: type[S], *path: str | int) -> S:
        """The data of one place."""
        found = dig(self.data, path)
        return build(model, [found] if isinstance(found, dict) else [])

    def findings(self, shown: Any = None, *, thorough: bool = False) -> Findings:
        """What is wrong, unknown, unused or odd; the messages show values of `shown`."""
        shown = self.data if shown is None else shown
        told = inspect(self.data, shown, thorough=thorough)
        for path, text in _agents_wrong(self.data, told):
            told.wrong[path] = f"{text}, got {shown_value(dig(shown, path), path)}"
        return told

    def _check(self, layers: list[Layer]) -> None:
        places = [layer.path for layer in layers]
        wrong = {
            path: text
            for path, text in self.findings().wrong.items()
            if any(path[: len(place)] == place for place in places)
        }
        if wrong:
            raise ConfigError("\n".join(f"{format_path(path)}: {text}" for path, text in wrong.items()))


def normal_agent_id(text: str) -> str:
    """The id as used in session keys: lower case, other characters become hyphens."""
    cleaned = re.sub(r"[^a-z0-9_-]+", "-", text.strip().lower()).strip("-_")
    if not AGENT_ID.fullmatch(cleaned):
        raise ValueError("is not an agent's id: letters, digits, - and _, at most 64")
    return cleaned


def _agents_wrong(data: dict[str, Any], told: Findings) -> Iterator[tuple[JsonPath, str]]:
    """Errors across agents: invalid and duplicate ids."""
    entries, listed = dig(data, ("agents", "entries")), dig(data, ("agents", "list"))
    for name in entries if isinstance(entries, dict) else ():
        try:
            normal_agent_id(name)
        except ValueError as error:
            yield ("agents", "entries", name), str(error)
    if isinstance(listed, list) and not any(path[:2] == ("agents", "list") for path in told.wrong):
        ids = [normal_agent_id(agent["id"]) for agent in listed]
        twice = next((each for each in ids if ids.count(each) > 1), "")
        if twice:
            yield ("agents", "list"), f"holds the agent {twice} twice"


def _without_nulls(value: Any) -> Any:
    """Data without nulls: null means unset."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
