"""Folders of the owner's that memory searches too, as the config names them. Needs no house, only its ground."""

from __future__ import annotations

import os
from typing import Any

from msgspec import Struct

from palinurus.config.load import load_config
from palinurus.config.memory_settings import clean_name, collection_place, free_name, memory_settings
from palinurus.config.remembering import Collection
from palinurus.config.rewrite import drop, put
from palinurus.config.settings import agent_ids, agent_settings
from palinurus.config.source import JsonPath, parse
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.operations.config import Ground
from palinurus.operations.config_changes import Check, config_edit

FOR_ALL: JsonPath = ("memory", "search", "extraPaths")


class ListedCollection(Struct, frozen=True):
    name: str
    path: str
    mask: str
    there: bool  # whether the folder exists


class CollectionAdded(Struct, frozen=True):
    collection: ListedCollection
    where: str  # the place in the config


class CollectionRemoved(Struct, frozen=True):
    name: str


def anything(_: Any, __: Any) -> None:
    """The check of those who sit at the machine: they may change what they like."""


def collections_list(ground: Ground, agent: str = "") -> tuple[ListedCollection, ...]:
    config = load_config(ground.home, ground.env).config
    return tuple(_listed(each) for each in memory_settings(config, ground.home, agent or None).collections)


def collection_add(
    ground: Ground, path: str, *, name: str = "", mask: str = "", agent: str = "", check: Check = anything
) -> CollectionAdded:
    """Put a folder or a markdown file into the config, for all agents or for one. A name that is taken is refused."""
    config = load_config(ground.home, ground.env).config
    known = memory_settings(config, ground.home, agent or None).collections
    workspace = agent_settings(config, ground.home, agent or None).workspace
    place = ground.home.expand(path.strip(), workspace)
    if not path.strip() or "\0" in path or not os.path.lexists(place):
        raise NotFound(f"there is no folder {str(place)!r}", hint="name a folder with markdown in it, or a .md file")
    if place.is_file() and place.suffix.lower() != ".md":
        raise BadRequest(f"{place} is not markdown", hint="name a folder, or a .md file")
    for each in known:
        if collection_place(place, mask)[:2] == (each.path, each.mask):
            raise BadRequest(f"{place} is searched already, as {each.name}")
    taken = [each.name for each in known]
    wanted = clean_name(name) if name else free_name(place.stem if place.is_file() else place.name, taken)
    if name and (wanted in taken or free_name(wanted, ()) != wanted):
        raise BadRequest(f"the name {wanted} is taken", hint=f"taken are memory, sessions, {', '.join(taken)}")
    entry = {"name": wanted, "path": str(place)} | ({"pattern": mask} if mask else {})
    where = _where(ground, agent)
    config_edit(ground, lambda text: _appended(text, where, entry), check)
    added = next(each for each in collections_list(ground, agent) if each.name == wanted)
    return CollectionAdded(added, ".".join(map(str, where)))


def collection_remove(ground: Ground, name: str, *, agent: str = "", check: Check = anything) -> CollectionRemoved:
    """Take a collection out of the config, wherever it is named there. Its files stay as they are."""
    wanted = clean_name(name)
    config = load_config(ground.home, ground.env).config
    known = memory_settings(config, ground.home, agent or None).collections
    found = next((each for each in known if each.name == wanted), None)
    if found is None:
        names = ", ".join(each.name for each in known) or "none"
        raise NotFound(f"there is no collection {name!r}", hint=f"there are: {names}")
    places = list(_places(ground, agent))

    def edit(text: str) -> str:
        data = parse(text)
        for place in places:
            for index, entry in enumerate(_at(data, place) or ()):
                if _names(ground, agent, entry, found):
                    return drop(text, (*place, index))
        raise NotFound(
            f"{ground.home.config_path} does not name {wanted}", hint="an included file does; change it there"
        )

    config_edit(ground, edit, check)
    return CollectionRemoved(wanted)


def _listed(collection: Collection) -> ListedCollection:
    there = os.path.isdir(collection.path)  # noqa: PTH112  # the Path form raises where it may not look
    return ListedCollection(collection.name, str(collection.path), collection.mask, there)


def _where(ground: Ground, agent: str) -> JsonPath:
    """For one agent its own entry; it is made beside an entry in the older list, which goes on to hold."""
    if not agent:
        return FOR_ALL
    config = load_config(ground.home, ground.env).config
    return ("agents", "entries", _known(agent_ids(config), agent), "memory", "search", "extraPaths")


def _known(ids: tuple[str, ...], agent: str) -> str:
    wanted = agent.strip().lower()
    if wanted not in ids:
        raise NotFound(f"there is no agent {agent!r}", hint=f"the config has {', '.join(ids)}")
    return wanted


def _places(ground: Ground, agent: str) -> list[JsonPath]:
    """Wherever the config may name collections of an agent."""
    config = load_config(ground.home, ground.env).config
    wanted = agent_settings(config, ground.home, agent or None).agent_id
    layers: list[JsonPath] = [("agents", "entries", wanted)]
    layers += [("agents", "list", index) for index, each in enumerate(config.agents.listed) if each.id == wanted]
    layers += [("agents", "defaults"), ("agent",)]
    inside: tuple[JsonPath, ...] = (("memory", "search", "extraPaths"), ("memorySearch", "extraPaths"))
    return [*((*layer, *rest) for layer in layers for rest in inside), FOR_ALL, ("memory", "qmd", "paths")]


def _at(data: Any, path: JsonPath) -> Any:
    for step in path:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return None
    return data if isinstance(data, list) else None


def _names(ground: Ground, agent: str, entry: Any, wanted: Collection) -> bool:
    """Whether an entry of the config is this collection: by its path and mask, as names may have been changed."""
    text = entry if isinstance(entry, str) else entry.get("path") if isinstance(entry, dict) else None
    if not isinstance(text, str):
        return False
    config = load_config(ground.home, ground.env).config
    place = ground.home.expand(text.strip(), agent_settings(config, ground.home, agent or None).workspace)
    pattern = entry.get("pattern") if isinstance(entry, dict) else None
    return collection_place(place, pattern or "")[:2] == (wanted.path, wanted.mask)


def _appended(text: str, where: JsonPath, entry: dict[str, str]) -> str:
    known = _at(parse(text), where)
    if known is None:
        return put(text, where, [entry])
    return put(text, (*where, len(known)), entry)
