"""Which tools a program reaches by POST /tools/invoke. Pure.

Nobody watches such a call, and a leaked token makes it too, so the route has a list of its own beside the policy of the
agent: what runs programs, writes files, speaks to people, starts agents or changes the home is not there, and neither
is a tool that no group of ours knows. `gateway.tools.allow` takes names off the list, `gateway.tools.deny` adds some
and wins.
"""

from __future__ import annotations

from palinurus.tools.policy.names import allowed_by, denied_by, group_of

# facts 30, and what has come to stand beside those since. Tools of MCP servers (group:plugins) may do anything.
NOT_REACHED = (
    "group:runtime", "shell", "spawn", "terminal", "write", "edit", "delete", "apply_patch", "fs_*",
    "sessions_spawn", "sessions_send", "sessions_yield", "subagents", "group:messaging", "group:automation",
    "group:nodes", "group:plugins", "browser", "canvas", "secrets", "plugins", "openclaw", "whatsapp_login",
)  # fmt: skip


def is_reached(tool: str, allow: tuple[str, ...] = (), deny: tuple[str, ...] = ()) -> bool:
    """Whether this route knows a tool of that name at all."""
    if denied_by(deny, tool):
        return False
    if allowed_by(allow, tool):
        return True
    return bool(group_of(tool)) and not denied_by(NOT_REACHED, tool)
