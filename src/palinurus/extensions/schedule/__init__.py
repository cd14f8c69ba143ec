"""The clock: cron jobs, reminders and the heartbeat.

`cron_job` is the record, `times` says when it is due, `store` keeps it and its due times, `due` runs what is due and
`payloads` does it.
"""

from __future__ import annotations

from palinurus.runtime.extensions import App


def register(app: App) -> None:
    app.job(f"{__name__}.due:DUE_KIND", "schedule.due")
