"""Figures that are counted while the gateway runs: runs, models, tools, approvals and requests.

No label contains a session, a person or their text. Counting takes a few microseconds for an event and nothing for the
pieces of a reply, so it is done here; prometheus_client writes the text format when /metrics is requested, and is not
imported before. The value of a label may come from outside (a tool name that a model invented): beyond a limit, and for
anything that is not a plain name, it is `other`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from msgspec import Struct

from palinurus.dispatch.runs import Run
from palinurus.dispatch.traces import NOT_TRACED
from palinurus.domain import events
from palinurus.domain.clock import Clock

if TYPE_CHECKING:
    from prometheus_client.core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OTHER = "other"
MOST = 100  # values of one label
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_PLAIN = re.compile(r"[A-Za-z0-9/_][A-Za-z0-9 /:@+._{}-]{0,79}")
KINDS = ("input", "output", "cache_read", "cache_write")
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
COMMIT_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)


class LabelValues:
    """The values that a label has had so far."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._known: set[str] = set()

    def bounded(self, value: str) -> str:
        """The value, or `other` when it is not a plain name or there are too many."""
        if value in self._known:
            return value
        if len(self._known) >= self._most or not _PLAIN.fullmatch(value):
            return OTHER
        self._known.add(value)
        return value


class LabelledMetric:
    """The name, help text and labels of a metric."""

    def __init__(self, name: str, about: str, labels: Sequence[str] = ()) -> None:
        self.name = name
        self.about = about
        self.labels = tuple(labels)
        self._values_of = tuple(LabelValues() for _ in labels)

    def bounded(self, labels: Sequence[str]) -> tuple[str, ...]:
        return tuple(known.bounded(label) for known, label in zip(self._values_of, labels, strict=True))


class Counter(LabelledMetric):
    """Only ever goes up."""

    def __init__(self, name: str, about: str, labels: Sequence[str] = ()) -> None:
        super().__init__(name, about, labels)
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0}

    def add(self, *labels: str, by: float = 1) -> None:
        key = labels if labels in self._values else self.bounded(labels)
        self._values[key] = self._values.get(key, 0) + by

    def family(self) -> Metric:
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(self.name, self.about, labels=self.labels)
        for key, value in self._values.items():
            family.add_metric(key, value)
        return family


class Histogram(LabelledMetric):
    """How often a value fell into each bucket."""

    def __init__(self, name: str, about: str, labels: Sequence[str] = (), buckets: Sequence[float] = SECONDS) -> None:
        super().__init__(name, about, labels)
        self._buckets = tuple(buckets)
        self._counts: dict[tuple[str, ...], list[int]] = {}  # one more than there are buckets
        self._sums: dict[tuple[str, ...], float] = {}
        if not labels:
            self._counts[()], self._sums[()] = [0] * (len(self._buckets) + 1), 0.0

    def observe(self, value: float, *labels: str) -> None:
        key = labels if labels in self._counts else self.bounded(labels)
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = [0] * (len(self._buckets) + 1)
        counts[bisect_left(self._buckets, value)] += 1
        self._sums[key] = self._sums.get(key, 0.0) + value

    def family(self) -> Metric:
        from prometheus_client.core import HistogramMetricFamily

        family = HistogramMetricFamily(self.name, self.about, labels=self.labels)
        limits = (*(f"{limit:g}" for limit in self._buckets), "+Inf")
        for key, counts in self._counts.items():
            family.add_metric(key, list(zip(limits, accumulate(counts), strict=True)), self._sums[key])
        return family


class Gauge(Struct, frozen=True):
    """A figure that is read on request; `counter`: one that only goes up."""

    name: str
    about: str
    value: float | Mapping[str, float]  # by the values of the label, if it has one
    label: str = ""
    counter: bool = False

    def family(self) -> Metric:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        kind = CounterMetricFamily if self.counter else GaugeMetricFamily
        family = kind(self.name, self.about, labels=(self.label,) if self.label else ())
        for label, value in self.value.items() if isinstance(self.value, Mapping) else (("", self.value),):
            family.add_metric((label,) if self.label else (), value)
        return family


def render_metrics(metrics: Iterable[Counter | Histogram | Gauge]) -> bytes:
    """Returns all of them in the text format of Prometheus."""
    from prometheus_client.exposition import generate_latest

    class Collected:
        def collect(self) -> Iterable[Metric]:
            return [metric.family() for metric in metrics]

    return generate_latest(Collected())


class Meter:
    """Counts the events of all runs: `runs.listen(meter)`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began: dict[str, int] = {}  # run id -> when its turn began
        self._pending: dict[str, str] = {}  # approval -> run id
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
        self.refusals = Counter("pal_refusals_total", "Requests and clients that were refused.", ("surface", "reason"))
        self.commit_writes = Histogram("pal_database_commit_writes", "Writes in one commit.", (), SIZES)
        self.commit_seconds = Histogram("pal_database_commit_seconds", "Time of one commit.", (), COMMIT_SECONDS)

    def metrics(self) -> list[Counter | Histogram]:
        return [part for part in vars(self).values() if isinstance(part, Counter | Histogram)]

    @property
    def pending_approvals(self) -> int:
        return len(self._pending)

    def __call__(self, run: Run, event: events.RunEvent) -> None:
        if isinstance(event, NOT_TRACED):
            return
        match event:
            case events.Lifecycle(phase="start"):
                self._start(run, event)
            case events.Lifecycle(phase="end" | "error" | "aborted"):
                self._end(run)
            case events.ModelAnswered():
                self._answered(event)
            case events.ToolFinished():
                self.tools.add(event.name, "error" if event.is_error else "ok")
            case events.ApprovalAsked():
                self._pending[event.id] = run.id
            case events.ApprovalSettled():
                self._pending.pop(event.id, None)
                self.approvals.add(event.status)
            case events.Notice():
                self.notices.add()

    def committed(self, writes: int, seconds: float) -> None:
        """One commit of the database (storage.Database.on_commit)."""
        self.commit_writes.observe(writes)
        self.commit_seconds.observe(seconds)

    def _start(self, run: Run, event: events.Lifecycle) -> None:
        now = self._clock.now_ms()
        self.queue_seconds.observe(max(0, now - run.accepted_at) / 1000)
        if not event.detail:  # a message that joined another turn has none of its own
            self._began[run.id] = now

    def _end(self, run: Run) -> None:
        self.runs.add(run.result.status if run.result is not None else "error")
        began = self._began.pop(run.id, None)
        if began is not None:
            self.turn_seconds.observe(max(0, self._clock.now_ms() - began) / 1000)
        if self._pending:
            self._pending = {approval: of for approval, of in self._pending.items() if of != run.id}

    def _answered(self, event: events.ModelAnswered) -> None:
        failed = event.stop_reason in ("error", "aborted")
        self.model_calls.add(event.provider, (event.error or event.stop_reason) if failed else "ok")
        self.model_seconds.observe(max(0.0, event.seconds), event.provider)
        if event.first_token is not None:
            self.first_token.observe(max(0.0, event.first_token), event.provider)
        for kind in KINDS:
            if count := getattr(event.usage, kind):
                self.tokens.add(event.provider, event.model, kind, by=count)
