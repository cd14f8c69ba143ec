"""The browser slot: `web_browse` over Playwright, each session with a Chromium of its own behind a guarded proxy."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from palinurus.plugin import PluginApp, Services, Tool
from palinurus.tools.settings import FetchSettings
from palinurus.tools.web.guard import AddressGuard

from .browser import Browsers, BrowserSettings
from .tool import browse_tool


def register(app: PluginApp) -> None:
    browsers = Browsers(msgspec.convert(app.config, BrowserSettings))

    def make(services: Services) -> Sequence[Tool]:
        """Called again when the config has changed: then other private hosts may be allowed."""
        browsers.guard = AddressGuard(services.agents.loaded.config.section(FetchSettings).allow_private)
        return (browse_tool(browsers),)

    async def close_at_end(_: Services) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await browsers.close()

    app.browser(make)
    app.service(close_at_end)
