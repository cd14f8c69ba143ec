"""A wire for the long tail of models, over pydantic-ai."""

from palinurus.plugin import PluginApp


def register(app: PluginApp) -> None:
    app.provider("pydantic-ai", "palinurus_pydantic_ai.provider:PydanticProvider")
