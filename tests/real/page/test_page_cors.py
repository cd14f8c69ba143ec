"""A web client at another origin, in Chromium, which asks as Open WebUI does: models, a stream with usage, then a title
for the chat; and an error that it can read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from page_house import Model, until

pytestmark = pytest.mark.real

CLIENT = """async ([url, token]) => {
  const headers = {authorization: `Bearer ${token}`, "content-type": "application/json", "x-stainless-lang": "js"};
  const models = await (await fetch(`${url}/v1/models`, {headers})).json();
  const messages = [{role: "user", content: "hi"}];
  const body = JSON.stringify({model: "palinurus", messages, stream: true, stream_options: {include_usage: true}});
  const answer = await fetch(`${url}/v1/chat/completions`, {method: "POST", headers, body});
  const text = await answer.text();
  const content = "### Task:\\nGenerate a concise title.\\n<chat_history>\\nUSER: hi\\n</chat_history>";
  const asked = JSON.stringify({model: "palinurus", messages: [{role: "user", content}], stream: false});
  const title = await (await fetch(`${url}/v1/chat/completions`, {method: "POST", headers, body: asked})).json();
  const wrong = await fetch(`${url}/v1/models`, {headers: {authorization: "Bearer wrong"}});
  return [models.data[0].id, text, answer.headers.get("x-request-id"), title.choices[0].message.content,
    wrong.status, (await wrong.json()).error.type];
}"""


class App(BaseHTTPRequestHandler):
    def do_GET(self) -> None:  # the name that http.server looks for
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<p>app</p>")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def origin() -> Iterator[str]:
    """A site of somebody else's. On this machine: Chromium lets no page from elsewhere call loopback unasked."""
    server = HTTPServer(("127.0.0.1", 0), App)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield f"http://localhost:{server.server_port}"
    server.shutdown()
    thread.join(60)
    server.server_close()


@pytest.mark.shows(
    "Chromium", "a page of an allowed origin, as Open WebUI asks: preflight, models, stream with usage, title"
)
def test_a_page_of_an_allowed_origin_is_a_client(start: Any, browser: Any, origin: str, model: Model) -> None:
    model.says("Hello from the harbour.", '{"title": "Harbour"}')
    services = start(gateway={"controlUi": {"allowedOrigins": [origin]}})
    token = until(lambda: (services.root / "gateway.token").read_text().strip(), "the token")
    page = browser.new_page()
    page.goto(origin)
    name, stream, request_id, title, status, kind = page.evaluate(CLIENT, [services.url, token])
    assert name == "palinurus"
    assert "harbour" in stream
    assert '"prompt_tokens"' in stream
    assert stream.endswith("data: [DONE]\n\n")
    assert request_id
    assert title == '{"title": "Harbour"}'
    assert (status, kind) == (401, "authentication_error")
    page.close()


def test_a_page_of_another_origin_reads_nothing(start: Any, browser: Any, origin: str) -> None:
    services = start(scripted=False)
    page = browser.new_page()
    page.goto(origin)
    read = page.evaluate("url => fetch(`${url}/healthz`).then(() => 'read', () => 'refused')", services.url)
    assert read == "refused"
    page.close()
