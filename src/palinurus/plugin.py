"""The interface of plugins: what a plugin may import. It is numbered (`api` in the manifest, 1 now).

Names are only added under a number; one that must change gets the next number, and plugins of the number before go on
working for a year. Everything else of `palinurus` may change at any time. docs/plugins.md has an example of each.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

API = 1
_WHERE = {
    "palinurus.cli.command": "command_of",
    "palinurus.config.home": "Home",
    "palinurus.config.load": "Config LoadedConfig",
    "palinurus.context.engine": "Assembly ContextEngine LegacyEngine",
    "palinurus.config.section": "Secret Section option",
    "palinurus.dispatch.channels": "ButtonPress Channel ChannelCapabilities ChannelCheck ChannelCommand ChannelContext "
    "ChannelInbox ChannelMessage ChannelRequest ChannelResponse ChatTarget "
    "OutgoingFile OutgoingPart QuotedMessage ReceivedFile",
    "palinurus.domain.envelope": "Inbound",
    "palinurus.domain.errors": "BadRequest ConfigError JobFailed JobRefused NotFound PalinurusError WebError",
    "palinurus.domain.hooks": "HookEvent",
    "palinurus.domain.keys": "SessionKey",
    "palinurus.domain.messages": "Image Message Origin Text",
    "palinurus.domain.tool": "Tool ToolOutput ToolRun failed prepared_tool tool",
    "palinurus.extensions.plugins.app": "PluginApp",
    "palinurus.gateway.http.app": "RouteDoc RouteProvider",
    "palinurus.gateway.websocket.methods": "GatewayContext",
    "palinurus.operations.operation": "operation",
    "palinurus.operations.services": "Services",
    "palinurus.providers.wires.http": "WireProvider",
    "palinurus.runtime.checks.check": "Check",
    "palinurus.sandbox.sandbox": "Process Sandbox SandboxCommand SandboxStatus",
    "palinurus.storage.jobs": "Job JobKind",
    "palinurus.text.markdown": "TextLimits",
    "msgspec": "Struct",
}
PLACES = {name: module for module, names in _WHERE.items() for name in names.split()}
__all__ = list(PLACES)

if TYPE_CHECKING:
    from msgspec import Struct as Struct

    from palinurus.cli.command import command_of as command_of
    from palinurus.config.home import Home as Home
    from palinurus.config.load import Config as Config
    from palinurus.config.load import LoadedConfig as LoadedConfig
    from palinurus.config.section import Secret as Secret
    from palinurus.config.section import Section as Section
    from palinurus.config.section import option as option
    from palinurus.context.engine import Assembly as Assembly
    from palinurus.context.engine import ContextEngine as ContextEngine
    from palinurus.context.engine import LegacyEngine as LegacyEngine
    from palinurus.dispatch.channels import ButtonPress as ButtonPress
    from palinurus.dispatch.channels import Channel as Channel
    from palinurus.dispatch.channels import ChannelCapabilities as ChannelCapabilities
    from palinurus.dispatch.channels import ChannelCheck as ChannelCheck
    from palinurus.dispatch.channels import ChannelCommand as ChannelCommand
    from palinurus.dispatch.channels import ChannelContext as ChannelContext
    from palinurus.dispatch.channels import ChannelInbox as ChannelInbox
    from palinurus.dispatch.channels import ChannelMessage as ChannelMessage
    from palinurus.dispatch.channels import ChannelRequest as ChannelRequest
    from palinurus.dispatch.channels import ChannelResponse as ChannelResponse
    from palinurus.dispatch.channels import ChatTarget as ChatTarget
    from palinurus.dispatch.channels import OutgoingFile as OutgoingFile
    from palinurus.dispatch.channels import OutgoingPart as OutgoingPart
    from palinurus.dispatch.channels import QuotedMessage as QuotedMessage
    from palinurus.dispatch.channels import ReceivedFile as ReceivedFile
    from palinurus.domain.envelope import Inbound as Inbound
    from palinurus.domain.errors import BadRequest as BadRequest
    from palinurus.domain.errors import ConfigError as ConfigError
    from palinurus.domain.errors import JobFailed as JobFailed
    from palinurus.domain.errors import JobRefused as JobRefused
    from palinurus.domain.errors import NotFound as NotFound
    from palinurus.domain.errors import PalinurusError as PalinurusError
    from palinurus.domain.errors import WebError as WebError
    from palinurus.domain.hooks import HookEvent as HookEvent
    from palinurus.domain.keys import SessionKey as SessionKey
    from palinurus.domain.messages import Image as Image
    from palinurus.domain.messages import Message as Message
    from palinurus.domain.messages import Origin as Origin
    from palinurus.domain.messages import Text as Text
    from palinurus.domain.tool import Tool as Tool
    from palinurus.domain.tool import ToolOutput as ToolOutput
    from palinurus.domain.tool import ToolRun as ToolRun
    from palinurus.domain.tool import failed as failed
    from palinurus.domain.tool import prepared_tool as prepared_tool
    from palinurus.domain.tool import tool as tool
    from palinurus.extensions.plugins.app import PluginApp as PluginApp
    from palinurus.gateway.http.app import RouteDoc as RouteDoc
    from palinurus.gateway.http.app import RouteProvider as RouteProvider
    from palinurus.gateway.websocket.methods import GatewayContext as GatewayContext
    from palinurus.operations.operation import operation as operation
    from palinurus.operations.services import Services as Services
    from palinurus.providers.wires.http import WireProvider as WireProvider
    from palinurus.runtime.checks.check import Check as Check
    from palinurus.sandbox.sandbox import Process as Process
    from palinurus.sandbox.sandbox import Sandbox as Sandbox
    from palinurus.sandbox.sandbox import SandboxCommand as SandboxCommand
    from palinurus.sandbox.sandbox import SandboxStatus as SandboxStatus
    from palinurus.storage.jobs import Job as Job
    from palinurus.storage.jobs import JobKind as JobKind
    from palinurus.text.markdown import TextLimits as TextLimits
else:

    def __getattr__(name: str) -> Any:
        """Imported when first used: a plugin with one tool imports no gateway."""
        if name not in PLACES:
            raise AttributeError(f"palinurus.plugin has no {name!r}")
        return getattr(import_module(PLACES[name]), name)
