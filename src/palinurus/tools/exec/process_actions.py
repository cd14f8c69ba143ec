"""The tool `process`: reads, writes to and ends a session's background commands.

Reading and ending need no permission. Input for a program outside the sandbox is equal to a command there, since that
program may be a shell: it needs approval unless commands are unrestricted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from palinurus.domain.events import Plan
from palinurus.domain.messages import Origin
from palinurus.domain.tool import PreparedCall, ToolOutput, ToolRun, failed
from palinurus.tools.exec.context import ProcessCall
from palinurus.tools.exec.permission import is_unrestricted
from palinurus.tools.exec.processes import Processes, RunningCommand
from palinurus.tools.settings import ExecSettings

MAX_WRITE = 100_000
WRITE_SECONDS = 10.0
WROTE_OUTSIDE = "input for a program outside the sandbox, asked for in a turn that has read text from outside"
WROTE_UNGUARDED = "input for a program that was started before this turn had read text from outside"
WROTE_OUT = "input for a program that has a network, asked for in a turn that has read text from outside"
AS_GOOD_AS_A_COMMAND = "what is typed into a program outside the sandbox is as good as a command there"


def prepare_action(
    run: ToolRun, processes: Processes, settings: ExecSettings, call: ProcessCall
) -> PreparedCall | ToolOutput:
    """Prepares one action. Raises NotFound for a process that this session does not have."""
    if call.action == "list":
        return _free("list the commands in the background", lambda: _list(run, processes.of(run.key)))
    running = processes.get(run.key, call.process_id)
    if call.action == "poll":
        return _free(f"poll process {running.id}", lambda: _poll(run, running, call.wait_ms / 1000))
    if call.action == "log":
        return _free(f"log of process {running.id}", lambda: _log(run, running, call.lines))
    if call.action == "kill":
        return _free(f"end process {running.id}", lambda: _kill(run, running))
    if not (call.text or call.close) or len(call.text) > MAX_WRITE:
        return failed(f"process: give text, at most {MAX_WRITE} characters of it, or close to end the input.")
    return _prepare_write(run, running, call, settings)


def _free(summary: str, work: Callable[[], Awaitable[ToolOutput]]) -> PreparedCall:
    return PreparedCall(Plan("process", summary), work)


def _prepare_write(run: ToolRun, running: RunningCommand, given: ProcessCall, settings: ExecSettings) -> PreparedCall:
    info, text = running.info, given.text
    arguments = {"processId": running.id, "command": info.command, "text": text, "close": given.close}
    plan = Plan("process", f"write {text!r} to {info.command}", where=info.where, arguments=arguments)
    if info.where != "host":
        why = WROTE_UNGUARDED if not info.guarded else WROTE_OUT if info.network and run.private else ""
        return PreparedCall(plan, lambda: _write(run, running, given), when_untrusted=why)
    # Whether the current sender could start such a command without approval: another sender may have started it.
    everybody = settings.security == "full" and settings.ask != "always"
    ask = "" if everybody or (info.free and is_unrestricted(run)) else AS_GOOD_AS_A_COMMAND
    refusal, unanswered = _refusal(run, settings, ask), settings.ask_fallback == "full"
    return PreparedCall(plan, lambda: _write(run, running, given), refusal, ask, WROTE_OUTSIDE, unanswered)


def _refusal(run: ToolRun, settings: ExecSettings, ask: str) -> str:
    if confined := next((each for each in run.restrictions if each.sandboxed), None):
        return f"process: nothing leaves the sandbox here: {confined.reason} ({confined.source})"
    if settings.security == "deny":
        return "process: commands outside the sandbox are switched off (tools.exec.security is deny)"
    return f"process: nothing was written, because approvals are off: {ask}" if settings.ask == "off" and ask else ""


def _with_origin(run: ToolRun, result: ToolOutput, *commands: RunningCommand) -> ToolOutput:
    """Adds the origin of the output: a command started by another run may print the text from outside that the run had
    read."""
    infos = (running.info for running in commands)
    others = [info.files.run_sources for info in infos if info.files and info.run_id != run.run_id]
    if not any(untrusted for untrusted, _ in others):
        return result
    sources = dict.fromkeys((*result.sources, *(source for _, known in others for source in known)))
    return replace(result, origin=Origin.OUTSIDE, sources=tuple(sources))


async def _list(run: ToolRun, commands: list[RunningCommand]) -> ToolOutput:
    lines = [f"{running.id} · {running.state()} · {running.info.command[:200]}" for running in commands]
    text = "\n".join(lines) or "no command of this session runs in the background"
    return _with_origin(run, ToolOutput(text, origin=Origin.AGENT), *commands)


async def _poll(run: ToolRun, running: RunningCommand, seconds: float) -> ToolOutput:
    await running.wait_for_news(seconds)
    or_else = "(nothing new)" if running.ended is None else ""
    return _with_origin(run, await running.output_result(running.news(), or_else=or_else), running)


async def _log(run: ToolRun, running: RunningCommand, lines: int) -> ToolOutput:
    text = running.output.text()
    shown = "\n".join(text.rstrip("\n").split("\n")[-lines:]) if lines else text
    return _with_origin(run, await running.output_result(shown), running)


async def _write(run: ToolRun, running: RunningCommand, given: ProcessCall) -> ToolOutput:
    if run.untrusted and running.info.files is not None:
        running.info.files.tainted = True
    try:
        async with asyncio.timeout(WRITE_SECONDS):
            await running.write(given.text.encode("utf-8", "replace"), close=given.close)
    except TimeoutError:
        return failed(f"process: {running.id} does not read its input; only part of the text was written")
    return running.result("written")


async def _kill(run: ToolRun, running: RunningCommand) -> ToolOutput:
    await running.kill()
    result = _with_origin(run, await running.output_result(running.news()), running)
    return replace(result, is_error=False)  # in the requested order
