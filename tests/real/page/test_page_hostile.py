"""Hostile words on the page: whatever a model, a tool, a file or a name says, nothing of it runs or is fetched."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from page_house import PageHouse, until
from page_lived import MAIN, keep
from page_talk import Talk, marked, settled
from playwright.sync_api import expect

from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, Text, Thinking, ToolCall, ToolResult, UserMessage
from support.behaviours import Answers, Calls, Says

pytestmark = pytest.mark.real

RUN = "window.__pwned=1"
PAYLOADS = (
    f"<script>{RUN}</script>",
    f"<img src=x onerror={RUN}>",
    f'<svg onload={RUN}><script>{RUN}</script><use href="data:image/svg+xml,<svg id=x onload={RUN}>"/></svg>',
    f'<iframe srcdoc="<script>parent.{RUN}</script>"></iframe>',
    f"<details open ontoggle={RUN}><summary>x</summary></details>",
    f'<a href="javascript:{RUN}">link</a>',
    f"[link](javascript:{RUN})",
    f"[link](  JaVaScRiPt:{RUN})",
    f"[link](java\tscript:{RUN})",
    f"[link](java&#115;cript:{RUN})",
    f"[link](data:text/html;base64,{base64.b64encode(f'<script>{RUN}</script>'.encode()).decode()})",
    f"[link](vbscript:{RUN})",
    f"[x]: javascript:{RUN}\n\n[x]",
    f"<javascript:{RUN}>",
    f"![picture](http://evil.invalid/pixel.png?{RUN})",
    f'![x](x" onerror="{RUN})',
    f'[a](https://example.org/" onmouseover="{RUN})',
    f"[a](https://example.org 'title\" onclick=\"{RUN}')",
    f'```html" onclick="{RUN}\n<script>{RUN}</script>\n```',
    f"| a | b |\n|---|---|\n| <img src=x onerror={RUN}> | [x](javascript:{RUN}) |",
    "<style>@import 'http://evil.invalid/x.css'; body{background:url(http://evil.invalid/b)}</style>",
    "<link rel=stylesheet href=http://evil.invalid/x.css><base href=http://evil.invalid/>",
    "<meta http-equiv=refresh content='0;url=http://evil.invalid/'>",
    f"<form action=http://evil.invalid/><button formaction=javascript:{RUN}>x</button></form>",
    f"<math><mtext><table><mglyph><style><img src=x onerror={RUN}></style></mglyph></table></mtext></math>",
    f"\u202e<script>{RUN}</script>\u202c \x00<img src=x onerror={RUN}>",
    f"&lt;script&gt;{RUN}&lt;/script&gt; &#60;img src=x onerror={RUN}&#62;",
    f"{{{{constructor.constructor('{RUN}')()}}}} ${{{RUN}}} <%= {RUN} %>",
    "<a href=//evil.invalid/>x</a> [x](//evil.invalid/) [x](\\\\evil.invalid) <http://evil.invalid/>",
)
WHOLE = "\n\n".join(PAYLOADS)
SVG = f"<svg xmlns='http://www.w3.org/2000/svg' onload='{RUN}'><script>{RUN}</script></svg>"

# What may never stand in the page, whatever was said.
DANGEROUS = Path(__file__).with_name("page_danger.js").read_text()

# What a hole in our own code might do: the names of the errors by which the browser refuses each.
ATTEMPTS = """() => new Promise((done) => setTimeout(() => {  // later: what the driver itself calls may use eval
  const run = "window.__pwned = 1";
  const script = document.createElement("script");
  const attempts = [
    () => document.body.insertAdjacentHTML("beforeend", `<img src=x onerror="${run}">`),
    () => (document.createElement("div").innerHTML = "<b>x</b>"),
    () => eval(run),
    () => new Function(run)(),
    () => setTimeout(run, 0),
    () => (script.textContent = run),
    () => (script.src = "http://evil.invalid/x.js"),
  ];
  const refused = [];
  for (const attempt of attempts) {
    try {
      attempt();
      refused.push("nothing");
    } catch (error) {
      refused.push(error.name);
    }
  }
  document.body.append(Object.assign(document.createElement("img"), { src: "http://evil.invalid/pixel.png" }));
  done(refused);
}))"""


def harmless(page: Any, services: PageHouse) -> None:
    assert marked(page) is None
    assert page.evaluate(DANGEROUS) == []
    assert page.watched.errors == []
    assert page.watched.refused == []
    assert [url for url in page.watched.requests if "csp-report" in url] == []
    elsewhere = [url for url in page.watched.requests if not url.startswith((services.url, "data:", "blob:"))]
    assert elsewhere == []
    assert "a browser blocked something on the dashboard" not in services.log


def test_what_a_model_says_runs_nothing_while_it_streams_nor_afterwards(start: Any, enter: Any, model: Any) -> None:
    services = start()
    page = enter(services)
    talk = Talk(page)
    model.says(Says(f"{WHOLE}\n\nthe end of it", chunks=400, thinking=WHOLE[:2000]))
    talk.say(WHOLE)
    talk.hears("the end of it")
    talk.idle()
    harmless(page, services)
    for link in page.locator("[role=log] a[href]").all():
        assert not (link.get_attribute("href") or "").strip().lower().startswith(("javascript", "data", "vbscript"))
    page.reload()
    talk.hears("the end of it")
    harmless(page, services)


def test_tools_say_what_they_like(start: Any, enter: Any, model: Any) -> None:
    services = start(prepare=_hostile_files)
    page = enter(services)
    talk = Talk(page)
    model.says(
        Calls(("read", {"path": "evil.html"}), ("read", {"path": f"<img src=x onerror={RUN}>.md"})),
        Calls((f"<img src=x onerror={RUN}>", {"path": WHOLE[:500]})),
        Calls(("exec", {"command": f"echo '<script>{RUN}</script>' $(id) \u202e txt.exe"})),
        "it is done",
    )
    talk.say("look at the files")
    expect(page.get_by_role("button", name=re.compile("Deny|Stop")).first).to_be_visible()
    deny = page.get_by_role("button", name=re.compile("^Deny"))
    if deny.count():
        deny.first.click()
    talk.hears("it is done")
    for summary in page.locator("[role=log] summary").all():
        summary.click()
    harmless(page, services)


def test_names_of_files_and_sessions_run_nothing_in_any_place(start: Any, enter: Any) -> None:
    services = start(prepare=_hostile_home)
    page = enter(services)
    Talk(page).hears("and so on")
    harmless(page, services)
    places = [
        *("/files", "/memory?q=evil", "/approvals", "/usage", "/runs", "/logs", "/config", "/context", "/welcome"),
        "/files?path=evil.html", "/files?path=evil.svg", f"/files?path={quote(f'<img src=x onerror={RUN}>.md')}",
        f"/memory?q={quote(PAYLOADS[1])}", f"/files?path={quote(PAYLOADS[1])}&line={quote(PAYLOADS[0])}",
        f"/runs?id={quote(PAYLOADS[1])}", f"/config?q={quote(PAYLOADS[1])}",
        f"/s/agent:main:{quote(PAYLOADS[1], safe='')}",
        f"/s/{quote('javascript:' + RUN)}",
    ]  # fmt: skip
    for place in places:
        page.goto(services.url + place)
        page.wait_for_selector("main")
        settled(page)
        harmless(page, services)
    page.keyboard.press("Control+k")
    page.keyboard.type("img")
    harmless(page, services)


def test_errors_and_logs_are_words_and_no_markup(start: Any, enter: Any, model: Any) -> None:
    services = start()
    page = enter(services)
    talk = Talk(page)
    model.otherwise(Answers(400, {"error": {"message": WHOLE, "type": WHOLE[:80]}}))
    talk.say("fail, please")
    expect(page.get_by_role("alert").first).to_be_visible()
    harmless(page, services)
    page.goto(f"{services.url}/logs")
    settled(page)
    harmless(page, services)


def test_the_policy_would_stop_what_slipped_through(start: Any, enter: Any) -> None:
    """The walls behind the walls: what a hole in our own code would let in does not run, and is reported."""
    services = start()
    page = enter(services)
    Talk(page).hears("")
    told = page.evaluate(ATTEMPTS)
    assert len(told) == 7
    assert set(told) == {"TypeError", "EvalError"}
    until(lambda: "a browser blocked something on the dashboard" in services.log, "a line in the gateway's log")
    assert marked(page) is None


def _hostile_files(services: PageHouse) -> None:
    (services.workspace / "evil.html").write_text(f"<html><body>{WHOLE}</body></html>")
    (services.workspace / "evil.svg").write_text(SVG)
    (services.workspace / f"<img src=x onerror={RUN}>.md").write_text(WHOLE)
    (services.workspace / "memory" / f"evil <svg onload={RUN}>.md").write_text(f"# evil\n\n- evil words {WHOLE}\n")
    (services.workspace / f"<script>{RUN}<").mkdir()
    (services.workspace / "MEMORY.md").write_text(f"# evil memory\n\n{WHOLE}\n")


def _hostile_home(services: PageHouse) -> None:
    _hostile_files(services)
    call = ToolCall("c1", f"<img src=x onerror={RUN}>", {"path": PAYLOADS[0], PAYLOADS[1]: PAYLOADS[2]})
    said = [
        UserMessage((Text(f"what was said {WHOLE}"),), 1_700_000_000_000),
        AssistantMessage(
            (Thinking(WHOLE), Text(WHOLE), call), PAYLOADS[1], PAYLOADS[1], "x", timestamp=1_700_000_001_000
        ),
        ToolResult("c1", PAYLOADS[1], (Text(WHOLE),), timestamp=1_700_000_002_000, details={"x": PAYLOADS[1]}),
        AssistantMessage((Text("and so on"),), stop_reason="error", error_message=WHOLE, timestamp=1_700_000_003_000),
    ]
    keep(services, MAIN, list(said), label=PAYLOADS[1])
    for number, payload in enumerate(PAYLOADS[:8]):
        keep(
            services,
            SessionKey.parse(f"agent:main:direct:x{number}"),
            [UserMessage((Text(payload),), 1_700_000_000_000)],
            payload,
        )
    config = json.loads((services.root / "palinurus.json").read_text())
    config["agents"]["defaults"]["identity"] = {"name": PAYLOADS[1], "emoji": PAYLOADS[2]}
    config[PAYLOADS[1]] = {"x": PAYLOADS[0]}
    (services.root / "palinurus.json").write_text(json.dumps(config))
