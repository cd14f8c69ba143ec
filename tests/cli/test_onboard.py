"""`pal onboard`: from nothing to a model that answers, asked or told."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from called import Pal

from palinurus.config.home import Home
from palinurus.operations.config import Ground
from palinurus.operations.onboarding import begin_with, look_around

KEY = "sk-ABCDEF0123456789abcdef"


@pytest.fixture
def model_server() -> Iterator[str]:
    """A model server in a process of its own; its base URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "palinurus.testing.wire", "--reply", "ok"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    yield process.stdout.readline().strip()
    process.kill()
    process.communicate(timeout=10)


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


def test_without_anything_scout_goes_on(newcomer: Pal) -> None:
    serve_as(newcomer, "ollama", "http://127.0.0.1:9/v1")
    newcomer("config", "set", "models.providers.lmstudio.baseUrl", "http://127.0.0.1:9/v1")
    ended = newcomer("onboard", "--yes")
    assert ended.code == 0
    assert "scout goes on" in ended.out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "nobody is there to be asked"),
        (("--key-stdin",), "whose key is it?"),
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

    around = asyncio.run(look_around(Ground(home, {"MISTRAL_API_KEY": "correct-horse-battery"}), probe))
    assert [(server.name, server.models) for server in around.servers] == [("Ollama", ("qwen3",))]
    assert [known.provider for known in around.providers if known.has_key] == ["mistral"]
    assert around.first_model() == "mistral/mistral-medium-latest"
    assert begin_with(around, "Ollama") == "ollama/qwen3"
