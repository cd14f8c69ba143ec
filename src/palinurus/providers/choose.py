"""Which model answers when several could, or none.

The order: what the config names; a key in the environment; a model server on this machine; Scout, who needs nothing.
What is known about providers is one table of data.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Literal

from msgspec import Struct

from palinurus.domain.errors import ConfigError
from palinurus.providers.loopback import list_models
from palinurus.providers.provider import ModelRef
from palinurus.providers.scout.scout import SCOUT, WINDOW

Probe = Callable[[str], Awaitable[tuple[str, ...]]]
"""The models that answer at a base URL, or none. Must not raise, and must return within 150 ms."""


Wire = Literal["openai-completions", "anthropic-messages", "google-generative-ai"]
"""The formats that we speak, by the names that OpenClaw's config and transcripts use."""


class KnownProvider(Struct, frozen=True):
    """A provider that needs no config but a key."""

    id: str
    base_url: str
    key_env: str = ""  # none: a server on this machine
    model: str = ""  # the one to use when nobody named one
    window: int = 32_000  # of that model
    wire: Wire = "openai-completions"
    other_key_env: str = ""  # read when the first one is not set

    def key_found(self, env: Mapping[str, str]) -> str:
        """The variable that holds the key, or nothing."""
        return next((name for name in (self.key_env, self.other_key_env) if name and env.get(name, "").strip()), "")


# The order is the order of choice. Models come and go: one that is gone fails as model_not_found, and the config names
# another. A window is what a model takes in, which may be less than the number on its label.
KNOWN: tuple[KnownProvider, ...] = (
    KnownProvider("openai", "https://api.openai.com/v1", "OPENAI_API_KEY", "gpt-5-mini", 272_000),
    KnownProvider(
        "anthropic",
        "https://api.anthropic.com",
        "ANTHROPIC_API_KEY",
        "claude-sonnet-5-5",
        1_000_000,
        wire="anthropic-messages",
    ),
    KnownProvider(
        "google",
        "https://generativelanguage.googleapis.com/v1beta",
        "GEMINI_API_KEY",
        "gemini-3.8-flash",
        1_048_576,
        wire="google-generative-ai",
        other_key_env="GOOGLE_API_KEY",
    ),
    KnownProvider("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", "openrouter/auto", 128_000),
    KnownProvider("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", "openai/gpt-oss-120b", 131_072),
    KnownProvider("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", "mistral-medium-latest", 131_072),
    KnownProvider("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", "deepseek-chat", 128_000),
    KnownProvider("xai", "https://api.x.ai/v1", "XAI_API_KEY", "grok-4", 256_000),
    KnownProvider(
        "together",
        "https://api.together.xyz/v1",
        "TOGETHER_API_KEY",
        "meta-llama/Llama-3.3-70B-Instruct-Turbo",
        131_072,
    ),
    KnownProvider("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY", "gpt-oss-120b", 131_072),
    KnownProvider("ollama", "http://127.0.0.1:11434/v1"),
    KnownProvider("lmstudio", "http://127.0.0.1:1234/v1"),
)
LOCAL_NAMES = {"ollama": "Ollama", "lmstudio": "LM Studio"}

# What a server lists beside the models that can talk.
_NO_TALKER = re.compile(r"embed|bge-|minilm|rerank|whisper|tts|moderation|clip\b", re.IGNORECASE)


class Choice(Struct, frozen=True):
    """The model to use, where it is, which variable holds its key, and why it was chosen."""

    ref: ModelRef
    base_url: str = ""  # empty: Scout, or a provider that only the config knows
    key_env: str = ""
    window: int = 0  # 0: not known here
    reason: str = ""
    wire: Wire = "openai-completions"


def known_provider(provider: str) -> KnownProvider | None:
    return next((known for known in KNOWN if known.id == provider), None)


def needs_key(provider: str, base_url: str) -> bool:
    """Whether nobody answers at this address without a key. Somebody else's server may ask for none."""
    known = known_provider(provider)
    return known is not None and bool(known.key_env) and base_url.rstrip("/") == known.base_url


def key_variables(env: Mapping[str, str]) -> dict[str, str]:
    """For each known provider the variable that holds its key, where one does."""
    return {known.id: found for known in KNOWN if (found := known.key_found(env))}


async def choose_model(
    configured: str | None, env: Mapping[str, str], probe: Probe = list_models, *, held: Collection[str] = ()
) -> Choice:
    """The model to use. Raises ConfigError when the configured one is not named `provider/model`.

    `held` are providers for which a key is stored; it counts like one in the environment.
    """
    if configured and configured.strip():
        return _configured(ModelRef.parse(configured), configured, env)
    for known in KNOWN:
        if (key_env := known.key_found(env)) or (known.key_env and known.id in held):
            return await _by_key(known, key_env, env, probe)
    return await _on_this_machine(probe) or Choice(
        SCOUT, window=WINDOW, reason="no model is configured, no key is set and no model server answers on this machine"
    )


def _configured(ref: ModelRef, text: str, env: Mapping[str, str]) -> Choice:
    if not ref.provider or not ref.model:
        raise ConfigError(
            f"{text!r} is no model: a model is named provider/model", hint="for example openai/gpt-5-mini"
        )
    reason = "named in the config"
    if ref.provider == SCOUT.provider:
        return Choice(ref, window=WINDOW, reason=reason)
    known = known_provider(ref.provider)
    if known is None:
        return Choice(ref, reason=reason)
    window = known.window if ref.model == known.model else 0
    key_env = known.key_found(env) or known.key_env
    return Choice(ref, _base_url(known, env), key_env, window, reason, known.wire)


async def _by_key(known: KnownProvider, key_env: str, env: Mapping[str, str], probe: Probe) -> Choice:
    base_url = _base_url(known, env)
    reason = f"{key_env} is set" if key_env else f"a key for {known.id} is stored"
    if base_url != known.base_url:  # somebody else's server behind the same variable: it has models of its own
        listed = talkers(await probe(base_url))
        if listed and known.model not in listed:
            return Choice(ModelRef(known.id, listed[0]), base_url, key_env, 0, reason, known.wire)
    return Choice(ModelRef(known.id, known.model), base_url, key_env, known.window, reason, known.wire)


async def _on_this_machine(probe: Probe) -> Choice | None:
    servers = [known for known in KNOWN if not known.key_env]
    answers = await asyncio.gather(*(probe(server.base_url) for server in servers))
    for server, models in zip(servers, answers, strict=True):
        if able := talkers(models):
            ref = ModelRef(server.id, able[0])
            reason = f"{LOCAL_NAMES[server.id]} answers on this machine"
            return Choice(ref, server.base_url, window=server.window, reason=reason)
    return None


def _base_url(known: KnownProvider, env: Mapping[str, str]) -> str:
    own = env.get("OPENAI_BASE_URL", "").strip() if known.id == "openai" else ""
    return own.rstrip("/") or known.base_url


def talkers(models: tuple[str, ...]) -> tuple[str, ...]:
    """Those of a server's models that can hold a conversation."""
    return tuple(model for model in models if not _NO_TALKER.search(model))
