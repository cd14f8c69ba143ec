"""POST /v1/chat/completions, over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

from speaking import Served, events

from palinurus.domain.errors import Failure
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, ToolResult, Usage, UserMessage
from palinurus.gateway.websocket.methods import Endpoints
from palinurus.providers.provider import ReplyDone, TextDelta
from palinurus.testing.fakes import Reply, call, calls, fails

WAIT = 60.0


async def test_a_message_is_answered_in_openais_shape(served: Served) -> None:
    served.pal.model.says(Reply("Hello there.", usage=Usage(100, 10, 40, 2)))
    answer = (await served.chat("hi")).json()
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Hello there.", "refusal": None}
    assert choice["finish_reason"] == "stop"
    assert answer["object"] == "chat.completion"
    assert answer["model"] == "palinurus"
    assert answer["id"].startswith("chatcmpl-")
    assert answer["usage"] == {
        "prompt_tokens": 142,
        "completion_tokens": 10,
        "total_tokens": 152,
        "prompt_tokens_details": {"cached_tokens": 40},
    }


async def test_a_stream_begins_with_the_role_and_ends_with_done(served: Served) -> None:
    served.pal.model.says("One two three.")
    answer = await served.chat("hi", stream=True, stream_options={"include_usage": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    *chunks, done = events(answer.text)
    assert done == "[DONE]"
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    words = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1]]
    assert "".join(words) == "One two three."
    assert chunks[-2]["choices"][0] == {"index": 0, "delta": {}, "finish_reason": "stop"}
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 10
    assert {chunk["id"] for chunk in chunks} == {chunks[0]["id"]}


async def test_a_stream_without_usage_asked_for_has_none(served: Served) -> None:
    *chunks, _ = events((await served.chat("hi", stream=True)).text)
    assert not any("usage" in chunk for chunk in chunks)


async def test_two_requests_without_a_name_know_nothing_of_each_other(served: Served) -> None:
    await served.chat("my boat is green")
    await served.chat("what colour?")
    first, second = await served.keys()
    assert first != second
    assert all(key.startswith("agent:main:openai:") for key in (first, second))
    assert len(served.pal.model.requests[1].messages) == 1


async def test_earlier_messages_of_a_request_on_its_own_are_entries_of_its_session(served: Served) -> None:
    said = [{"role": "user", "content": "my boat is green"}, {"role": "assistant", "content": "Noted."}]
    await served.chat(*said, {"role": "user", "content": "what colour?"})
    (request,) = served.pal.model.requests
    shown = [(type(each), each.text) for each in request.messages]
    assert shown == [(UserMessage, "my boat is green"), (AssistantMessage, "Noted."), (UserMessage, "what colour?")]
    (key,) = await served.keys()
    view = await served.services.turns.history.view_of(SessionKey.parse(key))
    assert [line.message.text for line in view.lines] == [text for _, text in shown] + ["you said: what colour?"]


async def test_the_same_user_goes_on_in_the_same_session(served: Served) -> None:
    await served.chat("my boat is green", user="alice")
    history = [{"role": "user", "content": "my boat is green"}, {"role": "assistant", "content": "Noted."}]
    await served.chat(*history, "what colour?", user="alice")
    assert len(await served.keys()) == 1
    first, second = served.pal.model.requests
    assert second.messages[: len(first.messages)] == first.messages
    assert second.messages[-1].text == "what colour?"
    assert not any(note.kind == "history" for note in second.messages[-1].context)


async def test_a_new_session_is_told_the_history_that_its_client_brings(served: Served) -> None:
    await served.chat("hi", {"role": "assistant", "content": "Hello."}, "and now?", user="bob")
    assert [each.text for each in served.pal.model.requests[0].messages] == ["hi", "Hello.", "and now?"]


async def test_instructions_ride_beside_the_message_and_are_told_once(served: Served) -> None:
    told = {"role": "system", "content": "Answer in Latin."}
    await served.chat(told, "hi", user="alice")
    await served.chat(told, "hi again", user="alice")
    await served.chat({"role": "developer", "content": "Answer in Greek."}, "once more", user="alice")
    first, second, third = (request.messages[-1] for request in served.pal.model.requests)
    assert [note.text for note in first.context if note.kind == "notice"] == ["Answer in Latin."]
    assert [note.text for note in second.context if note.kind == "notice"] == []
    assert [note.text for note in third.context if note.kind == "notice"] == ["Answer in Greek."]
    heads = {request.head.system for request in served.pal.model.requests}
    assert len(heads) == 1
    assert "Latin" not in heads.pop()


async def test_commands_are_words_to_a_program(served: Served) -> None:
    served.pal.model.says("As you wish.")
    answer = (await served.chat("stop")).json()
    assert answer["choices"][0]["message"]["content"] == "As you wish."
    await served.chat("/think high please", user="x")
    assert served.pal.model.requests[-1].messages[-1].text == "/think high please"


async def test_the_same_idempotency_key_is_one_turn_and_one_answer(served: Served) -> None:
    served.pal.model.says("First.", "Second.")
    headers = {"idempotency-key": "k1"}
    one = await served.chat("hi", headers=headers)
    again = await served.chat("hi", headers=headers)
    streamed = await served.chat("hi", headers=headers, stream=True)
    assert one.json() == again.json()
    assert len(served.pal.model.requests) == 1
    chunks = events(streamed.text)
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1]) == "First."


async def test_a_session_key_in_a_header_names_the_place(served: Served) -> None:
    await served.chat("hi", headers={"x-openclaw-session-key": "agent:main:main"})
    await served.chat("hi", headers={"x-palinurus-session-key": "holiday"})
    assert set(await served.keys()) == {"agent:main:main", "agent:main:explicit:holiday"}


async def test_sessions_of_runs_cannot_be_named(served: Served) -> None:
    for key in ("subagent:x", "agent:main:cron:1", "ACP:2"):
        answer = await served.chat("hi", headers={"x-openclaw-session-key": key})
        assert answer.status_code == 400, key
        assert answer.json()["error"]["type"] == "invalid_request_error"
    assert served.pal.model.requests == []


async def test_every_name_of_an_agent_is_understood(served: Served) -> None:
    names = ("palinurus", "palinurus/main", "openclaw", "openclaw/default", "openclaw/main", "openclaw:main")
    for name in (*names, "agent:main", ""):
        answer = await served.chat("hi", model=name)
        assert answer.status_code == 200, name
    unknown = await served.chat("hi", model="gpt-9")
    assert unknown.status_code == 404
    assert unknown.json()["error"]["code"] == "model_not_found"


async def test_a_backend_model_is_for_one_message(served: Served) -> None:
    await served.chat("hi", user="a", headers={"x-openclaw-model": "scripted/model-9"})
    await served.chat("hi", user="a")
    assert [request.model for request in served.pal.model.requests] == ["model-9", "model-1"]
    bad = await served.chat("hi", headers={"x-openclaw-model": "../../etc"})
    assert bad.status_code == 400


async def test_failures_of_the_model_have_statuses_that_clients_know(served: Served) -> None:
    expected = {
        Failure.RATE_LIMIT: 429,
        Failure.OVERLOAD: 503,
        Failure.CONTEXT_OVERFLOW: 400,
        Failure.AUTH: 502,
        Failure.TIMEOUT: 504,
    }
    for kind, status in expected.items():
        for stream in (False, True):
            # What is too much for the window is compacted, with a summary, and tried once more.
            tries = 3 if kind == Failure.CONTEXT_OVERFLOW else 1
            served.pal.model.says(*[fails(kind, "it did not work")] * tries)
            answer = await served.chat("hi", stream=stream)
            served.pal.model.replies.clear()
            assert answer.status_code == status
            assert "it did not work" in answer.json()["error"]["message"]
            assert answer.headers["x-should-retry"] == "false"


async def test_a_stream_that_breaks_after_words_ends_with_an_error(served: Served) -> None:
    reply = fails(Failure.NETWORK, "the line is dead")
    served.pal.model.says(Reply("Half a", error=reply.error))
    answer = await served.chat("hi", stream=True)
    *chunks, last = events(answer.text)
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "Half a"
    assert "the line is dead" in last["error"]["message"]


async def test_a_refusal_is_a_filtered_reply_and_a_cut_one_says_so(served: Served) -> None:
    served.pal.model.says(fails(Failure.REFUSAL))
    answer = (await served.chat("hi")).json()
    assert answer["choices"][0]["finish_reason"] == "content_filter"

    class Cut:
        name = wire = "scripted"

        def context_window(self, model: str) -> int:
            return 1000

        async def stream(self, request: Any) -> Any:
            yield ReplyDone(AssistantMessage((), "scripted", "m", "scripted", stop_reason="length"))

    served.pal.model = Cut()
    answer = (await served.chat("hi")).json()
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_words_before_and_after_a_tool_stand_apart(served: Served) -> None:
    served.pal.model.says(calls(call("read", path="SOUL.md"), text="Let me look."), "Curious and calm.")
    *chunks, _ = events((await served.chat("who are you?", stream=True)).text)
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert text == "Let me look.\n\nCurious and calm."


class Held:
    """A model that says a word and waits until it is told to go on."""

    name = wire = "scripted"

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()
        self.left = asyncio.Event()

    def context_window(self, model: str) -> int:
        return 32_000

    async def stream(self, request: Any) -> Any:
        self.asked.set()
        yield TextDelta("Well, ")
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.left.set()
            raise
        yield TextDelta("yes.")
        yield ReplyDone(AssistantMessage((), "scripted", "m", "scripted"))


async def _leaves(served: Served, held: Held, **further: Any) -> None:
    """A client that goes away when the model has begun."""
    asking = asyncio.create_task(served.chat("hi", **further))
    await asyncio.wait_for(held.asked.wait(), WAIT)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def test_a_client_that_leaves_stops_what_nobody_else_would_read(served: Served) -> None:
    for stream in (False, True):
        served.pal.model = held = Held()
        await _leaves(served, held, stream=stream)
        await asyncio.wait_for(held.left.wait(), WAIT)
        await served.pal.idle()


async def test_a_client_that_leaves_a_lasting_session_finds_the_answer_there(served: Served) -> None:
    for place in ({"user": "alice"}, {"headers": {"idempotency-key": "k"}}):
        served.pal.model = held = Held()
        await _leaves(served, held, **place)
        held.go_on.set()
        await served.pal.idle()
        assert not held.left.is_set()


async def test_words_come_while_the_model_still_speaks(served: Served) -> None:
    served.pal.model = held = Held()
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with served.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        lines = answer.aiter_lines()
        async with asyncio.timeout(WAIT):
            async for line in lines:
                if "Well," in line:
                    break
        assert not held.go_on.is_set()
        held.go_on.set()
        rest = [line async for line in lines]
    assert rest[-2:] == ["data: [DONE]", ""] or "data: [DONE]" in rest


async def test_a_silent_run_is_kept_alive_by_comments(served: Served, monkeypatch: Any) -> None:
    monkeypatch.setattr("palinurus.extensions.openai_api.stream.KEEP_ALIVE_SECONDS", 0.01)
    served.pal.model = held = Held()
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with served.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        async with asyncio.timeout(WAIT):
            async for line in answer.aiter_lines():
                if line == ": keep-alive":
                    held.go_on.set()
                    break


async def test_pictures_come_as_data(served: Served) -> None:
    def asks(url: str, count: int = 1) -> dict[str, Any]:
        part = {"type": "image_url", "image_url": {"url": url}}
        return {"role": "user", "content": [{"type": "text", "text": "what is it?"}, *[part] * count]}

    good = f"data:image/png;base64,{PIXEL}"
    assert (await served.chat(asks(good))).status_code == 200
    text, image = served.pal.model.requests[0].messages[0].content
    assert text.text == "what is it?"
    assert image.mime_type == "image/png"
    for url in ("data:image/png,abc", "data:image/png;base64,??", "data:image/png;base64,é"):
        answer = await served.chat(asks(url))
        assert answer.status_code == 400, url
    assert (await served.chat(asks(good, 9))).status_code == 400


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


async def test_a_token_without_the_scope_is_refused_in_openais_shape(served: Served) -> None:
    _, reading = await served.register.make_token("reader", ["read"])
    for secret, status in (("wrong", 401), (reading, 403), ("x y", 401)):
        answer = await served.chat("hi", headers={"authorization": f"Bearer {secret}"})
        assert answer.status_code == status
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    models = await served.http.get("/v1/models", headers={"authorization": f"Bearer {reading}"})
    assert models.status_code == 200
    narrowed = await served.chat("hi", headers={"x-openclaw-scopes": "operator.read"})
    assert narrowed.status_code == 403
    assert served.pal.model.requests == []


async def test_what_makes_no_sense_is_told_in_one_line(served: Served) -> None:
    cases: list[dict[str, Any]] = [
        {"messages": []},
        {"messages": [{"role": "system", "content": " "}]},
        {"messages": [{"role": "user", "content": "x"}], "functions": [{"name": "weather"}]},
        {"messages": [{"role": "user", "content": "  "}]},
        {"messages": [{"role": "alien", "content": "x"}]},
        {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]},
        {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
        {"messages": [{"role": "user", "content": "x"}], "n": 3},
        {"messages": [{"role": "user", "content": "x"}], "modalities": ["text", "audio"]},
        {"messages": [{"role": "user", "content": "x"}], "tool_choice": {"type": "allowed_tools"}},
        {"messages": "x"},
        {},
    ]
    for body in cases:
        answer = await served.http.post("/v1/chat/completions", json=body)
        assert answer.status_code == 400, body
        assert answer.json()["error"]["message"]
    deep = await served.http.post(
        "/v1/chat/completions", content=b"[" * 100_000, headers={"content-type": "application/json"}
    )
    assert deep.status_code == 400
    form = await served.http.post("/v1/chat/completions", data={"a": "b"})
    assert form.status_code == 415
    assert served.pal.model.requests == []


async def test_a_request_with_instructions_alone_is_answered(served: Served) -> None:
    """Clients ask for a title this way."""
    served.pal.model.says("A title.")
    answer = await served.chat({"role": "system", "content": "Name this conversation."})
    assert answer.json()["choices"][0]["message"]["content"] == "A title."
    assert served.pal.model.requests[0].messages[0].text == "Name this conversation."


async def test_an_endpoint_that_is_switched_off_is_not_there(open_gateway: Any) -> None:
    served = await open_gateway(Endpoints(chat_completions=False, responses=False))
    assert (await served.chat("hi")).status_code == 404
    assert (await served.respond("hi")).status_code == 404
    assert (await served.http.get("/v1/models")).status_code == 200


async def test_models_are_agents_and_a_house_without_an_embedder_says_so(served: Served) -> None:
    listed = (await served.http.get("/v1/models")).json()
    assert [model["id"] for model in listed["data"]] == ["palinurus", "palinurus/main"]
    assert (await served.http.get("/v1/models/")).json() == listed
    one = await served.http.get("/v1/models/openclaw/main")
    assert one.json()["id"] == "openclaw/main"
    assert (await served.http.get("/v1/models/nobody")).status_code == 404
    embedding = await served.http.post("/v1/embeddings", json={"input": "x", "model": "palinurus"})
    assert embedding.status_code == 501


async def test_thirty_two_at_once_in_one_session_are_answered_each_and_in_order(served: Served) -> None:
    answers = await asyncio.gather(*(served.chat(f"number {n}", user="alice") for n in range(32)))
    texts = [answer.json()["choices"][0]["message"]["content"] for answer in answers]
    assert texts == [f"you said: number {n}" for n in range(32)]
    said = await served.pal.messages((await served.keys())[0])
    assert [type(message) for message in said] == [UserMessage, AssistantMessage] * 32
    assert not any(isinstance(message, ToolResult) for message in said)


async def test_a_wish_that_cannot_be_forced_is_passed_on_as_words(served: Served) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "title": "Boat"}}}
    await served.chat("hi", response_format=form, temperature=0.1, max_tokens=5, unheard_of=True)
    (note,) = [note for note in served.pal.model.requests[0].messages[0].context if note.kind == "notice"]
    assert '"title":"Boat"' in note.text
