"""Helpers that an agent starts, and what sessions may know of each other.

`spawn` starts subagents and says which rule forbids one, `announce` reports their results to the parent, `tools` and
`session_tools` are what the model is offered, `operations` what people ask for.
"""

from __future__ import annotations

from palinurus.runtime.extensions import App


def register(app: App) -> None:
    app.make_tools(f"{__name__}.tools:subagent_tools")
    app.make_tools(f"{__name__}.session_tools:session_tools")
    for kind in ("announce", "deadline", "archive"):
        name = kind if kind == "announce" else f"subagents.{kind}"
        app.job(f"{__name__}.announce:{kind.upper()}_KIND", name)
    for name in ("list", "watch", "stop"):
        app.operation(f"{__name__}.operations:{name}_subagent{'' if name == 'stop' else 's'}", f"subagents.{name}")
    app.operation(f"{__name__}.operations:send_to_subagent", "subagents.steer")
    app.command("subagents", f"{__name__}.commands:subagents")
    app.slash_command("subagents", f"{__name__}.operations:answer_slash")
