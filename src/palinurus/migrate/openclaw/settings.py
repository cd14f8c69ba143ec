"""A foreign config taken apart into single settings, each with the place where it would stand in ours.

Most stand where they stood. An agent stands where we already have it, whatever form the other config uses; the oldest
form (`agent`) becomes `agents.defaults`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.schema import normal_agent_id
from palinurus.config.source import JsonPath
from palinurus.migrate.report import SettingOutcome

DEFAULTS: JsonPath = ("agents", "defaults")
LISTED: JsonPath = ("agents", "list")
ENTRIES: JsonPath = ("agents", "entries")
ONLY_WITH_ASKING = "allowlist"
TWICE = "it is said twice, and the first counts"
MODES: Mapping[str, Mapping[str, str]] = {  # newer homes say in one word what ours say in two
    "deny": {"security": "deny"},
    "allowlist": {"security": ONLY_WITH_ASKING, "ask": "off"},
    "ask": {"security": ONLY_WITH_ASKING, "ask": "on-miss"},
}


class Setting(Struct, frozen=True):
    """One value of the other config. Without an outcome it is still on its way; without a source nobody is told."""

    source: JsonPath
    into: JsonPath
    value: Any
    outcome: SettingOutcome | None = None
    reason: str = ""

    def ends(self, outcome: SettingOutcome, reason: str = "") -> Setting:
        return replace(self, outcome=outcome, reason=reason)


class Roster:
    """Where each agent stands in our config. An element of our list is named by a slot, until the list is made."""

    def __init__(self, own: Any) -> None:
        agents = as_object(as_object(own).get("agents"))
        listed = agents.get("list")
        named = [as_object(each).get("id") for each in listed] if isinstance(listed, list) else []
        self._listed = {agent_id(name): name for name in named}
        self._entries = {agent_id(name): name for name in as_object(agents.get("entries"))}
        self.slots: dict[str, int] = {}
        self.spoken_of: set[JsonPath] = set()  # by the other config
        self._in_slot: list[str] = []

    def place(self, agent: str, *, keyed: bool = False) -> JsonPath:
        """`keyed`: the other config has it in `entries`."""
        if agent in self._entries:
            return (*ENTRIES, self._entries[agent])
        if keyed and agent not in self._listed:
            return (*ENTRIES, agent)
        if agent not in self.slots:
            self.slots[agent] = len(self._in_slot)
            self._in_slot.append(agent)
        return (*LISTED, self.slots[agent])

    def written(self, agent: str) -> str:
        """Its id as our list spells it."""
        return str(self._listed.get(agent, agent))

    def knows(self, agent: str) -> bool:
        return agent in self._listed or agent in self._entries

    def agent_of(self, into: JsonPath) -> str:
        """Whose setting it is; empty when it is nobody's own."""
        if into[:2] == ENTRIES and len(into) > 2:
            return agent_id(into[2])
        slot = into[2] if into[:2] == LISTED and len(into) > 2 else None
        return self._in_slot[slot] if isinstance(slot, int) else ""


def settings_of(data: dict[str, Any], roster: Roster, agents: Iterable[str]) -> list[Setting]:
    """All of them. `agents` are those of the home, also ones that its config does not name."""
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
    """As it stands in session keys; empty for what can be none."""
    try:
        return normal_agent_id(value) if isinstance(value, str) else ""
    except ValueError:
        return ""


def as_object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


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
            setting = setting.ends("left", "agents.defaults speaks of it too")
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
            wanted = "a list of objects" if key == "list" else "an object"
            yield Setting(path, (), value, "refused", f"should be {wanted}")
        else:
            yield from (Setting(inner, inner, leaf) for inner, leaf in leaves(value, path))


def _agent(value: Any, path: JsonPath, named: Any, roster: Roster, *, keyed: bool) -> Iterator[Setting]:
    agent = agent_id(named)
    if not agent or not isinstance(value, dict):
        yield Setting(path, (), value, "refused", "should be an object" if agent else "can be no agent's id")
        return
    place = roster.place(agent, keyed=keyed)
    if place in roster.spoken_of:
        yield Setting(path, (), value, "left", TWICE)
        return
    roster.spoken_of.add(place)
    for inner, leaf in leaves(value, path):
        if len(inner) == len(path) + 1 and inner[-1] == "id":
            yield Setting(inner, (*place, "id"), roster.written(agent), *(("taken",) if place[:2] == ENTRIES else ()))
        else:
            yield Setting(inner, (*place, *inner[len(path) :]), leaf)
    if place[:2] == ENTRIES:
        yield Setting((), place, {})  # it is there even when nothing else of it comes over


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
        if setting.outcome is not None or setting.value == {}:
            yield setting
        elif setting.into not in seen:
            seen.add(setting.into)
            yield setting
        elif setting.source:
            yield setting.ends("left", TWICE)
