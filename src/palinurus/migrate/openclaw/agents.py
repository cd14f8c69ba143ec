"""The agents of a home: those of its config, in either shape, and those that have only left a folder.

A home may have been carried here from another machine. So a workspace that the config places below the old state
folder (`/home/sam/.openclaw/workspace`) is looked for in the folder that we were given first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import Struct

from palinurus.config.home import expand_user
from palinurus.config.include import assemble, read_text
from palinurus.config.schema import normal_agent_id
from palinurus.domain.errors import ConfigError
from palinurus.domain.keys import DEFAULT_AGENT
from palinurus.migrate.foreign import ForeignAgent
from palinurus.migrate.openclaw.files import folders
from palinurus.migrate.openclaw.places import config_of, is_state_folder
from palinurus.migrate.report import Losses

CALLED_DEFAULT = "default"
_SIGNS = ("AGENTS.md", "SOUL.md", "IDENTITY.md")  # of a folder that some agent lives in


class ForeignConfig(Struct, frozen=True):
    """The config as data; empty when there is none that can be read."""

    file: str
    data: dict[str, Any]

    @property
    def version(self) -> str:
        return _text(_object(self.data.get("meta")).get("lastTouchedVersion"))


def read_config(root: Path, losses: Losses) -> ForeignConfig:
    path = config_of(root)
    if path is None:
        return ForeignConfig("", {})
    try:
        text = read_text(path)
        value = assemble(path, text, ()).value if text is not None else {}
    except (ConfigError, RecursionError) as error:
        losses.add(path.name, 0, f"the config cannot be read: {error}")
        value = {}
    if not isinstance(value, dict):
        losses.add(path.name, 0, "the config is no object")
        value = {}
    return ForeignConfig(path.name, value)


def read_agents(root: Path, config: ForeignConfig, user_home: Path, losses: Losses) -> list[ForeignAgent]:
    """In the order of the config, then those on disk. A home without any agent has `main`."""
    section = _object(config.data.get("agents"))
    settings = _configured(section, config.file, losses)
    on_disk = _on_disk(root, losses)
    ids = list(dict.fromkeys([*settings, *sorted(on_disk)])) or [DEFAULT_AGENT]
    default = _default(ids, settings)
    base = _text(_object(section.get("defaults")).get("workspace")) or _text(
        _object(config.data.get("agent")).get("workspace")
    )
    places = _Places(root, user_home, base, config.file, losses, sole=len(ids) == 1)
    agents = []
    for agent_id in ids:
        own = settings.get(agent_id, {})
        identity = _object(own.get("identity"))
        agents.append(
            ForeignAgent(
                id=agent_id,
                folder=on_disk.get(agent_id),
                workspace=places.of(agent_id, _text(own.get("workspace")), is_default=agent_id == default),
                name=_text(own.get("name")) or _text(identity.get("name")),
                emoji=_text(identity.get("emoji")),
                configured=agent_id in settings,
                is_default=agent_id == default,
                marked=agent_id == default and (own.get("default") is True or agent_id == CALLED_DEFAULT),
            )
        )
    return agents


class _Places:
    """Finds workspaces as OpenClaw does, in the folder where the home is now."""

    def __init__(self, root: Path, user_home: Path, base: str, file: str, losses: Losses, *, sole: bool) -> None:
        self._root = root
        self._user_home = user_home
        self._base = base
        self._file = file
        self._losses = losses
        self._sole = sole

    def of(self, agent_id: str, written: str, *, is_default: bool) -> Path | None:
        """A folder that is there, or None."""
        candidates = []
        if written:
            candidates += self._where(written)
        elif self._base and (is_default or self._sole):
            candidates += self._where(self._base)
        elif self._base:
            candidates += [path / agent_id for path in self._where(self._base)]
        candidates.append(self._root / f"workspace-{agent_id}")
        if is_default:
            candidates.append(self._root / "workspace")
        return next(
            (path for path in candidates if path.is_dir() and not path.is_symlink() and self._may_come(path)), None
        )

    def _may_come(self, path: Path) -> bool:
        """Somebody else's config may name any folder of this machine, and what is copied is the agent's to read."""
        if path.resolve().is_relative_to(self._root.resolve()) or any((path / name).is_file() for name in _SIGNS):
            return True
        self._losses.add(
            self._file, 0, f"the workspace {path} is outside this home and has no {', '.join(_SIGNS)}: copy it by hand"
        )
        return False

    def _where(self, written: str) -> list[Path]:
        path = self._root / expand_user(written, self._user_home)
        for index, part in enumerate(path.parts):
            if is_state_folder(part):
                inside = self._root.joinpath(*path.parts[index + 1 :])
                return [inside, path] if ".." not in path.parts else [path]
        return [path]


def _configured(section: dict[str, Any], file: str, losses: Losses) -> dict[str, dict[str, Any]]:
    listed = section.get("list")
    found: dict[str, dict[str, Any]] = {}
    for entry in listed if isinstance(listed, list) else []:
        if agent_id := _agent_id(_object(entry).get("id"), f"{file}: agents.list", losses):
            found.setdefault(agent_id, _object(entry))
    for name, entry in _object(section.get("entries")).items():
        if agent_id := _agent_id(name, f"{file}: agents.entries", losses):
            found.setdefault(agent_id, _object(entry))
    return found


def _on_disk(root: Path, losses: Losses) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for name in folders(root / "agents", "agents", losses):
        if agent_id := _agent_id(name, f"agents/{name}", losses):
            found.setdefault(agent_id, root / "agents" / name)
    if (root / "sessions").is_dir():  # the oldest homes had one agent, and no folder for it
        found.setdefault(DEFAULT_AGENT, root)
    return found


def _default(ids: list[str], settings: dict[str, dict[str, Any]]) -> str:
    marked = [agent_id for agent_id, own in settings.items() if own.get("default") is True]
    named = [agent_id for agent_id in (DEFAULT_AGENT, CALLED_DEFAULT) if agent_id in ids]
    return (*marked, *named, *settings, *ids)[0]


def _agent_id(value: Any, where: str, losses: Losses) -> str:
    try:
        return normal_agent_id(value) if isinstance(value, str) else ""
    except ValueError:
        losses.add(where, 0, f"{value[:40]!r} can be no agent's id")
        return ""


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""
