"""Unpack one file that `pal export` wrote, after every byte of it was compared with its digest."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from pathlib import Path, PurePosixPath

import msgspec

from palinurus.domain.errors import BadRequest
from palinurus.migrate.export.sinks import FORMAT, MANIFEST, PIECE, Manifest, Part

MAX_MANIFEST = 256 * 1024 * 1024
HINT = "take the file from where it was made once more"


def unpack(path: Path, into: Path) -> None:
    """Raises BadRequest for a file that is none of ours, or is not what it was."""
    try:
        with zipfile.ZipFile(path) as packed:
            manifest = _manifest(packed, path)
            named = {part.path for part in manifest.files} | {MANIFEST}
            if set(packed.namelist()) != named or len(packed.namelist()) != len(manifest.files) + 1:
                raise BadRequest(f"{path} holds other files than it says", hint=HINT)
            for part in manifest.files:
                _take(packed, part, path, into)
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError, zlib.error) as error:
        raise BadRequest(f"{path} is damaged: {error}", hint=HINT) from None


def _manifest(packed: zipfile.ZipFile, path: Path) -> Manifest:
    try:
        with packed.open(MANIFEST) as file:
            manifest = msgspec.json.decode(file.read(MAX_MANIFEST), type=Manifest)
    except (KeyError, msgspec.DecodeError):
        manifest = None
    if manifest is None or manifest.format != FORMAT or manifest.version != 1:
        raise BadRequest(f"{path} was not written by pal export", hint="`pal export FILE.pal` writes such a file")
    return manifest


def _take(packed: zipfile.ZipFile, part: Part, path: Path, into: Path) -> None:
    where = PurePosixPath(part.path)
    if where.is_absolute() or ".." in where.parts or "\\" in part.path or "\0" in part.path or not where.parts:
        raise BadRequest(f"{path} names a place outside of it: {part.path[:80]!r}")
    target = into.joinpath(*where.parts)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest, left = hashlib.sha256(), part.size
    with packed.open(part.path) as file, target.open("xb") as copy:
        while piece := file.read(PIECE):
            left -= len(piece)
            if left < 0:  # it would grow beyond what it says
                break
            digest.update(piece)
            copy.write(piece)
    if left or digest.hexdigest() != part.sha256:
        raise BadRequest(f"{path} is damaged: {part.path} is not what it was", hint=HINT)
