"""The schema of the config: the JSON Schema, suggestions for typing errors, and the source of a value.

It covers everything, so all sections are imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Literal, get_args, get_origin

from msgspec import NODEFAULT, Struct

from palinurus.config.agents import known_agent
from palinurus.config.load import Config, LoadedConfig
from palinurus.config.secrets import mask
from palinurus.config.section import AGENT, REGISTRY, SecretRef, dig
from palinurus.config.source import JsonPath, format_path, parse_path
from palinurus.config.tree import Node, guess_path, known_paths, node_at, of_model, root, suggest_key
from palinurus.domain.errors import BadRequest, NotFound

FORCE = "`pal config set --force` writes it anyway"
_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
_BOUNDS = {"gt": "exclusiveMinimum", "ge": "minimum", "le": "maximum"}


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the config, for editors and for `pal config schema`. Agent settings are defined once."""
    return _json_schema(REGISTRY.version)


@cache
def _json_schema(_: int) -> dict[str, Any]:
    whole = _object(root())
    agents = whole["properties"]["agents"]["properties"]
    ours = {"Agent": agents["defaults"], "SecretRef": _object(of_model(SecretRef))}
    reference = {"$ref": "#/$defs/Agent"}
    agents["defaults"] = {**reference, "description": "Settings of every agent, unless its own entry overrides them."}
    agents["entries"] = {"type": "object", "description": "Agents by id.", "additionalProperties": reference}
    agents["list"]["description"] = "Agents as a list (older form)."
    whole["properties"]["agent"] = {**reference, "description": "The oldest form of agents.defaults."}
    return {**whole, "title": "Config", "$defs": ours}


def _object(node: Node) -> dict[str, Any]:
    node.open()
    keys = node.keys or {}
    wanted = [key for key, child in keys.items() if child.default is NODEFAULT]
    return {
        "type": "object",
        "properties": {key: _shape(child) for key, child in keys.items()},
        **({"required": wanted} if wanted else {}),
        **({"description": node.about} if node.about else {}),
    }


def _shape(node: Node) -> dict[str, Any]:
    node.open()
    ways = [_plain(kind) for kind in node.plain]
    if SecretRef in node.models:
        ways.append({"$ref": "#/$defs/SecretRef"})
    elif node.keys is not None:
        ways.append(_object(node))
    if node.item is not None:
        inner = _shape(node.item)
        ways.append({"type": "array", "items": inner} if node.many == "list" else {"type": "object"})
        if node.many == "map":
            ways[-1]["additionalProperties"] = inner
    told = ways[0] if len(ways) == 1 else {"anyOf": ways} if ways else {}
    bounds = {_BOUNDS[name]: value for name in _BOUNDS if (value := getattr(node.option, name)) is not None}
    if node.option.longest is not None:
        bounds |= {"minLength": 1, "maxLength": node.option.longest}
    about = {"description": node.about} if node.about else {}
    default = {} if default_of(node) is None else {"default": default_of(node)}
    return {**told, **bounds, **about, **default}


def _plain(kind: Any) -> dict[str, Any]:
    enum = {"type": "string", "enum": list(get_args(kind))}
    return enum if get_origin(kind) is Literal else {"type": _TYPES[kind]}


def default_of(node: Node) -> Any:
    """The default as it would be written; None if there is none to show."""
    value = node.default
    if value is NODEFAULT or value is None or value in ((), "", {}):
        return None
    return list(value) if isinstance(value, tuple) else value


def check_new_keys(before: Config | None, after: Config, asked: JsonPath = ()) -> None:
    """Raises BadRequest for an unknown key that was not there before.

    `asked` is the path that the user wanted to set, so that the suggestion covers all of it.
    """
    old = {_anywhere(path) for path, _ in before.findings().unknown} if before is not None else set()
    for path, known in after.findings(thorough=True).unknown:
        if _anywhere(path) not in old:
            meant = suggest_key(path, known)
            whole = asked if asked[: len(path)] == path else path
            rest = format_path(("x", *whole[len(path) :])).removeprefix("x")
            guess = f"did you mean {meant}{rest}? " if meant else "`pal config schema` lists what can be set; "
            raise BadRequest(f"{format_path(whole)} is not a config key", hint=f"{guess}{FORCE}")


def _anywhere(path: JsonPath) -> JsonPath:
    """A path without list indexes, because elements move."""
    return tuple("[]" if isinstance(step, int) else step for step in path)


def option_rows() -> Iterator[tuple[str, Node]]:
    """Every option with its path in the reference. Agent settings are listed at `agents.defaults`."""
    for path, node in known_paths():
        same = path[0] == "agent" or path[:3] in (("agents", "entries", "*"), ("agents", "list", "[]"))
        own = path[:3] == ("agents", "list", "[]") and path[3:] == ("id",)
        if (same and not own) or (not node.plain and node.item is None and not node.anything):
            continue
        if node.item is not None:
            node.item.open()
        if path[-1] in ("*", "[]") or (node.item is not None and node.item.keys is not None and not node.about):
            continue
        yield ".".join(path).replace(".[]", "[]").replace(".*", ".<name>"), node


class Source(Struct, frozen=True):
    """One place that sets an option. A secret in it is not shown."""

    path: str
    where: str  # file:line
    value: Any


class OptionExplanation(Struct, frozen=True):
    key: str
    about: str
    default: Any
    said: tuple[Source, ...] = ()  # the most specific first, which is in effect


def explain_option(loaded: LoadedConfig, dotted: str, agent_id: str = "") -> OptionExplanation:
    """Raises NotFound for an unknown key, and for an agent that the config does not name."""
    path = parse_path(dotted)
    config = loaded.config
    place, own = _general(config, path)
    wanted = known_agent(config, agent_id) if agent_id else own
    node = node_at(root(), place)
    if node is None:
        raise NotFound(f"{dotted} is not a config key", hint=guess_path(path))
    places = _places(config, place, wanted)
    said = [(each, value) for each in places if (value := dig(loaded.raw, each)) is not None]
    return OptionExplanation(
        format_path(place),
        node.about,
        default_of(node),
        tuple(
            Source(format_path(each), loaded.place.where(each) if loaded.place else "", mask(value, place))
            for each, value in said
        ),
    )


def _general(config: Config, path: JsonPath) -> tuple[JsonPath, str]:
    """The path for all agents, and the agent whose own path was given."""
    for agent_id, places in config.own_places.items():
        for place in places:
            if path[: len(place)] == place:
                return (*AGENT, *path[len(place) :]), agent_id
    return (*AGENT, *path[1:]) if path[:1] == ("agent",) else path, ""


def _places(config: Config, place: JsonPath, agent_id: str) -> list[JsonPath]:
    """All possible places of the option, the most specific first."""
    for mount in (mount for mounts in REGISTRY.mounts.values() for mount in mounts):
        size = len(mount.place)
        rest = (*mount.inside, *place[size:])
        if place[:size] == mount.place and rest and node_at(of_model(mount.model), rest) is not None:
            layers = ((each.path, each.inside) for each in config.layers(mount.model, agent_id))
            return [(*path, *rest[len(inside) :]) for path, inside in layers if rest[: len(inside)] == inside]
    return [place]
