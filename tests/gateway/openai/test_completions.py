"""/v1/completions: the oldest format, for programs that know only that one."""

from __future__ import annotations

from typing import Any

import pytest
from openai import AsyncOpenAI
from speaking import TOKEN, Served


@pytest.mark.shows("openai (Python)", "completions, the old format, whole and streamed")
async def test_a_text_is_answered_whole_and_streamed(served: Served) -> None:
    served.pal.model.says("Hello.", "One two three.")
    async with AsyncOpenAI(base_url=f"{served.url}/v1", api_key=TOKEN, timeout=60) as client:
        whole = await client.completions.create(model="palinurus", prompt=["hi"])
        assert (whole.object, whole.choices[0].text, whole.choices[0].finish_reason) == (
            "text_completion", "Hello.", "stop",
        )  # fmt: skip
        assert whole.usage is not None
        assert whole.usage.total_tokens == 110
        options: Any = {"stream": True, "stream_options": {"include_usage": True}}
        chunks = [chunk async for chunk in await client.completions.create(model="palinurus", prompt="hi", **options)]
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == "One two three."
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage is not None


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": ["a", "b"]},
        {"prompt": [1, 2]},
        {"prompt": " "},
        {"prompt": "a", "n": 2},
        {"prompt": "a", "echo": True},
        {"prompt": "a", "suffix": "b"},
    ],
)
async def test_what_an_agent_cannot_do_is_refused(served: Served, body: Any) -> None:
    assert (await served.http.post("/v1/completions", json=body)).status_code == 400
    assert served.pal.model.requests == []


@pytest.mark.parametrize("kind", ["input_audio", "file"])
async def test_audio_and_files_are_refused_and_it_says_what_to_send(served: Served, kind: str) -> None:
    answer = await served.chat({"role": "user", "content": [{"type": kind, kind: {}}]})
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    assert f"'{kind}' is not supported" in message
    assert "as text" in message or "its text" in message


async def test_sessions_of_requests_that_name_none_are_not_listed_and_end_after_a_day(served: Served) -> None:
    from palinurus.operations.session_maintenance import clean_up_sessions
    from palinurus.operations.sessions import list_sessions

    asked, services = {"role": "user", "content": "hi"}, served.services
    reply = (await served.chat(asked)).json()["choices"][0]["message"]
    response = (await served.respond("ho")).json()
    await served.chat("hello", user="alice")
    assert [each.key.split(":")[2] for each in (await list_sessions(services)).sessions] == ["openai-user"]
    assert len((await list_sessions(services, archived=True)).sessions) == 3
    served.pal.clock.advance(minutes=60 * 24 - 5)
    assert (await clean_up_sessions(services, enforce=None)).archived == ()
    served.pal.clock.advance(minutes=10)
    done = await clean_up_sessions(services, enforce=None)
    assert (len(done.archived), done.enforced) == (2, False)
    assert [each.key.split(":")[2] for each in await served.pal.sessions.recent()] == ["openai-user"]
    # A client that comes back later brings its history to a new session; the other must do so too.
    assert (await served.chat(asked, reply, "on")).status_code == 200
    assert [each.text for each in served.pal.model.requests[-1].messages] == ["hi", reply["content"], "on"]
    gone = await served.respond("on", previous_response_id=response["id"])
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "previous_response_not_found")
