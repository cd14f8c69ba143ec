"""The machine's zone knows the changes of its clocks, on any day."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from palinurus.domain.clock import SystemClock, time_text

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "America/Sao_Paulo")


@pytest.fixture(params=ZONES)
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ZoneInfo]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield ZoneInfo(request.param)
    monkeypatch.undo()
    time.tzset()


def test_a_machine_without_a_zone_in_its_config_has_the_hours_of_its_own_all_year(zone: ZoneInfo) -> None:
    own, moment = SystemClock().zone, datetime(2018, 1, 1, tzinfo=UTC)
    while moment.year == 2018:
        tomorrow = moment + timedelta(days=1)
        changes = moment.astimezone(zone).utcoffset() != tomorrow.astimezone(zone).utcoffset()
        there, here = moment.astimezone(zone), moment.astimezone(own)
        assert (here.replace(tzinfo=None), here.fold) == (there.replace(tzinfo=None), there.fold)
        assert time_text(here) == time_text(there)
        for fold in (0, 1):  # also for times that its clocks show twice, or never
            wall = there.replace(fold=fold) + timedelta(minutes=30)
            assert wall.replace(tzinfo=own).utcoffset() == wall.utcoffset()
        moment += timedelta(minutes=15) if changes else timedelta(hours=12)
