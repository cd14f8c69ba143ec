"""Webhooks: other programs send messages to agents over HTTP, and agents' results are posted to other programs.

Incoming: `routes` authenticates a request, by the hook token or a signature (`signature`), and `message` makes a
message of it with the template of its mapping (`template`). Outgoing: `post` sends JSON by a job that is repeated until
it has arrived. `operations` is what people ask for.
"""

from __future__ import annotations

from palinurus.runtime.extensions import App


def register(app: App) -> None:
    app.http_routes(f"{__name__}.routes:ROUTES")
    app.operation(f"{__name__}.operations:list_webhooks", "webhooks.list")
    app.operation(f"{__name__}.operations:render_webhook", "webhooks.test")
    app.command("webhooks", f"{__name__}.commands:webhooks")
    app.job(f"{__name__}.post:POST_KIND", "webhooks.post")
    app.doctor_check(f"{__name__}.operations:check_webhooks")
