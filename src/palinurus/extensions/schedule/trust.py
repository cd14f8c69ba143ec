"""Trust in the text of a cron job that was made after the agent had read text from outside.

A person is shown the text and says yes to exactly it; from then on it counts as theirs. When a run that may follow
outside text changes the job, it is text from outside again.
"""

from __future__ import annotations

import hashlib

import msgspec
from msgspec.structs import replace

from palinurus.domain.errors import NotConfirmed
from palinurus.domain.events import visible
from palinurus.domain.messages import Origin
from palinurus.extensions.schedule.command import CommandPlan
from palinurus.extensions.schedule.cron_job import CronJob
from palinurus.extensions.schedule.drafts import text_of

QUESTION = "Trust this text as your own from now on?"


def plan_trust(cron: CronJob) -> CommandPlan:
    """What a person would trust."""
    stated = (cron.id, cron.revision, cron.name, cron.payload, cron.session_target, cron.delivery, cron.sources)
    digest = hashlib.sha256(msgspec.json.encode(stated, order="sorted")).hexdigest()
    lines = [f"name: {cron.name}", *text_of(cron.payload).splitlines()]
    told = [f"made after text from outside was read: {', '.join(cron.sources) or 'unknown'}"]
    return CommandPlan(tuple(visible(line) for line in (*lines, *told)), digest, QUESTION)


def trust_text(cron: CronJob, digest: str) -> CronJob:
    """Raises NotConfirmed where a person was shown another text, or none."""
    if digest != plan_trust(cron).digest:
        raise NotConfirmed(
            "a person must trust exactly this text", hint=f"`pal cron approve {cron.id}` shows it and asks"
        )
    return replace(cron, origin=Origin.OWNER, sources=())
