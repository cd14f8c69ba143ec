"""Where drafts wait: `<home>/skills-drafts`, which no agent reads skills from. Accepting one moves it where they do."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from palinurus.config.atomic import make_directory, storage_error, write_atomic
from palinurus.config.home import Home
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.skills.drafting.general import seen
from palinurus.skills.manifest import read_manifest
from palinurus.skills.skill import MAX_NAME, SKILL_FILE

FOLDER = "skills-drafts"
MAX_BYTES = 256_000


class Waiting(Struct, frozen=True, omit_defaults=True):
    """A draft; `trouble` says why it could not be accepted as it is."""

    name: str
    path: str
    description: str = ""
    tools: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    trouble: str = ""


def stage(home: Home, name: str, text: str) -> Path:
    """Put a draft beside those that wait; it replaces none. Gives its SKILL.md."""
    place = home.root / FOLDER
    names = (name, *(f"{name}-{number}" for number in range(2, 1_000)))
    free = next((each for each in names if not (place / each).exists()), None)
    if free is None:
        raise BadRequest(f"a thousand drafts of {name} wait already", hint=str(place))
    make_directory(place / free)
    file = place / free / SKILL_FILE
    write_atomic(file, text.replace(f'name: "{name}"', f'name: "{free}"', 1))
    return file


def waiting(home: Home) -> tuple[Waiting, ...]:
    try:
        found = sorted(each for each in (home.root / FOLDER).iterdir() if each.is_dir())
    except OSError:
        return ()
    return tuple(_looked_at(folder) for folder in found)


def accept(home: Home, name: str) -> Path:
    """Move a draft to the skills of the home. Raises NotFound or BadRequest; nothing is ever replaced."""
    folder = home.root / FOLDER / _plain(name)
    if not (folder / SKILL_FILE).is_file() or folder.is_symlink():
        raise NotFound(f"no draft is called {name[:80]!r}", hint="`pal skills drafts` shows them")
    look = _looked_at(folder)
    if look.trouble:
        raise BadRequest(f"the draft {name} cannot be used: {look.trouble}", hint=look.path)
    target = home.root / "skills" / look.name
    if target.exists() or target.is_symlink():
        raise BadRequest(
            f"there is a skill {look.name} already", hint=f"change the name in {look.path}, or remove {target}"
        )
    try:
        make_directory(target.parent)
        folder.rename(target)
    except OSError as error:
        raise storage_error(error, target) from None
    return target / SKILL_FILE


def _looked_at(folder: Path) -> Waiting:
    path = str(folder / SKILL_FILE)
    try:
        with (folder / SKILL_FILE).open("rb") as file:
            about = read_manifest(file.read(MAX_BYTES), folder.name)
        _plain(about.name)
    except OSError as error:
        return Waiting(folder.name, path, trouble=os.strerror(error.errno or 0))
    except BadRequest as error:
        return Waiting(folder.name, path, trouble=error.message)
    needs = about.capabilities
    return Waiting(about.name, path, about.description, needs.tools or (), needs.hosts or ())


def _plain(name: str) -> str:
    if not name or len(name) > MAX_NAME or seen(name) != name or "/" in name or "\\" in name or name.startswith("."):
        raise BadRequest(f"{name[:80]!r} is no skill's name", hint="small letters, digits and -")
    return name
