"""The browser slot: `web_browse` over Playwright, each session with a Chromium of its own behind a guarded proxy."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from palinurus.plugin import PluginApp, Services, Tool
from palinurus.tools.settings import FetchSettings
from palinurus.tools.web.guard import AddressGuard

from .browser import Browsers, BrowserSettings
from .tool import browse_tool


def register(app: PluginApp) -> None:
    settings = msgspec.convert(app.config, BrowserSettings)

    class HomeBrowsers(Browsers):
        """Those of a home, closed with it: also in a process that answers once and runs no services."""

        def __init__(self, services: Services) -> None:
            super().__init__(settings)

    def make(services: Any) -> Sequence[Tool]:
        """Called again when the config has changed: then other private hosts may be allowed."""
        browsers = services.keep(HomeBrowsers)
        browsers.guard = AddressGuard(services.agents.loaded.config.section(FetchSettings).allow_private)
        return (browse_tool(browsers),)

    async def close_at_end(services: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await services.keep(HomeBrowsers).close()

    app.browser(make)
    app.service(close_at_end)
