"""Keys that nothing reads: which they are, and what was probably meant.

A key that nobody knows may be a slip; one of OpenClaw's that we keep without using it is none. Both are told by
`pal config validate` and `pal doctor`, so that nobody relies on what is not done.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin

from palinurus.config.hands import AgentTools
from palinurus.config.schema import Config, unknown_keys
from palinurus.config.section import Section
from palinurus.config.source import JsonPath, format_path
from palinurus.domain.errors import BadRequest

BOOKKEEPING = frozenset({"$schema", "meta", "wizard"})  # of editors and of OpenClaw itself: nobody expects anything
READ = frozenset({"secrets"})  # by its own reader, see load.py
WHY = {
    "agentDir": "keys and state of an agent are in the home, under agents/",
    "channels": "there are no channels yet; of their groups only the rules for tools are read",
    "canvasHost": "there is no canvas here",
}
FORCE = "`pal config set --force` writes it all the same"
NO_CHANNELS = "there are no channels yet; every talk is in the session that it names"


def unused_keys(config: Config) -> Iterator[tuple[JsonPath, str]]:
    """Keys that we know and do not use, each with why, if there is more to say than that."""
    unknown = {path for path, _ in unknown_keys(config)}
    for path, _ in unknown_keys(config, foreign=True):
        if path not in unknown and not (len(path) == 1 and path[0] in BOOKKEEPING | READ):
            yield path, WHY.get(str(path[-1]), "")
    if config.session.scope != "per-sender":
        yield ("session", "scope"), NO_CHANNELS
    if config.session.dm_scope != "main":
        yield ("session", "dmScope"), NO_CHANNELS
    yield from _open_files(config)


def _open_files(config: Config) -> Iterator[tuple[JsonPath, str]]:
    """`tools.fs.workspaceOnly: false` is the one value of it that promises what is not done."""
    said: list[tuple[JsonPath, AgentTools | None]] = [
        (("tools",), config.tools),
        (("agents", "defaults", "tools"), config.agents.defaults.tools),
    ]
    said += [(("agents", "list", index, "tools"), agent.tools) for index, agent in enumerate(config.agents.listed)]
    said += [(("agents", "entries", name, "tools"), agent.tools) for name, agent in config.agents.entries.items()]
    for path, tools in said:
        if tools is not None and tools.fs is not None and tools.fs.workspace_only is False:
            yield (*path, "fs", "workspaceOnly"), "file tools always stay inside the workspace"


def check_new_keys(before: Config | None, after: Config, asked: JsonPath = ()) -> None:
    """Raises BadRequest for a key that nobody knows and that was not there before.

    `asked` is the path that somebody wanted to set, so that the guess is about all of it.
    """
    old = {_anywhere(path) for path, _ in unknown_keys(before)} if before is not None else set()
    for path, known in unknown_keys(after):
        if _anywhere(path) not in old:
            meant = suggest_key(path, known)
            whole = asked if asked[: len(path)] == path else path
            rest = format_path(("x", *whole[len(path) :])).removeprefix("x")
            guess = f"did you mean {meant}{rest}? " if meant else "`pal config schema` lists what can be set; "
            raise BadRequest(f"nothing reads {format_path(whole)}", hint=f"{guess}{FORCE}")


def _anywhere(path: JsonPath) -> JsonPath:
    """A path whatever the place in its lists: elements move."""
    return tuple("[]" if isinstance(step, int) else step for step in path)


def suggest_key(path: JsonPath, known: list[str]) -> str:
    """The whole path that was probably meant by one that nobody knows; empty when there is no guess.

    `known` are the keys at that place. A key that stands at the wrong place is looked for everywhere.
    """
    import difflib  # takes longer to import than the rest of this module, and most configs need no suggestion

    key = str(path[-1]).lower()
    ends = [each for each in _known_paths() if each[-1].lower() == key]
    elsewhere = format_path(ends[0]) if len(ends) == 1 else ""
    if elsewhere and len(path) == 1:  # at the top people write what stands deeper: model
        return elsewhere
    alike = {name.lower(): name for name in known}
    if close := difflib.get_close_matches(key, alike, 1):
        return format_path((*path[:-1], alike[close[0]]))
    return elsewhere


def guess_path(path: JsonPath) -> str:
    """What to say to somebody who looked where nothing stands."""
    import difflib

    wanted, known = format_path(path), [format_path(each) for each in _known_paths()]
    close = [] if wanted in known else difflib.get_close_matches(wanted, known, 1, cutoff=0.85)
    return f"did you mean {close[0]}?" if close else "`pal config schema` lists what can be set"


@cache
def _known_paths() -> tuple[tuple[str, ...], ...]:
    """Every key that has one place, from the top; what stands under names of one's own is not listed."""
    return tuple(_paths(Config, ()))


def _paths(section: type[Section], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, field in section.model_fields.items():
        here = (*path, field.alias or name)
        if here[0] == "agent":
            continue
        yield here
        for inner in _sections(field.annotation):
            yield from _paths(inner, here)


def _sections(annotation: Any) -> Iterator[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    elif get_origin(annotation) in (Union, types.UnionType, Annotated):
        for each in get_args(annotation):
            yield from _sections(each)
