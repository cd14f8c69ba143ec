"""HTTP endpoints of OpenAI and Anthropic: every program that can use either API can use an agent of this home.

A request is parsed into messages (`messages`) and the client's own tools (`client_tools`); `run` chooses agent and
session, makes one message of it and submits it to the dispatcher, as every surface does. The result is written in the
shape of the endpoint, whole or streamed (`endpoints`, `anthropic`, `stream`). Errors have its shape too (`errors`).
"""

from __future__ import annotations

from palinurus.runtime.extensions import App


def register(app: App) -> None:
    app.http_routes(f"{__name__}.routes:ROUTES")
