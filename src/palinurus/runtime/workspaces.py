"""The folder that an agent lives in: made where nobody named one, and checked before each use."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from palinurus import __version__
from palinurus.config.agents import AgentSettings
from palinurus.config.home import Home
from palinurus.domain.errors import WorkspaceError
from palinurus.operations.services import Services

log = logging.getLogger(__name__)


def give_workspace(settings: AgentSettings, services: Services) -> None:
    """A folder that nobody named is made by whoever needs it first. Raises WorkspaceError.

    One that an agent has lived in and that is gone is not replaced: it may only have been moved.
    """
    root = settings.workspace
    if (
        services.readonly
        or settings.workspace_named
        or (os.path.lexists(root) and not _is_kept_free(root, services.home))
    ):
        return
    if services.was_spoken_to(settings.agent_id):
        return
    from palinurus.workspace.seed import seed_workspace

    seed_workspace(root, skip_bootstrap=settings.skip_bootstrap, skip_optional=settings.skip_optional_bootstrap_files)
    log.warning("there was no workspace, so one was created in %s", root)


def _is_kept_free(root: Path, home: Home) -> bool:
    """Whether a sandbox of another agent, whose workspace is around it, has made the folder: an empty one."""
    try:
        return root.parent != home.root and root.is_dir() and next(root.iterdir(), None) is None
    except OSError:
        return False


def check_workspace(root: Path, home: Home) -> None:
    """Raises WorkspaceError for a folder that an agent cannot live in."""
    try:
        there, taken = root.is_dir(), root.exists()
    except OSError as error:  # a folder on the way may not be entered
        raise WorkspaceError(
            f"the workspace {root} cannot be reached: {error.strerror}", hint="check who owns it"
        ) from None
    if taken and not there:
        raise WorkspaceError(f"the workspace {root} is not a folder", hint="move what is there aside")
    if not there:
        make = f"check the path; `pal --workspace {root} setup` makes it"
        hint = make if root == home.workspace_override else "`pal setup` makes it, --workspace names another"
        raise WorkspaceError(f"the workspace {root} does not exist", hint=hint)
    if not os.access(root, os.R_OK | os.X_OK):
        raise WorkspaceError(f"the workspace {root} cannot be read", hint="check who owns it")


def runtime_line(agent_id: str) -> str:
    """On what an agent runs. The machine's own name is nobody's business."""
    machine, python = os.uname(), f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"agent={agent_id} | pal={__version__} | os={machine.sysname} ({machine.machine}) | python={python}"
