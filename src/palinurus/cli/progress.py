"""Long work of an operation, followed to its report with a bar."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from palinurus.cli.bar import Bar
from palinurus.cli.entrance import open_door
from palinurus.cli.shell import Shell, run_async
from palinurus.domain.errors import HolderLost
from palinurus.operations.table import Feed, P


def follow_to_report(
    shell: Shell, feed: Feed[P, Any], params: P, stage: Callable[[Any], str], *, hint: str = "try again"
) -> Any:
    """What a feed tells last, of items with a `progress` and at the end a `report`; `stage` names what goes on."""

    async def follow() -> Any:
        bar = Bar()
        try:
            async with open_door(shell) as door:
                async for told in door.follow(feed, params):
                    if told.progress is not None and not shell.as_json:
                        bar.show(stage(told.progress), told.progress.done, told.progress.total)
                    if told.report is not None:
                        return told.report
        finally:
            bar.close()
        raise HolderLost("whoever holds the home went away in the middle", hint=hint)

    return run_async(follow())
