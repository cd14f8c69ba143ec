"""Folders that memory searches besides the workspace, as the config names them. No open home is needed."""

from __future__ import annotations

import os
from typing import Annotated, Any

from msgspec import Struct

from palinurus.config.agents import agent_settings, known_agent
from palinurus.config.config import SHARED
from palinurus.config.load import load_config
from palinurus.config.rewrite import drop, put
from palinurus.config.source import JsonPath, parse
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.memory.settings import Collection, clean_name, collection_place, free_name, memory_settings
from palinurus.operations.config import edit_config
from palinurus.operations.operation import AgentRef, LocalPath, Metavar, operation
from palinurus.operations.scopes import LOCAL
from palinurus.operations.services import Services

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


ForAgent = Annotated[AgentRef, "Only for this agent."]


@operation("memory.collections.list", scope="read", needs_home=False)
def list_collections(services: Services, agent: ForAgent = "") -> tuple[ListedCollection, ...]:
    """List the collections: name, mask and folder.

    Example:
      pal memory collections list
    """
    return _list(services, agent)


def _list(services: Services, agent: str) -> tuple[ListedCollection, ...]:
    config = load_config(services.home, services.env).config
    return tuple(_listed(each) for each in memory_settings(config, services.home, agent or None).collections)


@operation("memory.collections.add", scope="admin", local=True, needs_home=False)
def add_collection(
    services: Services,
    path: Annotated[str, LocalPath],
    name: Annotated[str, "Its name in citations. Default: the folder's name."] = "",
    mask: Annotated[str, Metavar("GLOB"), "Which files. Default **/*.md."] = "",
    agent: ForAgent = "",
) -> CollectionAdded:
    """Add a folder, or one markdown file, to memory search.

    The folder is added to the config. Nothing in it is changed; symbolic links in it are not followed.

    Examples:
      pal memory collections add .
      pal memory collections add ~/notes --name notes --mask "2026/**/*.md"
    """
    config = load_config(services.home, services.env).config
    known = memory_settings(config, services.home, agent or None).collections
    workspace = agent_settings(config, services.home, agent or None).workspace
    place = services.home.expand(path.strip(), workspace)
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
    where = _where(services, agent)
    edit_config(services, lambda text: _appended(text, where, entry), LOCAL)
    added = next(each for each in _list(services, agent) if each.name == wanted)
    return CollectionAdded(added, ".".join(map(str, where)))


@operation("memory.collections.remove", scope="admin", local=True, needs_home=False)
def remove_collection(services: Services, name: str, agent: ForAgent = "") -> CollectionRemoved:
    """Stop searching a collection. Its files stay as they are.

    Example:
      pal memory collections remove notes
    """
    wanted = clean_name(name)
    config = load_config(services.home, services.env).config
    known = memory_settings(config, services.home, agent or None).collections
    found = next((each for each in known if each.name == wanted), None)
    if found is None:
        names = ", ".join(each.name for each in known) or "none"
        raise NotFound(f"there is no collection {name!r}", hint=f"there are: {names}")
    places = list(_places(services, agent))

    def edit(text: str) -> str:
        data = parse(text)
        for place in places:
            for index, entry in enumerate(_at(data, place) or ()):
                if _names(services, agent, entry, found):
                    return drop(text, (*place, index))
        raise NotFound(
            f"{services.home.config_path} does not name {wanted}", hint="an included file does; change it there"
        )

    edit_config(services, edit, LOCAL)
    return CollectionRemoved(wanted)


def _listed(collection: Collection) -> ListedCollection:
    there = os.path.isdir(collection.path)  # noqa: PTH112  # the Path form raises where it may not look
    return ListedCollection(collection.name, str(collection.path), collection.mask, there)


def _where(services: Services, agent: str) -> JsonPath:
    """For one agent its own entry; it is made beside an entry in the older list, which goes on to hold."""
    if not agent:
        return FOR_ALL
    config = load_config(services.home, services.env).config
    return ("agents", "entries", known_agent(config, agent), "memory", "search", "extraPaths")


def _places(services: Services, agent: str) -> list[JsonPath]:
    """Wherever the config may name collections of an agent."""
    config = load_config(services.home, services.env).config
    wanted = known_agent(config, agent or None)
    layers = [*config.own_places.get(wanted, ()), *SHARED]
    inside: tuple[JsonPath, ...] = (("memory", "search", "extraPaths"), ("memorySearch", "extraPaths"))
    return [*((*layer, *rest) for layer in layers for rest in inside), FOR_ALL, ("memory", "qmd", "paths")]


def _at(data: Any, path: JsonPath) -> Any:
    for step in path:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return None
    return data if isinstance(data, list) else None


def _names(services: Services, agent: str, entry: Any, wanted: Collection) -> bool:
    """Whether an entry of the config is this collection: by its path and mask, as names may have been changed."""
    text = entry if isinstance(entry, str) else entry.get("path") if isinstance(entry, dict) else None
    if not isinstance(text, str):
        return False
    config = load_config(services.home, services.env).config
    place = services.home.expand(text.strip(), agent_settings(config, services.home, agent or None).workspace)
    pattern = entry.get("pattern") if isinstance(entry, dict) else None
    return collection_place(place, pattern or "")[:2] == (wanted.path, wanted.mask)


def _appended(text: str, where: JsonPath, entry: dict[str, str]) -> str:
    known = _at(parse(text), where)
    if known is None:
        return put(text, where, [entry])
    return put(text, (*where, len(known)), entry)


OPERATIONS = (list_collections, add_collection, remove_collection)
