"""The tool `process`: what a session does with its commands that go on in the background.

Looking at one and ending it needs no leave. What is typed into a program outside the sandbox is as good as a command
there, since that program may be a shell: unless commands are free, it asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from palinurus.config.handling import ExecSettings
from palinurus.domain.function_tool import failed, prepared_tool
from palinurus.domain.messages import Origin
from palinurus.domain.plan import Plan
from palinurus.domain.tool import Prepared, Tool, ToolOutput, ToolRun
from palinurus.tools.exec.place import is_set_free
from palinurus.tools.exec.processes import Job, Processes

Action = Literal["list", "poll", "log", "write", "kill"]
MAX_WAIT_MS = 30_000
MAX_WRITE = 100_000
WRITE_SECONDS = 10.0
WROTE_OUTSIDE = "input for a program outside the sandbox, asked for in a turn that has read text from outside"
WROTE_UNGUARDED = "input for a program that was started before this turn had read text from outside"
WROTE_OUT = "input for a program that has a network, asked for in a turn that has read text from outside"
AS_GOOD_AS_A_COMMAND = "what is typed into a program outside the sandbox is as good as a command there"


class _Input(Struct, frozen=True):
    text: str
    close: bool


def process_tool(processes: Processes, settings: ExecSettings) -> Tool:
    @prepared_tool("process", "Commands that go on in the background: what is new, all output, input, end.")
    async def process(
        run: ToolRun,
        action: Action,
        process_id: Annotated[str, "not for list"] = "",
        wait_ms: Annotated[int, Meta(ge=0, le=MAX_WAIT_MS), "poll: wait for news"] = 0,
        lines: Annotated[int, Meta(ge=0), "log: the last ones only"] = 0,
        text: Annotated[str, "write: with \\n to enter a line"] = "",
        close: Annotated[bool, "write: end of input after it"] = False,
    ) -> Prepared | ToolOutput:
        if action == "list":
            return _free("list the commands in the background", lambda: _listed(run, processes.of(run.key)))
        job = processes.get(run.key, process_id)
        if action == "poll":
            return _free(f"poll process {job.id}", lambda: _polled(run, job, wait_ms / 1000))
        if action == "log":
            return _free(f"log of process {job.id}", lambda: _logged(run, job, lines))
        if action == "kill":
            return _free(f"end process {job.id}", lambda: _killed(run, job))
        if not (text or close) or len(text) > MAX_WRITE:
            return failed(f"process: give text, at most {MAX_WRITE} characters of it, or close to end the input.")
        return _writing(run, job, _Input(text, close), settings)

    return process


def _free(summary: str, work: Callable[[], Awaitable[ToolOutput]]) -> Prepared:
    return Prepared(Plan("process", summary), work)


def _writing(run: ToolRun, job: Job, given: _Input, settings: ExecSettings) -> Prepared:
    about, text = job.about, given.text
    arguments = {"processId": job.id, "command": about.command, "text": text, "close": given.close}
    plan = Plan("process", f"write {text!r} to {about.command}", where=about.where, arguments=arguments)
    if about.where != "host":
        why = WROTE_UNGUARDED if not about.guarded else WROTE_OUT if about.network and run.private else ""
        return Prepared(plan, lambda: _written(run, job, given), when_untrusted=why)
    ask = "" if _is_free(run, job, settings) else AS_GOOD_AS_A_COMMAND
    return Prepared(
        plan,
        lambda: _written(run, job, given),
        refusal=_refusal(run, settings, ask),
        ask=ask,
        when_untrusted=WROTE_OUTSIDE,
        unanswered=settings.ask_fallback == "full",
    )


def _is_free(run: ToolRun, job: Job, settings: ExecSettings) -> bool:
    """Whether who speaks now could start such a command without being asked: another may have started this one."""
    everybody = settings.security == "full" and settings.ask != "always"
    return everybody or (job.about.free and is_set_free(run))


def _refusal(run: ToolRun, settings: ExecSettings, ask: str) -> str:
    if confined := next((each for each in run.restrictions if each.sandboxed), None):
        return f"process: nothing leaves the sandbox here: {confined.reason} ({confined.source})"
    if settings.security == "deny":
        return "process: commands outside the sandbox are switched off (tools.exec.security is deny)"
    return f"process: nothing was written, because nobody may be asked: {ask}" if settings.ask == "off" and ask else ""


def _with_origin(run: ToolRun, told: ToolOutput, *jobs: Job) -> ToolOutput:
    """What another run has started that had read text from outside may show that text here, in a fresh conversation."""
    others = [job.about.files.heard for job in jobs if job.about.files and job.about.run_id != run.run_id]
    if not any(untrusted for untrusted, _ in others):
        return told
    sources = dict.fromkeys((*told.sources, *(source for _, known in others for source in known)))
    return replace(told, origin=Origin.OUTSIDE, sources=tuple(sources))


async def _listed(run: ToolRun, jobs: list[Job]) -> ToolOutput:
    lines = [f"{job.id} · {job.state()} · {job.about.command[:200]}" for job in jobs]
    text = "\n".join(lines) or "no command of this session is in the background"
    return _with_origin(run, ToolOutput(text, origin=Origin.AGENT), *jobs)


async def _polled(run: ToolRun, job: Job, seconds: float) -> ToolOutput:
    await job.stirs(seconds)
    told = await job.tell(job.news(), or_else="(nothing new)" if job.ended is None else "")
    return _with_origin(run, told, job)


async def _logged(run: ToolRun, job: Job, lines: int) -> ToolOutput:
    text = job.output.text()
    told = await job.tell("\n".join(text.rstrip("\n").split("\n")[-lines:]) if lines else text)
    return _with_origin(run, told, job)


async def _written(run: ToolRun, job: Job, given: _Input) -> ToolOutput:
    if run.untrusted and job.about.files is not None:
        job.about.files.tainted = True
    try:
        async with asyncio.timeout(WRITE_SECONDS):
            await job.write(given.text.encode("utf-8", "replace"), close=given.close)
    except TimeoutError:
        return failed(f"process: {job.id} does not read; only a part of the text was written")
    return job.told("written")


async def _killed(run: ToolRun, job: Job) -> ToolOutput:
    await job.kill()
    told = _with_origin(run, await job.tell(job.news()), job)
    return replace(told, is_error=False)  # as it was asked for
