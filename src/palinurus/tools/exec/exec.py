"""The tool `exec`: one command, looked at first and run as it was looked at.

`prepare` finds the place (place.py), makes the plan and says whether somebody must be asked; it starts nothing. Inside
the sandbox a shell string goes to a shell. Outside, a command that was understood (outside.py) is started by ourselves,
program by program, without a shell, whether a grant covers it or a person has said yes to it; only what needs a shell
gets one, and then it is exactly the string that the person was shown.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from palinurus.config.handling import ElevatedSettings, ExecSettings
from palinurus.domain.clock import Clock
from palinurus.domain.errors import SandboxError
from palinurus.domain.events import Notice
from palinurus.domain.function_tool import failed, prepared_tool
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin
from palinurus.domain.plan import Plan
from palinurus.domain.tool import Prepared, Tool, ToolOutput, ToolRun
from palinurus.sandbox.quarters import Quarters, clean_env, command_in
from palinurus.sandbox.sandbox import Command, Limits, Process, Sandbox
from palinurus.tools.commands.allowlist import CONFIG
from palinurus.tools.commands.repositories import git_variables, uses_repository
from palinurus.tools.exec.call import Call, fault, working_directory
from palinurus.tools.exec.command_files import CommandFiles, Surroundings
from palinurus.tools.exec.fetchers import fetches
from palinurus.tools.exec.outside import Grounds, Outside, look_outside
from palinurus.tools.exec.place import Leave, Place, find_leave, find_place
from palinurus.tools.exec.process import process_tool
from palinurus.tools.exec.processes import About, Job, Processes
from palinurus.tools.exec.reaching_out import NO_NETWORK, Outlet, find_outlet
from palinurus.tools.exec.running import helper_argv
from palinurus.tools.exec.snapshot import Snapshot
from palinurus.tools.exec.steps import Queue, StepChecks
from palinurus.tools.exec.variables import refused
from palinurus.tools.grants.grants import GrantStore
from palinurus.tools.web.addresses import is_held
from palinurus.workspace.file_origins import FileOrigins

RAN_OUTSIDE = "a command outside the sandbox, asked for in a turn that has read text from outside"
NO_ROOM = "exec: too many commands of this agent are in the background already. End one with process."
LOOSE = "{}, which later conversations begin with, is a link or has another name: walls do not keep a command from it"
GOES_ON = "(goes on in the background: see the tool process)"
NO_LIMITS = Limits(0, 0, 0, 0)  # a command on the host may use what its user may

Start = Callable[[Command], Awaitable[Process]]


class Given(Struct, frozen=True):
    """What a command gets besides what its call names. Values of variables are secrets: no plan shows them."""

    env: Mapping[str, str] = {}
    folders: tuple[str, ...] = ()  # shown in the sandbox, to read only


class ExecDesk(Struct, frozen=True):
    """What the commands of one agent are run with."""

    quarters: Callable[[SessionKey], Quarters]
    sandbox: Sandbox
    host: Sandbox
    grants: GrantStore
    settings: ExecSettings
    elevated: ElevatedSettings
    clock: Clock
    processes: Processes  # one for the whole house
    path: str  # where programs are looked for outside the sandbox
    home: str = ""  # what commands outside the sandbox call HOME; empty: the workspace
    furnish: Callable[[Quarters], object] = lambda _: None
    """Called in a thread before a command runs in the sandbox: makes a private workspace that is not there yet. May
    raise SandboxError."""
    heeds_outside: bool = True  # whether a turn that has read text from outside is held to more
    given: Callable[[ToolRun, bool], Given] = lambda run, sandboxed: Given()
    """What the skills in use have for a command, inside the sandbox or outside. May raise a PalinurusError."""
    origins: FileOrigins = msgspec.field(default_factory=FileOrigins)


def exec_tools(desk: ExecDesk) -> tuple[Tool, Tool]:
    """exec and process."""
    office = _Office(desk)

    @prepared_tool(
        "exec", "Run a shell command, or a program by argv, sandboxed if possible, in the workspace or in workdir."
    )
    async def exec_(
        run: ToolRun,
        command: str = "",
        argv: tuple[str, ...] = (),
        workdir: str = "",
        env: dict[str, str] = {},  # noqa: B006  never changed
        timeout: Annotated[float, Meta(ge=0), "seconds"] = 0,
        background: bool = False,
        yield_ms: Annotated[int, Meta(ge=0), "then background"] = 0,
        pty: bool = False,
        elevated: Annotated[bool, "outside the sandbox; may ask"] = False,
    ) -> Prepared | ToolOutput:
        call = Call(command, argv, workdir, env, timeout, background, yield_ms, pty, elevated)
        wrong = fault(call)
        return failed(wrong) if wrong else await office.prepare(run, call)

    return exec_, process_tool(desk.processes, desk.settings)


def _do_nothing() -> None:
    """For whom nobody waits."""


class _Office:
    """Where calls of exec are made ready."""

    def __init__(self, desk: ExecDesk) -> None:
        self.desk = desk
        self.checks = StepChecks()
        self.repositories = Queue()

    async def prepare(self, run: ToolRun, call: Call) -> Prepared | ToolOutput:
        desk = self.desk
        quarters = desk.quarters(run.key)
        walls = await desk.sandbox.check()
        place = find_place(run, quarters, walls, desk.settings, desk.elevated, leave=call.elevated)
        if place.refusal:
            plan = Plan("exec", call.shown, place.where, call.started, env=tuple(sorted(call.env)))
            return Prepared(plan, _never, refusal=place.refusal)
        if wrong := refused(call.env, host=place.where == "host"):
            return failed(f"exec: {wrong}.")
        if call.background and not desk.processes.has_room(run.key.agent):
            return failed(NO_ROOM)
        inside = place.where == "sandbox"
        cwd = await asyncio.to_thread(working_directory, call.workdir, quarters.workspace, within=inside)
        if inside:
            if quarters.sandboxed == "no":  # only a restriction has put it there; what holds outside does not hold here
                quarters = replace(quarters, network=False)
            return await self._inside(run, call, quarters, cwd)
        return await self._outside(run, call, place, quarters, cwd)

    async def _inside(self, run: ToolRun, call: Call, quarters: Quarters, cwd: str) -> Prepared:
        given = self.desk.given(run, True)
        held = quarters.network and is_held(run) and self.desk.heeds_outside
        outlet = await find_outlet(run, call) if held else Outlet(quarters.network)
        quarters = replace(quarters, network=outlet.network)
        argv, env = call.started, {**given.env, **call.env, **outlet.env}
        names = tuple(sorted(env))
        plan = Plan("exec", call.shown, "sandbox", argv, cwd, names, network=quarters.network)
        origin = Origin.OUTSIDE if quarters.network else Origin.AGENT
        guarded = run.untrusted or quarters.network  # what it fetches may not become what conversations begin with
        about = About(run.key, run.run_id, call.shown, "sandbox", origin, guarded=guarded, network=outlet.network)
        command = command_in(
            quarters,
            argv,
            cwd,
            env,
            pty=call.pty,
            private=run.private,
            guarded=guarded,
            folders=given.folders,
        )

        async def go() -> ToolOutput:
            await asyncio.to_thread(self.desk.furnish, quarters)
            files = self._files(run, call, quarters, cwd, origin)
            told = await self.go(call, replace(about, files=files), self.desk.sandbox.start, command)
            return replace(told, content=f"{NO_NETWORK}{told.content}") if held and not outlet.network else told

        loose = await asyncio.to_thread(_find_loose, quarters) if run.untrusted else ""
        return Prepared(plan, go, when_untrusted=" and ".join(filter(None, (outlet.ask, loose))))

    async def _outside(
        self, run: ToolRun, call: Call, place: Place, quarters: Quarters, cwd: str
    ) -> Prepared | ToolOutput:
        desk = self.desk
        grants = await desk.grants.active(agent=run.key.agent, session_key=str(run.key), now=desk.clock.now_ms())
        grounds = Grounds(cwd, str(quarters.workspace), desk.path, desk.settings, grants)
        found = await asyncio.to_thread(look_outside, call, grounds, shell=place.security == "full")
        leave = find_leave(place, desk.settings.ask_fallback, found.judgement)
        home = desk.home or grounds.workspace
        asked = bool(leave.ask or run.untrusted or run.restrictions)
        snapshot = await asyncio.to_thread(found.take_snapshot, call, grounds, home, asked=asked)
        given = desk.given(run, False)
        names, programs = tuple(sorted({**given.env, **call.env})), found.judgement.invocations
        plan = Plan(
            "exec",
            found.summary,
            "host",
            found.argv,
            cwd,
            names,
            network=True,
            invocations=programs,
            patterns=snapshot.told(cwd),
        )
        free = place.security == "full" and place.ask != "always"
        about = About(run.key, run.run_id, found.summary, "host", _origin(found), free=free)
        by_grants = place.security == "allowlist" and found.judgement.covered
        in_repository = by_grants and any(map(uses_repository, programs))
        env = {
            **clean_env(desk.path, home, pty=call.pty),
            **quarters.env,
            **given.env,
            **call.env,
            **(git_variables(home, grounds.workspace) if in_repository else {}),
            "PATH": desk.path,
        }
        command = Command(found.started, cwd, env, network=True, pty=call.pty, limits=NO_LIMITS, folder=found.folder)
        remark = partial(self._remark, run, place)
        files = partial(self._files, run, call, quarters, cwd, about.origin)
        errand = _Errand(
            self, run, call, found, snapshot, leave, about, command, remark, files, by_grants, in_repository
        )
        return Prepared(
            plan,
            errand.go,
            leave.refusal,
            leave.ask,
            RAN_OUTSIDE,
            leave.unanswered,
            leave.granted,
            release=snapshot.release,
        )

    def _remark(self, run: ToolRun, place: Place) -> str:
        """Said once: that there is no sandbox, and what to do about it."""
        if not place.unwalled or self.desk.processes.walls_missed:
            return ""
        self.desk.processes.walls_missed = True
        remark = f"commands run without a sandbox, and so they ask: {place.unwalled}"
        run.emit(Notice(remark))
        return f"[{remark}]\n"

    def _files(self, run: ToolRun, call: Call, quarters: Quarters, cwd: str, origin: Origin) -> CommandFiles:
        around = Surroundings(os.path.realpath(quarters.workspace), os.path.realpath(cwd))
        fetches = origin == Origin.OUTSIDE
        return CommandFiles(self.desk.origins, run, call, around, self.desk.clock, fetches=fetches)

    async def go(
        self, call: Call, about: About, start: Start, command: Command, when_ended: Callable[[], None] = _do_nothing
    ) -> ToolOutput:
        if call.background and not self.desk.processes.has_room(
            about.key.agent
        ):  # it may have been asked about for long
            when_ended()
            return failed(NO_ROOM)
        about = replace(about, terminal=call.pty, listens=call.pty or call.background)
        command = replace(command, limits=replace(command.limits, wall_seconds=self._seconds(call)))
        if about.files is not None:
            await about.files.look()
        try:
            job = await self.desk.processes.start(about, lambda: start(command))
        except BaseException:
            if about.files is not None:
                about.files.leave()
            raise
        job.tell_end(when_ended)
        try:
            return await self._attend(job, call)
        except asyncio.CancelledError:
            await job.end()
            raise

    async def _attend(self, job: Job, call: Call) -> ToolOutput:
        if not job.about.listens:
            await job.end_input()
        if not call.background and await self._ends(job, call.yield_ms or self.desk.settings.background_ms):
            self.desk.processes.drop(job)
            return await job.tell(job.news(), or_else="(no output)")
        job.background = True
        return await job.tell(job.news(), then=GOES_ON)

    async def _ends(self, job: Job, patience_ms: int) -> bool:
        """Whether it ends before we lose patience. While the background is full, we do not."""
        while not await job.wait(max(patience_ms, 1) / 1000):
            if self.desk.processes.has_room(job.about.key.agent):
                return False
        return True

    def _seconds(self, call: Call) -> float:
        """The settings' limit is the most that a model can have."""
        most = self.desk.settings.timeout_sec
        return min(call.timeout or most, most)


class _Errand(Struct, frozen=True):
    """One command for the host, between the look at it and its start."""

    office: _Office
    run: ToolRun
    call: Call
    found: Outside
    snapshot: Snapshot
    leave: Leave
    about: About
    command: Command
    remark: Callable[[], str]
    files: Callable[[], CommandFiles]
    by_grants: bool
    in_repository: bool  # and by grants

    async def go(self) -> ToolOutput:
        leave_queue = await self.office.repositories.enter() if self.in_repository else _do_nothing
        try:
            await asyncio.to_thread(self.found.still_holds, self.snapshot)
            await self._judge_again()
            remark = self.remark()
            about = replace(self.about, files=self.files())
            told = await self.office.go(self.call, about, self._start, self.command, leave_queue)
        except BaseException:
            leave_queue()
            raise
        return replace(told, content=f"{remark}{told.content}")

    async def _judge_again(self) -> None:
        if self.by_grants and (why := await self._refuse_step(0)):
            raise SandboxError(f"it is no longer allowed: {why}", hint="ask again")

    async def _start(self, limited: Command) -> Process:
        """Looks once more: whatever was waited for since was time for a change."""
        desk = self.office.desk
        for grant in self.leave.granted:
            if not grant.startswith(CONFIG):  # of lines of the config the audit log knows when they were used
                await desk.grants.used(grant, desk.clock.now_ms(), self.found.summary)
        await asyncio.to_thread(self.found.still_holds, self.snapshot)
        process = await self._start_now(desk.host, limited)
        self.snapshot.release()
        return process

    async def _start_now(self, host: Sandbox, limited: Command) -> Process:
        if not self.by_grants or len(self.found.steps) < 2:
            return await host.start(limited)
        with self.office.checks.opened(self._refuse_step) as fd:
            return await host.start(replace(limited, argv=helper_argv(self.found.steps, fd), fds=(fd,)))

    async def _refuse_step(self, number: int) -> str:
        desk, key = self.office.desk, self.run.key
        held = await desk.grants.active(agent=key.agent, session_key=str(key), now=desk.clock.now_ms())
        return await asyncio.to_thread(self.found.refuse_step, number, self.call, held)


def _origin(found: Outside) -> Origin:
    return Origin.OUTSIDE if fetches(found.summary) else Origin.AGENT


def _find_loose(quarters: Quarters) -> str:
    """Why even walls do not keep a command from what conversations begin with; empty when they do."""
    loose = quarters.instructions.find_loose(quarters.workspace) if quarters.writable else ""
    return LOOSE.format(loose) if loose else ""


async def _never() -> ToolOutput:
    raise AssertionError("a call that was refused is not run")
