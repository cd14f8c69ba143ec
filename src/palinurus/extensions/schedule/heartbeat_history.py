"""How the heartbeats of an agent went in the last 30 days, and what a month of them will cost."""

from __future__ import annotations

import random
from functools import cached_property

import msgspec
from msgspec.structs import replace

from palinurus.context.report import ContextReport
from palinurus.domain.messages import Usage
from palinurus.extensions.schedule.cron_job import DueOutcome
from palinurus.extensions.schedule.forecast import DayOfLooks, ForecastBasis, HeartbeatForecast, TokenCost, forecast
from palinurus.extensions.schedule.heartbeat_file import HeartbeatFile
from palinurus.extensions.schedule.heartbeat_gate import DAY_MS
from palinurus.extensions.schedule.heartbeat_jobs import PREFIX, session_of_heartbeat
from palinurus.extensions.schedule.heartbeat_settings import HeartbeatSettings
from palinurus.extensions.schedule.probes import read_heartbeat
from palinurus.extensions.schedule.store import DUE
from palinurus.operations.services import Services
from palinurus.operations.status import show_context
from palinurus.storage.jobs import Job
from palinurus.text.tokens import estimate_tokens

MOST_ROWS = 10_000
MONTH_DAYS = 30
EMPTY = "HEARTBEAT.md is empty: no model is called until you write something in it."
NO_PRICE = "The price of the model is not known."


class HeartbeatHistory:
    """Due times of the last 30 days that have ended, the newest first."""

    def __init__(self, rows: list[Job]) -> None:
        self.ended = [(row.due_at, outcome_of(row)) for row in rows]

    @property
    def last(self) -> tuple[int, DueOutcome] | None:
        return next(((at, outcome) for at, outcome in self.ended if outcome is not None), None)

    @cached_property
    def calls(self) -> list[DueOutcome]:
        """Those in which a model was called."""
        return [outcome for _, outcome in self.ended if outcome is not None and outcome.status == "ran"]

    @property
    def days(self) -> tuple[DayOfLooks, ...]:
        days: dict[int, tuple[int, int]] = {}
        for at, outcome in self.ended:
            looks, calls = days.get(at // DAY_MS, (0, 0))
            days[at // DAY_MS] = looks + 1, calls + (outcome is not None and outcome.status == "ran")
        return tuple(DayOfLooks(*each) for each in days.values())


async def read_history(services: Services, agent_id: str) -> HeartbeatHistory:
    since = services.clock.now_ms() - MONTH_DAYS * DAY_MS
    rows = await services.jobs.of_lane(DUE, PREFIX + agent_id, MOST_ROWS)
    over = [row for row in rows if row.due_at >= since and row.state not in ("waiting", "running", "retry")]
    return HeartbeatHistory(over)


def outcome_of(row: Job) -> DueOutcome | None:
    """None: it was missed, or given up."""
    return None if row.outcome is None else msgspec.json.decode(row.outcome, type=DueOutcome | None)


async def make_forecast(services: Services, agent_id: str, settings: HeartbeatSettings) -> HeartbeatForecast:
    file, history = await read_heartbeat(services, agent_id), await read_history(services, agent_id)
    cost = await _cost(services, agent_id, settings)
    basis = ForecastBasis(
        settings.active_hours.minutes * 60_000 / (settings.every_ms or DAY_MS) * MONTH_DAYS,
        history.days,
        [each.tokens for each in history.calls],
        await _prompt_tokens(services, agent_id, settings, file),
        sum(MONTH_DAYS * DAY_MS / max(task.interval_ms, settings.every_ms) for task in file.tasks),
        cost,
    )
    made = forecast(basis, random.Random(agent_id))  # noqa: S311  # the same question has the same answer
    says_nothing = file.is_empty or (file.text is None and not settings.prompt)
    return replace(made, remarks=(*((EMPTY,) if says_nothing else ()), *(() if cost else (NO_PRICE,))))


async def _prompt_tokens(services: Services, agent_id: str, settings: HeartbeatSettings, file: HeartbeatFile) -> int:
    """Of a request: the head, what was said before in that session, and HEARTBEAT.md."""
    report: ContextReport = await show_context.function(services, str(session_of_heartbeat(settings, agent_id)))
    parts = (part for part in report.parts if not (settings.light_context and part.name.endswith(".md")))
    said = 0 if settings.is_isolated else report.message_tokens
    tasks = "".join(task.prompt for task in file.tasks)
    return sum(part.tokens for part in parts) + said + estimate_tokens(f"{settings.prompt}{file.text or ''}{tasks}")


async def _cost(services: Services, agent_id: str, settings: HeartbeatSettings) -> TokenCost | None:
    _, route = await services.models.choose(agent_id, settings.model)
    price, million = services.agents.get(agent_id).cost, 1_000_000
    given = price(route.provider, route.model, Usage(input=million))
    made = price(route.provider, route.model, Usage(output=million))
    return None if given is None or made is None else TokenCost(given, made)
