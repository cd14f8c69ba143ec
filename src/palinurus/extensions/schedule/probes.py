"""What a heartbeat looks at without a model: HEARTBEAT.md, the files that it names, and the output of commands.

A command is a call of the tool exec outside the sandbox, in an unattended run, through the ordinary gate. It is made
only if a grant names exactly this command, so that neither a wide grant nor a line in the config makes a probe.
"""

from __future__ import annotations

import asyncio
import hashlib
import shlex
from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec import Struct

from palinurus.domain.errors import NotFound, WaitTimeout, WorkspaceError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import ToolCall, ToolResult, text_of
from palinurus.domain.tool import PreparedCall, ToolOutput
from palinurus.extensions.schedule.heartbeat_calendar import events_between
from palinurus.extensions.schedule.heartbeat_file import HeartbeatFile, parse_heartbeat
from palinurus.extensions.schedule.heartbeat_gate import PROBE
from palinurus.extensions.schedule.heartbeat_settings import HeartbeatSettings
from palinurus.operations.services import Services
from palinurus.operations.tool_invocation import UnattendedCalls, unattended_calls
from palinurus.tools.grants import EXEC, covers, is_literal
from palinurus.workspace.boundary import MAX_BYTES
from palinurus.workspace.files import HEARTBEAT, MissingFile, TextFile, WorkspaceFiles

PROBE_SECONDS = 60
LONGER = 30.0  # seconds that the call may take besides the command
CHANNEL = "heartbeat"
MOST_AHEAD = 86_400.0  # seconds that an event may be away
MOST_EVENTS = 20  # of one calendar


class Observation(Struct, frozen=True):
    seen: dict[str, str]  # digests by name
    failed: tuple[str, ...] = ()  # commands that gave no answer, and why


async def observe(
    services: Services, key: SessionKey, settings: HeartbeatSettings, file: HeartbeatFile, earlier: Mapping[str, str]
) -> Observation:
    """A command that fails says nothing new: what it said earlier still counts."""
    seen = await observe_files(services, key.agent, file)
    near, failed = await asyncio.to_thread(observe_calendars, services, key.agent, settings)
    seen |= near
    for command in settings.probes:
        output = await run_probe(services, key, command)
        if isinstance(output, str):
            seen[PROBE + command] = _digest(output.encode())
            continue
        failed.append(f"the probe `{command}` failed: {output.why}")
        if PROBE + command in earlier:
            seen[PROBE + command] = earlier[PROBE + command]
    return Observation(seen, tuple(failed))


async def observe_files(services: Services, agent_id: str, file: HeartbeatFile) -> dict[str, str]:
    files = services.agents.get(agent_id).files
    return await asyncio.to_thread(lambda: {name: _look(files, name) for name in (HEARTBEAT, *file.named_files)})


def observe_calendars(
    services: Services, agent_id: str, settings: HeartbeatSettings
) -> tuple[dict[str, str], list[str]]:
    """Events that are near, by file and time; what they are called is text from outside, which the agent may read. And
    which files cannot be read."""
    boundary, zone, now = services.agents.get(agent_id).files.boundary, services.clock.zone, services.clock.now_ms()
    since = datetime.fromtimestamp(now / 1000, zone)
    until = since + timedelta(seconds=min(settings.calendar_window, MOST_AHEAD))
    near: dict[str, str] = {}
    failed: list[str] = []
    for name in settings.calendars:
        try:
            with boundary.open_file(name) as file:
                events = events_between(file.read().decode(errors="replace"), since, until, zone)
        except (NotFound, WorkspaceError) as error:
            failed.append(f"the calendar {name} cannot be read: {error}")
            continue
        for at in events[:MOST_EVENTS]:
            near[f"{PROBE}{name}: an event at {at.astimezone(zone).isoformat(timespec='minutes')}"] = "near"
    return near, failed


async def read_heartbeat(services: Services, agent_id: str) -> HeartbeatFile:
    """Raises WorkspaceError for one that cannot be read."""
    files = services.agents.get(agent_id).files
    match await asyncio.to_thread(files.read, HEARTBEAT, fresh=True):
        case TextFile(body=body):
            return parse_heartbeat(body)
        case MissingFile():
            return HeartbeatFile()
        case unreadable:
            raise WorkspaceError(f"{HEARTBEAT} cannot be read: {unreadable.reason}")


def _look(files: WorkspaceFiles, name: str) -> str:
    try:
        with files.boundary.open_file(name) as file:
            if file.stat.st_size > MAX_BYTES:
                return f"{file.stat.st_size} {file.stat.st_mtime_ns}"
            return _digest(file.read())
    except (NotFound, WorkspaceError):
        return "absent"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


class FailedProbe(Struct, frozen=True):
    why: str


async def run_probe(services: Services, key: SessionKey, command: str) -> str | FailedProbe:
    """What a command prints."""
    calls = await _calls(services, key)
    if why := await _why_not_approved(calls, command):
        return FailedProbe(why)
    assert calls is not None  # noqa: S101  # else there is a reason
    try:
        output = await calls.make(ToolCall("probe", EXEC, _arguments(command)), PROBE_SECONDS + LONGER)
    except WaitTimeout as error:
        return FailedProbe(str(error))
    code = (output.details or {}).get("exitCode")
    if output.is_error or code != 0:
        return FailedProbe(_first_line(output) if code is None else f"exit {code}: {_first_line(output)}")
    return text_of(output.content).rpartition("\n")[0]  # the last line says how long it took


async def why_not_approved(services: Services, key: SessionKey, command: str) -> str:
    """Empty: a grant names exactly this command. Nothing is run."""
    return await _why_not_approved(await _calls(services, key), command)


async def _calls(services: Services, key: SessionKey) -> UnattendedCalls | None:
    return await unattended_calls(services, key, EXEC, f"probe-{services.new_id()}", channel=CHANNEL, sender=CHANNEL)


async def _why_not_approved(calls: UnattendedCalls | None, command: str) -> str:
    if calls is None:
        return f"there is no tool {EXEC}"
    try:
        prepared = await calls.prepare(_arguments(command), PROBE_SECONDS)
    except (WaitTimeout, ValueError) as error:
        return str(error)
    if not isinstance(prepared, PreparedCall):
        return f"the tool {EXEC} cannot say what it would do" if prepared is None else _first_line(prepared)
    prepared.release()
    services, key = calls.services, calls.run.key
    grants = await services.grants.active(agent=key.agent, session_key=str(key), now=services.clock.now_ms())
    exact = [grant for grant in grants if all(map(is_literal, grant.args))]
    invocations = prepared.plan.invocations
    if invocations and all(any(covers(grant, each) for grant in exact) for each in invocations):
        return prepared.refusal
    return f"it is not approved; `pal approvals grant --like {shlex.quote(command)}` approves it"


def _arguments(command: str) -> dict[str, object]:
    wait = PROBE_SECONDS * 1000
    return {"argv": shlex.split(command), "timeout": PROBE_SECONDS, "yield_ms": wait, "elevated": True}


def _first_line(output: ToolOutput | ToolResult) -> str:
    return next(iter(text_of(output.content).splitlines()), "no output")[:200]
