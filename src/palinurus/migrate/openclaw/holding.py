"""What of a foreign config stays behind although our schema knows it, and how paths change on the way.

What lets something happen unasked, or opens a door, was decided for another house. It is told, and a person decides it
anew here: in the same way allowed commands are kept and ask again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from palinurus.config.home import expand_user
from palinurus.config.source import JsonPath
from palinurus.migrate.openclaw.places import is_state_folder
from palinurus.migrate.openclaw.settings import DEFAULTS, LISTED, Setting

UNASKED = "it lets things happen unasked, which is decided anew here; `pal config set` sets it"
DOOR = "it says where OpenClaw's own gateway listens and who may come in, and both may run side by side"
_CHANNELS = "there are no channels here yet"
_BOOKS = "OpenClaw's own bookkeeping"
_UNUSED = "nothing here uses it yet"
_SECTIONS = {
    "channels": _CHANNELS,
    "bindings": _CHANNELS,
    "broadcast": _CHANNELS,
    "accessGroups": _CHANNELS,
    "cron": "cron jobs are kept word for word, and do not run here yet",
    "hooks": "there are no hooks here yet",
    "plugins": "there are no plugins here yet",
    "browser": "there is no browser here yet",
    "auth": "it orders stored keys; `--keys` brings both",
    "approvals": "what was allowed asks again here",
    "secrets": "only files of secrets can be read here",
    "meta": _BOOKS,
    "wizard": _BOOKS,
    "update": _BOOKS,
    "$schema": _BOOKS,
}
_ALWAYS: tuple[tuple[tuple[str, ...], str], ...] = (  # how a path goes on, and why it stays behind
    (("exec", "safeBins"), UNASKED),
    (("exec", "allowlist"), UNASKED),
    (("elevated", "allowFrom"), UNASKED),
    (("fetch", "allowPrivate"), UNASKED),
    (("gateway", "port"), DOOR),
    (("gateway", "bind"), DOOR),
    (("gateway", "customBindHost"), DOOR),
    (("gateway", "allowedHosts"), DOOR),
    (("gateway", "controlUi"), DOOR),
    (("gateway", "auth", "mode"), DOOR),
    (("gateway", "tools", "allow"), UNASKED),
    (("sandbox", "workspaceRoot"), "sandboxes are made anew here"),
    (("env", "shellEnv"), _UNUSED),
    (("session", "mainKey"), "the main session is always called main here"),
)
_WHEN: tuple[tuple[tuple[str, ...], tuple[Any, ...]], ...] = (  # and the values that may come over
    (("exec", "askFallback"), ("deny",)),
    (("sandbox", "mode"), ("all", "non-main")),
    (("sandbox", "network"), (False,)),
    (("docker", "network"), ("none",)),
    (("tools", "untrusted"), ("ask", "deny")),
)


def why_unused(path: JsonPath) -> str:
    """Why a key stays behind that our schema does not use."""
    return _SECTIONS.get(str(path[0]), _UNUSED) if len(path) == 1 else _UNUSED


def held_back(setting: Setting, given: Mapping[JsonPath, Any]) -> str:
    """Why it stays behind; empty when it may come. `given` is all that the other config says."""
    path, value = setting.into, setting.value
    for key, reason in _ALWAYS:
        if _goes_through(path, key):
            return reason
    if path[-2:] in (("exec", "security"), ("exec", "ask")):
        return UNASKED if _unasked(path, value, given) else ""
    if any(path[-2:] == key and isinstance(value, str | bool) and value not in kept for key, kept in _WHEN):
        return UNASKED
    if path[0] == "secrets":
        source = given.get((*path[:3], "source"), "file")
        return "" if path[1:2] == ("providers",) and len(path) > 3 and source == "file" else _SECTIONS["secrets"]
    return ""


def _unasked(path: JsonPath, value: Any, given: Mapping[JsonPath, Any]) -> bool:
    """`full` runs everything, unless it always asks; without it, to ask nobody means to refuse."""
    security, ask = (given.get((*path[:-1], name)) for name in ("security", "ask"))
    if path[-1] == "security":
        return bool(value == "full" and ask != "always")
    return value == "off" and security in (None, "full")


def _goes_through(path: JsonPath, key: tuple[str, ...]) -> bool:
    if key[0] in ("gateway", "env", "session"):  # sections; the others stand in several places
        return path[: len(key)] == key
    return any(path[at : at + len(key)] == key for at in range(len(path)))


def is_workspace(path: JsonPath) -> bool:
    """Whether it names an agent's folder, or that of all agents."""
    if path[-1:] != ("workspace",) or path[:1] != ("agents",):
        return False
    return path == (*DEFAULTS, "workspace") or (len(path) == 4 and path[1] in (LISTED[1], "entries"))


class Moved:
    """Paths into folders of the other home that are copied point to the copies; others stay as they are."""

    def __init__(self, root: Path, user_home: Path, places: Mapping[Path, Path]) -> None:
        self._root = root
        self._user_home = user_home
        self._places = sorted(places.items(), key=lambda pair: -len(pair[0].parts))

    def setting(self, setting: Setting) -> Setting:
        relative = setting.into[-1] in ("extraDirs", "allowSymlinkTargets")
        moved = self._value(setting.value, relative)
        return setting if moved == setting.value else replace(setting, value=moved)

    def _value(self, value: Any, relative: bool) -> Any:
        if isinstance(value, list):
            return [self._value(item, relative) for item in value]
        return self._path(value, relative) if isinstance(value, str) else value

    def _path(self, text: str, relative: bool) -> str:
        if not text or "\0" in text or "${" in text or not (relative or text.startswith(("/", "~/"))):
            return text
        path = self._root / expand_user(text, self._user_home)
        if ".." in path.parts:
            return text
        inside = self._inside(path)
        for old, new in self._places:
            if inside.is_relative_to(old):
                return str(new / inside.relative_to(old))
        return text if text.startswith(("/", "~/")) else str(inside)

    def _inside(self, path: Path) -> Path:
        """Where it is now, when the home was carried here from another machine."""
        if path.is_relative_to(self._root):
            return path
        for index, part in enumerate(path.parts):
            if is_state_folder(part):
                return self._root.joinpath(*path.parts[index + 1 :])
        return path
