"""Long work of an operation, followed to its report with a bar."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from typing import Any, TextIO

from palinurus.cli.command import open_home
from palinurus.cli.shell import Shell, run_async
from palinurus.domain.errors import HolderLost
from palinurus.operations.table import Feed, P

WIDTH = 28


class Bar:
    """One line that is written over. `close` takes it away, so that what comes next begins on a clean line."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._shown = 0
        self._live = self._stream.isatty()

    def show(self, what: str, done: int, total: int) -> None:
        if not self._live:
            return
        line = bar_line(what, done, total)[: max(20, shutil.get_terminal_size().columns - 1)]
        self._write(f"\r{line}{' ' * (self._shown - len(line))}")
        self._shown = len(line)

    def close(self) -> None:
        if self._shown:
            self._write(f"\r{' ' * self._shown}\r")
            self._shown = 0

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def bar_line(what: str, done: int, total: int) -> str:
    """How far it is, in one line; without a total only a count."""
    if total <= 0:
        return f"{what}: {done:,}"
    share = min(done / total, 1.0)
    filled = int(share * WIDTH)
    return f"{what} [{'#' * filled}{'.' * (WIDTH - filled)}] {share:4.0%}  {done:,} of {total:,}"


def follow_to_report(
    shell: Shell, feed: Feed[P, Any], params: P, stage: Callable[[Any], str], *, hint: str = "try again"
) -> Any:
    """What a feed tells last, of items with a `progress` and at the end a `report`; `stage` names what goes on."""

    async def follow() -> Any:
        bar = Bar()
        try:
            async with open_home(shell) as home:
                async for told in home.follow(feed, params):
                    if told.progress is not None and not shell.as_json:
                        bar.show(stage(told.progress), told.progress.done, told.progress.total)
                    if told.report is not None:
                        return told.report
        finally:
            bar.close()
        raise HolderLost("the process that holds the home has ended in the middle", hint=hint)

    return run_async(follow())
