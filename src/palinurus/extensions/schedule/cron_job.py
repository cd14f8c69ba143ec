"""A cron job: what is to be done, when, in which session, and where its result goes. The fields are OpenClaw's."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin

CatchUp = Literal["once", "skip", "all"]
DeliveryMode = Literal["announce", "webhook", "none"]
Status = Literal["ran", "skipped", "failed", "missed"]
DueKind = Literal["cron", "reminder", "heartbeat"]
MOST_TEXT = 300  # characters of a result in the list of runs


class AtSchedule(Struct, frozen=True, tag_field="kind", tag="at"):
    """Once."""

    at: str  # ISO, with an offset


class EverySchedule(Struct, frozen=True, tag_field="kind", tag="every", rename="camel"):
    """Again and again, counted from the anchor."""

    every_ms: int
    anchor_ms: int = 0


class CronSchedule(Struct, frozen=True, tag_field="kind", tag="cron", rename="camel", omit_defaults=True):
    expr: str  # 5 fields, or 6 with seconds first
    tz: str = ""  # empty: the home's time zone
    stagger_ms: int | None = None  # None: up to five minutes where it names a full hour; 0: exactly


Schedule = AtSchedule | EverySchedule | CronSchedule


class ReminderPayload(Struct, frozen=True, tag_field="kind", tag="reminder"):
    """A text for the owner, delivered as it is: no model is called."""

    text: str


class SystemEventPayload(Struct, frozen=True, tag_field="kind", tag="systemEvent"):
    """A message to the agent in its main session."""

    text: str


class AgentTurnPayload(Struct, frozen=True, tag_field="kind", tag="agentTurn", rename="camel", omit_defaults=True):
    """A run of the agent."""

    message: str
    model: str = ""
    thinking: str = ""
    timeout_seconds: float | None = None
    light_context: bool = False  # without the files of the workspace in its prompt
    tools_allow: tuple[str, ...] | None = None  # None: as the agent's policy says


class CommandPayload(Struct, frozen=True, tag_field="kind", tag="command", rename="camel", omit_defaults=True):
    """A command, run by the tool exec under the ordinary policy; a person has approved exactly it."""

    argv: tuple[str, ...]
    cwd: str = ""
    timeout_seconds: float = 600.0


class HeartbeatPayload(Struct, frozen=True, tag_field="kind", tag="heartbeat"):
    """A look at HEARTBEAT.md; made from the config, never by hand."""


Payload = ReminderPayload | SystemEventPayload | AgentTurnPayload | CommandPayload | HeartbeatPayload


class CronDelivery(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Where a result goes."""

    mode: DeliveryMode = "announce"
    channel: str = ""  # empty or "last": where the owner wrote from last
    to: str = ""  # a recipient, or the address of a webhook
    account_id: str = ""
    thread_id: str = ""


class WakeNote(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Something that a heartbeat is told: by the owner, or, if it has sources, by somebody else."""

    id: str
    text: str
    sources: tuple[str, ...] = ()


class BeatPlan(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What one heartbeat sends to a model, stored before it does, so that it is continued after a crash."""

    run_key: str
    at_ms: int
    text: str = ""
    notes: tuple[WakeNote, ...] = ()
    tasks: tuple[str, ...] = ()  # their names
    seen: dict[str, str] = {}
    changed: tuple[str, ...] = ()
    quiet_beats: int = 0  # before it; counted anew when something has changed or the owner has written
    reason: str | None = None  # how it ended


class CronState(Struct, frozen=True, rename="camel", omit_defaults=True):
    """How its due times ended."""

    running_at_ms: int = 0  # the due time that is acted on
    retries: int = 0  # of that
    last_run_at_ms: int = 0
    last_status: Status | Literal[""] = ""
    last_error: str = ""
    last_duration_ms: int = 0
    last_run_id: str = ""
    consecutive_errors: int = 0
    runs: int = 0  # so far
    cost: float = 0.0  # of the runs whose cost is known, in US dollars
    priced_runs: int = 0  # that went well: what one costs follows from them
    unpriced_runs: int = 0  # whose cost is unknown
    disabled_why: str = ""  # set when it was disabled by itself
    # Of a heartbeat:
    quiet_beats: int = 0  # looks in a row without a report
    last_look_at_ms: int = 0  # when a model looked last
    seen: dict[str, str] = {}  # what was there then: digests by name
    last_text: str = ""  # a digest of the report that was sent last
    last_text_at_ms: int = 0
    task_runs: dict[str, int] = {}  # of tasks in HEARTBEAT.md: when each ran last
    notes: tuple[WakeNote, ...] = ()  # for the next look
    beat: BeatPlan | None = None  # the newest one


class CronJob(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Times are milliseconds since the epoch."""

    id: str
    agent_id: str
    name: str
    schedule: Schedule
    payload: Payload
    session_target: str = "isolated"  # main | isolated | session:<key>
    delivery: CronDelivery = CronDelivery()
    description: str = ""
    enabled: bool = True
    delete_after_run: bool = False
    catch_up: CatchUp | Literal[""] = ""  # empty: as the config says
    created_at_ms: int = 0
    updated_at_ms: int = 0
    origin: Origin = Origin.OWNER  # who wrote it
    sources: tuple[str, ...] = ()  # of outside text that was in the context when it was made
    state: CronState = CronState()
    revision: int = 0  # counts changes: a due time of an earlier revision is skipped
    next_run_at_ms: int = 0  # 0: none

    @property
    def is_heartbeat(self) -> bool:
        return isinstance(self.payload, HeartbeatPayload)

    @property
    def own_session(self) -> SessionKey:
        """That of its isolated runs, and of its commands."""
        return SessionKey(self.agent_id, "cron", peer=self.id)

    @property
    def kind(self) -> DueKind:
        if self.is_heartbeat:
            return "heartbeat"
        return "reminder" if isinstance(self.payload, ReminderPayload) else "cron"

    @property
    def calls_model(self) -> bool:
        return not isinstance(self.payload, ReminderPayload | CommandPayload)


class DueTime(Struct, frozen=True, rename="camel"):
    """The payload of the durable job that stands for one due time of a cron job."""

    cron_job: str
    name: str = field(name="title")  # text of the owner's, which `forget` finds under this name
    agent: str
    revision: int
    at: int
    by_hand: bool = False  # a person asked for it
    kind: DueKind = "cron"
    imported: bool = False  # it was run by the program from which the cron job came
    is_woken: bool = False  # of a heartbeat: a note asked for it, besides its due times


class DueOutcome(Struct, frozen=True, rename="camel", omit_defaults=True):
    """How one due time ended, where it was neither missed nor given up."""

    status: Status
    reason: str = ""
    run_id: str = ""
    session_key: str = ""
    duration_ms: int = 0
    tokens: int = 0
    cost: float | None = None  # US dollars; None: unknown
    text: str = ""  # the beginning of the result
