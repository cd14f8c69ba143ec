"""Skills of others and for others: a client for registries, a registry to host, and drafts made of past sessions."""

from __future__ import annotations

from palinurus.runtime.extensions import App


def register(app: App) -> None:
    app.command("registry", f"{__name__}.server.commands:registry")
    for name in ("search", "install", "update", "verify", "publish", "draft", "drafts", "accept"):
        app.command(f"skills {name}", f"{__name__}.commands:{name}")
    app.operation(f"{__name__}.drafts:draft_skill", "skills.draft")
