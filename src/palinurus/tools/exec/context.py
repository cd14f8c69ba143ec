"""The arguments of `exec` and `process` as the model sends them, and the resources for the commands of an agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct, field

from palinurus.domain.clock import Clock
from palinurus.domain.keys import SessionKey
from palinurus.domain.tool import UNLISTED, ToolRun
from palinurus.sandbox.environment import ExecEnvironment
from palinurus.sandbox.sandbox import Sandbox
from palinurus.tools.grants import GrantStore
from palinurus.tools.settings import ElevatedSettings, ExecSettings
from palinurus.workspace.file_origins import FileOrigins

if TYPE_CHECKING:
    from palinurus.tools.exec.processes import Processes

MAX_WAIT_MS = 30_000
SHELL = "/bin/sh"


# A docstring of the two records below would be sent to the model with every request.
class ExecCall(Struct, frozen=True, forbid_unknown_fields=True):
    command: str = ""  # for a shell; empty if there is `argv`
    argv: tuple[str, ...] = ()
    workdir: str = ""
    env: dict[str, str] = {}
    timeout: Annotated[float, Meta(ge=0, description="seconds")] = 0  # 0: the configured limit
    background: bool = False
    yield_ms: Annotated[int, Meta(ge=0), UNLISTED] = 0  # then it goes on in the background
    pty: bool = False
    elevated: Annotated[bool, Meta(description="outside the sandbox; may ask")] = False

    @property
    def started(self) -> tuple[str, ...]:
        """Returns what the sandbox starts."""
        return self.argv or (SHELL, "-c", self.command)

    @property
    def shown(self) -> str:
        """Returns the command for a person, with control characters escaped."""
        from palinurus.tools.commands.shell import quote_word

        if self.argv:
            return " ".join(map(quote_word, self.argv))
        return "".join(char if char.isprintable() or char in "\n\t" else f"\\u{ord(char):04x}" for char in self.command)


class ProcessCall(Struct, frozen=True, forbid_unknown_fields=True):
    action: Literal["list", "poll", "log", "write", "kill"]
    process_id: Annotated[str, Meta(description="not for list")] = ""
    wait_ms: Annotated[int, Meta(ge=0, le=MAX_WAIT_MS, description="poll: wait for news")] = 0
    lines: Annotated[int, Meta(ge=0, description="log: the last ones only")] = 0
    text: Annotated[str, Meta(description="write: with \\n to enter a line")] = ""
    close: Annotated[bool, Meta(description="write: end of input after it")] = False


class CommandExtras(Struct, frozen=True):
    """What a command gets in addition to its call. Values of variables are secrets: no plan shows them."""

    env: Mapping[str, str] = {}
    folders: tuple[str, ...] = ()  # visible in the sandbox, read-only


class ExecContext(Struct, frozen=True):
    """The resources for the commands of one agent."""

    environment: Callable[[SessionKey], ExecEnvironment]
    sandbox: Sandbox
    host: Sandbox
    grants: GrantStore
    settings: ExecSettings
    elevated: ElevatedSettings
    clock: Clock
    processes: Callable[[], Processes]  # one for the whole home
    path: str  # where programs are searched outside the sandbox
    home: str = ""  # HOME of commands outside the sandbox; empty: the workspace
    make_workspace: Callable[[ExecEnvironment], object] = lambda _: None
    """Called in a thread before a command runs in the sandbox: creates a missing private workspace. May raise
    SandboxError."""
    heeds_outside: bool = True  # whether a turn that has read text from outside is restricted further
    extras: Callable[[ToolRun, bool], CommandExtras] = lambda run, sandboxed: CommandExtras()
    """Returns what the skills in use add to a command, inside or outside the sandbox. May raise a PalinurusError."""
    origins: FileOrigins = field(default_factory=FileOrigins)
