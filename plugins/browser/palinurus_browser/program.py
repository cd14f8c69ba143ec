"""The program that drives one Chromium for one session, in a process of its own: domain/worker_program.py starts it.

Whatever a page does (endless scripts, much memory, a crash) happens to this process and its children, which the session
kills. It knows nothing of Palinurus and has no way to the network except the session's proxy.
"""

from __future__ import annotations

import base64
import json
import os
import resource
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Browser, Error, Page, TimeoutError, sync_playwright

SETTLE_MS = 300  # after a click: what it starts begins within that
LOAD_MS = 3_000  # pictures and late scripts are waited for that long, and not in vain
ARGUMENTS = (
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-features=AutofillServerCommunication,DestroyProfileOnBrowserClose,HttpsUpgrades,MediaRouter,OptimizationHints"
    ",PaintHolding,RenderDocument,Translate",  # the first would tell its maker of every form; the others are Playwright's
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",  # names are resolved by the proxy only
    "--renderer-process-limit=3",
    "--disable-gpu",
)
NOWHERE = "http://127.0.0.1:1"  # what the browser itself would tell its maker ends here; pages have the proxy
Reply = dict[str, Any]


class Tab:
    """The one page of the session."""

    def __init__(self, browser: Browser, port: str, seconds: float) -> None:
        self.context = browser.new_context(
            proxy={"server": f"http://127.0.0.1:{port}"},
            accept_downloads=False,
            service_workers="block",
            viewport={"width": 1200, "height": 800},
        )
        self.context.set_default_timeout(seconds * 1_000)
        self.page: Page | None = None

    def do(self, order: dict[str, Any]) -> Reply:
        """One action, and what the page shows then. A timeout is told as such: nothing else can be done with it."""
        try:
            return self._act(order)
        except TimeoutError:
            return {"error": "the page took too long and was closed", "ended": True}
        except Error as error:
            first = error.message.partition("\n")[0]
            crashed = "crash" in first or "closed" in first
            return {"error": first.partition("Page.goto: ")[2] or first[:300], "ended": crashed}

    def _act(self, order: dict[str, Any]) -> Reply:
        action = order["action"]
        if action == "open":
            self.page = self.page or self.context.new_page()
            self.page.goto(order["url"], wait_until="domcontentloaded")
        if self.page is None or self.page.is_closed():
            return {"error": "no page is open, or it was closed because nothing was done with it: open one first"}
        if action in ("click", "type"):
            element = self.page.locator(f"aria-ref={order['ref']}")
            if not element.count():
                return {"error": f"there is no element {order['ref']!r} now: read shows which there are"}
            if action == "click":
                element.click()
            else:
                text = order["text"]
                element.fill(text.removesuffix("\n"))
                if text.endswith("\n"):
                    element.press("Enter")
        self._settle(action)
        return self._shown(action == "screenshot", order["most"])

    def _settle(self, action: str) -> None:
        assert self.page is not None
        if action in ("click", "type"):
            self.page.wait_for_timeout(SETTLE_MS)
        if action == "click":
            self.page = self.context.pages[-1]  # a link may have opened another one
        for each in self.context.pages:
            if each != self.page:
                each.close()
        self.page.wait_for_load_state("domcontentloaded")
        try:
            self.page.wait_for_load_state("load", timeout=LOAD_MS)
        except TimeoutError:
            return  # it is shown as far as it has come

    def _shown(self, picture: bool, most: int) -> Reply:
        assert self.page is not None
        reply: Reply = {"url": self.page.url, "title": self.page.title()[:300]}
        if picture:
            data = self.page.screenshot(type="jpeg", quality=70)
            return reply | {"image": base64.b64encode(data).decode()}
        text = self.page.aria_snapshot(mode="ai")
        return reply | {"text": text[:most], "total": len(text)}


def start(port: str, executable: str, seconds: str, megabytes: str, walls: str) -> Callable[[Any, Any], bytes]:
    limit = int(megabytes) * 1024 * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))  # of each process that follows
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    browser = (
        sync_playwright()
        .start()
        .chromium.launch(
            executable_path=executable,
            proxy={"server": NOWHERE},
            chromium_sandbox=walls == "own",
            env={name: os.environ[name] for name in ("HOME", "TMPDIR")},
            args=[*ARGUMENTS, f"--js-flags=--max-old-space-size={int(megabytes) // 3}"],
        )
    )
    tab = Tab(browser, port, float(seconds))
    return lambda order, _: json.dumps(tab.do(order)).encode()
