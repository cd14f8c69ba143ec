"""The input line of the chat terminal: what can be completed at the cursor, earlier input, and the files that it names.

Completed are commands behind a slash, files behind `@` and session keys. `@chart.png` and a picture that is dropped on
the terminal (it arrives as a path) are attached to the message. `@notes.md` puts nothing into it: the model is told the
file's name and reads it when it wants to. Pictures may lie anywhere; of other files the agent can read only those of
its workspace, so naming one outside is refused and not sent.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from palinurus.config.atomic import write_atomic
from palinurus.domain.errors import BadRequest, NotFound, PalinurusError, StorageError
from palinurus.domain.messages import Image
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.pictures import MAX_BYTES, fit_image

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.history import History


MOST = 50
FRESH_SECONDS = 5.0
_COMMAND = re.compile(r"/[\w-]*\Z")
_ARGUMENT = re.compile(r"/(\w+) +(\S*)\Z")
_MENTION = re.compile(r"""(?<!\S)@(?P<name>[^\s"]*|"[^"\n]*)\Z""")


class Suggestion(Struct, frozen=True):
    """A text that may take the place of what stands before the cursor."""

    text: str
    replaces: int  # characters before the cursor
    meaning: str = ""


class CompletionWords(Struct, frozen=True):
    """Where the words come from. The callables are asked at every key, so they must answer at once."""

    commands: Mapping[str, str]  # "/stop" -> what it does
    arguments: Mapping[str, Callable[[], Sequence[tuple[str, str]]]]  # "resume" -> keys and what they are
    files: Callable[[], Sequence[str]]


def offers(before: str, words: CompletionWords) -> Iterator[Suggestion]:
    """What fits the text before the cursor. Pure but for the vocabulary."""
    if match := _MENTION.search(before):
        typed = match["name"].removeprefix('"')
        for name in _matching(typed, words.files())[:MOST]:
            yield Suggestion(f'@"{name}"' if " " in name else f"@{name}", len(match[0]))
    elif _COMMAND.fullmatch(before):
        for command, meaning in words.commands.items():
            if command.startswith(before.lower()):
                yield Suggestion(command, len(before), meaning)
    elif (match := _ARGUMENT.fullmatch(before)) and match[1] in words.arguments:
        typed = match[2].lower()
        for value, meaning in words.arguments[match[1]]():
            if typed in value.lower():
                yield Suggestion(value, len(match[2]), meaning)


def _matching(typed: str, names: Sequence[str]) -> list[str]:
    """Names that begin so, then those of which a part begins so, then those that contain it."""
    wanted = typed.lower()

    def rank(name: str) -> int:
        low = name.lower()
        if low.startswith(wanted):
            return 0
        return 1 if f"/{wanted}" in low else 2 if wanted in low else 3

    ranked = sorted((rank(name), name.count("/"), name) for name in names)
    return [name for place, _, name in ranked if place < 3]


class WorkspaceNames:
    """Files of a workspace, looked up anew after a few seconds."""

    def __init__(self, boundary: Boundary, now: Callable[[], float] = time.monotonic) -> None:
        self._boundary = boundary
        self._now = now
        self._seen: tuple[float, tuple[str, ...]] | None = None

    def __call__(self) -> tuple[str, ...]:
        if self._seen is None or self._now() - self._seen[0] > FRESH_SECONDS:
            files: tuple[str, ...] = ()
            with suppress(PalinurusError):  # the workspace is gone for the moment: nothing to offer
                files = self._boundary.walk().files
            self._seen = (self._now(), files)
        return self._seen[1]


def completer_of(words: CompletionWords) -> Completer:
    """The same, as the input line wants it: in a thread, because a workspace may lie on a slow disk."""
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
    from prompt_toolkit.document import Document

    class OfferCompleter(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            for offer in offers(document.text_before_cursor, words):
                yield Completion(offer.text, start_position=-offer.replaces, display_meta=offer.meaning)

    return ThreadedCompleter(OfferCompleter())


NAME = "chat-history.jsonl"
KEPT = 1000


class TypedLines:
    """The file. Whatever is wrong with it, typing goes on: it is a comfort and no record."""

    def __init__(self, path: Path, redact: Callable[[str], str]) -> None:
        self._path = path
        self._redact = redact

    def newest_first(self) -> list[str]:
        try:
            lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        if len(lines) > 2 * KEPT:
            with suppress(StorageError):
                write_atomic(self._path, "".join(line + "\n" for line in lines[-KEPT:]))
        read: list[str] = []
        for line in reversed(lines[-KEPT:]):
            with suppress(msgspec.DecodeError):
                read.append(msgspec.json.decode(line, type=str))
        return read

    def add(self, text: str) -> None:
        line = msgspec.json.encode(self._redact(text)) + b"\n"
        with suppress(OSError):
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(file, line)  # one write: two terminals do not mix their lines
            finally:
                os.close(file)


def history_of(lines: TypedLines) -> History:
    """The same, as the input line wants it."""
    from prompt_toolkit.history import History

    class KeptHistory(History):
        def load_history_strings(self) -> Iterable[str]:
            return lines.newest_first()

        def store_string(self, string: str) -> None:
            lines.add(string)

    return KeptHistory()


PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp")
MAX_PICTURES = 8  # pictures in one message

_NAMED = re.compile(
    r"""(?<!\S)(?:@(?:"(?P<quoted>[^"\n]+)"|(?P<bare>[^\s"]+))"""  # a mention
    r"""|(?:'(?P<single>(?:/|~/)[^'\n]+)'|"(?P<double>(?:/|~/)[^"\n]+)"|"""  # a path, as terminals write dropped files
    r"""(?P<dropped>(?:file://)?(?:/|~/)(?:\\.|[^\s\\'"])+))(?!\S))"""
)


class Message(Struct, frozen=True):
    text: str
    images: tuple[Image, ...] = ()
    names: tuple[str, ...] = ()  # of the pictures, for the one who sent them


class FileLookup(Struct, frozen=True):
    """Where names of files are looked up."""

    workspace: Path
    here: Path  # the directory that the terminal is in
    user_home: Path


def attach(text: str, places: FileLookup, fit: Callable[[bytes], Image] = fit_image) -> Message:
    """The message as it will be sent. Reads files, so call it in a thread. Raises BadRequest or NotFound."""
    pictures: dict[Path, str] = {}

    def named(match: re.Match[str]) -> str:
        if match["quoted"] or match["bare"]:
            bare = match["bare"] or ""
            name = match["quoted"] or bare.rstrip(".,;:!?)")
            behind = "" if match["quoted"] else bare[len(name) :]
            return _mentioned(name, match[0].removesuffix(behind), places, pictures) + behind
        path = _dropped_path(match, places)
        if path is None:
            return match[0]
        pictures[path] = path.name
        return path.name

    words = _NAMED.sub(named, text)
    if len(pictures) > MAX_PICTURES:
        why = f"{len(pictures)} pictures in one message, and {MAX_PICTURES} is the limit"
        raise BadRequest(why, hint="send some of them")
    return Message(words, tuple(_picture(path, fit) for path in pictures), tuple(pictures.values()))


def _mentioned(name: str, said: str, places: FileLookup, pictures: dict[Path, str]) -> str:
    """What stands in the message for a mention."""
    path = _find(name, places)
    is_picture = name.lower().endswith(PICTURES)
    if path is None:
        if is_picture:
            raise NotFound(f"there is no picture {name}", hint="nothing was sent; name it as it lies in the workspace")
        return said  # a name of somebody, not of a file
    if is_picture:
        pictures[path] = path.name
        return path.name
    try:
        return str(path.resolve().relative_to(places.workspace.resolve()))
    except ValueError:
        hint = f"nothing was sent; copy it to {places.workspace}"
        raise BadRequest(f"{path} lies outside the workspace, and the agent could not read it", hint=hint) from None


def _find(name: str, places: FileLookup) -> Path | None:
    candidates = [places.workspace / name, places.here / name]
    if name.startswith("~/"):
        candidates = [places.user_home / name[2:]]
    return next((path for path in candidates if _exists(path)), None)


def _dropped_path(match: re.Match[str], places: FileLookup) -> Path | None:
    """The picture that a terminal wrote into the line when it was dropped there; quoted, escaped or as an address."""
    if bare := match["dropped"]:
        name = unquote(bare.removeprefix("file://")) if bare.startswith("file://") else re.sub(r"\\(.)", r"\1", bare)
    else:
        name = match["single"] or match["double"]
    if not name.lower().endswith(PICTURES):
        return None
    return _find(name, places)


def _picture(path: Path, fit: Callable[[bytes], Image]) -> Image:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadRequest(f"{path} cannot be read: {error.strerror}") from None
    try:
        return fit(data)
    except BadRequest as error:
        raise BadRequest(f"{path.name}: {error.message}", hint=error.hint) from None


def _exists(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, or holds a null byte
        return False
