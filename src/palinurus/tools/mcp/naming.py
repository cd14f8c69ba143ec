"""What the tools of servers are called: `<server>__<tool>`, in letters that every model provider takes. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from msgspec import Struct

LONGEST = 64
_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")
_DIGEST = 8


class Named(Struct, frozen=True):
    server: str
    tool: str
    name: str


def name_tools(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[Named, ...], tuple[str, ...]]:
    """A name for each (server, tool), and a line for each that could not have the plain one.

    The order in which they come does not matter. Who needs no change keeps its name; of the others the first by the
    alphabet does, and the rest get a digest behind theirs. Names that differ only in case count as the same: policies
    do not tell them apart.
    """
    taken: set[str] = set()
    named: list[Named] = []
    told: list[str] = []
    for server, tool in sorted(set(pairs), key=lambda pair: (_plain(*pair) != f"{pair[0]}__{pair[1]}", pair)):
        name = _plain(server, tool)
        if name.casefold() in taken:
            name = _with_digest(name, server, tool)
            told.append(f"mcp: the tool {tool[:80]!r} of {server} is called {name}: its plain name is taken")
        taken.add(name.casefold())
        named.append(Named(server, tool, name))
    return tuple(sorted(named, key=lambda each: each.name)), tuple(told)


def _plain(server: str, tool: str) -> str:
    whole = _UNFIT.sub("_", f"{server}__{tool}")
    if not (whole[0].isalpha() or whole[0] == "_"):  # one provider wants a letter there
        whole = f"_{whole}"
    return whole if len(whole) <= LONGEST else _with_digest(whole, server, tool)


def _with_digest(name: str, server: str, tool: str) -> str:
    digest = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    return f"{name[: LONGEST - _DIGEST - 1]}_{digest}"
