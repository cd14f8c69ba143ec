"""What a typed message carries besides its words: pictures to attach and files of the workspace to name.

`@chart.png` and a picture that is dropped on the terminal (it arrives as a path) are attached. `@notes.md` puts nothing
into the message: the model is told the file's name and reads it when it wants to. Pictures may lie anywhere; of other
files the agent can read only those of its workspace, so naming one outside is refused and not sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

from msgspec import Struct

from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.messages import Image
from palinurus.workspace.pictures import MAX_BYTES, fit_image

PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp")
MOST = 8  # pictures in one message

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
    if len(pictures) > MOST:
        raise BadRequest(f"{len(pictures)} pictures in one message, and {MOST} is the limit", hint="send some of them")
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
    inside = _inside(path, places.workspace)
    if inside is None:
        raise BadRequest(
            f"{path} lies outside the workspace, and the agent could not read it",
            hint=f"nothing was sent; copy it to {places.workspace}",
        )
    return inside


def _find(name: str, places: FileLookup) -> Path | None:
    if name.startswith("~/"):
        candidates = [places.user_home / name[2:]]
    else:
        candidates = [places.workspace / name, places.here / name]
    return next((path for path in candidates if _exists(path)), None)


def _inside(path: Path, workspace: Path) -> str | None:
    try:
        return str(path.resolve().relative_to(workspace.resolve()))
    except ValueError:
        return None


def _dropped_path(match: re.Match[str], places: FileLookup) -> Path | None:
    """The picture that a terminal wrote into the line when it was dropped there; quoted, escaped or as an address."""
    if bare := match["dropped"]:
        name = unquote(bare.removeprefix("file://")) if bare.startswith("file://") else re.sub(r"\\(.)", r"\1", bare)
    else:
        name = match["single"] or match["double"]
    if not name.lower().endswith(PICTURES):
        return None
    path = places.user_home / name[2:] if name.startswith("~/") else Path(name)
    return path if _exists(path) else None


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
