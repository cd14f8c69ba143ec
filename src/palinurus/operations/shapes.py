"""Records of ours in OpenClaw's shape: which of their fields, under which names, is said once, beside the type.

class SessionRow(Struct, rename="camel"):
    key: str
    session_id: Annotated[str, From("id")]

made_of(SessionRow, session)
"""

from __future__ import annotations

import typing
from functools import cache
from typing import Annotated, Any, TypeVar

from msgspec import Struct

T = TypeVar("T", bound=Struct)
_NOTHING = object()


class From(Struct, frozen=True):
    """Beside a field: where its value stands in the record that it is made of, by dots."""

    path: str


def made_of(kind: type[T], source: Any, /, **more: Any) -> T:
    """The record with what the source has of it, and with `more`, which comes from elsewhere."""
    found = ((name, _at(source, path)) for name, path in _paths(kind) if name not in more)
    return kind(**{name: value for name, value in found if value is not _NOTHING}, **more)


def _at(source: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        source = getattr(source, step, _NOTHING)  # of nothing there is nothing: the field has its default
    return source


@cache
def _paths(kind: type[Struct]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return tuple((name, tuple(_path(name, hints[name]).split("."))) for name in kind.__struct_fields__)


def _path(name: str, hint: Any) -> str:
    notes = typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ()
    return next((note.path for note in notes if isinstance(note, From)), name)
