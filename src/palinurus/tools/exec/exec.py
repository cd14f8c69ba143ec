"""The tool `exec`: inspects one command, then runs exactly what was inspected.

`prepare` chooses where it runs (permission.py), makes the plan and says whether an approval is needed; it starts
nothing. Inside the sandbox a shell string goes to a shell. Outside, a command that was understood (host_command.py) is
started program by program without a shell, whether a grant covers it or a person approved it. Only a command that needs
a shell gets one, and then the shell runs exactly the string that the person was shown.

A command line that runs by grants is checked before each step, because earlier steps may have changed what it means:
`git add sub` can make `git status` run what `sub` names. So each step is judged just before it starts, not all of them
before the first. pipelines.py asks over a socket pair that the programs do not inherit.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from msgspec import Struct, structs

from palinurus.domain.errors import PalinurusError, SandboxError
from palinurus.domain.events import Notice, Plan
from palinurus.domain.messages import Origin
from palinurus.domain.tool import PreparedCall, ToolOutput, ToolRun, failed
from palinurus.sandbox.environment import ExecEnvironment, clean_env, command_in
from palinurus.sandbox.sandbox import CommandLimits, Process, SandboxCommand
from palinurus.tools.commands.judge import CONFIG, Allowances
from palinurus.tools.commands.repositories import git_variables, uses_repository
from palinurus.tools.exec.command_files import CommandFiles, command_words
from palinurus.tools.exec.context import ExecCall, ExecContext
from palinurus.tools.exec.host_command import InspectedCommand, host_location, inspect_command
from palinurus.tools.exec.permission import (
    NO_NETWORK,
    ExecTarget,
    HostPermission,
    NetworkPermission,
    choose_target,
    fetches,
    host_permission,
    network_permission,
    refuse_variables,
    working_directory,
)
from palinurus.tools.exec.pipelines import helper_argv
from palinurus.tools.exec.processes import CommandInfo, RunningCommand
from palinurus.tools.exec.snapshot import Snapshot
from palinurus.tools.web.addresses import is_held

LONGEST_ANSWER = 2_000  # characters
REPOSITORY_SECONDS = 20.0  # how long a granted command waits for another one
JudgeStep = Callable[[int], Awaitable[str]]
"""Returns why the step with this number may not start; empty if it may."""

RAN_OUTSIDE = "a command outside the sandbox, asked for in a turn that has read text from outside"
NO_ROOM = "exec: too many commands of this agent are in the background already. End one with process."
LOOSE = "{}, which later sessions start with, is a link or has another name: the sandbox does not protect it"
GOES_ON = "(goes on in the background: see the tool process)"
NO_LIMITS = CommandLimits(0, 0, 0, 0)  # a command on the host may use the network
Start = Callable[[SandboxCommand], Awaitable[Process]]


class ExecPreparer:
    """Prepares the exec calls of one agent."""

    def __init__(self, context: ExecContext) -> None:
        self.context = context
        self.processes = context.processes()
        self._checks: set[asyncio.Task[None]] = set()  # locks of running commands; each ends with its command
        self._repositories = asyncio.Lock()

    async def prepare(self, run: ToolRun, call: ExecCall) -> PreparedCall | ToolOutput:
        context = self.context
        environment = context.environment(run.key)
        status = await context.sandbox.check()
        target = choose_target(run, environment, status, context.settings, context.elevated, leave=call.elevated)
        if target.refusal:
            plan = Plan("exec", call.shown, target.where, call.started, env=tuple(sorted(call.env)))
            return PreparedCall(plan, _never, refusal=target.refusal)
        if wrong := refuse_variables(call.env, host=target.where == "host"):
            return failed(f"exec: {wrong}.")
        if call.background and not self.processes.has_room(run.key.agent):
            return failed(NO_ROOM)
        inside = target.where == "sandbox"
        cwd = await asyncio.to_thread(working_directory, call.workdir, environment.workspace, within=inside)
        if inside:
            if environment.sandboxed == "no":  # only a restriction put it in the sandbox: host permissions do not apply
                environment = structs.replace(environment, network=False)
            return await self._inside(run, call, environment, cwd)
        return await self._outside(run, call, target, environment, cwd)

    async def _inside(self, run: ToolRun, call: ExecCall, environment: ExecEnvironment, cwd: str) -> PreparedCall:
        extras = self.context.extras(run, True)
        held = environment.network and is_held(run) and self.context.heeds_outside
        allowed = await network_permission(run, call) if held else NetworkPermission(environment.network)
        environment, network = structs.replace(environment, network=allowed.network), allowed.network
        argv, env = call.started, {**extras.env, **call.env, **allowed.env}
        plan = Plan("exec", call.shown, "sandbox", argv, cwd, tuple(sorted(env)), network=network)
        origin = Origin.OUTSIDE if network else Origin.AGENT
        guarded = run.untrusted or network  # fetched text must not reach files that later sessions start with
        info = CommandInfo(run.key, run.run_id, call.shown, "sandbox", origin, guarded=guarded, network=network)
        place = structs.replace(environment, env={**environment.env, **env})
        kind = {"pty": call.pty, "private": run.private, "guarded": guarded}
        command = command_in(place, argv, cwd, **kind, folders=extras.folders)

        async def go() -> ToolOutput:
            await asyncio.to_thread(self.context.make_workspace, environment)
            files = self.command_files(run, call, environment, cwd, origin)
            output = await self.go(call, structs.replace(info, files=files), self.context.sandbox.start, command)
            return structs.replace(output, content=f"{NO_NETWORK}{output.content}") if held and not network else output

        instructions, writable = environment.instructions, run.untrusted and environment.writable
        loose = await asyncio.to_thread(instructions.find_loose, environment.workspace) if writable else ""
        reasons = allowed.ask, LOOSE.format(loose) if loose else ""
        return PreparedCall(plan, go, when_untrusted=" and ".join(filter(None, reasons)))

    async def _outside(
        self, run: ToolRun, call: ExecCall, target: ExecTarget, environment: ExecEnvironment, cwd: str
    ) -> PreparedCall | ToolOutput:
        context, settings = self.context, self.context.settings
        grants = await context.grants.active(agent=run.key.agent, session_key=str(run.key), now=context.clock.now_ms())
        workspace = str(environment.workspace)
        where = host_location(call, cwd, workspace, context.path)
        allowed = Allowances(grants, settings.allowlist, settings.safe_bins)
        found = await asyncio.to_thread(inspect_command, call, where, allowed, shell=target.security == "full")
        permission = host_permission(target, settings.ask_fallback, found.judgement)
        home = context.home or workspace
        asked = bool(permission.ask or run.untrusted or run.restrictions)
        snapshot = await asyncio.to_thread(found.take_snapshot, call, home, asked=asked)
        extras, programs = context.extras(run, False), found.judgement.invocations
        names, matched = tuple(sorted({**extras.env, **call.env})), snapshot.shown_patterns(cwd)
        plan = Plan(
            "exec", found.summary, "host", found.argv, cwd, names, network=True, invocations=programs, patterns=matched
        )
        by_grants = target.security == "allowlist" and found.judgement.covered
        in_repository = by_grants and any(map(uses_repository, programs))
        env = {**clean_env(context.path, home, pty=call.pty), **environment.env, **extras.env, **call.env}
        env |= {**(git_variables(home, workspace) if in_repository else {}), "PATH": context.path}
        command = SandboxCommand(
            found.started, cwd, env, network=True, pty=call.pty, limits=NO_LIMITS, folder=found.folder
        )
        host_command = _HostCommand(
            self, run, call, target, environment, found, snapshot, permission, command, by_grants, in_repository
        )
        needed = structs.asdict(permission)
        return PreparedCall(plan, host_command.go, when_untrusted=RAN_OUTSIDE, release=snapshot.release, **needed)

    def missing_sandbox_remark(self, run: ToolRun, target: ExecTarget) -> str:
        """Returns a remark, once, that there is no sandbox and what to do about it."""
        if not target.no_sandbox or self.processes.sandbox_notice_given:
            return ""
        self.processes.sandbox_notice_given = True
        remark = f"commands run without a sandbox, and so they ask: {target.no_sandbox}"
        run.emit(Notice(remark))
        return f"[{remark}]\n"

    def command_files(
        self, run: ToolRun, call: ExecCall, environment: ExecEnvironment, cwd: str, origin: Origin
    ) -> CommandFiles:
        workspace, fetched = str(environment.workspace), origin == Origin.OUTSIDE
        words = command_words(call.command, call.argv)
        return CommandFiles(self.context.origins, run, words, self.context.clock, workspace, cwd, fetches=fetched)

    async def enter_repository(self) -> ExitStack:
        """Lets granted commands that use a repository run one after the other. As with steps, one may change what the
        next one means, so the next is judged after this one has ended.

        Closing the returned object lets the next one start. Raises SandboxError if the wait is too long.
        """
        try:
            async with asyncio.timeout(REPOSITORY_SECONDS):
                await self._repositories.acquire()
        except TimeoutError:
            hint = "wait until it ends, or end it with process"
            raise SandboxError("another granted command is still using a repository", hint=hint) from None
        entered = ExitStack()
        entered.callback(self._repositories.release)
        return entered

    @contextmanager
    def check_steps(self, judge: JudgeStep) -> Iterator[int]:
        """Returns a descriptor for pipelines.py that is valid inside the block."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        task = asyncio.create_task(_answer_checks(ours, judge))
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)
        with theirs:
            yield theirs.fileno()

    async def go(
        self, call: ExecCall, info: CommandInfo, start: Start, command: SandboxCommand, entered: ExitStack | None = None
    ) -> ToolOutput:
        """Runs the prepared command. `entered` is closed when the command has ended."""
        entered = entered or ExitStack()
        if call.background and not self.processes.has_room(info.key.agent):  # the approval may have taken long
            entered.close()
            return failed(NO_ROOM)
        info = structs.replace(info, terminal=call.pty, listens=call.pty or call.background)
        most = self.context.settings.timeout_sec  # the configured limit is the maximum for a model
        command = structs.replace(
            command, limits=structs.replace(command.limits, wall_seconds=min(call.timeout or most, most))
        )
        if info.files is not None:
            await info.files.look()
        try:
            running = await self.processes.start(info, lambda: start(command))
        except BaseException:
            if info.files is not None:
                info.files.leave()
            raise
        running.call_when_ended(entered.close)
        try:
            return await self._attend(running, call)
        except asyncio.CancelledError:
            await running.end()
            raise

    async def _attend(self, running: RunningCommand, call: ExecCall) -> ToolOutput:
        if not running.info.listens:
            await running.end_input()
        if not call.background and await self._ends(running, call.yield_ms or self.context.settings.background_ms):
            self.processes.drop(running)
            return await running.output_result(running.news(), or_else="(no output)")
        running.background = True
        return await running.output_result(running.news(), then=GOES_ON)

    async def _ends(self, running: RunningCommand, wait_ms: int) -> bool:
        """Returns whether it ends within that time. While the background is full, it waits without a limit."""
        while not await running.wait(max(wait_ms, 1) / 1000):
            if self.processes.has_room(running.info.key.agent):
                return False
        return True


class _HostCommand(Struct, frozen=True):
    """One command for the host, between inspection and start."""

    preparer: ExecPreparer
    run: ToolRun
    call: ExecCall
    target: ExecTarget
    environment: ExecEnvironment
    found: InspectedCommand
    snapshot: Snapshot
    permission: HostPermission
    command: SandboxCommand
    by_grants: bool
    in_repository: bool  # and a grant permits it

    async def go(self) -> ToolOutput:
        preparer, run, summary = self.preparer, self.run, self.found.summary
        with ExitStack() as undo:
            entered = undo.enter_context(await preparer.enter_repository() if self.in_repository else ExitStack())
            await asyncio.to_thread(self.found.check_unchanged, self.snapshot)
            if self.by_grants and (why := await self._refuse_step(0)):
                raise SandboxError(f"it is no longer allowed: {why}", hint="send the call again")
            remark = preparer.missing_sandbox_remark(run, self.target)
            origin = Origin.OUTSIDE if fetches(summary) else Origin.AGENT
            files = preparer.command_files(run, self.call, self.environment, self.command.cwd, origin)
            free = self.target.security == "full" and self.target.ask != "always"
            info = CommandInfo(run.key, run.run_id, summary, "host", origin, free=free, files=files)
            output = await preparer.go(self.call, info, self._start, self.command, entered)
            undo.pop_all()  # from here on the end of the command closes it
        return structs.replace(output, content=f"{remark}{output.content}")

    async def _start(self, limited: SandboxCommand) -> Process:
        """Checks again just before the start, because things may have changed while the command waited."""
        context = self.preparer.context
        for grant in self.permission.granted:
            if not grant.startswith(CONFIG):  # the audit log records when a line of the config was used
                await context.grants.used(grant, context.clock.now_ms(), self.found.summary)
        await asyncio.to_thread(self.found.check_unchanged, self.snapshot)
        with ExitStack() as checks:
            if self.by_grants and len(self.found.steps) > 1:
                fd = checks.enter_context(self.preparer.check_steps(self._refuse_step))
                limited = structs.replace(limited, argv=helper_argv(self.found.steps, fd), fds=(fd,))
            process = await context.host.start(limited)
        self.snapshot.release()
        return process

    async def _refuse_step(self, number: int) -> str:
        context, key = self.preparer.context, self.run.key
        grants = await context.grants.active(agent=key.agent, session_key=str(key), now=context.clock.now_ms())
        return await asyncio.to_thread(self.found.refuse_step, number, grants)


async def _answer_checks(ours: socket.socket, judge: JudgeStep) -> None:
    loop = asyncio.get_running_loop()
    with ours, suppress(ConnectionError):  # the command ended while the step was judged
        while asked := await loop.sock_recv(ours, 64):
            try:
                why = await judge(int(asked))
            except (PalinurusError, OSError, ValueError) as error:
                why = f"it could not be judged: {error}"
            await loop.sock_sendall(ours, f"{' '.join(why.split())[:LONGEST_ANSWER]}\n".encode(errors="replace"))


async def _never() -> ToolOutput:
    raise AssertionError("a call that was refused is not run")
