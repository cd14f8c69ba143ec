"""Look at runs: the last ones, and what one of them did when."""

from __future__ import annotations

from msgspec import Struct

from palinurus.domain.errors import BadRequest, NotFound
from palinurus.ledger.trace import STATUSES, RunLine, RunTrace, Status, line_of
from palinurus.operations.bounds import Count
from palinurus.operations.house import House
from palinurus.operations.table import Operation
from palinurus.sessions.names import name_key

MOST = 1_000


class ListRuns(Struct, frozen=True):
    session_key: str = ""
    status: str = ""  # ledger/trace.py: Status; empty: every one
    limit: Count = 20


class RunList(Struct, frozen=True):
    runs: tuple[RunLine, ...]  # what goes on first, then the newest


class ShowRun(Struct, frozen=True):
    run_id: str = ""  # or its beginning; empty: the newest


async def _list(house: House, params: ListRuns) -> RunList:
    session = params.session_key and await name_key(house.sessions, params.session_key, agent=house.agents.default)
    limit = min(max(params.limit, 1), MOST)
    found = await house.traces.recent(limit=limit, session=session, status=_status(params.status))
    return RunList(tuple(map(line_of, found)))


async def _show(house: House, params: ShowRun) -> RunTrace:
    beginning = params.run_id.strip()
    if not beginning:
        found = await house.traces.recent(limit=1)
    else:
        found = await house.traces.find(beginning)
    if not found or (len(found) > 1 and found[0].run_id != beginning):
        what = "more than one run begins with" if found else "there is no trace of a run"
        raise NotFound(f"{what} {beginning[:80]!r}" if beginning else "nothing ran yet", hint="pal runs list")
    return found[0]


def _status(text: str) -> Status | None:
    known = next((status for status in STATUSES if status == text), None)
    if text and known is None:
        raise BadRequest(f"not a status of a run: {text[:80]!r}", hint=", ".join(STATUSES))
    return known


LIST = Operation("runs.list", ListRuns, RunList, "read", _list)
SHOW = Operation("runs.show", ShowRun, RunTrace, "read", _show)
OPERATIONS = (LIST, SHOW)
