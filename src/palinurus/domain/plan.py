"""Exactly what a call will do: what a person is shown, and what an approval is bound to."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec
from msgspec import Struct

Where = Literal["sandbox", "host", ""]


class Invocation(Struct, frozen=True, rename="camel"):
    """One program that a command would start.

    Both paths count: several names may be links to one program that acts by its name, and a name may come to mean
    another program.
    """

    name: str  # as it was written
    binary: str  # where it was found, its last link not followed; empty when it was not found
    resolved: str  # what is really there
    args: tuple[str, ...] = ()


class Plan(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a call will do. Of the environment only names are shown: values may be secrets."""

    tool: str
    summary: str  # one line for a person, such as the command as it was written
    where: Where = ""
    argv: tuple[str, ...] = ()  # what is started; for a shell string: the shell and the string
    cwd: str = ""
    env: tuple[str, ...] = ()
    network: bool = False
    invocations: tuple[Invocation, ...] = ()  # all programs of an understood command; empty: it was not understood
    patterns: tuple[str, ...] = ()  # what each pattern for names of files stands for now, in words
    arguments: dict[str, Any] = {}  # of tools other than exec

    @property
    def digest(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()
