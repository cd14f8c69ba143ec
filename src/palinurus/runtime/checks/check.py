"""The outcome of one look: what was found, where, and what to do about it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

State = Literal["ok", "mended", "warning", "bad"]


class Check(Struct, frozen=True, omit_defaults=True):
    name: str
    state: State
    what: str
    where: str = ""
    todo: str = ""


def ok(name: str, what: str, where: object = "") -> Check:
    return Check(name, "ok", what, str(where))


def warning(name: str, what: str, where: object = "", todo: str = "") -> Check:
    return Check(name, "warning", what, str(where), todo)


def bad(name: str, what: str, where: object = "", todo: str = "") -> Check:
    return Check(name, "bad", what, str(where), todo)


def mended(name: str, what: str, where: object = "") -> Check:
    return Check(name, "mended", what, str(where))
