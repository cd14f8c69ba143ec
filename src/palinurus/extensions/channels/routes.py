"""The webhooks of networks that post to us. Each adapter verifies its requests itself; here they are only bounded."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from palinurus.dispatch.channels import ChannelRequest
from palinurus.dispatch.settings import account_layers
from palinurus.domain.errors import HolderLost, NotOffered, QueueFull, StorageError
from palinurus.extensions.channels.host import ChannelHost, configured_accounts
from palinurus.extensions.channels.settings import WEBHOOK_PATHS
from palinurus.gateway.http.app import RouteProvider, read_body
from palinurus.gateway.websocket.methods import GatewayContext

MOST_BYTES = 10_000_000


class ChannelWebhooks:
    def __init__(self, gateway: GatewayContext) -> None:
        self._services = gateway.services

    async def receive(self, request: Request) -> Response:
        """A request of a chat network."""
        body = await read_body(request, most=MOST_BYTES) if request.method == "POST" else b""
        asked = ChannelRequest(
            request.method,
            request.url.path,
            {name.lower(): value for name, value in request.headers.items()},
            dict(request.query_params),
            body,
        )
        host = self._services.keep(ChannelHost)
        try:
            answer = await host.handle(asked)
        except (QueueFull, StorageError, HolderLost, NotOffered):  # the network posts it again
            return Response("not now", 503, media_type="text/plain")
        return Response(answer.body, answer.status, media_type=answer.content_type)


def make_routes(gateway: GatewayContext) -> list[BaseRoute]:
    """Of all accounts of networks that may post to us: which do is known when they run."""
    config = gateway.services.config
    paths = {
        next((each[key] for each in account_layers(config, channel, account) if key in each), usual)
        for channel, account in configured_accounts(config)
        for key, usual in WEBHOOK_PATHS.get(channel, {}).items()
    }
    webhooks = ChannelWebhooks(gateway)
    return [Route(path, webhooks.receive, methods=["GET", "POST"]) for path in sorted(paths)]


ROUTES = RouteProvider(make_routes, ())
