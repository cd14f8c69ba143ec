"""The names of tools: groups, aliases and profiles as one table of data, and how a list in a config names a tool.

Sources: "facts" is chapter 25 of our notes on OpenClaw (chapters 0 and 27 for subagents and sandboxes); "documents" are
the older papers, whose tool names are read as aliases. Groups also name tools that we do not have yet, so that an old
config keeps its meaning when they are added.

Names are compared without regard to case. A list may contain a name, an alias, a pattern with `*`, or `group:<name>`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

# facts 25; delete, ls, grep and find are ours; memory_write, the ui_ names and webhook_create are of the documents
GROUPS: Mapping[str, tuple[str, ...]] = {
    "fs": ("read", "write", "edit", "delete", "apply_patch", "ls", "grep", "find"),
    "runtime": ("exec", "process", "code_execution"),
    "web": ("web_search", "web_fetch", "x_search"),
    "memory": ("memory_search", "memory_get", "memory_recall", "memory_write", "memory_retain"),
    "sessions": (
        "session_status", "sessions_list", "sessions_history", "sessions_search", "sessions_send", "sessions_spawn",
        "sessions_yield", "subagents",
    ),
    "ui": ("browser", "canvas", "ui_notify", "ui_prompt", "ui_confirm"),
    "automation": ("cron", "gateway", "heartbeat_respond", "webhook_create"),
    "messaging": ("message",),
    "nodes": ("nodes", "computer"),
    "agents": ("agents_list",),
    "media": ("image", "view_image", "image_generate", "music_generate", "video_generate", "tts", "pdf"),
    "plugins": ("*__*",),  # tools of MCP servers are called <server>__<tool>
}  # fmt: skip
BUILT_IN = frozenset({
    "read", "write", "edit", "delete", "apply_patch", "ls", "grep", "find", "exec", "process", "web_search",
    "web_fetch", "memory_search", "memory_get", "memory_recall", "memory_write", "memory_retain", "session_status",
    "message",
    "sessions_spawn", "sessions_yield", "subagents", "sessions_list", "sessions_history", "sessions_search",
    "sessions_send", "agents_list", "cron",
})  # fmt: skip
"""The tools of this version. A config may leave some of them out."""
SIDE_BY_SIDE: Mapping[str, str] = {
    **dict.fromkeys(("read", "ls", "grep", "find", "session_status"), "home"),
    **dict.fromkeys(("memory_search", "memory_get", "memory_recall"), "home"),
    **dict.fromkeys(("sessions_list", "sessions_history", "sessions_search", "agents_list"), "home"),
    **dict.fromkeys(("web_fetch", "web_search"), "web"),
}
"""Tools that only read: calls of one reply run at the same time. Those that leave the machine are not mixed with the
others, so that none leaves after a result that came in from outside."""
EVERYTHING_BUT = ("fs", "runtime", "plugins")
"""group:openclaw is every built-in tool except these (facts 25)."""

# documents; bash, apply-patch and automations: facts 25
ALIASES: Mapping[str, str] = {
    "file_read": "read", "file_write": "write", "file_edit": "edit", "file_delete": "delete",
    "apply-patch": "apply_patch", "shell": "exec", "bash": "exec", "code_run": "exec", "web_browse": "web_fetch",
    "note": "memory_write", "channel_send": "message", "dm_send": "message", "cron_create": "cron",
    "automations": "cron", "node_list": "nodes", "node_command": "nodes",
}  # fmt: skip

# facts 25. The owner names MCP servers in the config, so coding has their tools; messaging and minimal do not.
PROFILES: Mapping[str, tuple[str, ...]] = {
    "minimal": ("session_status",),
    "coding": (
        "group:fs", "group:runtime", "group:web", "group:sessions", "group:memory", "group:automation", "group:media",
        "group:plugins",
    ),
    "messaging": ("message", "sessions_list", "sessions_history", "sessions_send", "session_status"),
    "full": ("*",),
}  # fmt: skip
OWNER_ONLY = ("cron", "gateway", "nodes", "whatsapp_login")  # facts 25
NOT_SANDBOXED = ("browser", "canvas", "nodes", "cron", "gateway")  # facts 27
NOT_FOR_SUBAGENTS = (  # facts 0, the newest era, and whatsapp_login of the oldest
    "gateway", "agents_list", "session_status", "progress_card", "cron", "message", "sessions_send", "conversations_*",
    "whatsapp_login",
)  # fmt: skip

_GROUP = "group:"
_GOES_WITH = {"apply_patch": "write", "delete": "write"}  # facts 25: an entry "write" also covers patches
_DENIED_WITH = {"apply_patch": "delete"}  # a patch can also delete
_OTHER_NAMES = {name: tuple(alias for alias, meant in ALIASES.items() if meant == name) for name in ALIASES.values()}


def canonical(name: str) -> str:
    """Returns a tool's name in our spelling, aliases resolved."""
    plain = name.strip().casefold()
    return ALIASES.get(plain, plain)


PLUGIN_TOOLS: dict[str, tuple[str, ...]] = {}  # of the plugins that are used, by id: each is a group of its own


def set_plugin_tools(tools: Mapping[str, tuple[str, ...]]) -> None:
    PLUGIN_TOOLS.clear()
    PLUGIN_TOOLS.update(tools)
    for cached in (group_of, allowed_by, denied_by):
        cached.cache_clear()


def members(group: str) -> tuple[str, ...] | None:
    """Returns the names and patterns in a group; None if there is no such group."""
    if group == "plugins":
        return (*GROUPS[group], *(name for names in PLUGIN_TOOLS.values() for name in names))
    if group == "openclaw":
        return tuple(name for each, names in GROUPS.items() if each not in EVERYTHING_BUT for name in names)
    return GROUPS.get(group) or PLUGIN_TOOLS.get(group)


@lru_cache(maxsize=1024)
def group_of(tool: str) -> str:
    """Returns the group of a tool; empty if it has none."""
    return next((group for group in GROUPS if allowed_by(members(group) or (), tool)), "")


@lru_cache(maxsize=16_384)  # lists come from the config and do not change; the gate calls this for every tool call
def allowed_by(names: tuple[str, ...], tool: str) -> str:
    """Returns the entry of an allow list that names the tool, as written there; empty if none does."""
    return _entry(names, _called(tool))


@lru_cache(maxsize=16_384)
def denied_by(names: tuple[str, ...], tool: str) -> str:
    """The same for a deny list, where a pattern also matches the tool's aliases.

    So `file_*` denies `write`, while allowing `b*` does not allow `exec` because of its alias `bash`.
    """
    called = _called(tool)
    called += (_DENIED_WITH[called[0]],) if called[0] in _DENIED_WITH else ()
    return _entry(names, (*called, *(other for name in called for other in _OTHER_NAMES.get(name, ()))))


def is_known(entry: str) -> bool:
    """Returns whether an entry of a list is valid, whichever tools are installed."""
    name = canonical(entry)
    if name.startswith(_GROUP):
        return members(name.removeprefix(_GROUP)) is not None
    if "__" in name:  # of an MCP server, whose tools are known only while it runs
        return True
    known = {*ALIASES, *OWNER_ONLY, *NOT_FOR_SUBAGENTS, *(each for group in GROUPS.values() for each in group)}
    return any(_fits(name, each) for each in known if "*" not in each or each == name)


def _called(tool: str) -> tuple[str, ...]:
    name = canonical(tool)
    return (name, _GOES_WITH[name]) if name in _GOES_WITH else (name,)


def _entry(names: Iterable[str], called: tuple[str, ...]) -> str:
    for entry in names:
        if any(_fits(pattern, name) for pattern in _expanded(entry) for name in called):
            return entry
    return ""


def _expanded(entry: str) -> tuple[str, ...]:
    name = canonical(entry)
    return (members(name.removeprefix(_GROUP)) or ()) if name.startswith(_GROUP) else (name,)


def _fits(pattern: str, name: str) -> bool:
    """`*` matches anything. Takes time in proportion to the name, however many stars there are."""
    if "*" not in pattern:
        return pattern == name
    first, *middle, last = pattern.split("*")
    at, end = len(first), len(name) - len(last)
    if at > end or not name.startswith(first) or not name.endswith(last):
        return False
    for part in middle:
        if (found := name.find(part, at, end)) < 0:
            return False
        at = found + len(part)
    return True
