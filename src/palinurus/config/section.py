"""How a section of the config is declared: one frozen record, each option once, with its default, key and meaning.

    class FetchSettings(Section, frozen=True):
        max_chars: Annotated[int, option("Characters of a page that are shown.", ge=100)] = 50_000

    config_section(FetchSettings, at=["tools.web.fetch"])

The key is the field's name in camelCase unless `option` names another, which may lead deeper (`softTrim.maxChars`). A
field that is a record itself is read from its own keys. A field without `option` is not of the config: whoever joins
the record fills it in. What is mounted under `agents.defaults` may stand in every agent's own entry as well.
Everything else follows from this: checks, layers, schema and docs. The modules of sections evaluate their annotations
when they are imported (no `from __future__ import annotations`), which takes a tenth of the time.
"""

from __future__ import annotations

import importlib
import re
import types
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, Struct

Steps = tuple[str, ...]
S = TypeVar("S", bound=Struct)
AGENT = ("agents", "defaults")
AGENT_PLACES: tuple[Steps, ...] = (("agents", "entries", "*"), ("agents", "list", "[]"), AGENT, ("agent",))
HERE = "."  # the key of a part whose options are among the others


class OptionForm(NamedTuple):
    """An option whose form in the file differs from that in the record. `read` raises ValueError with a message."""

    takes: Any
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]  # of the default, for the docs


def whole(model: type[Struct]) -> OptionForm:
    """An object that a nearer place replaces whole, where others are joined key by key."""
    return OptionForm(model, lambda said: msgspec.convert(said, model), lambda _: None)


class Option(NamedTuple):
    about: str
    key: str = ""
    gt: float | None = None
    ge: float | None = None
    le: float | None = None
    longest: int | None = None  # characters; a text that has a limit may not be empty either
    form: OptionForm | None = None
    text: bool = False  # a whole number counts as text: 12 and 24 are numbers to JSON, and so to `pal config set`
    check: Callable[[Any], object] | None = None  # raises ValueError with a sentence
    odd: Callable[[Any], str] | None = None  # what is odd about a value that can be used; empty: nothing
    idle: Callable[[Any], str] | None = None  # why this version does not do what a value says
    also: Steps = ()  # other keys of it, asked when the first says nothing


option = Option  # in an annotation it reads as a verb


class Section(Struct, frozen=True, rename="camel"):
    """A section of the config, or an object in one."""

    foreign: ClassVar[Mapping[str, str]] = {}  # names that OpenClaw knows and we keep unused, by the key they are under
    free: ClassVar[bool] = False  # whether further keys are anybody's choice


class SecretRef(Section, frozen=True):
    """Where a secret is kept."""

    source: Annotated[Literal["env", "file", "exec", "store"], option("Where the secret is kept.")]
    id: Annotated[str, option("The variable's name, the file's path, or the place inside the provider's file.")]
    provider: Annotated[str | None, option("A provider named under secrets.providers.")] = None


Secret = str | SecretRef


class Field(NamedTuple):
    """One option of a record, as `fields_of` finds it."""

    name: str
    kind: Any
    option: Option
    keys: tuple[Steps, ...]
    default: Any  # NODEFAULT: it must be there

    @property
    def is_part(self) -> bool:
        return self.option.form is None and isinstance(self.kind, type) and issubclass(self.kind, Section)

    def value(self, said: Any) -> Any:
        """From what the file says, which has been checked."""
        if self.option.form is not None:
            return self.option.form.read(said)
        return str(said) if self.option.text and isinstance(said, int) else msgspec.convert(said, self.kind)


@cache
def fields_of(model: type[Struct]) -> tuple[Field, ...]:
    """The options of a record in its order."""
    hints = _annotations(model)
    names, defaults = model.__struct_fields__, model.__struct_defaults__
    filled = (*(NODEFAULT,) * (len(names) - len(defaults)), *defaults)
    found = []
    for name, key, default in zip(names, model.__struct_encode_fields__, filled, strict=True):
        kind, said = split(hints[name])
        if said is not None:
            keys = () if said.key == HERE else tuple((said.key or key).split("."))
            value = default.factory() if hasattr(default, "factory") else default
            found.append(Field(name, kind, said, (keys, *(tuple(each.split(".")) for each in said.also)), value))
    return tuple(found)


def _annotations(model: type[Struct]) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    for each in reversed(model.__mro__):
        hints |= each.__dict__.get("__annotations__", {})  # noqa: RUF063  inspect takes longer to import than all this
    if any(isinstance(hints[name], str) for name in model.__struct_fields__):
        return get_type_hints(model, include_extras=True)
    return hints


def split(kind: Any) -> tuple[Any, Option | None]:
    """A type without its annotation, and the option in it."""
    if get_origin(kind) is Annotated:
        bare, *rest = get_args(kind)
        return bare, next((each for each in rest if isinstance(each, Option)), None)
    return kind, None


def choices(kind: Any) -> tuple[Any, ...]:
    """The types of a union, None left out."""
    if get_origin(kind) in (Union, types.UnionType):
        return tuple(each for each in get_args(kind) if each is not type(None))
    return (kind,)


def build(model: type[S], layers: Iterable[Mapping[str, Any]]) -> S:
    """The record of some layers, the nearest first: each option as the nearest one says that speaks of it.

    They have been checked. Raises ValueError where the record itself finds that options contradict each other.
    """
    return model(**build_values(model, layers))


def build_values(model: type[Struct], layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The values of `build`, for a record that has others besides; what no layer speaks of is left out."""
    layers = tuple(layers)
    values: dict[str, Any] = {}
    for field in fields_of(model):
        if field.is_part:
            inner = [found for each in layers if isinstance(found := dig(each, field.keys[0]), dict)]
            values[field.name] = build(field.kind, inner) if inner else field.default
        else:
            found = (dig(layer, key) for key in field.keys for layer in layers)
            if (said := next((each for each in found if each is not None), None)) is not None:
                values[field.name] = field.value(said)
    return values


def dig(data: Any, steps: Iterable[str | int]) -> Any:
    """The value at a path; None if there is none."""
    for step in steps:
        if isinstance(data, dict):
            data = data.get(step)
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            data = data[step]
        else:
            return None
    return data


def nested(steps: Iterable[str | int], value: Any) -> Any:
    """The value inside objects with these keys."""
    for step in reversed(tuple(steps)):
        value = {step: value}
    return value


class SectionMount(NamedTuple):
    """A section at one of its paths. `inside`: only that part of the section is there."""

    section: str  # module:Class
    place: Steps
    inside: Steps = ()

    @property
    def of_agent(self) -> Steps | None:
        """The rest after `agents.defaults`, which is also valid in an agent's own entry; None for other paths."""
        return self.place[2:] if self.place[:2] == AGENT else None

    @property
    def model(self) -> type[Struct]:
        module, _, name = self.section.partition(":")
        found: type[Struct] = getattr(importlib.import_module(module), name)
        return found


class SectionRegistry:
    """The declared sections and their paths. `version` grows with each of them."""

    def __init__(self) -> None:
        self.mounts: dict[str, tuple[SectionMount, ...]] = {}
        self.version = 0

    def add(self, section: type[Struct] | str, at: Iterable[str], also: Mapping[str, str]) -> None:
        name = section if isinstance(section, str) else name_of(section)
        places = [*((each, "") for each in at), *also.items()]
        steps = ((read_place(place), tuple(inside.split(".")) if inside else ()) for place, inside in places)
        self.mounts[name] = tuple(dict.fromkeys(SectionMount(name, *each) for each in steps))
        self.version += 1

    def remove(self, name: str) -> None:
        del self.mounts[name]
        self.version += 1

    def of(self, model: type[Struct]) -> tuple[SectionMount, ...]:
        return self.mounts[name_of(model)]


REGISTRY = SectionRegistry()


def config_section(section: type[Struct] | str, at: Iterable[str], also: Mapping[str, str] | None = None) -> None:
    """Declares the paths of a section, the most specific first; `also` has paths of a part of it, by its key.

    The section may be given as "package.module:Class", which is imported when the config sets something there.
    """
    REGISTRY.add(section, at, also or {})


def name_of(model: type[Struct]) -> str:
    return f"{model.__module__}:{model.__qualname__}"


def read_place(place: str) -> Steps:
    """`agents.list[].x` as steps; an agent's own path stands for `agents.defaults`."""
    steps = tuple(place.replace("[]", ".[]").split("."))
    own = next((each for each in AGENT_PLACES if steps[: len(each)] == each and len(steps) > len(each)), None)
    return (*AGENT, *steps[len(own) :]) if own else steps


DAY_SECONDS = 86_400.0
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*+(ms|s|m|h|d|w|)\s*", re.IGNORECASE)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": DAY_SECONDS, "w": 604_800.0}


def seconds(text: str | int, bare: str = "m") -> float:
    """`5m`, `300s`, `1h`, `30d`; a bare number is in `bare` units. Raises ValueError for what is no time."""
    found = _DURATION.fullmatch(str(text))
    if found is None:
        raise ValueError("is not a time: for example 5m, 1h or 30d")
    return float(found[1]) * _SECONDS[found[2].lower() or bare]


def _written(value: float) -> str:
    unit = next(each for each in ("d", "h", "m", "s", "ms") if value % _SECONDS[each] == 0)
    return f"{value / _SECONDS[unit]:g}{unit}"


DURATION = OptionForm(str, seconds, _written)
DAYS = OptionForm(str | int, lambda said: seconds(said, bare="d"), _written)
