"""Which model answers: configured, by key, on this machine, or Scout."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from palinurus.domain.errors import ConfigError
from palinurus.providers.choose import KNOWN, KnownProvider, choose_model, list_models
from palinurus.providers.provider import ModelRef
from palinurus.testing.loop_time import measure_slowness
from support.wire import WireServer

OLLAMA, LMSTUDIO = "http://127.0.0.1:11434/v1", "http://127.0.0.1:1234/v1"


class Servers:
    """A probe that knows its answers and remembers whom it asked."""

    def __init__(self, **models: tuple[str, ...]) -> None:
        self.models = {OLLAMA: models.get("ollama", ()), LMSTUDIO: models.get("lmstudio", ())}
        self.models |= {"http://127.0.0.1:9/v1": models.get("other", ())}
        self.asked: list[str] = []

    async def __call__(self, base_url: str) -> tuple[str, ...]:
        self.asked.append(base_url)
        return self.models[base_url]


async def test_the_config_comes_first_and_nobody_is_asked() -> None:
    servers = Servers(ollama=("llama",))
    choice = await choose_model("Ollama/qwen3:8b", {"OPENAI_API_KEY": "k"}, servers)
    assert (choice.ref, choice.base_url, choice.key_env) == (ModelRef("ollama", "qwen3:8b"), OLLAMA, "")
    assert servers.asked == []


async def test_a_configured_provider_that_only_the_config_knows_keeps_its_name() -> None:
    choice = await choose_model("mine/some/model", {}, Servers())
    assert (choice.ref, choice.base_url, choice.window) == (ModelRef("mine", "some/model"), "", 0)


async def test_scout_can_be_configured_beside_a_key() -> None:
    choice = await choose_model("embedded/scout", {"OPENAI_API_KEY": "k"}, Servers())
    assert (str(choice.ref), choice.window) == ("embedded/scout", 32_000)


@pytest.mark.parametrize("text", ["gpt-5", "openai/", "/gpt"])
async def test_a_configured_name_without_provider_or_model_is_a_config_error(text: str) -> None:
    with pytest.raises(ConfigError, match="provider/model"):
        await choose_model(text, {}, Servers())


@pytest.mark.parametrize("known", [known for known in KNOWN if known.key_env], ids=lambda known: known.id)
async def test_a_key_in_the_environment_chooses_its_provider_and_wire(known: KnownProvider) -> None:
    servers = Servers(ollama=("llama",))
    for key_env in filter(None, (known.key_env, known.other_key_env)):
        choice = await choose_model(None, {key_env: "k"}, servers)
        assert (choice.ref.provider, choice.key_env, choice.wire) == (known.id, key_env, known.wire)
        assert choice.ref.model
        assert choice.window > 100_000
        assert choice.base_url.startswith("https://")
    assert servers.asked == []


@pytest.mark.parametrize(
    ("model", "wire"),
    [
        ("anthropic/claude-x", "anthropic-messages"),
        ("google/gemini-x", "google-generative-ai"),
        ("mine/x", "openai-completions"),
    ],
)
async def test_a_configured_model_is_spoken_to_on_the_wire_of_its_provider(model: str, wire: str) -> None:
    assert (await choose_model(model, {}, Servers())).wire == wire


async def test_google_has_two_names_for_its_key_and_the_one_that_is_set_counts() -> None:
    choice = await choose_model("google/gemini-x", {"GOOGLE_API_KEY": "k", "GEMINI_API_KEY": " "}, Servers())
    assert choice.key_env == "GOOGLE_API_KEY"


async def test_a_blank_key_is_no_key() -> None:
    env = {"OPENAI_API_KEY": " ", "ANTHROPIC_API_KEY": "", "GEMINI_API_KEY": "\t"}
    assert str((await choose_model("", env, Servers())).ref) == "embedded/scout"


async def test_another_base_url_for_openai_is_used_with_a_model_that_it_has() -> None:
    env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1/"}
    choice = await choose_model(None, env, Servers(other=("text-embed", "house-model")))
    assert (choice.ref.model, choice.base_url) == ("house-model", "http://127.0.0.1:9/v1")


async def test_a_model_server_on_this_machine_is_next_and_ollama_before_lm_studio() -> None:
    both = await choose_model(None, {}, Servers(ollama=("nomic-embed-text", "llama3.2"), lmstudio=("qwen",)))
    assert (str(both.ref), both.base_url, both.key_env) == ("ollama/llama3.2", OLLAMA, "")
    studio = await choose_model(None, {}, Servers(ollama=("bge-m3",), lmstudio=("qwen",)))
    assert (str(studio.ref), studio.base_url) == ("lmstudio/qwen", LMSTUDIO)


async def test_with_nothing_there_is_scout_and_a_reason() -> None:
    choice = await choose_model(None, {}, Servers())
    assert (str(choice.ref), choice.base_url) == ("embedded/scout", "")
    assert "no model" in choice.reason


async def test_the_probe_lists_the_models_of_a_living_server() -> None:
    async with WireServer(models=("a", "b/c")) as server:
        assert await list_models(server.base_url, timeout=60.0) == ("a", "b/c")


async def test_a_refused_probe_costs_next_to_nothing() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        took = []
        for _ in range(5):
            started = time.process_time()
            assert await list_models(url) == ()
            took.append(time.process_time() - started)
        assert min(took) < 0.05 * measure_slowness()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense",
        b"HTTP/1.0 404 Not Found\r\n\r\n{}",
        b"HTTP/1.0 200 OK\r\n\r\n<html>",
        b'HTTP/1.0 200 OK\r\n\r\n{"data": null}',
        b'HTTP/1.0 200 OK\r\n\r\n{"data": [{"name": "no id"}]}',
        b"HTTP/1.0 200 OK\r\n\r\n\xff",
    ],
)
async def test_a_stranger_on_the_port_is_no_model_server(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        assert await list_models(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", timeout=60.0) == ()


async def test_a_silent_server_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # accepts into its backlog and never answers
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        async with asyncio.timeout(60):
            assert await list_models(url, timeout=0.05) == ()


@pytest.mark.parametrize("url", ["https://127.0.0.1/v1", "ftp://x", "http://127.0.0.1:99999/v1", ""])
async def test_an_address_that_the_probe_cannot_ask_has_no_models(url: str) -> None:
    assert await list_models(url) == ()
