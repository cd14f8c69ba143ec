"""A foreign config as single settings, each with its path in our config; and a config built from settings. Pure.

Most paths stay the same. An agent has the path that it already has in ours, whatever form the other config uses; the
oldest form (`agent`) becomes `agents.defaults`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct

from palinurus.config.load import normal_agent_id
from palinurus.config.source import JsonPath, lookup
from palinurus.extensions.migrate.foreign import as_object
from palinurus.extensions.migrate.report import SettingOutcome

DEFAULTS: JsonPath = ("agents", "defaults")
LISTED: JsonPath = ("agents", "list")
ENTRIES: JsonPath = ("agents", "entries")
ONLY_WITH_ASKING = "allowlist"
TWICE = "it is set twice, and the first one counts"

MODES: Mapping[str, Mapping[str, str]] = {  # newer homes have one setting where ours has two
    "deny": {"security": "deny"},
    "allowlist": {"security": ONLY_WITH_ASKING, "ask": "off"},
    "ask": {"security": ONLY_WITH_ASKING, "ask": "on-miss"},
}


class Setting(Struct):
    """One value of the other config. Without an outcome it will be taken; without a source it is not reported."""

    source: JsonPath
    into: JsonPath
    value: Any
    outcome: SettingOutcome | None = None
    reason: str = ""

    def end(self, outcome: SettingOutcome, reason: str = "") -> None:
        self.outcome, self.reason = outcome, reason


class Roster:
    """The path of each agent in our config. An element of our list has a slot number until the list is built."""

    def __init__(self, own: Any) -> None:
        agents = as_object(as_object(own).get("agents"))
        listed = agents.get("list")
        named = [as_object(each).get("id") for each in listed] if isinstance(listed, list) else []
        self._listed = {agent_id(name): name for name in named}
        self._entries = {agent_id(name): name for name in as_object(agents.get("entries"))}
        self.slots: dict[str, int] = {}
        self.seen: set[JsonPath] = set()  # in the other config

    def place(self, agent: str, *, keyed: bool = False) -> JsonPath:
        """`keyed`: the other config has it in `entries`."""
        if agent in self._entries:
            return (*ENTRIES, self._entries[agent])
        if keyed and agent not in self._listed:
            return (*ENTRIES, agent)
        return (*LISTED, self.slots.setdefault(agent, len(self.slots)))

    def written(self, agent: str) -> str:
        """Its id as our list has it."""
        return str(self._listed.get(agent, agent))

    def knows(self, agent: str) -> bool:
        return agent in self._listed or agent in self._entries

    def agent_of(self, into: JsonPath) -> str:
        """The agent of a setting; empty when it belongs to none."""
        if into[:2] == ENTRIES and len(into) > 2:
            return agent_id(into[2])
        slot = into[2] if into[:2] == LISTED and len(into) > 2 else None
        return list(self.slots)[slot] if isinstance(slot, int) else ""


def settings_of(data: dict[str, Any], roster: Roster, agents: Iterable[str]) -> list[Setting]:
    """All settings. `agents` are those of the home, also ones that its config does not name."""
    found = [setting for key, value in data.items() for setting in _section(key, value, data, roster)]
    named = {roster.agent_of(setting.into) for setting in found}
    for agent in agents:
        if agent not in named and not roster.knows(agent):
            roster.place(agent)
    found += [Setting((), (*LISTED, slot, "id"), roster.written(agent)) for agent, slot in roster.slots.items()]
    return list(_first_of_each(_modes(found)))


def leaves(value: Any, path: JsonPath) -> Iterator[tuple[JsonPath, Any]]:
    """The values inside objects, and inside lists of objects; any other list is one value."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    else:
        yield path, value


def agent_id(value: Any) -> str:
    """The id as session keys have it; empty for what is no id."""
    with suppress(ValueError):
        return normal_agent_id(value) if isinstance(value, str) else ""
    return ""


def _section(key: str, value: Any, data: dict[str, Any], roster: Roster) -> Iterator[Setting]:
    if key == "agents" and isinstance(value, dict):
        yield from _agents(value, roster)
    elif key == "agents":
        yield Setting((key,), (), value, "refused", "should be an object")
    elif key == "agent" and isinstance(value, dict):
        yield from _oldest(value, data.get("agents", {}))
    else:
        yield from (Setting(path, path, leaf) for path, leaf in leaves(value, (key,)))


def _oldest(value: dict[str, Any], agents: Any) -> Iterator[Setting]:
    newer = agents.get("defaults", {}) if isinstance(agents, dict) else None
    for path, leaf in leaves(value, ("agent",)):
        setting = Setting(path, (*DEFAULTS, *path[1:]), leaf)
        if not isinstance(newer, dict) or (path[1:2] and path[1] in newer):
            setting.end("left", "agents.defaults sets it too")
        yield setting


def _agents(section: dict[str, Any], roster: Roster) -> Iterator[Setting]:
    for key, value in section.items():
        path = ("agents", key)
        if key == "list" and isinstance(value, list) and all(isinstance(item, dict) for item in value):
            for index, item in enumerate(value):
                yield from _agent(item, (*path, index), item.get("id"), roster, keyed=False)
        elif key == "entries" and isinstance(value, dict):
            for name, item in value.items():
                yield from _agent(item, (*path, name), name, roster, keyed=True)
        elif key in ("list", "entries"):
            wanted = "should be a list of objects" if key == "list" else "should be an object"
            yield Setting(path, (), value, "refused", wanted)
        else:
            yield from (Setting(inner, inner, leaf) for inner, leaf in leaves(value, path))


def _agent(value: Any, path: JsonPath, named: Any, roster: Roster, *, keyed: bool) -> Iterator[Setting]:
    agent = agent_id(named)
    if not agent or not isinstance(value, dict):
        yield Setting(path, (), value, "refused", "should be an object" if agent else "can be no agent's id")
        return
    place = roster.place(agent, keyed=keyed)
    if place in roster.seen:
        yield Setting(path, (), value, "left", TWICE)
        return
    roster.seen.add(place)
    for inner, leaf in leaves(value, path):
        if len(inner) == len(path) + 1 and inner[-1] == "id":
            yield Setting(inner, (*place, "id"), roster.written(agent), *(("taken",) if place[:2] == ENTRIES else ()))
        else:
            yield Setting(inner, (*place, *inner[len(path) :]), leaf)
    if place[:2] == ENTRIES:
        yield Setting((), place, {})  # it is added even when none of its settings is


def _modes(settings: list[Setting]) -> Iterator[Setting]:
    given = {setting.into for setting in settings}
    for setting in settings:
        word = setting.value if setting.into[-2:] == ("exec", "mode") and isinstance(setting.value, str) else ""
        place = setting.into[:-1]
        if word not in MODES or (*place, "security") in given or (*place, "ask") in given:
            yield setting
            continue
        for name, value in MODES[word].items():
            yield Setting(setting.source, (*place, name), value)


def _first_of_each(settings: Iterable[Setting]) -> Iterator[Setting]:
    seen: set[JsonPath] = set()
    for setting in settings:
        if setting.outcome is None and setting.value != {}:
            if setting.into in seen and not setting.source:
                continue
            if setting.into in seen:
                setting.end("left", TWICE)
            seen.add(setting.into)
        yield setting


def build(settings: Iterable[Setting]) -> tuple[dict[str, Any], dict[JsonPath, JsonPath]]:
    """The data, and for the path of each setting its path in the data: lists have no gaps there."""
    root: dict[Any, Any] = {}
    placed = []
    for setting in settings:
        holder = root
        for step in setting.into[:-1]:
            holder = holder.setdefault(step, {})
        holder.setdefault(setting.into[-1], {} if setting.value == {} else setting.value)  # an object of its own
        placed.append(setting.into)
    indexes: dict[int, dict[Any, int]] = {}  # of the elements of each list, by the id of the list
    return _closed_up(root), {into: _path(root, into, indexes) for into in placed}


def find_settings(
    settings: Sequence[Setting], paths: Mapping[JsonPath, JsonPath], wrong: Mapping[JsonPath, str]
) -> dict[JsonPath, str]:
    """The settings at these paths of the data, each with what is wrong. At least one, if there are any.

    A path may be inside a setting, or an object of several settings; for a missing path it is the object around it.
    """
    while wrong:
        inside = {path[:size]: path for path in wrong for size in range(len(path) + 1)}
        hit: dict[JsonPath, str] = {}
        for setting in settings:
            built = paths[setting.into]
            over = next((built[:size] for size in range(len(built) + 1) if built[:size] in wrong), inside.get(built))
            if over is not None:
                hit[setting.into] = wrong[over]
        if hit:
            return hit
        wrong = {path[:-1]: words for path, words in wrong.items() if path}
    return {}


def get(data: Any, path: JsonPath, missing: Any = None) -> Any:
    with suppress(LookupError):
        return lookup(data, path)
    return missing


def shown_settings(settings: Sequence[Setting]) -> dict[JsonPath, Setting]:
    """One line for each setting, or one for a list when all its settings have the same outcome."""
    groups: dict[JsonPath, list[Setting]] = {}
    for setting in settings:
        groups.setdefault(list_of(setting.source), []).append(setting)
    shown: dict[JsonPath, Setting] = {}
    for path, group in groups.items():
        if len({(setting.outcome, setting.reason) for setting in group}) == 1:
            shown.setdefault(path, group[0])
        else:
            for setting in group:
                shown.setdefault(setting.source, setting)
    return shown


def list_of(path: JsonPath) -> JsonPath:
    """The path of the list of objects that it is inside of, or the path itself. The list of agents does not count."""
    start = 3 if path[:2] == LISTED else 0
    at = next((at for at, step in enumerate(path) if at >= start and isinstance(step, int)), len(path))
    return path[:at]


def _closed_up(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value and all(isinstance(key, int) for key in value):
        return [_closed_up(value[key]) for key in sorted(value)]
    return {key: _closed_up(item) for key, item in value.items()}


def _path(root: Any, into: JsonPath, indexes: dict[int, dict[Any, int]]) -> JsonPath:
    path: list[str | int] = []
    for step in into:
        if isinstance(step, int) and id(root) not in indexes:
            indexes[id(root)] = {key: index for index, key in enumerate(sorted(root))}
        path.append(indexes[id(root)][step] if isinstance(step, int) else step)
        root = root[step]
    return tuple(path)
