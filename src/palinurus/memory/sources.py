"""Whose words memory shows: a line that says it is from outside is, and so is a file that was written from there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from palinurus.config.remembering import Collection
from palinurus.domain.errors import PalinurusError
from palinurus.domain.messages import OUTSIDE_MARK
from palinurus.memory.document import SESSIONS
from palinurus.memory.getting import root_of, text_of
from palinurus.memory.markdown import lines_of
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.file_origins import FileOrigins


class Shown(Struct, frozen=True):
    """Some lines, as a model is shown them: perhaps cut, and the mark is at a line's end."""

    path: str
    text: str
    start_line: int
    end_line: int


class MemorySources(Struct, frozen=True):
    """Of one agent."""

    origins: FileOrigins
    workspace: Boundary
    collections: Sequence[Collection] = ()

    def of(self, shown: Iterable[Shown], said: Mapping[str, str] = {}) -> tuple[str, ...]:
        """Of what is shown, the paths that are from outside (promise 18). `said`: texts of conversations. Blocks."""
        return tuple(dict.fromkeys(source for each in shown if (source := self._source(each, said))))

    def _source(self, shown: Shown, said: Mapping[str, str]) -> str:
        """Empty: it is the owner's."""
        if self._is_held(shown, said):
            return f"written:{shown.path}"
        return f"file:{shown.path}" if self.origins.kinds.has(shown.path) else ""

    def _is_held(self, shown: Shown, said: Mapping[str, str]) -> bool:
        """Whether an untrusted run has written it."""
        if OUTSIDE_MARK in shown.text:
            return True
        try:
            if is_said(shown.path):
                return _is_marked(said.get(shown.path, ""), shown)
            root, inside = root_of(self.workspace, self.collections, shown.path)
            if self.origins.is_held(root, inside):
                return True
            return _is_marked(text_of(self.workspace, self.collections, shown.path) or "", shown)
        except PalinurusError:  # it was found, and cannot be looked at any more
            return False


def is_said(path: str) -> bool:
    return path.startswith(f"{SESSIONS}/")


def _is_marked(text: str, shown: Shown) -> bool:
    if OUTSIDE_MARK not in text:
        return False
    return any(OUTSIDE_MARK in line for line in lines_of(text)[max(shown.start_line - 1, 0) : shown.end_line])
