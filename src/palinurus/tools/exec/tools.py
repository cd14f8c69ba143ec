"""The tools `exec` and `process`. The code that prepares and runs commands is imported at the first call."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from palinurus.domain.tool import PreparedCall, Tool, ToolOutput, ToolRun, failed, prepared_tool
from palinurus.tools.exec.context import ExecCall, ExecContext, ProcessCall
from palinurus.tools.settings import ExecSettings

if TYPE_CHECKING:
    from palinurus.tools.exec.exec import ExecPreparer
    from palinurus.tools.exec.processes import Processes


def exec_tools(context: ExecContext) -> tuple[Tool, Tool]:
    """Returns the tools exec and process."""

    @cache
    def preparer() -> ExecPreparer:
        from palinurus.tools.exec.exec import ExecPreparer

        return ExecPreparer(context)

    @prepared_tool(
        "exec", "Run a shell command, or a program by argv, sandboxed if possible, in the workspace or in workdir."
    )
    async def exec_(run: ToolRun, call: ExecCall) -> PreparedCall | ToolOutput:
        from palinurus.tools.exec.permission import find_fault

        fault = find_fault(call)
        return failed(fault) if fault else await preparer().prepare(run, call)

    return exec_, process_tool(context.processes, context.settings)


def process_tool(processes: Callable[[], Processes], settings: ExecSettings) -> Tool:
    @prepared_tool("process", "Commands that go on in the background: what is new, all output, input, end.")
    async def process(run: ToolRun, call: ProcessCall) -> PreparedCall | ToolOutput:
        from palinurus.tools.exec.process_actions import prepare_action

        return prepare_action(run, processes(), settings, call)

    return process
