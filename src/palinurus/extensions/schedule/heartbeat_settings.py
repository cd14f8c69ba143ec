"""What the config says of heartbeats, and for which agents there is one."""

import re
from typing import Annotated, ClassVar, Literal

from palinurus.config.agents import known_zone
from palinurus.config.load import Config
from palinurus.config.section import OptionForm, Section, dig, option, seconds

ACK = "HEARTBEAT_OK"
PROMPT = (
    "Heartbeat: HEARTBEAT.md as it is now comes with this message. Follow it strictly. Do not guess further tasks, and"
    f" do not repeat old ones from earlier conversations. If nothing needs attention, reply with {ACK}."
)
DEFAULT_SECONDS = 1800.0
SHORTEST_MS = 60_000
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)|24:00")
_DURATION = OptionForm(str | int, seconds, lambda default: f"{default / 3600:g}h")


def _check_time(said: str) -> None:
    if not _TIME.fullmatch(said):
        raise ValueError("is not a time of day: for example 08:00, or 24:00 for its end")


def minute_of(said: str) -> int:
    hours, minutes = said.split(":")
    return int(hours) * 60 + int(minutes)


class ActiveHours(Section, frozen=True):
    """The hours in which a heartbeat may call a model."""

    start: Annotated[str, option("Their begin, such as 08:00.", check=_check_time)] = "00:00"
    end: Annotated[str, option("Their end, not included; the same as start: never.", check=_check_time)] = "24:00"
    timezone: Annotated[
        str,
        option(
            "user: the zone of the owner; local: that of the machine; or a zone such as Europe/Berlin.",
            odd=lambda said: "" if said in ("user", "local") or known_zone(said) else f"{said} is no known time zone",
        ),
    ] = "user"

    def include(self, minute: int) -> bool:
        """Whether a minute of the day is among them; they may go over midnight."""
        start, end = minute_of(self.start), minute_of(self.end)
        return start <= minute < end if start <= end else minute >= start or minute < end

    @property
    def minutes(self) -> int:
        """In a day."""
        return (minute_of(self.end) - minute_of(self.start)) % 1440 or (0 if self.start == self.end else 1440)


class HeartbeatSettings(Section, frozen=True):
    """The heartbeat: the agent checks HEARTBEAT.md at intervals, by a model only if something has changed."""

    foreign: ClassVar = {"": "agentId includeReasoning includeSystemPromptSection suppressToolErrorWarnings"}

    every: Annotated[
        float | None,
        option(
            'Time between two looks, such as "30m"; "0m" is off. Unset: off, or 30m if enabled is true.',
            form=OptionForm(str | int, seconds, str),
            odd=lambda said: "" if not 0 < seconds(said) < 60 else "a minute is the shortest",
        ),
    ] = None
    enabled: Annotated[bool | None, option("false: off, whatever every says.")] = None
    prompt: Annotated[str, option("What the agent is sent, word for word. Unset: to follow HEARTBEAT.md.")] = ""
    model: Annotated[str, option("The model that looks, as provider/model. Unset: that of the agent.")] = ""
    session: Annotated[
        str, option("The session in which it looks: main, a key or a name. Unset: one of its own, empty each time.")
    ] = ""
    isolated_session: Annotated[
        bool | None, option("Whether it looks in a session of its own. Unset: unless session names one.")
    ] = None
    light_context: Annotated[
        bool, option("In a session of its own: without the files of the workspace, HEARTBEAT.md aside.")
    ] = False
    target: Annotated[
        str,
        option("Where reports go: last (where the owner wrote from last), owner, none, or a channel such as telegram."),
    ] = "last"
    to: Annotated[str, option("The recipient on that channel.", text=True)] = ""
    direct_policy: Annotated[
        Literal["allow", "block"], option("block: reports are not sent to a person, only to groups and channels.")
    ] = "allow"
    account_id: Annotated[str, option("The account of that channel.")] = ""
    ack_max_chars: Annotated[
        int, option(f"Characters besides {ACK} with which a reply is no report.", ge=0, le=10_000)
    ] = 300
    active_hours: Annotated[ActiveHours, option("When it may look.")] = ActiveHours()
    timeout_seconds: Annotated[float | None, option("Seconds that one look may take. Unset: as other runs.", ge=0)] = (
        None
    )
    probes: Annotated[
        tuple[str, ...],
        option(
            "Ours: commands whose output shows whether there is something new; a model is called only when one changes."
            " Each runs only if a grant names exactly it."
        ),
    ] = ()
    calendars: Annotated[
        tuple[str, ...],
        option(
            "Ours: calendar files (.ics) in the workspace; a model is called when an event is near that was not seen at"
            " the last check."
        ),
    ] = ()
    calendar_window: Annotated[
        float, option("Ours: how long before its begin an event is near; a day at most.", form=_DURATION)
    ] = 3600.0
    back_off: Annotated[
        float,
        option(
            "Ours: without probes, the pause between looks that found nothing doubles up to this; 0 keeps it at every.",
            form=_DURATION,
        ),
    ] = 86_400.0
    absent_after: Annotated[
        float,
        option("Ours: no model is called when the owner has not written for this time; 0: always.", form=_DURATION),
    ] = 7 * 86_400.0

    @property
    def every_ms(self) -> int:
        """0: off."""
        if self.enabled is False:
            return 0
        every = (DEFAULT_SECONDS if self.enabled else 0.0) if self.every is None else self.every
        return max(round(every * 1000), SHORTEST_MS) if every else 0

    @property
    def is_isolated(self) -> bool:
        return not self.session if self.isolated_session is None else self.isolated_session


def runs_heartbeat(config: Config, agent_id: str) -> bool:
    """As in OpenClaw: when entries of agents have a heartbeat of their own, only those agents run."""
    if not config.section(HeartbeatSettings, agent_id).every_ms:
        return False
    return has_own_block(config, agent_id) or not any(has_own_block(config, each) for each in config.agent_ids)


def has_own_block(config: Config, agent_id: str) -> bool:
    return any(dig(config.data, (*place, "heartbeat")) is not None for place in config.own_places.get(agent_id, ()))


def prompt_section(config: Config, agent_id: str) -> tuple[str, str]:
    if not runs_heartbeat(config, agent_id):
        return "Heartbeats", ""
    text = (
        "At times the clock sends you HEARTBEAT.md to look at. Answer such a message with exactly "
        f"{ACK} when nothing needs your user's attention; otherwise with what they should read, and without {ACK}."
        " What is to be looked at from now on belongs into HEARTBEAT.md, short."
    )
    return "Heartbeats", text
