"""The clock: cron jobs, reminders and the heartbeat.

`cron_job` is the record, `times` says when it is due, `store` keeps it and its due times, `due` runs what is due and
`payloads` and `command` do it. `when` reads times as people say them, and `drafts` makes records of what is asked for:
by people and programs (`operations`, `calendar`, `commands`), by the agent and in chats (`tool_calls`).
"""

from __future__ import annotations

from palinurus.runtime.extensions import App

OPERATIONS = {
    "add": "add_cron_job",
    "approve": "approve_cron_job",
    "calendar": "show_calendar",
    "disable": "disable_cron_job",
    "enable": "enable_cron_job",
    "get": "get_cron_job",
    "list": "list_cron_jobs",
    "next": "list_next_times",
    "pause": "pause_cron",
    "plan": "show_command_plan",
    "remove": "remove_cron_job",
    "resume": "resume_cron",
    "run": "run_cron_job",
    "runs": "list_cron_runs",
    "show": "show_cron_job",
    "status": "show_cron_status",
    "update": "update_cron_job",
}


def register(app: App) -> None:
    app.job(f"{__name__}.due:DUE_KIND", "schedule.due")
    app.operation(f"{__name__}.preview:preview_schedule", "cron.preview")
    for name, function in OPERATIONS.items():
        app.operation(f"{__name__}.operations:{function}", f"cron.{name}")
    app.command("cron", f"{__name__}.commands:cron")
    app.make_tools(f"{__name__}.tools:cron_tools")
    app.slash_command("remind", f"{__name__}.tool_calls:answer_remind")
    app.doctor_check(f"{__name__}.checks:check_cron_jobs")
    app.service(f"{__name__}.heartbeat_jobs:keep_heartbeats")
    app.prompt_section(f"{__name__}.heartbeat_settings:prompt_section")
    for name in ("status", "run", "enable", "disable", "wake"):
        function = "show_heartbeats" if name == "status" else f"{name}_heartbeat"
        app.operation(f"{__name__}.heartbeat_operations:{function}", f"heartbeat.{name}")
    app.operation(f"{__name__}.heartbeat_operations:wake_agent", "wake")
    app.operation(f"{__name__}.heartbeat_operations:show_last_heartbeat", "last-heartbeat")
    app.command("heartbeat", f"{__name__}.heartbeat_commands:heartbeat")
