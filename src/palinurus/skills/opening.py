"""Put the skills of an agent together, from a home and what its config says.

A whole config takes longer to read than a thousand skills take to list. So whoever has read it leaves a note with the
digest of its text, as memory does (config/shortcut.py), and a command that only looks believes the note as long as the
config says the same. The note holds no secret.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from palinurus.config.atomic import make_directory, write_atomic
from palinurus.config.home import Home
from palinurus.config.offering import SkillsSettings
from palinurus.config.shortcut import source_digest
from palinurus.domain.errors import StorageError
from palinurus.skills.cache import SkillCache
from palinurus.skills.catalog import Catalog
from palinurus.skills.environment import Values, nothing
from palinurus.skills.requirements import Programs, Surroundings
from palinurus.skills.roots import skill_roots
from palinurus.skills.skills import Skills

if TYPE_CHECKING:  # only a process that stays has a watch, and the quick ones need not wait for asyncio
    from palinurus.skills.watch import SkillWatch

FORMAT = "1"


class Known(Struct, frozen=True):
    """What is needed of one agent."""

    workspace: Path
    settings: SkillsSettings


class Note(Struct, frozen=True):
    format: str
    source: str  # digest of what it was made from
    default_agent: str
    agents: dict[str, Known]


def open_skills(
    home: Home,
    known: Known,
    env: Mapping[str, str],
    *,
    cache: SkillCache | None = None,
    taken: Collection[str] = (),
    values: Values = nothing,
    plugins: Sequence[Path] = (),
    watch: SkillWatch | None = None,
) -> Skills:
    """`cache` is shared by the agents of a process; `env` may be a live mapping."""
    settings = known.settings
    catalog = Catalog(
        skill_roots(known.workspace, home, settings, plugins),
        settings.limits,
        cache or skill_cache(home),
        tuple(map(str, settings.link_targets)),
        home=home.root,
        watch=watch if settings.watch else None,
    )
    here = Surroundings(sys.platform, env, Programs(env.get("PATH", ""), tools_folders(home)))
    return Skills(
        catalog,
        settings,
        here,
        workspace=str(known.workspace),
        user_home=str(home.user_home),
        taken=taken,
        values=values,
    )


def skill_cache(home: Home) -> SkillCache:
    """On disk, if there is a home: looking at skills does not make one."""
    return SkillCache(home.root / "derived" / "skills.msgpack" if home.root.is_dir() else None)


def tools_folders(home: Home) -> list[str]:
    """Where `pal skills install-deps` puts programs that no package manager brings."""
    try:
        found = sorted((home.root / "tools").iterdir())
    except OSError:
        return []
    return [str(place) for folder in found for place in (folder, folder / "bin")]


def read_note(home: Home) -> Note | None:
    source = source_digest(home)
    try:
        note = msgspec.json.decode(_place(home).read_bytes(), type=Note, dec_hook=lambda kind, value: kind(value))
    except (OSError, msgspec.DecodeError, TypeError):
        return None
    return note if source is not None and note.source == source and note.format == FORMAT else None


def write_note(home: Home, default_agent: str, agents: dict[str, Known]) -> None:
    """Where nothing can be written the next one reads the config, as if it were the first."""
    source = source_digest(home)
    place = _place(home)
    if source is None or not home.root.is_dir():
        return
    data = msgspec.json.encode(Note(FORMAT, source, default_agent, agents), enc_hook=str)
    with suppress(OSError, StorageError):
        if not place.exists() or place.read_bytes() != data:
            make_directory(place.parent)
            write_atomic(place, data)


def _place(home: Home) -> Path:
    return home.root / "derived" / "skills.settings.json"
