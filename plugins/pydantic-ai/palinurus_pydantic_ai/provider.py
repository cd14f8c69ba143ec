"""A wire for the models that only pydantic-ai speaks to. Its name for a model is `vendor:model`, such as
`mistral:mistral-large-latest`; the vendors are those of the library.

The library is asked not to retry, and a stream that ends without a reason is a failure here, which the library takes
for a reply.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from msgspec import structs

from palinurus.domain.errors import Failure, ProviderError
from palinurus.providers.provider import (
    ModelRequest,
    ReplyDone,
    ReplyEvent,
    ReplyFailed,
    ReplyNotice,
    TextDelta,
    ThinkingTextDelta,
)
from palinurus.providers.wires.failures import Call, failure, failure_of
from palinurus.providers.wires.http import WireProvider
from palinurus.providers.wires.reply import MAX_CALLS, MAX_HELD, bounded

if TYPE_CHECKING:
    from pydantic_ai.models import Model, StreamedResponse

USUAL = "usual.invalid"  # as the host of a baseUrl: the library's own address of the vendor
STRICT = "openai_chat_streaming_requires_finish_reason"
STOPS = {"content_filter": Failure.REFUSAL, "error": Failure.OVERLOAD}


class PydanticProvider(WireProvider):
    """Implements Provider."""

    wire = "pydantic-ai"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._models: dict[str, Model[Any]] = {}

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ReplyEvent]:
        where = f"{self.address.scheme}://{self.address.netloc.rpartition('@')[2]}"
        call = Call(f"{self.name}/{request.model}", where, self._key, self._clock.now_ms())
        said: list[str] = []
        last: ReplyEvent
        try:
            async with aclosing(self._events(request, call)) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        said.append(event.text)
                    yield event
            return
        except ProviderError as error:
            last = ReplyFailed(error, "".join(said))
        except Exception as error:  # noqa: BLE001  the edge of a wire, whose libraries raise what they like
            last = ReplyFailed(failed(error, call), "".join(said))
        yield last

    async def _events(self, request: ModelRequest, call: Call) -> AsyncGenerator[ReplyEvent]:
        """What is streamed, and the whole reply."""
        model = self._models.get(request.model)
        if model is None:  # its libraries are imported now, which takes seconds
            model = self._models[request.model] = await asyncio.to_thread(self._make, request.model, call)
        from . import messages

        settings = messages.to_settings(request, self._idle_timeout)
        sent, parameters = messages.to_messages(request), messages.to_parameters(request)
        cut = False
        async with model.request_stream(sent, settings, parameters) as stream:
            held = calls = 0
            async with asyncio.timeout(self._idle_timeout) as patience:
                async for event, size, is_call in pieces(stream):
                    patience.reschedule(asyncio.get_running_loop().time() + self._idle_timeout)
                    held, calls = held + size, calls + is_call
                    if event is not None:
                        yield event
                    if cut := held > MAX_HELD or calls > MAX_CALLS:
                        break
        response = stream.get()
        if not cut and (response.finish_reason is None or response.state != "complete"):
            raise failure(call, Failure.NETWORK, "the stream ended without saying that it was finished", hint="try again")
        if response.finish_reason in STOPS:
            raise failure(call, STOPS[response.finish_reason])
        cut = cut or response.finish_reason == "length"
        whole, left_out = bounded(messages.from_response(response, cut=cut, now_ms=self._clock.now_ms()))
        if left_out:
            yield ReplyNotice(left_out)
        yield ReplyDone(structs.replace(whole, provider=self.name, model=request.model, api=self.wire))

    def _make(self, name: str, call: Call) -> Model[Any]:
        from pydantic_ai.models import infer_model
        from pydantic_ai.providers import Provider, infer_provider_class

        def vendor(kind: str) -> Provider[Any]:
            made = infer_provider_class(kind)
            known = inspect.signature(made.__init__).parameters
            options: dict[str, Any] = {"api_key": self._key or "none"} if "api_key" in known else {}
            if self.address.hostname != USUAL:
                if "base_url" not in known:
                    hint = f"https://{USUAL} as the baseUrl means the vendor's usual address"
                    raise failure(call, Failure.BAD_REQUEST, f"{kind} has an address of its own", hint=hint)
                options["base_url"] = self._base_url
            return made(**options)

        model = infer_model(name, vendor)
        vars(model)["profile"] = {**model.profile, STRICT: True}  # a cached property: its value stands there
        return model

    async def close(self) -> None:
        models, self._models = self._models, {}
        for model in models.values():
            async with model:  # leaving it closes the client that the library has made
                pass
        await super().close()


async def pieces(stream: StreamedResponse) -> AsyncGenerator[tuple[TextDelta | ThinkingTextDelta | None, int, bool]]:
    """What is shown of each event, how many characters it brings, and whether it begins a tool call."""
    from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta, ThinkingPart
    from pydantic_ai.messages import ThinkingPartDelta, ToolCallPart, ToolCallPartDelta

    async for event in stream:
        match event:
            case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                yield (TextDelta(text) if text else None), len(text), False
            case (
                PartStartEvent(part=ThinkingPart(content=thought))
                | PartDeltaEvent(delta=ThinkingPartDelta(content_delta=thought))
            ):
                yield (ThinkingTextDelta(thought) if thought else None), len(thought or ""), False
            case PartStartEvent(part=ToolCallPart(args=arguments)):
                yield None, len(str(arguments or "")), True
            case PartDeltaEvent(delta=ToolCallPartDelta(args_delta=arguments)):
                yield None, len(str(arguments or "")), False
            case _:
                yield None, 0, False


def failed(error: Exception, call: Call) -> ProviderError:
    """What an exception of the library or of a vendor's means."""
    from pydantic_ai import exceptions as kinds

    detail = f"{type(error).__name__}: {error}"
    if isinstance(error, kinds.ModelHTTPError):
        found = failure_of(error.status_code, str(error.body), error.headers or {}, call)
        found.retry_after = found.retry_after or error.retry_after
        return found
    if isinstance(error, kinds.ModelTimeoutError | TimeoutError):
        return failure(call, Failure.TIMEOUT, f"nothing came from {call.where} in time")
    if isinstance(error, kinds.ModelAPIError):
        return failure(call, Failure.NETWORK, detail)
    if isinstance(error, kinds.UnexpectedModelBehavior):
        return failure(call, Failure.MALFORMED, detail)
    if isinstance(error, ImportError):
        return failure(call, Failure.BAD_REQUEST, detail, hint="install pydantic-ai-slim with the vendor's extra")
    if isinstance(error, kinds.UserError | ValueError | TypeError):
        return failure(call, Failure.BAD_REQUEST, detail, hint="the model is `vendor:model`, as pydantic-ai names it")
    return failure(call, Failure.NETWORK, detail, hint="try again")
