"""Finds hooks in folders, and says which are on and why others are not.

A hook is a folder with HOOK.md (front matter as in a SKILL.md, with `events`) and handler.py. It is on

    bundled              when the config enables it
    managed, extra       in <home>/hooks or a folder that the config names: unless the config disables it
    workspace            in <workspace>/hooks, or anywhere an agent can write: when a person has enabled exactly this
                         content. Which digest that was is in <home>/hooks/enabled.json, which no tool can reach

What runs is made of the very bytes whose digest was compared. A gate that a person has enabled and that is changed or
gone since then blocks until a person decides: otherwise a write to its folder would remove it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.agents import agent_ids, agent_settings
from palinurus.config.atomic import make_directory, write_atomic
from palinurus.config.home import Home
from palinurus.config.load import LoadedConfig
from palinurus.domain.errors import BadRequest
from palinurus.domain.hooks import BEFORE_TOOL, EVENTS
from palinurus.extensions.hooks.bundle import BUNDLED
from palinurus.extensions.hooks.settings import HookEntry, InternalHookSettings
from palinurus.runtime.checks.check import Check, ok, warning
from palinurus.skills.manifest import read_manifest, read_more
from palinurus.skills.requirements import judge
from palinurus.skills.settings import SkillEntrySettings, skills_settings
from palinurus.skills.skill import Requires, Skill, SkillManifest
from palinurus.skills.skills import look_around
from palinurus.storage.transaction import decoded
from palinurus.workspace.instructions import HOOKS
from palinurus.workspace.walk import walk_tree

HOOK_FILE, HANDLER = "HOOK.md", "handler.py"
SCRIPTS = ("handler.ts", "handler.js", "index.ts", "index.js")
MOST_HOOKS, MOST_ENTRIES = 100, 10_000  # of one root
MOST_FILES, MOST_BYTES = 100, 1_000_000  # of one hook
FAMILIES = frozenset(event.partition(":")[0] for event in EVENTS if ":" in event)
HookTier = Literal["bundled", "managed", "extra", "workspace", "extension"]


class HookInfo(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A hook as people see it."""

    name: str
    tier: HookTier
    events: tuple[str, ...] = ()
    description: str = ""
    state: Literal["on", "off", "disabled"] = "on"  # disabled: it failed too often
    reasons: tuple[str, ...] = ()  # why it is off
    key: str = ""  # in hooks.internal.entries
    emoji: str = ""
    folder: str = ""
    digest: str = ""
    priority: int = 0
    agents: tuple[str, ...] = ()  # whose sessions it sees; none: all
    is_changed: bool = False  # a person had enabled other content
    failures: int = 0  # in a row
    trouble: str = ""  # why the last one failed
    dropped: int = 0  # events that were too many for it


class FoundHook(Struct, frozen=True):
    info: HookInfo
    entry: HookEntry = HookEntry()
    handler: bytes = b""
    was_gate: bool = False  # a person had enabled it as a gate, and it is changed or gone since


class EnabledHook(Struct, frozen=True):
    """What a person has enabled."""

    name: str
    digest: str
    events: tuple[str, ...] = ()


class EnabledFile(Struct, frozen=True):
    hooks: dict[str, EnabledHook] = {}  # by the real path of the folder


class FolderContent(Struct, frozen=True):
    digest: str
    hook_file: bytes
    handler: bytes | None
    script: str = ""  # a handler in another language


class HookHeader(Struct, frozen=True):
    about: SkillManifest
    events: tuple[str, ...]
    key: str
    priority: int


def enabled_path(home: Home) -> Path:
    return home.root / "hooks" / "enabled.json"


def load_enabled(home: Home) -> dict[str, EnabledHook]:
    """Raises StorageDamaged."""
    try:
        data = enabled_path(home).read_bytes()
    except FileNotFoundError:
        return {}
    return decoded(data, EnabledFile, str(enabled_path(home))).hooks


def save_enabled(home: Home, enabled: dict[str, EnabledHook]) -> None:
    make_directory(enabled_path(home).parent)
    write_atomic(enabled_path(home), msgspec.json.format(msgspec.json.encode(EnabledFile(enabled))) + b"\n")


def read_content(folder: str) -> FolderContent:
    """Everything in a hook's folder counts for its digest. Raises BadRequest for what cannot be a hook."""
    taken, files = hashlib.sha256(), dict[str, bytes]()
    left = MOST_BYTES
    entries = walk_tree(folder, skip=_is_cache, on_error=_refuse, max_entries=MOST_FILES)
    for count, (path, entry) in enumerate(entries):
        if entry.is_symlink():
            raise BadRequest(f"it has a link: {path}")
        data = b"" if entry.is_dir(follow_symlinks=False) else _read_file(entry.path, left)
        left -= len(data)
        if left <= 0 or count == MOST_FILES:
            raise BadRequest(f"it is larger than {MOST_FILES} files or {MOST_BYTES:,} bytes")
        files[path] = data
        taken.update(f"{path}\0{len(data)}\0".encode("utf-8", "surrogateescape") + data)
    script = next((name for name in SCRIPTS if name in files), "")
    return FolderContent(taken.hexdigest(), files.get(HOOK_FILE, b""), files.get(HANDLER), script)


def _is_cache(_: str, entry: os.DirEntry[str]) -> bool:
    return entry.name == "__pycache__"


def _refuse(path: str, error: OSError) -> None:
    raise BadRequest(f"{path} cannot be read: {(error.strerror or str(error)).lower()}")


def _read_file(path: str, most: int) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(most + 1)
    except OSError as error:
        raise BadRequest(f"it cannot be read: {(error.strerror or str(error)).lower()}") from None


@lru_cache(maxsize=MOST_HOOKS)
def read_header(data: bytes, folder_name: str) -> HookHeader:
    """Raises BadRequest."""
    events, keys, priority = read_more(data, "events", "hookKey", "priority")
    about = read_manifest(data, folder_name)
    number = next(iter(priority), "0")
    return HookHeader(about, events, next(iter(keys), about.name), int(number) if number.lstrip("-").isdecimal() else 0)


def find_folders(home: Home, loaded: LoadedConfig, *, unread: bool = True) -> list[FoundHook]:
    """All hooks of a home, also those that are off. Of two with one name the first is used. Raises StorageDamaged.

    Without `unread`, what an agent can write and nobody has enabled is not looked at: it could be anything, in any
    number.
    """
    finder = _Finder(home, loaded, unread)
    taken: dict[str, FoundHook] = {}
    return [_unique(hook, taken) for hook in finder.all()]


def _unique(hook: FoundHook, taken: dict[str, FoundHook]) -> FoundHook:
    """A hook in a workspace that is off takes no name: it could turn another one off by calling itself so."""
    is_claim = hook.info.tier != "workspace" or hook.info.state == "on"
    first = taken.setdefault(hook.info.name, hook) if is_claim else taken.get(hook.info.name, hook)
    if first is hook or hook.was_gate:
        return hook
    why = f"another hook has its name: {first.info.folder or first.info.tier}"
    return replace(hook, info=replace(hook.info, state="off", reasons=(why,)))


class _Finder:
    def __init__(self, home: Home, loaded: LoadedConfig, unread: bool) -> None:
        self._home = home
        self._unread = unread
        self._loaded = loaded
        self._settings = loaded.config.section(InternalHookSettings)
        self._enabled = load_enabled(home)
        self._workspaces: dict[str, list[str]] = {}
        for agent in agent_ids(loaded.config):
            workspace = agent_settings(loaded.config, home, agent).workspace
            self._workspaces.setdefault(os.path.realpath(workspace), []).append(agent)

    def all(self) -> Iterator[FoundHook]:
        for name, hook in BUNDLED.items():
            entry = self._settings.entries.get(name, HookEntry())
            info = HookInfo(name, "bundled", hook.events, hook.description, key=name, emoji=hook.emoji)
            default = (f"`pal hooks enable {name}` turns it on",) if entry.enabled is None else ()
            yield self._judged(info, entry, default)
        found: dict[str, HookTier] = {}
        for root, tier in self._roots():
            for folder in _subfolders(root):
                found.setdefault(folder, tier)
        for folder, tier in found.items():
            if self._unread or folder in self._enabled or not self._holder(folder):
                yield self._read(folder, tier)
        for folder, known in self._enabled.items():
            if folder in found:
                continue
            if not self._unread and os.path.lexists(f"{folder}/{HOOK_FILE}"):
                yield self._read(folder, "workspace")
            else:
                info = HookInfo(known.name, "workspace", known.events, folder=folder, key=known.name)
                yield self._judged(info, HookEntry(), ("its folder is gone",))

    def _roots(self) -> Iterator[tuple[Path, HookTier]]:
        base = self._home.root if self._home.ours else self._home.config_path.parent
        yield self._home.root / "hooks", "managed"
        for each in self._settings.extra_dirs:
            yield self._home.expand(each, base), "extra"
        for workspace in self._workspaces if self._unread else ():
            yield Path(workspace, HOOKS), "workspace"

    def _holder(self, folder: str) -> str:
        """The workspace that a folder is in; empty if no agent can write there."""
        return next((each for each in self._workspaces if f"{folder}/".startswith(f"{each}/")), "")

    def _read(self, folder: str, tier: HookTier) -> FoundHook:
        name = os.path.basename(folder)  # noqa: PTH119  as the other paths here
        workspace = self._holder(folder)
        agents = self._workspaces.get(workspace, ()) if tier == "workspace" else ()
        info = HookInfo(name, "workspace" if workspace else tier, folder=folder, agents=tuple(agents), key=name)
        if tier == "workspace" and not workspace:
            return FoundHook(replace(info, state="off", reasons=("no agent has this workspace any more",)))
        try:
            content = read_content(folder)
            header = read_header(content.hook_file, name)
        except BadRequest as error:
            return self._judged(info, HookEntry(), (error.message,))
        about = header.about
        info = replace(
            info, name=about.name, key=header.key, description=about.description, emoji=about.emoji,
            events=header.events, digest=content.digest, priority=header.priority,
        )  # fmt: skip
        entry = self._settings.entries.get(header.key, self._settings.entries.get(about.name, HookEntry()))
        reasons = (*_why_unusable(info, content), *self._why_unmet(info, about, entry))
        return self._judged(info, entry, reasons, content.handler or b"")

    def _judged(self, info: HookInfo, entry: HookEntry, reasons: tuple[str, ...], handler: bytes = b"") -> FoundHook:
        """With every reason why it is off; what the config says comes first."""
        why = ["hooks.internal.enabled is false"] if not self._settings.enabled else []
        why += [f"switched off (hooks.internal.entries.{info.key}.enabled)"] if entry.enabled is False else []
        is_off, was_gate = bool(why), False
        if info.tier == "workspace":
            known = self._enabled.get(info.folder)
            if known is None:
                why.append(f"not enabled: `pal hooks show {info.name}`, then `pal hooks enable {info.name}`")
            elif known.digest != info.digest:
                why.append(f"changed since it was enabled: `pal hooks enable` or `pal hooks disable {info.name}`")
                info = replace(info, is_changed=True)
                was_gate = BEFORE_TOOL in known.events and not is_off
        off = (*why, *reasons)
        return FoundHook(replace(info, state="off" if off else "on", reasons=off), entry, handler, was_gate)

    def _why_unmet(self, info: HookInfo, about: SkillManifest, entry: HookEntry) -> tuple[str, ...]:
        """What it requires and this machine lacks: by the rules for skills."""
        if about.requires == Requires() and not about.os:
            return ()
        settings = skills_settings(self._loaded, self._home, agent_ids(self._loaded.config)[0])
        given = {info.key: SkillEntrySettings(env=tuple(entry.env))}
        settings = replace(settings, allow=None, allow_bundled=None, entries=given)
        skill = Skill(replace(about, key=info.key), info.folder, "extra", info.digest)
        return judge(skill, settings, look_around(self._home, self._loaded.env)).reasons


def _subfolders(root: Path) -> list[str]:
    """The real paths of hooks in a root. A link is not followed: it could lead into a workspace, and out of it."""
    try:
        with os.scandir(os.path.realpath(root)) as found:
            names = sorted(each.path for each in islice(found, MOST_ENTRIES) if each.is_dir(follow_symlinks=False))
    except OSError:
        return []
    return [path for path in names if os.path.lexists(f"{path}/{HOOK_FILE}")][:MOST_HOOKS]


def _why_unusable(info: HookInfo, content: FolderContent) -> Iterator[str]:
    if content.handler is None:
        yield f"not supported: JavaScript ({content.script})" if content.script else f"it has no {HANDLER}"
    unknown = [event for event in info.events if event not in EVENTS and event not in FAMILIES]
    if not info.events or len(unknown) == len(info.events):
        yield f"no such event: {', '.join(unknown)}" if unknown else "it names no events"


def check_hooks(home: Home, loaded: LoadedConfig | None) -> list[Check]:
    """For `pal doctor`."""
    if loaded is None:
        return []
    found = find_folders(home, loaded)
    odd = [
        warning("hooks", f"{info.name}: {'; '.join(info.reasons)}", info.folder, f"`pal hooks disable {info.name}`")
        for info, entry in ((hook.info, hook.entry) for hook in found)
        if info.is_changed or (info.reasons and info.tier in ("managed", "extra") and entry.enabled is not False)
    ]
    on = [hook.info.name for hook in found if hook.info.state == "on"]
    return odd or ([ok("hooks", f"{len(on)} on: {', '.join(on)}")] if on else [])
