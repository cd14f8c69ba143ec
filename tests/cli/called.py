"""How a command ended: its exit code and what it printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from msgspec import Struct


class Ended(Struct, frozen=True):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Pal = Callable[..., Ended]
