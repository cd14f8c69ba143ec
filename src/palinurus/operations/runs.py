"""Look at runs: the last ones, and what one of them did when."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from palinurus.domain.errors import NotFound
from palinurus.ledger.trace import RunLine, RunTrace, Status, line_of
from palinurus.operations.house import House
from palinurus.operations.operation import Positional, operation
from palinurus.sessions.names import name_key

MOST = 1_000


class RunList(Struct, frozen=True):
    runs: tuple[RunLine, ...]  # what goes on first, then the newest


@operation("runs.list", scope="read")
async def list_runs(
    house: House,
    session_key: Annotated[str, "Only of this session."] = "",
    status: Annotated[Status | None, "Only those that ended, or stand, so."] = None,
    limit: Annotated[int, Meta(ge=1, le=MOST), "So many at most."] = 20,
) -> RunList:
    """List runs: those that go on, then the newest.

    Examples:
      pal runs list
      pal runs list --status error --limit 5
      pal runs list --session-key agent:main:main --json
    """
    session = session_key and await name_key(house.sessions, session_key, agent=house.agents.default)
    found = await house.traces.recent(limit=limit, session=session, status=status)
    return RunList(tuple(map(line_of, found)))


@operation("runs.show", scope="read")
async def show_run(house: House, run_id: Annotated[str, Positional] = "") -> RunTrace:
    """Show what a run did and when: steps, times, tokens. The beginning of the id is enough; none is the newest run.

    Examples:
      pal runs show
      pal runs show 3f9a
      pal runs show 3f9a --json
    """
    beginning = run_id.strip()
    found = await house.traces.find(beginning) if beginning else await house.traces.recent(limit=1)
    if not found or (len(found) > 1 and found[0].run_id != beginning):
        what = "more than one run begins with" if found else "there is no trace of a run"
        raise NotFound(f"{what} {beginning[:80]!r}" if beginning else "nothing ran yet", hint="pal runs list")
    return found[0]


OPERATIONS = (list_runs, show_run)
