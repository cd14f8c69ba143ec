"""A new workspace: our templates where nothing is yet, and never a byte over what somebody wrote."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from palinurus.domain.errors import NotFound, WorkspaceError
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.git import mark_ours
from palinurus.workspace.write import create_file

TEMPLATES = ("AGENTS.md", "SOUL.md", "IDENTITY.md", "USER.md", "TOOLS.md", "HEARTBEAT.md")
FIRST_RUN = "BOOTSTRAP.md"
DIRECTORIES = ("memory", "skills")
# What OpenClaw 2026.2 looks for before it calls a workspace new.
_SIGNS_OF_LIFE = (*TEMPLATES, "memory", "MEMORY.md", ".git")
_GIT_SECONDS = 20


class SeedReport(Struct, frozen=True):
    """What was made, and what was found and left alone. Directories end with a slash."""

    created: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    git_initialised: bool = False


def template(name: str) -> str:
    return (Path(__file__).with_name("templates") / name).read_text(encoding="utf-8")


def is_brand_new(root: Path) -> bool:
    """Whether nobody has lived in this workspace yet."""
    return not any(os.path.lexists(root / name) for name in _SIGNS_OF_LIFE)


def seed_workspace(
    root: Path, *, skip_bootstrap: bool = False, skip_optional: Collection[str] = (), git: bool = True
) -> SeedReport:
    """Make the workspace what an agent needs. Safe to repeat, and to be killed in between and repeated.

    With `skip_bootstrap` only the directory itself is made: the owner brings the files.
    """
    brand_new = is_brand_new(root)
    _make_directory(root)
    if skip_bootstrap:
        return SeedReport()
    # BOOTSTRAP comes first: it is no sign of life, so a seeding that was cut short right after it begins again as new.
    names = ([FIRST_RUN] if brand_new else []) + [name for name in TEMPLATES if name not in skip_optional]
    boundary = Boundary(root)
    made = {name: _write_template(boundary, name) for name in names}
    made |= {f"{name}/": _make_directory(root / name) for name in DIRECTORIES}
    return SeedReport(
        created=tuple(name for name, new in made.items() if new),
        kept=tuple(name for name, new in made.items() if not new),
        git_initialised=git and brand_new and _git_init(root),
    )


def _write_template(boundary: Boundary, name: str) -> bool:
    # A link counts as taken wherever it leads: people keep such files with their dotfiles.
    return not os.path.lexists(boundary.root / name) and create_file(boundary, name, template(name).encode())


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
    """A history for the workspace, if git is there. Its failure is no reason not to have a workspace."""
    git = shutil.which("git")
    if git is None or os.path.lexists(root / ".git"):
        return False
    # GIT_DIR and its kind would send the new repository elsewhere: a hook of another repository sets them.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            [git, "-c", "init.defaultBranch=main", "init", "--quiet", str(root)],
            env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_GIT_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    if done.returncode == 0:
        mark_ours(root, git)
    return done.returncode == 0


def untouched_templates(root: Path) -> set[str]:
    """Files that are still exactly as we made them: nobody's work but ours."""
    boundary = Boundary(root)
    found = set()
    for name in (FIRST_RUN, *TEMPLATES):
        with suppress(NotFound, WorkspaceError):
            if boundary.read_bytes(name) == template(name).encode():
                found.add(name)
    return found
