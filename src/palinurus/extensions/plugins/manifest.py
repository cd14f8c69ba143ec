"""Manifests of plugins: what a plugin is and asks for, as data. manifest_file.py reads them. At each start msgspec
looks at these annotations, so they are no strings here and in index.py.

palinurus.plugin.json         ours
openclaw.plugin.json          OpenClaw's: skills and MCP servers are used; its JavaScript is not
.claude-plugin/plugin.json    bundles of skills and .mcp.json; also plugin.json and .codex-plugin/plugin.json
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

API = 1  # of the interface that plugins are written for: a plugin of a higher one is refused
FILES: Mapping[str, Literal["palinurus", "openclaw", "bundle"]] = {
    "palinurus.plugin.json": "palinurus",
    "openclaw.plugin.json": "openclaw",
    ".claude-plugin/plugin.json": "bundle",
    ".codex-plugin/plugin.json": "bundle",
    "plugin.json": "bundle",
}
SLOTS = ("memory", "contextEngine", "sandbox", "browser")


class SlashHelp(Struct, frozen=True):
    usage: str = ""
    about: str = ""


class PanelPage(Struct, frozen=True):
    """A page on the dashboard: a file of the plugin, shown in a frame that can reach nothing but the plugin."""

    title: str
    file: str  # HTML, in the plugin's folder


class SetupQuestion(Struct, frozen=True, omit_defaults=True):
    """What a person must enter for a channel."""

    key: str
    prompt: str
    secret: bool = False
    required: bool = True


class ChannelRow(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What people are told of a network."""

    title: str = ""
    steps: tuple[str, ...] = ()
    fields: tuple[SetupQuestion, ...] = ()
    afterwards: str = ""


class ServerRow(Struct, frozen=True, rename="camel", omit_defaults=True):
    """An MCP server, as it stands in `mcp.servers`. Its secrets are no references: it is not the owner who wrote it."""

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    timeout_seconds: float = 60.0

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url) or self.timeout_seconds <= 0:
            raise ValueError("an MCP server needs either a command or a url, and time")


class PluginCapabilities(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """What a plugin registers. What it does not name here is refused when it registers it."""

    tools: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    commands: dict[str, str] = {}  # `pal NAME` -> its line in the help
    slash_commands: dict[str, SlashHelp] = {}
    hooks: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    routes: bool = False
    services: bool = False
    prompt_sections: bool = False
    doctor_checks: bool = False
    providers: tuple[str, ...] = ()  # wires of models
    embedders: tuple[str, ...] = ()
    panels: dict[str, PanelPage] = {}


class PluginRequires(Struct, frozen=True, omit_defaults=True):
    palinurus: str = ""  # such as ">=0.1,<2"
    openclaw: str = ""
    bins: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()


class PluginManifest(Struct, frozen=True, rename="camel", omit_defaults=True):
    id: str
    format: Literal["palinurus", "openclaw", "bundle"] = "palinurus"
    name: str = ""
    version: str = ""
    description: str = ""
    author: str = ""
    homepage: str = ""
    api: int = API
    module: str = ""  # that has register(app); empty: it runs no code of ours
    config_schema: dict[str, Any] = {}
    capabilities: PluginCapabilities = PluginCapabilities()
    slots: tuple[str, ...] = ()
    requires: PluginRequires = PluginRequires()
    hosts: tuple[str, ...] = ()  # that it speaks to
    isolation: Literal["none", "process"] = "none"
    skills: tuple[str, ...] = ()  # folders
    mcp_servers: dict[str, ServerRow] = {}
    channels: dict[str, ChannelRow] = {}
    unsupported: tuple[str, ...] = ()  # what it has and we do not use

    @property
    def title(self) -> str:
        return self.name or self.id


def find_manifest(folder: Path) -> Path | None:
    """The manifest of a folder, ours first."""
    return next((folder / name for name in FILES if (folder / name).is_file()), None)
