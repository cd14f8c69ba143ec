"""Chooses the model if the config names none.

The order: the config; a key in the environment; a model server on this machine; scout, which needs nothing. Local
servers are probed by plain sockets: a refused connection costs a millisecond, and no HTTP library is loaded. The
request is HTTP/1.0, so the answer is not chunked and ends with the connection.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from palinurus.domain.errors import ConfigError
from palinurus.providers.provider import SCOUT, SCOUT_WINDOW, ModelRef

PROBE_SECONDS = 0.5  # without a server it takes a millisecond; a server may be busy
MAX_ANSWER = 1024 * 1024

# Field names for a model's window, the configured one before the trained one.
WINDOW_FIELDS = ("max_model_len", "loaded_context_length", "context_length", "context_window", "max_context_length")
TRAINED_FIELDS = ("n_ctx", "n_ctx_train")  # in `meta`, as llama.cpp has them


class _ModelList(Struct):
    data: list[dict[str, Any]] | None = None


async def list_models(base_url: str, timeout: float = PROBE_SECONDS) -> tuple[str, ...]:
    """The models of a server, in its order. Empty if there is no server, no answer in time or an invalid one."""
    return tuple(await served_models(base_url, timeout))


async def served_models(base_url: str, timeout: float = PROBE_SECONDS) -> dict[str, int]:
    """The same with each model's context window; 0 if the server does not report it."""
    try:
        async with asyncio.timeout(timeout):
            return _models(await _get(f"{base_url.rstrip('/')}/models"))
    except (OSError, ValueError, asyncio.LimitOverrunError):  # TimeoutError is an OSError, DecodeError a ValueError
        return {}


def is_loopback(base_url: str) -> bool:
    """Whether it is an address of this machine, reachable without an HTTP library."""
    address = urlsplit(base_url)
    host = address.hostname or ""
    return address.scheme == "http" and (host in ("localhost", "::1") or host.startswith("127."))


async def _get(url: str) -> bytes:
    address = urlsplit(url)
    if address.scheme != "http" or not address.hostname:
        return b""
    reader, writer = await asyncio.open_connection(address.hostname, address.port or 80)
    try:
        request = f"GET {address.path} HTTP/1.0\r\nHost: {address.netloc}\r\nAccept: application/json\r\n\r\n"
        writer.write(request.encode())
        answer = b""
        while len(answer) < MAX_ANSWER and (data := await reader.read(65536)):
            answer += data
        return answer
    finally:
        writer.close()


def _models(answer: bytes) -> dict[str, int]:
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    if status != [b"200"]:
        return {}
    listed = msgspec.json.decode(body, type=_ModelList).data or []
    return {model["id"]: _window(model) for model in listed if isinstance(model.get("id"), str)}


def _window(model: Mapping[str, Any]) -> int:
    meta = model.get("meta")
    sizes_named = [model.get(name) for name in WINDOW_FIELDS]
    sizes_named += [meta.get(name) for name in TRAINED_FIELDS] if isinstance(meta, dict) else []
    sizes = (size for size in sizes_named if isinstance(size, int) and not isinstance(size, bool) and size > 0)
    return next(sizes, 0)


Probe = Callable[[str], Awaitable[tuple[str, ...]]]
"""Returns the models of the server at a base URL, or none. Must not raise, and must return within 150 ms."""

Wire = Literal["openai-completions", "openai-responses", "anthropic-messages", "google-generative-ai"]
"""The supported wire formats, by the names that OpenClaw's config and transcripts use."""


class KnownProvider(Struct, frozen=True):
    """A provider that needs only a key."""

    id: str
    base_url: str
    key_env: str = ""  # empty: a server on this machine
    model: str = ""  # the default model
    window: int = 32_000  # of that model
    wire: Wire = "openai-completions"
    other_key_env: str = ""  # read when the first one is not set

    def key_found(self, env: Mapping[str, str]) -> str:
        """The variable that holds the key, or ""."""
        return next((name for name in (self.key_env, self.other_key_env) if name and env.get(name, "").strip()), "")


COMPLETIONS: Wire = "openai-completions"
RESPONSES: Wire = "openai-responses"
CLAUDE: Wire = "anthropic-messages"
GEMINI: Wire = "google-generative-ai"
GEMINI_URL = "https://generativelanguage.googleapis.com/v1beta"
TOGETHER_MODEL = "meta-llama/Llama-3.3-70B-Instruct-Turbo"

# In order of choice. A model that was removed fails as model_not_found, and the config names
# another. A window is what a model accepts, which may be less than advertised.
KNOWN: tuple[KnownProvider, ...] = (
    KnownProvider("openai", "https://api.openai.com/v1", "OPENAI_API_KEY", "gpt-5-mini", 272_000, RESPONSES),
    KnownProvider(
        "anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY", "claude-sonnet-5-5", 1_000_000, CLAUDE
    ),
    KnownProvider("google", GEMINI_URL, "GEMINI_API_KEY", "gemini-3.8-flash", 1_048_576, GEMINI, "GOOGLE_API_KEY"),
    KnownProvider("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", "openrouter/auto", 128_000),
    KnownProvider("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", "openai/gpt-oss-120b", 131_072),
    KnownProvider("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", "mistral-medium-latest", 131_072),
    KnownProvider("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", "deepseek-chat", 128_000),
    KnownProvider("xai", "https://api.x.ai/v1", "XAI_API_KEY", "grok-4", 256_000),
    KnownProvider("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY", TOGETHER_MODEL, 131_072),
    KnownProvider("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY", "gpt-oss-120b", 131_072),
    KnownProvider("ollama", "http://127.0.0.1:11434/v1"),
    KnownProvider("lmstudio", "http://127.0.0.1:1234/v1"),
)
EMBEDDING_KEYS = {"voyage": "VOYAGE_API_KEY"}  # of providers that have no chat models
LOCAL_NAMES = {"ollama": "Ollama", "lmstudio": "LM Studio"}

# Models of a server that cannot chat.
_NO_TALKER = re.compile(r"embed|bge-|minilm|rerank|whisper|tts|moderation|clip\b", re.IGNORECASE)


class ReachableModel(Struct, frozen=True):
    """The chosen model, its address, the variable with its key, and the reason."""

    ref: ModelRef
    base_url: str = ""  # empty: Scout, or a provider that is only in the config
    key_env: str = ""
    window: int = 0  # 0: not known here
    reason: str = ""
    wire: Wire = "openai-completions"


def known_provider(provider: str) -> KnownProvider | None:
    return next((known for known in KNOWN if known.id == provider), None)


def needs_key(provider: str, base_url: str) -> bool:
    """Whether this address requires a key. Another server may require none."""
    known = known_provider(provider)
    return known is not None and bool(known.key_env) and base_url.rstrip("/") == known.base_url


def wire_at(choice: ReachableModel, base_url: str) -> str:
    """The wire of a model at this address. Other servers under OpenAI's name may speak only its older one."""
    known = known_provider(choice.ref.provider)
    elsewhere = known is not None and base_url.rstrip("/") != known.base_url
    return COMPLETIONS if choice.wire == RESPONSES and elsewhere else choice.wire


def key_variables(env: Mapping[str, str]) -> dict[str, str]:
    """For each known provider the variable that holds its key, if set."""
    found = {known.id: found for known in KNOWN if (found := known.key_found(env))}
    return found | {provider: name for provider, name in EMBEDDING_KEYS.items() if env.get(name, "").strip()}


async def choose_model(
    configured: str | None, env: Mapping[str, str], probe: Probe = list_models, *, held: Collection[str] = ()
) -> ReachableModel:
    """The model to use. Raises ConfigError if the configured one is not named `provider/model`.

    `held` are providers with a stored key, which counts like one in the environment.
    """
    if configured and configured.strip():
        return _configured(ModelRef.parse(configured), configured, env)
    for known in KNOWN:
        if (key_env := known.key_found(env)) or (known.key_env and known.id in held):
            return await _by_key(known, key_env, env, probe)
    return await _on_this_machine(probe) or ReachableModel(
        SCOUT,
        window=SCOUT_WINDOW,
        reason="no model is configured, no key is set and no model server answers on this machine",
    )


def _configured(ref: ModelRef, text: str, env: Mapping[str, str]) -> ReachableModel:
    if not ref.provider or not ref.model:
        raise ConfigError(f"{text!r} is not a model; use provider/model", hint="for example openai/gpt-5-mini")
    reason = "named in the config"
    if ref.provider == SCOUT.provider:
        return ReachableModel(ref, window=SCOUT_WINDOW, reason=reason)
    known = known_provider(ref.provider)
    if known is None:
        return ReachableModel(ref, reason=reason)
    window = known.window if ref.model == known.model else 0
    key_env = known.key_found(env) or known.key_env
    return ReachableModel(ref, _base_url(known, env), key_env, window, reason, known.wire)


async def _by_key(known: KnownProvider, key_env: str, env: Mapping[str, str], probe: Probe) -> ReachableModel:
    base_url = _base_url(known, env)
    reason = f"{key_env} is set" if key_env else f"a key for {known.id} is stored"
    if base_url != known.base_url:  # another server behind the same variable: it has its own models
        listed = talkers(await probe(base_url))
        if listed and known.model not in listed:
            return ReachableModel(ModelRef(known.id, listed[0]), base_url, key_env, 0, reason, known.wire)
    return ReachableModel(ModelRef(known.id, known.model), base_url, key_env, known.window, reason, known.wire)


async def _on_this_machine(probe: Probe) -> ReachableModel | None:
    servers = [known for known in KNOWN if not known.key_env]
    answers = await asyncio.gather(*(probe(server.base_url) for server in servers))
    for server, models in zip(servers, answers, strict=True):
        if able := talkers(models):
            ref = ModelRef(server.id, able[0])
            reason = f"{LOCAL_NAMES[server.id]} answers on this machine"
            return ReachableModel(ref, server.base_url, window=server.window, reason=reason)
    return None


def _base_url(known: KnownProvider, env: Mapping[str, str]) -> str:
    own = env.get("OPENAI_BASE_URL", "").strip() if known.id == "openai" else ""
    return own.rstrip("/") or known.base_url


def talkers(models: tuple[str, ...]) -> tuple[str, ...]:
    """The models of a server that can chat."""
    return tuple(model for model in models if not _NO_TALKER.search(model))
