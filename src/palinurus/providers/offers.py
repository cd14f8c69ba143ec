"""Models on offer: windows, limits and prices, as one table of data.

In US dollars per million tokens, as far as we knew them in November 2026: the newer models of OpenAI, Anthropic and
Google from public pages, the rest (older models, other providers, several windows) from memory and unchecked. The price
is that of a prompt of ordinary length where long ones cost more. Models come and go and prices move: what the config
says about a model under `models.providers` wins, and a model that stands in neither place is simply unpriced.
"""

from __future__ import annotations

from msgspec import Struct

OPENAI, ANTHROPIC, GOOGLE = "openai-completions", "anthropic-messages", "google-generative-ai"
EMBEDDED = "embedded"


class Price(Struct, frozen=True, rename="camel"):
    """US dollars per million tokens. A cache price that nobody told counts as the price of input."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None


class ModelInfo(Struct, frozen=True, rename="camel"):
    """What is known about one model. 0 and None: not known."""

    provider: str
    id: str
    wire: str = OPENAI
    context_window: int = 0
    max_output: int = 0
    price: Price | None = None
    inputs: tuple[str, ...] = ("text",)
    reasoning: bool = False
    name: str = ""


_BOTH = ("text", "image")
_M = 1_048_576

OFFERS: tuple[ModelInfo, ...] = (
    ModelInfo("openai", "gpt-6-astra", OPENAI, 922_000, 128_000, Price(10, 50, 1), _BOTH, True, "GPT-6 Astra"),
    ModelInfo("openai", "gpt-6-sol", OPENAI, 922_000, 128_000, Price(2, 10, 0.2, 2.5), _BOTH, True, "GPT-6 Sol"),
    ModelInfo(
        "openai", "gpt-6-luna", OPENAI, 922_000, 128_000, Price(0.1, 0.5, 0.01, 0.125), _BOTH, True, "GPT-6 Luna"
    ),
    ModelInfo("openai", "gpt-5.6-sol", OPENAI, 272_000, 128_000, Price(4, 20, 0.4), _BOTH, True, "GPT-5.6 Sol"),
    ModelInfo("openai", "gpt-5.6-terra", OPENAI, 272_000, 128_000, Price(2, 12, 0.2), _BOTH, True, "GPT-5.6 Terra"),
    ModelInfo("openai", "gpt-5.6-luna", OPENAI, 272_000, 128_000, Price(0.2, 1.2, 0.02), _BOTH, True, "GPT-5.6 Luna"),
    ModelInfo("openai", "gpt-5.4", OPENAI, 272_000, 128_000, Price(2.5, 15, 0.25), _BOTH, True, "GPT-5.4"),
    ModelInfo("openai", "gpt-5.4-mini", OPENAI, 272_000, 128_000, Price(0.75, 4.5, 0.075), _BOTH, True, "GPT-5.4 mini"),
    ModelInfo("openai", "gpt-5", OPENAI, 272_000, 128_000, Price(1.25, 10, 0.125), _BOTH, True, "GPT-5"),
    ModelInfo("openai", "gpt-5-mini", OPENAI, 272_000, 128_000, Price(0.25, 2, 0.025), _BOTH, True, "GPT-5 mini"),
    ModelInfo("openai", "gpt-5-nano", OPENAI, 272_000, 128_000, Price(0.05, 0.4, 0.005), _BOTH, True, "GPT-5 nano"),
    ModelInfo("openai", "gpt-4.1", OPENAI, 1_047_576, 32_768, Price(2, 8, 0.5), _BOTH, False, "GPT-4.1"),
    ModelInfo("openai", "gpt-4o-mini", OPENAI, 128_000, 16_384, Price(0.15, 0.6, 0.075), _BOTH, False, "GPT-4o mini"),
    # Anthropic bills what is put into the cache dearer than plain input.
    ModelInfo("anthropic", "claude-fable-5-1", ANTHROPIC, 1_000_000, 128_000, Price(10, 50), _BOTH, True, "Fable 5.1"),
    ModelInfo(
        "anthropic", "claude-opus-5-5", ANTHROPIC, 1_000_000, 128_000, Price(4, 20, 0.2, 5), _BOTH, True, "Opus 5.5"
    ),
    ModelInfo(
        "anthropic",
        "claude-sonnet-5-5",
        ANTHROPIC,
        1_000_000,
        128_000,
        Price(2, 10, 0.2, 2.5),
        _BOTH,
        True,
        "Sonnet 5.5",
    ),
    ModelInfo(
        "anthropic", "claude-haiku-5-5", ANTHROPIC, 1_000_000, 128_000, Price(0.1, 0.5), _BOTH, True, "Haiku 5.5"
    ),
    ModelInfo(
        "anthropic", "claude-opus-5", ANTHROPIC, 1_000_000, 128_000, Price(5, 25, 0.5, 6.25), _BOTH, True, "Opus 5"
    ),
    ModelInfo(
        "anthropic", "claude-sonnet-5", ANTHROPIC, 1_000_000, 128_000, Price(2, 10, 0.2, 2.5), _BOTH, True, "Sonnet 5"
    ),
    ModelInfo(
        "anthropic", "claude-sonnet-4-6", ANTHROPIC, 200_000, 64_000, Price(3, 15, 0.3, 3.75), _BOTH, True, "Sonnet 4.6"
    ),
    ModelInfo(
        "anthropic", "claude-haiku-4-5", ANTHROPIC, 200_000, 64_000, Price(1, 5, 0.1, 1.25), _BOTH, True, "Haiku 4.5"
    ),
    ModelInfo("google", "gemini-3.8-flash", GOOGLE, _M, 65_536, None, _BOTH, True, "Gemini 3.8 Flash"),
    ModelInfo("google", "gemini-3.5-flash", GOOGLE, _M, 65_536, Price(1.5, 9), _BOTH, True, "Gemini 3.5 Flash"),
    ModelInfo("google", "gemini-3.1-pro-preview", GOOGLE, _M, 65_536, Price(2, 12, 0.2), _BOTH, True, "Gemini 3.1 Pro"),
    ModelInfo(
        "google",
        "gemini-3.1-flash-lite",
        GOOGLE,
        _M,
        65_536,
        Price(0.25, 1.5, 0.025),
        _BOTH,
        True,
        "Gemini 3.1 Flash Lite",
    ),
    ModelInfo("google", "gemini-2.5-pro", GOOGLE, _M, 65_536, Price(1.25, 10, 0.125), _BOTH, True, "Gemini 2.5 Pro"),
    ModelInfo("google", "gemini-2.5-flash", GOOGLE, _M, 65_536, Price(0.3, 2.5, 0.03), _BOTH, True, "Gemini 2.5 Flash"),
    ModelInfo("xai", "grok-4", OPENAI, 256_000, 0, Price(3, 15, 0.75), _BOTH, True, "Grok 4"),
    ModelInfo("xai", "grok-4-fast", OPENAI, 2_000_000, 0, Price(0.2, 0.5, 0.05), _BOTH, True, "Grok 4 fast"),
    ModelInfo("xai", "grok-code-fast-1", OPENAI, 256_000, 0, Price(0.2, 1.5, 0.02), ("text",), True, "Grok Code"),
    ModelInfo("deepseek", "deepseek-chat", OPENAI, 128_000, 8_192, Price(0.28, 0.42, 0.028), name="DeepSeek"),
    ModelInfo(
        "deepseek",
        "deepseek-reasoner",
        OPENAI,
        128_000,
        65_536,
        Price(0.28, 0.42, 0.028),
        ("text",),
        True,
        "DeepSeek R",
    ),
    ModelInfo("mistral", "mistral-large-latest", OPENAI, 262_144, 0, Price(0.5, 1.5), _BOTH, False, "Mistral Large"),
    ModelInfo("mistral", "mistral-medium-latest", OPENAI, 131_072, 0, Price(0.4, 2), _BOTH, False, "Mistral Medium"),
    ModelInfo("mistral", "mistral-small-latest", OPENAI, 131_072, 0, Price(0.1, 0.3), _BOTH, False, "Mistral Small"),
    ModelInfo("mistral", "codestral-latest", OPENAI, 256_000, 0, Price(0.3, 0.9), name="Codestral"),
    ModelInfo("groq", "openai/gpt-oss-120b", OPENAI, 131_072, 65_536, Price(0.15, 0.6, 0.075), ("text",), True),
    ModelInfo("groq", "openai/gpt-oss-20b", OPENAI, 131_072, 65_536, Price(0.075, 0.3, 0.0375), ("text",), True),
    ModelInfo("groq", "llama-3.3-70b-versatile", OPENAI, 131_072, 32_768, Price(0.59, 0.79)),
    ModelInfo("cerebras", "gpt-oss-120b", OPENAI, 131_072, 0, Price(0.35, 0.75), ("text",), True),
    ModelInfo("together", "meta-llama/Llama-3.3-70B-Instruct-Turbo", OPENAI, 131_072, 0, Price(0.88, 0.88)),
    # It sends each request to a model of its own choice, so it has no price of its own.
    ModelInfo("openrouter", "openrouter/auto", OPENAI, 128_000, 0, None, _BOTH, True, "OpenRouter's choice"),
    ModelInfo(EMBEDDED, "scout", EMBEDDED, 32_000, 0, Price(0, 0, 0, 0), name="Scout"),
    ModelInfo(EMBEDDED, "smollm2", EMBEDDED, 2_048, 60, Price(0, 0, 0, 0), name="SmolLM2 135M, for small talk"),
)

# Providers that run on this machine: nobody sends a bill, whichever model it is.
FREE = (EMBEDDED, "ollama", "lmstudio")

ALIASES: dict[str, str] = {
    "opus": "anthropic/claude-opus-5-5",
    "sonnet": "anthropic/claude-sonnet-5-5",
    "haiku": "anthropic/claude-haiku-5-5",
    "gpt": "openai/gpt-6-sol",
    "gpt-mini": "openai/gpt-6-luna",
    "gemini": "google/gemini-3.1-pro-preview",
    "gemini-flash": "google/gemini-3.8-flash",
    "grok": "xai/grok-4",
    "deepseek": "deepseek/deepseek-chat",
    "mistral": "mistral/mistral-medium-latest",
    "scout": "embedded/scout",
    "smollm": "embedded/smollm2",
}
