"""What the config says of cron jobs."""

from typing import Annotated, ClassVar

from palinurus.config.section import Secret, Section, option


class CronSettings(Section, frozen=True):
    """Cron jobs: reminders and runs at set times. They need a process that stays: gateway, `pal up`, `pal chat`."""

    foreign: ClassVar = {"": "triggers webhookSsrfPolicy failureAlert retry store webhook runLog maxRunLogBytes"}

    enabled: Annotated[bool, option("Whether cron jobs are run at all. Their due times are skipped otherwise.")] = True
    paused: Annotated[bool, option("Pauses everything that is due: cron jobs, reminders and heartbeats.")] = False
    skip_missed_jobs: Annotated[
        bool, option("Whether due times that passed are skipped in cron jobs that do not say what to do.")
    ] = False
    max_concurrent_runs: Annotated[int, option("Runs of cron jobs at the same time.", ge=1, le=64)] = 4
    webhook_token: Annotated[Secret | None, option("Sent as a bearer token with results that go to a webhook.")] = None
