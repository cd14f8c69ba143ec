"""GET /v1/models: the agents of the house, each as a model."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from palinurus.gateway.http.app import reply
from palinurus.gateway.openai.entry import let_in
from palinurus.gateway.openai.place import agent_named, model_names
from palinurus.gateway.talk.desk import Desk


class Model(Struct, frozen=True):
    id: str
    created: int
    object: Literal["model"] = "model"
    owned_by: str = "palinurus"


class ModelList(Struct, frozen=True):
    data: tuple[Model, ...]
    object: Literal["list"] = "list"


async def list_models(desk: Desk, request: Request) -> Response:
    let_in(desk, request, "read")
    names = model_names(desk.house.agents.ids)
    return reply(ModelList(tuple(_model(desk, name) for name in names)))


async def show_model(desk: Desk, request: Request) -> Response:
    let_in(desk, request, "read")
    name: str = request.path_params["model"]
    agents = desk.house.agents
    agent_named(name, agents.ids, agents.default)
    return reply(_model(desk, name))


def _model(desk: Desk, name: str) -> Model:
    return Model(name, desk.started_at // 1000)
