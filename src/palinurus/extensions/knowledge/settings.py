"""How reflection is set."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar

from cronsim import CronSim, CronSimError

from palinurus.config.section import Section, option

NO_MODEL = "none"


def _check(said: str) -> None:
    try:
        CronSim(said, datetime(2026, 1, 1))  # noqa: DTZ001  # only looked at
    except CronSimError as error:
        raise ValueError(f"is no cron expression: {error}") from None


class ReflectionSettings(Section, frozen=True):
    """Reflection by itself: pages of the bank, and proposals for MEMORY.md."""

    foreign: ClassVar = {"": "timezone phases storage verboseLogging execution"}

    enabled: Annotated[bool, option("Whether a process that stays reflects by itself.")] = False
    schedule: Annotated[
        str, option("When: a cron expression in the time zone of the home.", also=("frequency",), check=_check)
    ] = "0 3 * * *"
    model: Annotated[
        str,
        option("What reads plain notes for facts, four calls at most; empty: the agent's model; `none`: rules."),
    ] = ""
