"""Which settings of a foreign config are left out although our schema has them, and how paths in settings change.

What allows actions without asking, or opens a port, was decided for another home. It is reported, and a person decides
again here; allowed commands ask again in the same way.

More counts as a secret here than where a config is shown: a setting that was left out can be set by hand, but a secret
that was copied to a second file cannot be taken back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from palinurus.config.home import expand_user
from palinurus.config.secrets import PLACEHOLDERS, Redactor, is_secret_name, secret_values, worth_redacting
from palinurus.config.source import JsonPath
from palinurus.extensions.migrate.files import moved_path
from palinurus.extensions.migrate.foreign import as_object, as_text
from palinurus.extensions.migrate.openclaw.settings import DEFAULTS, LISTED, Setting

NEEDS_DECISION = "it allows actions without asking; decide it here: `pal config set`"
GATEWAY = "it is the address of OpenClaw's own gateway, and both may run side by side"
NEVER = "0m"
_UNUSED = "nothing here uses it yet"

_SECTIONS = {
    **dict.fromkeys(("meta", "wizard", "update", "$schema"), "internal state of OpenClaw"),
    "plugins": "plugins are chosen and installed here anew: `pal plugins install`",
    "browser": "a browser is a plugin here, with settings of its own",
    "auth": "it orders stored keys; `--keys` imports both",
    "approvals": "allowed commands need approval again here",
    "secrets": "only files of secrets can be read here",
}

_WIRES = ("azure-openai-responses", "openai-codex-responses", "bedrock-converse-stream")
_ALWAYS = {  # why settings stay behind, and how their paths go on
    NEEDS_DECISION: "exec.safeBins exec.allowlist elevated.allowFrom fetch.allowPrivate gateway.tools.allow",
    GATEWAY: "gateway.port gateway.bind gateway.customBindHost gateway.allowedHosts gateway.controlUi"
    " gateway.auth.mode",
    "sandboxes are created again here": "sandbox.workspaceRoot",
    "keys of an agent are stored in this home; `--keys` imports them": "agentDir",
    _UNUSED: "env.shellEnv",
    "the main session is always called main here": "session.mainKey",
}

_WHEN: tuple[tuple[tuple[str, ...], tuple[Any, ...]], ...] = (  # and the values that may come over
    (("exec", "askFallback"), ("deny",)),
    (("sandbox", "mode"), ("all", "non-main")),
    (("sandbox", "network"), (False,)),
    (("docker", "network"), ("none",)),
    (("tools", "untrusted"), ("ask", "deny")),
)


def reason_unused(path: JsonPath) -> str:
    """Why a key is left out that our schema does not use."""
    return _SECTIONS.get(str(path[0]), _UNUSED) if len(path) == 1 else _UNUSED


def stays_behind(setting: Setting, given: Mapping[JsonPath, Any]) -> str:
    """Why it is left out; empty when it is not. `given` has all settings of the other config."""
    path, value = setting.into, setting.value
    for reason, keys in _ALWAYS.items():
        if any(_goes_through(path, tuple(key.split("."))) for key in keys.split()):
            return reason
    if path[-2:] in (("exec", "security"), ("exec", "ask")):
        return NEEDS_DECISION if _runs_unasked(path, value, given) else ""
    if any(path[-2:] == key and isinstance(value, str | bool) and value not in kept for key, kept in _WHEN):
        return NEEDS_DECISION
    if path[0] == "secrets":
        source = given.get((*path[:3], "source"), "file")
        return "" if path[1:2] == ("providers",) and len(path) > 3 and source == "file" else _SECTIONS["secrets"]
    return ""


def unusable(setting: Setting) -> str:
    """Why a provider or a model cannot be called from here; empty when it can, or when it is something else."""
    is_wire = setting.into[:2] == ("models", "providers") and setting.into[-1] == "api"
    return f"{setting.value} cannot be spoken here, so it is not usable" if is_wire and setting.value in _WIRES else ""


def _runs_unasked(path: JsonPath, value: Any, given: Mapping[JsonPath, Any]) -> bool:
    """`full` runs everything, unless it always asks; with another mode, `off` refuses."""
    security, ask = (given.get((*path[:-1], name)) for name in ("security", "ask"))
    if path[-1] == "security":
        return bool(value == "full" and ask != "always")
    return value == "off" and security in (None, "full")


def _goes_through(path: JsonPath, key: tuple[str, ...]) -> bool:
    if key[0] in ("gateway", "env", "session"):  # sections; the others stand in several places
        return path[: len(key)] == key
    return any(path[at : at + len(key)] == key for at in range(len(path)))


def is_workspace(path: JsonPath) -> bool:
    """Whether it is the folder of an agent, or of all agents."""
    if path[-1:] != ("workspace",) or path[:1] != ("agents",):
        return False
    return path == (*DEFAULTS, "workspace") or (len(path) == 4 and path[1] in (LISTED[1], "entries"))


def heartbeats_in(data: Mapping[str, Any]) -> dict[str, str]:
    """How often agents have one, by their ids; "" is for all that do not say it themselves, "0m" is never."""
    agents = as_object(data.get("agents"))
    listed = agents.get("list")
    named = [(as_object(each).get("id"), each) for each in (listed if isinstance(listed, list) else ())]
    found = {}
    for name, holder in (("", agents.get("defaults")), *named, *as_object(agents.get("entries")).items()):
        heartbeat = as_object(as_object(holder).get("heartbeat"))
        every = as_text(heartbeat.get("every"))
        if isinstance(name, str) and (every or "enabled" in heartbeat):
            is_on = re.match(r"0*[1-9.]", every) and heartbeat.get("enabled") is not False
            found[name] = every if is_on else NEVER
    return found


class PathMoves:
    """Changes paths into copied folders of the other home to paths into the copies; other paths stay."""

    def __init__(self, root: Path, user_home: Path, places: Mapping[Path, Path]) -> None:
        self._root = root
        self._user_home = user_home
        self._places = sorted(places.items(), key=lambda pair: -len(pair[0].parts))

    def apply(self, setting: Setting) -> None:
        relative = setting.into[-1] in ("extraDirs", "allowSymlinkTargets")
        setting.value = self._value(setting.value, relative)

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
        inside = path if path.is_relative_to(self._root) else moved_path(path, self._root) or path
        for old, new in self._places:
            if inside.is_relative_to(old):
                return str(new / inside.relative_to(old))
        return text if text.startswith(("/", "~/")) else str(inside)


_NAMED = re.compile(r"(?<!\$)\$\{[A-Z_][A-Z0-9_]*\}")
_SCHEME = re.compile(r"\s*(?:bearer|basic|token)?\s*", re.IGNORECASE)
_VARIABLE = re.compile(r"(?:^|_)(?:KEY|PAT|PWD|PASS|AUTH|CREDENTIALS?|COOKIE|DSN|SIGNATURE)(?:_|$)", re.IGNORECASE)

_IN_ADDRESS = re.compile(
    r"://[^/?#\s:]*:[^/?#\s]*@|[?&][^=&#\s]{0,100}(?:token|key|secret|passw|auth|sig)[^=&#\s]{0,100}=[^&#\s]",
    re.IGNORECASE,
)

_FLAG = re.compile(r"-{1,2}([A-Za-z][\w-]*)(=.+)?", re.DOTALL)
_CONTAINERS = ("headers", "env")  # any value in them may be a key


def secrets_in(data: Any, settings: Iterable[Setting]) -> Redactor:
    """A redactor with the value of every secret of the config, to find copies of it anywhere."""
    known = set(secret_values(data))
    for setting in settings:
        if holds_secret(setting, Redactor()):
            known.update(value for text in _texts(setting.value) for value in worth_redacting(text))
    return Redactor(known)


def holds_secret(setting: Setting, redactor: Redactor) -> bool:
    path, value = setting.into, setting.value
    if any(redactor.redact(step) != step for step in path if isinstance(step, str)):
        return True
    texts = [text for text in _texts(value) if not _is_reference(text)]
    if any(redactor.redact(text) != text or _IN_ADDRESS.search(text) for text in texts) or _has_flag(value):
        return True
    name = next((step for step in reversed(path) if isinstance(step, str)), "")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return is_secret_name(name) and "tokens" not in name.lower() and path[:2] == ("skills", "entries")
    return bool(texts) and _names_one(path, name)


def _names_one(path: JsonPath, name: str) -> bool:
    if is_secret_name(name):
        return True
    if path[:1] == ("env",) or "sandbox" in path:
        return _VARIABLE.search(name) is not None
    if any(step in _CONTAINERS for step in path[:-1]):
        return path[-2] in _CONTAINERS or name not in ("source", "provider", "id")  # those of a reference
    return path[:2] == ("skills", "entries") and any(is_secret_name(str(step)) for step in path[4:])


def _is_reference(text: str) -> bool:
    """Whether it only has names of variables, or a placeholder that local servers expect."""
    bare = _NAMED.sub("", text)
    return not bare.strip() or (bare != text and _SCHEME.fullmatch(bare) is not None) or text.strip() in PLACEHOLDERS


def _has_flag(value: Any) -> bool:
    """Whether arguments of a command hold a secret: `--token=x`, or `--token` and then `x`."""
    is_secret = False  # what follows
    for item in value if isinstance(value, list) else ():
        text = item if isinstance(item, str) else ""
        flag = _FLAG.fullmatch(text)
        given = (flag[2] or "")[1:] if flag else text
        is_secret = is_secret_name(flag[1]) if flag else is_secret
        if is_secret and given and not _is_reference(given):
            return True
        is_secret = is_secret and flag is not None and not given
    return False


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        inner = (*value, *value.values()) if isinstance(value, dict) else value
        for item in inner:
            yield from _texts(item)
