"""A new workspace: our templates where nothing exists yet; existing files are never changed.

BOOTSTRAP.md is for the first conversation. Once the agent has a name and knows its owner it is moved to the backups,
and a mark says that the setup is complete, so that it never comes back.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
import subprocess
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal, get_args

import msgspec
from msgspec import Struct

from palinurus.domain.errors import NotFound, WorkspaceError
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.files import TextFile, WorkspaceFiles, labelled
from palinurus.workspace.write import create_file, delete_file, keep_backup

TemplateKind = Literal["assistant", "coder", "researcher", "home"]
KINDS: tuple[TemplateKind, ...] = get_args(TemplateKind)
TEMPLATES = ("AGENTS.md", "SOUL.md", "IDENTITY.md", "USER.md", "TOOLS.md", "HEARTBEAT.md")
FIRST_RUN = "BOOTSTRAP.md"
DIRECTORIES = ("memory", "skills")
PERSONAL = ("IDENTITY.md", "USER.md")  # what the first conversation fills in
SETUP_STATE = ".pal/workspace-state.json"
# Where OpenClaw marks the same: 2026.1 to 2026.3, then until 2026.7.
_SETUP_STATES = (SETUP_STATE, ".openclaw/workspace-state.json", "openclaw-workspace-state.json")
# What OpenClaw 2026.2 looks for before it calls a workspace new.
_SIGNS_OF_LIFE = (*TEMPLATES, "memory", "MEMORY.md", ".git")
_GIT_SECONDS = 20
_LONGEST_LABEL = 24  # a longer text before a colon is a sentence

log = logging.getLogger(__name__)


class SetupState(Struct, frozen=True, rename="camel", omit_defaults=True):
    """OpenClaw's fields; `onboarding` is the older name."""

    version: int = 1
    setup_completed_at: str = ""
    onboarding_completed_at: str = ""


class SeedReport(Struct, frozen=True):
    """Created and existing files. Directories end with a slash."""

    created: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    git_initialised: bool = False


def template(name: str, kind: TemplateKind = "assistant") -> str:
    """The file of an assistant; other kinds have an IDENTITY.md of their own, and add to AGENTS.md and SOUL.md."""
    folder = Path(__file__).with_name("templates")
    general, own = folder / name, folder / kind / name
    if not own.is_file():
        return general.read_text(encoding="utf-8")
    return "".join(each.read_text(encoding="utf-8") for each in ((own,) if name in PERSONAL else (general, own)))


@cache
def template_texts(name: str) -> frozenset[str]:
    """What a file may say that nobody has changed."""
    return frozenset(template(name, kind) for kind in KINDS)


def is_brand_new(root: Path) -> bool:
    """Whether this workspace was never used."""
    return not any(os.path.lexists(root / name) for name in _SIGNS_OF_LIFE)


def seed_workspace(
    root: Path,
    *,
    skip_bootstrap: bool = False,
    skip_optional: Collection[str] = (),
    git: bool = True,
    kind: TemplateKind = "assistant",
) -> SeedReport:
    """Creates the files that an agent needs. Safe to repeat, also after a kill.

    With `skip_bootstrap` only the directory is created: the owner brings the files.
    """
    brand_new = is_brand_new(root)
    _make_directory(root)
    if skip_bootstrap:
        return SeedReport()
    # BOOTSTRAP comes first: it does not count as use, so an interrupted seeding starts again as new.
    boundary = Boundary(root)
    set_up = any(_is_complete(boundary, name) for name in _SETUP_STATES)
    first = [FIRST_RUN] if brand_new and not set_up else []
    names = first + [name for name in TEMPLATES if name not in skip_optional]
    made = {name: _write_template(boundary, name, kind) for name in names}
    made |= {f"{name}/": _make_directory(root / name) for name in DIRECTORIES}
    return SeedReport(
        created=tuple(name for name, new in made.items() if new),
        kept=tuple(name for name, new in made.items() if not new),
        git_initialised=git and brand_new and _git_init(root),
    )


def retire_first_run(files: WorkspaceFiles, now_ms: int) -> str:
    """Moves BOOTSTRAP.md to the backups once it is no longer needed, and returns the new path; "" if it stays.

    A file that was added later, or that is newer than the files it asks for, belongs to the user and stays.
    """
    boundary = files.boundary
    seen, *_ = stats = boundary.stat_names((FIRST_RUN, *PERSONAL))
    if seen is None or not stat.S_ISREG(seen.st_mode):
        return ""
    found = (files.read_seen(name, each) for name, each in zip(PERSONAL, stats[1:], strict=True))
    texts = [each.text for each in found if isinstance(each, TextFile)]
    if not texts or not all(_is_filled_in(text) for text in texts) or _is_complete(boundary, SETUP_STATE):
        return ""
    first_run = files.read(FIRST_RUN)
    ours = isinstance(first_run, TextFile) and first_run.text == template(FIRST_RUN)
    if not ours and not any(each.st_mtime_ns > seen.st_mtime_ns for each in stats[1:] if each is not None):
        return ""
    kept: list[str] = []
    at = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    try:
        delete_file(boundary, FIRST_RUN, lambda path, data: kept.append(keep_backup(boundary, path, data, now_ms)))
        create_file(boundary, SETUP_STATE, msgspec.json.encode(SetupState(setup_completed_at=at)), mode=0o600)
    except (WorkspaceError, NotFound) as error:  # the workspace is read-only: retried in the next run
        log.warning("%s is no longer needed and could not be moved: %s", FIRST_RUN, error)
    return kept[0] if kept else ""


def _is_complete(boundary: Boundary, name: str) -> bool:
    """Whether this file marks the first conversation of the workspace as complete."""
    try:
        said = msgspec.json.decode(boundary.read_bytes(name), type=SetupState)
    except (WorkspaceError, NotFound, msgspec.DecodeError):
        return False
    return bool(said.setup_completed_at or said.onboarding_completed_at)


@lru_cache(maxsize=16)  # checked in every run until the first conversation is over
def _is_filled_in(text: str) -> bool:
    """Whether it holds anything that is not in the template: a value after a label, or an own line."""
    known = {line.strip() for name in PERSONAL for each in template_texts(name) for line in each.split("\n")}
    return any(_says_something(line) for line in text.split("\n") if line.strip() not in known)


def _says_something(line: str) -> bool:
    plain = line.strip(" \t\r*_`-")
    if not plain or plain.startswith(("#", "<!--")) or (plain.startswith("(") and plain.endswith(")")):
        return False
    label, value = labelled(line)
    return bool(value) if label and len(label) <= _LONGEST_LABEL else True


def _write_template(boundary: Boundary, name: str, kind: TemplateKind) -> bool:
    # A link counts as existing wherever it leads: people link such files to their dotfiles.
    return not os.path.lexists(boundary.root / name) and create_file(boundary, name, template(name, kind).encode())


def _make_directory(path: Path) -> bool:
    if os.path.lexists(path) and path.is_dir():
        return False
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError as error:
        raise WorkspaceError(f"{path} is in the way: a directory is needed there", hint="move it aside") from error
    except OSError as error:
        raise WorkspaceError(f"{path} cannot be made: {error.strerror}", hint="check the directory above it") from error
    return True


def _git_init(root: Path) -> bool:
    """Creates a git repository if git is installed. A failure does not stop the seeding."""
    git = shutil.which("git")
    if git is None or os.path.lexists(root / ".git"):
        return False
    # GIT_DIR and the like, as set by a hook of another repository, would redirect the new repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            [git, "-c", "init.defaultBranch=main", "init", "--quiet", str(root)],
            env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_GIT_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    if done.returncode == 0:
        from palinurus.workspace.git import mark_ours

        mark_ours(root, git)
    return done.returncode == 0


def untouched_templates(root: Path) -> set[str]:
    """Files that still equal our templates."""
    boundary = Boundary(root)
    found = set()
    for name in (FIRST_RUN, *TEMPLATES):
        with suppress(NotFound, WorkspaceError):
            if boundary.read_bytes(name).decode(errors="replace") in template_texts(name):
                found.add(name)
    return found
