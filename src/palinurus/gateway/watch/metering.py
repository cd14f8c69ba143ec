"""What is counted while the gateway runs: runs, models, tools, approvals by their events; requests by their ends.

No label holds a session, a person or a word of theirs. Counting costs a few microseconds an event and nothing at all
for the pieces of a reply.
"""

from __future__ import annotations

from palinurus.dispatch.runs import Run
from palinurus.dispatch.traces import SAYS_NOTHING
from palinurus.domain.clock import Clock
from palinurus.domain.events import (
    ApprovalAsked,
    ApprovalSettled,
    Lifecycle,
    ModelAnswered,
    Notice,
    RunEvent,
    ToolFinished,
)
from palinurus.gateway.watch.exposition import Counter, Family, Histogram

KINDS = ("input", "output", "cache_read", "cache_write")
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
COMMIT_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)


class Meter:
    """Hears the events of all runs: `runs.listen(meter)`. `now` of the clock is in milliseconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began: dict[str, int] = {}  # run id -> when its turn came
        self._asked: dict[str, str] = {}  # approval -> run id
        self.runs = Counter("pal_runs_total", "Runs that ended.", ("status",))
        self.queue_seconds = Histogram("pal_queue_seconds", "From acceptance to the beginning of the turn.")
        self.turn_seconds = Histogram("pal_turn_seconds", "From the beginning of a turn to its stored result.")
        self.model_calls = Counter("pal_model_calls_total", "Calls of models.", ("provider", "outcome"))
        self.model_seconds = Histogram("pal_model_seconds", "How long calls of models took.", ("provider",))
        self.first_token = Histogram("pal_model_first_token_seconds", "Until the first word.", ("provider",))
        self.tokens = Counter("pal_tokens_total", "Tokens as providers count them.", ("provider", "model", "kind"))
        self.notices = Counter("pal_run_notices_total", "Retries, failovers and other notices in runs.")
        self.tools = Counter("pal_tool_calls_total", "Calls of tools.", ("tool", "outcome"))
        self.approvals = Counter("pal_approvals_total", "Approvals that were settled.", ("status",))
        self.requests = Counter("pal_http_requests_total", "Requests answered.", ("method", "route", "status"))
        self.request_seconds = Histogram("pal_http_request_seconds", "Until the answer was whole.", ("route",))
        self.refusals = Counter("pal_refusals_total", "Requests and clients that were refused.", ("door", "reason"))
        self.commit_writes = Histogram("pal_database_commit_writes", "Writes in one commit.", (), SIZES)
        self.commit_seconds = Histogram("pal_database_commit_seconds", "Time of one commit.", (), COMMIT_SECONDS)

    def families(self) -> list[Family]:
        return [part for part in vars(self).values() if isinstance(part, Counter | Histogram)]

    @property
    def pending_approvals(self) -> int:
        return len(self._asked)

    def __call__(self, run: Run, event: RunEvent) -> None:
        if isinstance(event, SAYS_NOTHING):
            return
        match event:
            case Lifecycle(phase="start"):
                self._start(run, event)
            case Lifecycle(phase="end" | "error" | "aborted"):
                self._end(run)
            case ModelAnswered():
                self._answered(event)
            case ToolFinished():
                self.tools.add(event.name, "error" if event.is_error else "ok")
            case ApprovalAsked():
                self._asked[event.id] = run.id
            case ApprovalSettled():
                self._asked.pop(event.id, None)
                self.approvals.add(event.status)
            case Notice():
                self.notices.add()
            case _:
                pass

    def committed(self, writes: int, seconds: float) -> None:
        """One commit of the database (storage.Database.on_commit)."""
        self.commit_writes.observe(writes)
        self.commit_seconds.observe(seconds)

    def _start(self, run: Run, event: Lifecycle) -> None:
        now = self._clock.now_ms()
        self.queue_seconds.observe(max(0, now - run.accepted_at) / 1000)
        if not event.detail:  # one that joined another's turn has none of its own
            self._began[run.id] = now

    def _end(self, run: Run) -> None:
        self.runs.add(run.result.status if run.result is not None else "error")
        began = self._began.pop(run.id, None)
        if began is not None:
            self.turn_seconds.observe(max(0, self._clock.now_ms() - began) / 1000)
        if self._asked:
            self._asked = {asked: of for asked, of in self._asked.items() if of != run.id}

    def _answered(self, event: ModelAnswered) -> None:
        failed = event.stop_reason in ("error", "aborted")
        self.model_calls.add(event.provider, (event.error or event.stop_reason) if failed else "ok")
        self.model_seconds.observe(max(0.0, event.seconds), event.provider)
        if event.first_token is not None:
            self.first_token.observe(max(0.0, event.first_token), event.provider)
        for kind in KINDS:
            if count := getattr(event.usage, kind):
                self.tokens.add(event.provider, event.model, kind, by=count)
