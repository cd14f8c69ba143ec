"""All sections as one tree of keys, and its findings in a config: what is wrong, unknown, unused or odd.

A part of the tree is built when a config sets something there, so a short config costs little. Sections of other
packages are imported only on use, or with `thorough`.
"""

from __future__ import annotations

import json
import math
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Struct

from palinurus.config import section
from palinurus.config.secrets import MASK, is_secret_name, mask
from palinurus.config.section import REGISTRY, Option, SectionMount, Steps
from palinurus.config.source import JsonPath, format_path, last_name
from palinurus.parts import PARTS_OF_SECTIONS, SECTIONS

CORE = frozenset(section.partition(":")[0] for section in SECTIONS)  # modules that are imported to check a config
WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
BOOKKEEPING = frozenset({"$schema", "meta", "wizard"})  # keys of editors and of OpenClaw itself: no warning needed
READ = frozenset({"secrets"})  # checked in load.py
# Keys of OpenClaw that are accepted and not used, at paths that belong to no section.
FOREIGN = {
    "": """auth discovery browser ui desktop talk tts audio acp approvals security logging telemetry
    audit update worktreeRoot cloudWorkers surfaces transcripts attachments web canvasHost nodeHost media""",
    "agents": "ownership",
    "agents.defaults.memory": "qmd",
    "diagnostics": "enabled flags cacheTrace stuckSessionWarnMs stuckSessionAbortMs",
    "messages": """ackReaction ackReactionScope inbound messagePrefix removeAckAfterReply responsePrefix statusReactions
    suppressToolErrors tts usageTemplate""",
}
_GROWING = threading.RLock()  # a gateway reads its config in several threads

for _section, _places in SECTIONS.items():
    section.config_section(_section, _places, PARTS_OF_SECTIONS.get(_section))


class Node(Struct, eq=False):
    """What is allowed at one path: a plain value, an object with its keys, or a collection."""

    option: Option = Option("")
    default: Any = None
    plain: list[Any] = []  # types of a plain value
    keys: dict[str, Node] | None = None
    item: Node | None = None
    many: Literal["", "list", "map"] = ""
    anything: bool = False
    free: bool = False  # other keys are free
    foreign: set[str] = set()
    models: list[type[Struct]] = []
    pending: list[SectionMount] = []

    @property
    def about(self) -> str:
        return self.option.about or next(((each.__doc__ or "").split("\n")[0] for each in self.models), "")

    def at(self, steps: Iterable[str]) -> Node:
        """The node below, created if missing."""
        node = self
        for step in steps:
            if step in ("*", "[]"):
                node.many, node.item = "map" if step == "*" else "list", node.item or Node()
                node = node.item
            else:
                node.keys = {} if node.keys is None else node.keys
                if step not in node.keys:  # one of many has what all of them have
                    node.keys[step] = Node(pending=[*node.item.pending] if node.item else [])
                node = node.keys[step]
        return node

    def open(self, *, thorough: bool = True) -> bool:
        """Loads the sections at this path; returns whether all were loaded."""
        if not self.pending:
            return True
        later: list[SectionMount] = []
        with _GROWING:
            for mount in self.pending:
                module = mount.section.partition(":")[0]
                if not thorough and module not in CORE and module not in sys.modules:
                    later.append(mount)
                elif mount.inside:
                    self._take(of_model(mount.model), mount.inside)
                else:
                    self.add(mount.model)
            self.pending = later
        return not later

    def add(self, model: type[Struct]) -> None:
        self.keys = {} if self.keys is None else self.keys
        self.models.append(model)
        self.free = self.free or getattr(model, "free", False)
        known: Mapping[str, str] = getattr(model, "foreign", {})
        for place, names in known.items():
            self.at(place.split(".") if place else ()).foreign.update(names.split())
        for each in section.fields_of(model):
            if each.is_part:
                part = self.at(each.keys[0])
                part.option = each.option if each.keys[0] else part.option
                part.default = NODEFAULT if each.default is NODEFAULT else part.default
                part.add(each.kind)
                continue
            for keys in each.keys:
                form = each.option.form
                default = form.write(each.default) if form and each.default is not None else each.default
                holder = self.at(keys[:-1])
                holder.keys = {} if holder.keys is None else holder.keys
                made = _of_type(form.takes if form else each.kind, each.option, default)
                if (before := holder.keys.get(keys[-1])) is not None and before.item and made.item:
                    made.item.pending += before.item.pending
                holder.keys[keys[-1]] = made

    def _take(self, other: Node, inside: Steps) -> None:
        found = other.at(inside)
        for name in ("option", "default", "plain", "item", "many", "anything", "foreign"):
            setattr(self, name, getattr(found, name))
        if found.keys is not None:
            self.keys = {**(self.keys or {}), **found.keys}

    @property
    def words(self) -> str:
        """A description of the allowed values."""
        if len(self.plain) == 1 and get_origin(self.plain[0]) is Literal:
            *most, last = map(str, get_args(self.plain[0]))
            return f"{', '.join(most)} or {last}"
        told = [WORDS.get(each, "") for each in self.plain if get_origin(each) is not Literal]
        told += ["a list"] if self.many == "list" else []
        told += ["an object"] if self.many == "map" or self.keys is not None else []
        return " or ".join(filter(None, told))


def node_at(node: Node, steps: Iterable[str | int]) -> Node | None:
    """The node at a path; None if the path is unknown."""
    found: Node | None = node
    for step in steps:
        if found is None:
            break
        found.open()
        found = (found.keys or {}).get(str(step)) or found.item
    if found is not None:
        found.open()
    return found


def of_model(model: type[Struct]) -> Node:
    node = Node()
    node.add(model)
    return node


def _of_type(kind: Any, option: Option, default: Any = None) -> Node:
    node = Node(option, default)
    for each in section.choices(kind):
        bare, own = section.split(each)
        if own is not None and not option.check:
            node.option = own._replace(about=option.about or own.about)
        origin = get_origin(bare)
        if isinstance(bare, type) and issubclass(bare, Struct):
            node.add(bare)
        elif origin in (dict, Mapping):
            node.many, node.item = "map", _item(get_args(bare)[1])
        elif origin is tuple:
            node.many, node.item = "list", _item(get_args(bare)[0])
        elif bare is Any:
            node.anything = True
        else:
            node.plain.append(bare)
    return node


def _item(kind: Any) -> Node:
    bare, own = section.split(kind)
    return _of_type(bare, own or Option(""))


def root() -> Node:
    """The tree of all declared sections, each loaded when it is visited."""
    return _grown(REGISTRY.version)


@lru_cache(maxsize=1)
def _grown(_: int) -> Node:
    made = Node()
    core_first = sorted(REGISTRY.mounts.items(), key=lambda named: "extensions" in named[0])
    for mount in (mount for _, mounts in core_first for mount in mounts):
        for place in _everywhere(mount.place):
            made.at(place).pending.append(mount)
    for dotted, names in FOREIGN.items():
        for place in _everywhere(tuple(dotted.split(".")) if dotted else ()):
            made.at(place).foreign.update(names.split())
    return made


def _everywhere(place: Steps) -> tuple[Steps, ...]:
    """Copies what is under `agents.defaults` to every agent's own entry."""
    return tuple((*each, *place[2:]) for each in section.AGENT_PLACES) if place[:2] == section.AGENT else (place,)


class Findings(Struct, frozen=True):
    """Findings of a check, by path."""

    wrong: dict[JsonPath, str] = {}
    unknown: list[tuple[JsonPath, list[str]]] = []  # with the known keys at that path
    unused: list[tuple[JsonPath, str]] = []  # with the reason, if any
    odd: list[tuple[JsonPath, str]] = []
    secrets: list[section.SecretRef] = []


def inspect(data: Mapping[str, Any], shown: Any, *, thorough: bool = False) -> Findings:
    """Checks the data of a config. Messages show values of `shown`."""
    inspector = _Inspector(shown, thorough)
    inspector.look(root(), data, ())
    return inspector.told


def faults(model: type[Struct], value: Any, path: JsonPath) -> dict[JsonPath, str]:
    """The errors of an object that belongs to no section."""
    inspector = _Inspector(section.nested(path, value), thorough=False)
    inspector.look(of_model(model), value, path)
    return inspector.told.wrong


class _Inspector:
    def __init__(self, shown: Any, thorough: bool) -> None:
        self.told, self.shown, self.thorough = Findings(), shown, thorough

    def look(self, node: Node, value: Any, path: JsonPath) -> None:
        known = self._open(node, value)
        if isinstance(value, dict) and node.keys is not None:
            self._object(node, value, path, known)
        elif isinstance(value, dict) and node.many == "map" and node.item is not None:
            for key, item in value.items():
                self.look(node.item, item, (*path, key))
        elif isinstance(value, list) and node.many == "list" and node.item is not None:
            for index, item in enumerate(value):
                self.look(node.item, item, (*path, index))
        elif known and not node.anything and (fault := _fault(node, value)):
            self.wrong(path, fault)
            return
        option = node.option
        if not any(each[: len(path)] == path for each in self.told.wrong):
            if option.odd is not None and (text := option.odd(value)):
                self.told.odd.append((path, text))
            if option.idle is not None and (text := option.idle(value)):
                self.told.unused.append((path, text))

    def _open(self, node: Node, value: Any) -> bool:
        known = node.open(thorough=self.thorough)
        if not known:
            self.told.secrets.extend(_references(value))
        return known

    def _object(self, node: Node, value: dict[str, Any], path: JsonPath, known: bool) -> None:
        before = len(self.told.wrong)
        keys = node.keys or {}
        for key, item in value.items():
            if key in keys:
                self.look(keys[key], item, (*path, key))
            elif node.many == "map" and node.item is not None:
                self.look(node.item, item, (*path, key))
            elif known:  # else a section that is not imported may have it
                self._unread(node, (*path, key))
        missing = [key for key, child in tuple(keys.items()) if child.default is NODEFAULT and key not in value]
        self.told.wrong.update({(*path, key): "is missing" for key in missing})
        for model in node.models if len(self.told.wrong) == before else ():
            if model is section.SecretRef:
                self.told.secrets.append(section.build(section.SecretRef, [value]))
            elif hasattr(model, "__post_init__"):
                try:
                    section.build(model, [value])
                except ValueError as error:
                    self.wrong(path, str(error))

    def _unread(self, node: Node, path: JsonPath) -> None:
        """A key that nothing reads."""
        if path[-1] in node.foreign:
            self.told.unused.append((path, ""))
        elif not node.free and (len(path) > 1 or path[0] not in BOOKKEEPING | READ):
            self.told.unknown.append((path, sorted(node.keys or ())))

    def wrong(self, path: JsonPath, complaint: str) -> None:
        self.told.wrong[path] = f"{complaint}, got {shown_value(section.dig(self.shown, path), path)}"


def _references(value: Any) -> Iterator[section.SecretRef]:
    """References to secrets in a section that is not imported: they are redacted all the same."""
    if isinstance(value, dict) and {"source", "id"} <= value.keys() <= {"source", "id", "provider"}:
        with suppress(msgspec.ValidationError):  # anything else that has these keys
            yield msgspec.convert(value, section.SecretRef)
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _references(each)


def _fault(node: Node, value: Any) -> str:
    """The error of a plain value; empty if it is valid."""
    option = node.option
    if option.text and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    fits = bool(node.plain) and not (isinstance(value, float) and not math.isfinite(value))
    try:
        fits = fits and msgspec.convert(value, Union[tuple(node.plain)]) is not None  # noqa: UP007  known at run time
    except msgspec.ValidationError:
        fits = False
    if not fits:
        return f"should be {node.words}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _beyond(option, value)
    if option.longest is not None and not 0 < len(value) <= option.longest:
        return f"should have 1 to {option.longest} characters"
    try:
        check: Callable[[Any], object] | None = option.form.read if option.form else option.check
        if check is not None:
            check(value)
    except ValueError as error:
        return str(error)
    return ""


def _beyond(option: Option, value: float) -> str:
    if option.gt is not None and not value > option.gt:
        return f"should be more than {option.gt:g}"
    if option.ge is not None and not value >= option.ge:
        return f"should be {option.ge:g} or more"
    if option.le is not None and not value <= option.le:
        return f"should be {option.le:g} or less"
    return ""


def shown_value(value: Any, path: JsonPath) -> str:
    """A value in an error: short, and without a secret."""
    name = last_name(path)
    if is_secret_name(name) and not isinstance(value, dict | list):
        return MASK
    text = json.dumps(mask(value, (name,)), ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def known_paths(node: Node | None = None, path: Steps = (), *, thorough: bool = True) -> Iterator[tuple[Steps, Node]]:
    """Every key from the top, `*` and `[]` for user-chosen names and indexes. `thorough`: imports every section."""
    here = root() if node is None else node
    here.open(thorough=thorough)
    if path:
        yield path, here
    for key, child in (here.keys or {}).items():
        yield from known_paths(child, (*path, key), thorough=thorough)
    if here.item is not None:
        yield from known_paths(here.item, (*path, "*" if here.many == "map" else "[]"), thorough=thorough)


def suggest_key(path: JsonPath, known: list[str], *, thorough: bool = True) -> str:
    """The path that was probably meant by an unknown one; empty if there is no suggestion.

    `known` are the keys at that path. A key at the wrong path is searched everywhere, in sections of other packages
    only with `thorough`.
    """
    import difflib  # slow to import, and most configs need no suggestion

    key = str(path[-1]).lower()
    ends = sorted((each for each in _fixed_paths(REGISTRY.version, thorough) if each[-1].lower() == key), key=_rank)
    is_clear = len(ends) == 1 or (len(ends) > 1 and _rank(ends[0]) < _rank(ends[1]))
    elsewhere = format_path(ends[0]) if is_clear else ""
    if elsewhere and len(path) == 1:  # people often write at the top what belongs deeper: model
        return elsewhere
    alike = {name.lower(): name for name in known}
    if close := difflib.get_close_matches(key, alike, 1):
        return format_path((*path[:-1], alike[close[0]]))
    return elsewhere


def _rank(path: Steps) -> tuple[int, bool]:
    """The least deep comes first, and a key of agents before others: `model` is that of the agent."""
    return len(path), path[0] != "agents"


def guess_path(path: JsonPath) -> str:
    """A hint for an unknown path."""
    import difflib

    wanted, known = format_path(path), [format_path(each) for each in _fixed_paths(REGISTRY.version, True)]
    close = [] if wanted in known else difflib.get_close_matches(wanted, known, 1, cutoff=0.85)
    return f"did you mean {close[0]}?" if close else "`pal config schema` lists what can be set"


@cache
def _fixed_paths(_: int, thorough: bool) -> tuple[Steps, ...]:
    """Every key with a fixed path, from the top; keys under user-chosen names are not listed."""
    found = known_paths(thorough=thorough)
    return tuple(path for path, _ in found if path[0] != "agent" and not {"*", "[]"} & set(path))
