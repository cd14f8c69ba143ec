"""Reads a config file and its includes into one value, with the source location of every part.

`"$include"` in an object names a file or a list of files. They are merged in order, later ones over earlier ones, and
the keys beside `$include` over all of them: objects key by key, lists are concatenated, anything else is replaced.
Files are read from the config's own directory, and from others only if PALINURUS_INCLUDE_ROOTS lists them.
"""

from __future__ import annotations

import os
import re
import stat
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import Struct

from palinurus.config.source import JsonPath, SourceMap, SyntaxFault, format_path, line_column, parse, scan
from palinurus.domain.errors import ConfigError

INCLUDE = "$include"
MAX_BYTES = 2 * 1024 * 1024
MAX_DEPTH = 10
MAX_PATH = 4096


class SourceFile:
    """One file's text. `name` is its name in errors: short for files beside the config, else the whole path."""

    def __init__(self, path: Path, text: str, beside: Path) -> None:
        self.path = path
        self.text = text
        self.name = str(path.relative_to(beside)) if path.is_relative_to(beside) else str(path)

    @cached_property
    def source(self) -> SourceMap:
        return scan(self.text)

    def line(self, path: JsonPath) -> int:
        return line_column(self.text, self.source.nearest(path).begin)[0]


class SourceLocation(Struct, frozen=True):
    """Where a value is written: at `path` of a document, except children from other files."""

    document: SourceFile
    path: JsonPath = ()
    children: dict[str | int, SourceLocation] = {}

    def child(self, step: str | int) -> SourceLocation:
        return self.children.get(step) or SourceLocation(self.document, (*self.path, step))

    def where(self, path: JsonPath) -> str:
        """`file:line` of the nearest written part of a path."""
        place = self
        for step in path:
            place = place.child(step)
        return f"{place.document.name}:{place.document.line(place.path)}"

    def error(self, path: JsonPath, complaint: str) -> ConfigError:
        """A ConfigError about the value at a path below this place."""
        return ConfigError(self.complaint(path, complaint))

    def complaint(self, path: JsonPath, text: str) -> str:
        """A line about the value at a path below this place."""
        return ": ".join(filter(None, (self.where(path), format_path(path), text)))


class MergedSource(Struct, frozen=True):
    """The value of a config and its included files, with all paths that were read."""

    value: Any
    place: SourceLocation
    files: tuple[Path, ...]


def read_text(path: Path) -> str | None:
    """The text of a config file, None if there is none. Raises ConfigError if it cannot be a config."""
    try:
        data = _read_regular(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from error
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{path}: is larger than 2 MiB", hint="a config is some kilobytes; is this the right file?")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: is not UTF-8 text", hint="save the file as UTF-8") from error


def _read_regular(path: Path) -> bytes:
    # Non-blocking, so that opening a pipe does not hang before its type is checked.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ConfigError(f"{path}: is not a regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(MAX_BYTES + 1)
    finally:
        os.close(descriptor)


def parse_file(text: str, name: str, hint: str) -> Any:
    """The value of a file's text. Raises ConfigError with the place of a mistake."""
    try:
        return parse(text)
    except SyntaxFault as fault:
        line, column = line_column(text, fault.offset)
        raise ConfigError(f"{name}:{line}:{column}: {fault.reason}", hint=hint) from fault


def assemble(main: Path, text: str, roots: tuple[Path, ...]) -> MergedSource:
    """Parses the main file's text and merges its includes. Raises ConfigError."""
    reader = _Reader(main, roots)
    value, place = reader.document(main, text, ())
    return MergedSource(value, place, tuple(reader.files))


def include_roots(listed: str) -> tuple[Path, ...]:
    """The directories of PALINURUS_INCLUDE_ROOTS, separated by `:` or `;`."""
    return tuple(Path(root) for root in re.split("[:;]", listed) if root.strip())


class _Reader:
    def __init__(self, main: Path, roots: tuple[Path, ...]) -> None:
        self.home = main.parent
        self.roots = tuple(root.resolve() for root in (main.parent, *roots))
        self.files: list[Path] = []

    def document(self, path: Path, text: str, chain: tuple[Path, ...]) -> tuple[Any, SourceLocation]:
        document = SourceFile(path, text, self.home)
        self.files.append(path)
        value, place = parse_file(text, document.name, hint=f"in {path}"), SourceLocation(document)
        return self.expand(value, place, (*chain, path.resolve())) if INCLUDE in text else (value, place)

    def expand(self, value: Any, place: SourceLocation, chain: tuple[Path, ...]) -> tuple[Any, SourceLocation]:
        if isinstance(value, list):
            pairs = {index: self.expand(item, place.child(index), chain) for index, item in enumerate(value)}
            return [item for item, _ in pairs.values()], _with_children(place, pairs)
        if not isinstance(value, dict):
            return value, place
        members = {key: self.expand(item, place.child(key), chain) for key, item in value.items() if key != INCLUDE}
        own = {key: item for key, (item, _) in members.items()}, _with_children(place, members)
        if INCLUDE not in value:
            return own
        included = self.included(value[INCLUDE], place, chain)
        if not own[0]:
            return included
        if not isinstance(included[0], dict):
            raise place.error(
                (INCLUDE,), "the included file should hold an object, because there are other keys beside it"
            )
        return _merge(included, own)

    def included(self, named: Any, place: SourceLocation, chain: tuple[Path, ...]) -> tuple[Any, SourceLocation]:
        names = named if isinstance(named, list) else [named]
        if not names or not all(isinstance(name, str) for name in names):
            raise place.error((INCLUDE,), "should be a file's path or a list of them")
        merged: tuple[Any, SourceLocation] | None = None
        for name in names:
            found = self.include(name, place, chain)
            merged = found if merged is None else _merge(merged, found)
        assert merged is not None  # noqa: S101  `names` is not empty
        return merged

    def include(self, name: str, place: SourceLocation, chain: tuple[Path, ...]) -> tuple[Any, SourceLocation]:
        if not name.strip() or len(name) >= MAX_PATH or "\0" in name:
            raise place.error((INCLUDE,), "is not a file's path")
        target = (place.document.path.parent / name).resolve()
        if not any(target.is_relative_to(root) for root in self.roots):
            problem = f"{name} is outside the config's directory"
            raise ConfigError(place.error((INCLUDE,), problem).message, hint="list it in PALINURUS_INCLUDE_ROOTS")
        if target in chain:
            raise place.error((INCLUDE,), f"{name} includes itself, by way of {' and '.join(p.name for p in chain)}")
        if len(chain) > MAX_DEPTH:
            raise place.error((INCLUDE,), f"files include each other more than {MAX_DEPTH} deep")
        text = read_text(target)
        if text is None:
            raise place.error((INCLUDE,), f"there is no file {name}")
        return self.document(target, text, chain)


def _with_children(place: SourceLocation, pairs: dict[Any, tuple[Any, SourceLocation]]) -> SourceLocation:
    """The same place, with the children from other files."""
    here = place.document
    moved = {step: child for step, (_, child) in pairs.items() if child.document is not here or child.children}
    return SourceLocation(here, place.path, moved) if moved else place


def _merge(below: tuple[Any, SourceLocation], above: tuple[Any, SourceLocation]) -> tuple[Any, SourceLocation]:
    """Merges one value over another."""
    (low, low_place), (high, high_place) = below, above
    if isinstance(low, dict) and isinstance(high, dict):
        merged: dict[Any, tuple[Any, SourceLocation]] = {key: (item, low_place.child(key)) for key, item in low.items()}
        for key, item in high.items():
            pair = item, high_place.child(key)
            merged[key] = _merge(merged[key], pair) if key in merged else pair
        return {key: item for key, (item, _) in merged.items()}, _with_children(high_place, merged)
    if isinstance(low, list) and isinstance(high, list):
        places = [low_place.child(index) for index in range(len(low))]
        places += [high_place.child(index) for index in range(len(high))]
        return low + high, SourceLocation(high_place.document, high_place.path, dict(enumerate(places)))
    return above
