"""Folders that memory searches besides the workspace, as the config names them. No open home is needed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from msgspec import Struct

from palinurus.config.agents import agent_settings, known_agent
from palinurus.config.home import Home
from palinurus.config.load import SHARED, Config, load_config
from palinurus.config.rewrite import drop, put
from palinurus.config.section import dig
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
    # For one agent in its own entry; it is made beside an entry in the older list, which goes on to hold.
    where: JsonPath = ("agents", "entries", known_agent(config, agent), *FOR_ALL) if agent else FOR_ALL

    def append(text: str) -> str:
        known = _at(parse(text), where)
        return put(text, where, [entry]) if known is None else put(text, (*where, len(known)), entry)

    edit_config(services, append, LOCAL)
    listed: tuple[ListedCollection, ...] = list_collections.function(services, agent)
    added = next(each for each in listed if each.name == wanted)
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
    workspace = agent_settings(config, services.home, agent or None).workspace

    def edit(text: str) -> str:
        data = parse(text)
        for place in _places(config, agent):
            for index, entry in enumerate(_at(data, place) or ()):
                if _names(services.home, workspace, entry, found):
                    return drop(text, (*place, index))
        raise NotFound(
            f"{services.home.config_path} does not name {wanted}", hint="an included file does; change it there"
        )

    edit_config(services, edit, LOCAL)
    return CollectionRemoved(wanted)


def _listed(collection: Collection) -> ListedCollection:
    there = os.path.isdir(collection.path)  # noqa: PTH112  # the Path form raises where it may not look
    return ListedCollection(collection.name, str(collection.path), collection.mask, there)


def _places(config: Config, agent: str) -> list[JsonPath]:
    """Wherever the config may name collections of an agent."""
    layers = [*config.own_places.get(known_agent(config, agent or None), ()), *SHARED]
    inside: tuple[JsonPath, ...] = (FOR_ALL, ("memorySearch", "extraPaths"))
    return [*((*layer, *rest) for layer in layers for rest in inside), FOR_ALL, ("memory", "qmd", "paths")]


def _at(data: Any, path: JsonPath) -> list[Any] | None:
    found = dig(data, path)
    return found if isinstance(found, list) else None


def _names(home: Home, workspace: Path, entry: Any, wanted: Collection) -> bool:
    """Whether an entry of the config is this collection: by its path and mask, as names may have been changed."""
    text = entry if isinstance(entry, str) else entry.get("path") if isinstance(entry, dict) else None
    if not isinstance(text, str):
        return False
    place = home.expand(text.strip(), workspace)
    pattern = entry.get("pattern") if isinstance(entry, dict) else None
    return collection_place(place, pattern or "")[:2] == (wanted.path, wanted.mask)
