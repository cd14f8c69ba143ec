"""Embedders besides the embedded one: services to which the texts of memory are sent, and GGUF files on this machine.

`vendors` says how each service is asked, `remote` asks it, `batches` has large numbers of texts embedded by OpenAI's
Batch API. GGUF files are run by memory/embedders/gguf.py.
"""

from __future__ import annotations

from palinurus.runtime.extensions import App


def register(app: App) -> None:
    for provider in ("openai", "gemini", "voyage", "mistral", "ollama", "openai-compatible"):
        app.embedder(provider, f"{__name__}.remote:open_remote")
    app.embedder("local", "palinurus.memory.embedders.gguf:open_gguf")
    app.job(f"{__name__}.batches:BATCH_KIND", "memory.embedding-batch")
