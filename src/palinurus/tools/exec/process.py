"""The tool `process`: what a session does with its commands that go on in the background.

Looking at one and ending it needs no leave. What is typed into a program outside the sandbox is as good as a command
there, since that program may be a shell: unless commands are free, it asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from palinurus.config.handling import ExecSettings
from palinurus.domain.messages import Origin
from palinurus.domain.plan import Plan
from palinurus.domain.tool import Prepared, Tool, ToolOutput, ToolRun
from palinurus.tools.exec.processes import Job, Processes
from palinurus.tools.registry import failed, prepared_tool

Action = Literal["list", "poll", "log", "write", "kill"]
MAX_WAIT_MS = 30_000
MAX_WRITE = 100_000
WRITE_SECONDS = 10.0
WROTE_OUTSIDE = "input for a program outside the sandbox, asked for in a turn that has read text from outside"


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
            return _free("list the commands in the background", lambda: _listed(processes.of(run.key)))
        job = processes.get(run.key, process_id)
        if action == "poll":
            return _free(f"poll process {job.id}", lambda: _polled(job, wait_ms / 1000))
        if action == "log":
            return _free(f"log of process {job.id}", lambda: _logged(job, lines))
        if action == "kill":
            return _free(f"end process {job.id}", lambda: _killed(job))
        if not (text or close) or len(text) > MAX_WRITE:
            return failed(f"process: give text, at most {MAX_WRITE} characters of it, or close to end the input.")
        return _writing(job, text, close, settings)

    return process


def _free(summary: str, work: Callable[[], Awaitable[ToolOutput]]) -> Prepared:
    return Prepared(Plan("process", summary), work)


def _writing(job: Job, text: str, close: bool, settings: ExecSettings) -> Prepared:
    about = job.about
    arguments = {"processId": job.id, "command": about.command, "text": text, "close": close}
    plan = Plan("process", f"write {text!r} to {about.command}", where=about.where, arguments=arguments)
    if about.where != "host":
        return Prepared(plan, lambda: _written(job, text, close))
    ask = "" if about.free else "what is typed into a program outside the sandbox is as good as a command there"
    return Prepared(
        plan,
        lambda: _written(job, text, close),
        refusal=f"process: nothing was written, because nobody may be asked: {ask}"
        if settings.ask == "off" and ask
        else "",
        ask=ask,
        when_untrusted=WROTE_OUTSIDE,
        unanswered=settings.ask_fallback == "full",
    )


async def _listed(jobs: list[Job]) -> ToolOutput:
    lines = [f"{job.id} · {job.state()} · {job.about.command[:200]}" for job in jobs]
    return ToolOutput("\n".join(lines) or "no command of this session is in the background", origin=Origin.AGENT)


async def _polled(job: Job, seconds: float) -> ToolOutput:
    await job.stirs(seconds)
    return job.told(job.news() or ("(nothing new)" if job.ended is None else ""))


async def _logged(job: Job, lines: int) -> ToolOutput:
    text = job.output.text()
    return job.told("\n".join(text.rstrip("\n").split("\n")[-lines:]) if lines else text)


async def _written(job: Job, text: str, close: bool) -> ToolOutput:
    try:
        async with asyncio.timeout(WRITE_SECONDS):
            await job.write(text.encode("utf-8", "replace"), close=close)
    except TimeoutError:
        return failed(f"process: {job.id} does not read; only a part of the text was written")
    return job.told("written")


async def _killed(job: Job) -> ToolOutput:
    await job.kill()
    return replace(job.told(job.news()), is_error=False)  # as it was asked for
