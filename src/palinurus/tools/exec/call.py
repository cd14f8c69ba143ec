"""What a model asks `exec` for, checked as far as it can be without knowing where the command will run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from palinurus.domain.errors import BadRequest
from palinurus.tools.commands.script import quoted

MAX_CHARACTERS = 65_536
SHELL = "/bin/sh"


class Call(Struct, frozen=True):
    """`command` is a string for a shell; empty if there is an `argv`. Nought seconds: as the settings say."""

    command: str = ""
    argv: tuple[str, ...] = ()
    workdir: str = ""
    env: Mapping[str, str] = {}
    timeout: float = 0
    background: bool = False
    yield_ms: int = 0
    pty: bool = False
    elevated: bool = False

    @property
    def started(self) -> tuple[str, ...]:
        """What a sandbox is told to start."""
        return self.argv or (SHELL, "-c", self.command)

    @property
    def shown(self) -> str:
        """The command for a person, on whose screen nothing in it may act."""
        if self.argv:
            return " ".join(map(quoted, self.argv))
        return "".join(char if char.isprintable() or char in "\n\t" else f"\\u{ord(char):04x}" for char in self.command)


def fault(call: Call) -> str:
    """What the model has to mend; empty when nothing."""
    if bool(call.command.strip()) == bool(call.argv):
        return "exec: give either command, a string for a shell, or argv, a list of words."
    if call.command[:1] in ("-", "+"):
        return "exec: a shell takes a command that begins with - or + for options. Give it as argv."
    if call.argv and not call.argv[0]:
        return "exec: the first word of argv names the program; it is empty."
    texts = (call.command, *call.argv, *call.env, *call.env.values(), call.workdir)
    if sum(map(len, texts)) > MAX_CHARACTERS:
        return f"exec: more than {MAX_CHARACTERS} characters. Write a file and run that."
    if not all(map(_can_be_given, texts)):
        return "exec: a NUL or half a character cannot be given to a program."
    return ""


def working_directory(workdir: str, workspace: Path, *, within: bool) -> str:
    """Where the command starts, links followed. Raises BadRequest if that is no directory.

    `within`: it has to be inside the workspace, whose own path is kept as it is, for so it stands in the sandbox.
    """
    root = Path(os.path.realpath(workspace))
    place = Path(os.path.realpath(root / workdir))
    if within and not place.is_relative_to(root):
        raise BadRequest(f"{workdir} is outside the workspace", hint="the sandbox shows only the workspace")
    # A private workspace may not have been made yet.
    if workdir and not os.path.isdir(place) and (not within or root.exists()):  # noqa: PTH112  raises nothing
        raise BadRequest(f"there is no directory {workdir}", hint="workdir is relative to the workspace")
    return str(workspace / place.relative_to(root) if within else place)


def _can_be_given(text: str) -> bool:
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False
