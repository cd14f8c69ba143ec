"""What clients of the gateway are told of the clock: the event `cron`, with OpenClaw's names."""

from __future__ import annotations

from typing import Any, Literal

from palinurus.operations.services import Services

CronAction = Literal["added", "updated", "removed", "started", "finished"]


def publish_cron(services: Services, action: CronAction, job_id: str = "", **more: Any) -> None:
    """That a cron job has changed, or that one of its due times has begun or ended. Without an id: all of them."""
    services.holder.publish("cron", "", lambda: {"action": action, "jobId": job_id, **more})
