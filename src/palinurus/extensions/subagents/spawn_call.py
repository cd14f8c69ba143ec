"""The arguments of the tool sessions_spawn."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from palinurus.domain.tool import UNLISTED


class SpawnAttachment(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A file that the subagent finds in the workspace."""

    name: str
    content: str
    encoding: Literal["utf8", "base64"] = "utf8"
    mime_type: str = ""


class SpawnCall(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The arguments of sessions_spawn. Those that are not listed are taken too, as OpenClaw has them."""

    task: str = ""
    tasks: tuple[str, ...] = ()
    label: str = ""
    agent_id: str = ""
    model: str = ""
    thinking: Annotated[str, UNLISTED] = ""
    run_timeout_seconds: Annotated[float, Meta(ge=0)] = 0
    deadline_seconds: Annotated[float, Meta(ge=0, description="report by then")] = 0
    context: Annotated[Literal["", "isolated", "fork"], Meta(description="fork: with this conversation")] = ""
    cleanup: Annotated[Literal["keep", "delete"], UNLISTED] = "keep"
    sandbox: Annotated[Literal["inherit", "require"], UNLISTED] = "inherit"
    cwd: Annotated[str, UNLISTED] = ""
    light_context: Annotated[bool, UNLISTED] = False
    attachments: Annotated[tuple[SpawnAttachment, ...], UNLISTED] = ()
    timeout_seconds: Annotated[float, UNLISTED] = 0  # the older name of runTimeoutSeconds
    thread: Annotated[bool, UNLISTED] = False
    mode: Annotated[str, UNLISTED] = "run"
    runtime: Annotated[str, UNLISTED] = "subagent"
