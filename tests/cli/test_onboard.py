"""`pal onboard`: from nothing to a model that answers, asked or told."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from called import Pal

from palinurus.config.home import Home
from palinurus.operations.models import find_model_options, first_model_of
from palinurus.operations.services import Services
from support import TESTS

KEY = "sk-ABCDEF0123456789abcdef"
GOOD = "sk-good-0123456789abcdef"
ANSWER = b'data: {"choices": [{"delta": {"content": "ok"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'


@pytest.fixture
def model_server() -> Iterator[str]:
    """A model server in a process of its own; its base URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "support.wire", "--reply", "ok"], stdout=subprocess.PIPE, text=True, cwd=TESTS
    )
    assert process.stdout
    yield process.stdout.readline().strip()
    process.kill()
    process.communicate(timeout=60)


@pytest.fixture
def newcomer(pal_command: Pal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pal:
    monkeypatch.setenv("PALINURUS_HOME", str(tmp_path / "new"))
    return pal_command


def serve_as(pal: Pal, provider: str, base_url: str) -> None:
    pal("setup")
    pal("config", "set", f"models.providers.{provider}.baseUrl", base_url)


def test_a_key_from_standard_input_is_stored_tested_and_its_model_set(newcomer: Pal, model_server: str) -> None:
    serve_as(newcomer, "openai", model_server)
    ended = newcomer("onboard", "--provider", "openai", "--key-stdin", "--json", stdin=f"{KEY}\n")
    assert (ended.code, ended.json["ok"], ended.json["model"]) == (0, True, "openai/gpt-5-mini")
    assert newcomer("config", "get", "agents.defaults.model").out.strip() == "openai/gpt-5-mini"
    assert "openai:default" in newcomer("models", "auth", "list").out
    assert KEY not in ended.out + ended.err


def test_a_server_on_this_machine_is_found_and_used(newcomer: Pal, model_server: str) -> None:
    serve_as(newcomer, "ollama", model_server)
    ended = newcomer("onboard", "--yes")
    assert ended.code == 0
    assert "ollama/test answers" in ended.out
    assert newcomer("config", "get", "agents.defaults.model").out.strip() == "ollama/test"


def test_a_model_that_does_not_answer_is_not_set_and_says_why(newcomer: Pal) -> None:
    serve_as(newcomer, "workshop", "http://127.0.0.1:9/v1")
    ended = newcomer("onboard", "--model", "workshop/x")
    assert ended.code == 1
    assert "network" in ended.out
    assert newcomer("config", "get", "agents.defaults.model").code == 1


@pytest.fixture
def refusing_server() -> Iterator[str]:
    """A model server that takes no key but one; its base URL."""

    class Refusal(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            good = self.headers["Authorization"] == f"Bearer {GOOD}"
            self.send_response(200 if good else 401)
            self.end_headers()
            refused = b'{"error": {"message": "Incorrect API key provided"}}'
            self.wfile.write(ANSWER if good else refused)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusal) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


def test_a_key_that_is_refused_is_not_kept_and_nothing_is_switched(newcomer: Pal, refusing_server: str) -> None:
    serve_as(newcomer, "openai", refusing_server)
    newcomer("config", "set", "models.providers.ollama.baseUrl", "http://127.0.0.1:9/v1")
    before = newcomer("status", "--json").json["model"]
    ended = newcomer("onboard", "--provider", "openai", "--key-stdin", stdin=f"{KEY}\n")
    assert (ended.code, "The key was not stored, and nothing was changed." in ended.out) == (1, True)
    assert newcomer("models", "auth", "list", "--json").json["credentials"] == []
    assert newcomer("status", "--json").json["model"] == before
    assert newcomer("agent", "-m", "hi").code == 0


def test_a_good_key_stays_when_a_new_one_is_refused(
    newcomer: Pal, refusing_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_as(newcomer, "openai", refusing_server)
    newcomer("models", "auth", "add", "openai", stdin="sk-the-one-that-was-good")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-another-in-the-environment")
    ended = newcomer("onboard", "--provider", "openai", "--key-stdin", stdin=f"{KEY}\n")
    assert ended.code == 1
    stored = (tmp_path / "new" / "credentials.json").read_text()
    assert ("sk-the-one-that-was-good" in stored, KEY in stored) == (True, False)


def test_a_new_key_is_tried_by_itself_though_another_would_answer(
    newcomer: Pal, refusing_server: str, tmp_path: Path
) -> None:
    serve_as(newcomer, "openai", refusing_server)
    newcomer("config", "set", "models.providers.openai.apiKey", GOOD)
    assert newcomer("models", "test", "openai/gpt-5-mini").code == 0
    ended = newcomer("onboard", "--provider", "openai", "--key-stdin", stdin=f"{KEY}\n")
    assert (ended.code, KEY in (tmp_path / "new" / "credentials.json").read_text()) == (1, False)


def test_with_a_model_in_the_config_nobody_says_that_scout_goes_on(newcomer: Pal, model_server: str) -> None:
    serve_as(newcomer, "mine", model_server)
    newcomer("config", "set", "agents.defaults.model", "mine/test")
    ended = newcomer("onboard", "--yes")
    assert (ended.code, "mine/test answers" in ended.out) == (0, True)


def test_without_anything_scout_goes_on(newcomer: Pal) -> None:
    serve_as(newcomer, "ollama", "http://127.0.0.1:9/v1")
    newcomer("config", "set", "models.providers.lmstudio.baseUrl", "http://127.0.0.1:9/v1")
    ended = newcomer("onboard", "--yes")
    assert ended.code == 0
    assert "Scout stays" in ended.out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "needs a terminal (use --yes"),
        (("--key-stdin",), "name the provider with --provider"),
        (("--provider", "unheard"), "no model of 'unheard' is known"),
        (("--provider", "openai", "--key-stdin"), "the key is empty"),
    ],
)
def test_what_is_missing_is_one_line(pal_command: Pal, words: tuple[str, ...], why: str) -> None:
    ended = pal_command("onboard", *words)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert why in ended.err


def test_a_key_goes_before_a_server_and_a_named_provider_before_both(home: Home) -> None:
    async def probe(base_url: str) -> tuple[str, ...]:
        return ("nomic-embed", "qwen3") if ":11434" in base_url else ()

    options = asyncio.run(
        find_model_options(Services(home=home, env={"MISTRAL_API_KEY": "correct-horse-battery"}), probe)
    )
    assert [(server.name, server.models) for server in options.servers] == [("Ollama", ("qwen3",))]
    assert [known.provider for known in options.providers if known.has_key] == ["mistral"]
    assert options.first_model == "mistral/mistral-medium-latest"
    assert first_model_of(options, "Ollama") == "ollama/qwen3"
