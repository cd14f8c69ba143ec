"""The clock: cron jobs, reminders and the heartbeat.

`cron_job` is the record, `times` says when it is due, `store` keeps it and its due times, `due` runs what is due and
`payloads` does it.
"""

from __future__ import annotations

from palinurus.runtime.extensions import App


def register(app: App) -> None:
    app.job(f"{__name__}.due:DUE_KIND", "schedule.due")
    app.service(f"{__name__}.heartbeat_jobs:keep_heartbeats")
    app.prompt_section(f"{__name__}.heartbeat_settings:prompt_section")
    for name in ("status", "run", "enable", "disable", "wake"):
        function = "show_heartbeats" if name == "status" else f"{name}_heartbeat"
        app.operation(f"{__name__}.heartbeat_operations:{function}", f"heartbeat.{name}")
    app.command("heartbeat", f"{__name__}.heartbeat_commands:heartbeat")
