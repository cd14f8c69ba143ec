"""A call that a person makes without a model: arguments that fit the tool, one run of it, its words as the reply."""

from __future__ import annotations

import asyncio
from typing import Any

from palinurus.agent.gather import fitting_arguments
from palinurus.agent.loop import DIRECT, SEE_REPLY, STOPPED, DirectReply, Loop, direct_reply
from palinurus.agent.reply import Stop
from palinurus.domain.events import AssistantDelta, RunEvent, ToolFinished, ToolStarted
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, Image, Origin, Text, ToolCall, ToolResult, UserMessage
from palinurus.domain.tool import ToolOutput, ToolRun, ToolSpec, tool
from palinurus.providers.provider import Head, ModelRequest
from palinurus.skills.offer import SkillCall
from palinurus.skills.skill import Skill, SkillManifest
from palinurus.testing.fakes import FakeClock, ScriptedProvider
from palinurus.tools.registry import ToolRegistry

RUN = ToolRun(SessionKey.main(), "run-1", private=True)
CALL = ToolCall("direct-run-1", "sail", {"to": "Ithaca"})
REQUEST = ModelRequest("m", Head(""), (UserMessage("/sail Ithaca"),))
CALLED = SkillCall(Skill(SkillManifest("sails", "Sails."), "/x", "managed", "0"), "sails", "to Ithaca")


@tool("sail", "Set sail.")
async def sail(run: ToolRun, to: str) -> ToolOutput:
    if to == "nowhere":
        await asyncio.sleep(10)
    return ToolOutput(
        "" if to == "silence" else f"sailed to {to}", origin=Origin.OUTSIDE if to == "Troy" else Origin.AGENT
    )


class AsItIs:
    def clean(self, message: Any) -> Any:
        return message

    def redact(self, text: str) -> str:
        return text


class Nobody:
    def waiting(self) -> bool:
        return True  # somebody waits, and has a turn of their own

    def take(self) -> None:
        raise AssertionError


def make(heard: list[RunEvent], stop: Stop | None = None) -> Loop:
    return Loop(
        ScriptedProvider(), ToolRegistry([sail]), RUN, stop or Stop(), heard.append, FakeClock(), AsItIs(), Nobody()
    )  # fmt: skip


async def said(
    loop: Loop, call: ToolCall = CALL, request: ModelRequest = REQUEST
) -> list[AssistantMessage | ToolResult]:
    whole = [message async for message in loop.direct(call, request)]
    return [
        each for message in whole for each in (message.messages if isinstance(message, DirectReply) else (message,))
    ]


async def test_the_result_is_the_reply_and_no_model_is_asked() -> None:
    heard: list[RunEvent] = []
    loop = make(heard)
    called, result, reply = await said(loop)
    assert isinstance(called, AssistantMessage)
    assert isinstance(reply, AssistantMessage)
    assert (called.calls, result.text, reply.text) == ((CALL,), SEE_REPLY, "sailed to Ithaca")
    assert (called.api, reply.api, reply.stop_reason) == (DIRECT, DIRECT, "stop")
    assert [type(event) for event in heard] == [ToolStarted, ToolFinished, AssistantDelta]
    assert loop.provider.requests == []  # type: ignore[attr-defined]


async def test_words_from_outside_do_not_pass_for_our_own() -> None:
    _, result, reply = await said(make([]), ToolCall("1", "sail", {"to": "Troy"}))
    assert reply.text == "sail brings, from outside:\n\nsailed to Troy"
    assert isinstance(result, ToolResult)
    assert (result.text, result.origin) == (SEE_REPLY, Origin.OUTSIDE)  # or the next turn would take them for its own


def test_a_picture_stays_with_the_result() -> None:
    reply, moon = AssistantMessage((Text("the moon"),)), Image("AA==", "image/png")
    told = direct_reply(ToolResult("1", "look", (Text("the moon"), moon)), reply)
    assert told.messages == (ToolResult("1", "look", (Text(SEE_REPLY), moon)), reply)
    assert direct_reply(ToolResult("1", "look", (moon,)), reply).result.content == (moon,)


async def test_a_tool_that_says_nothing_still_has_a_reply() -> None:
    *_, reply = await said(make([]), ToolCall("1", "sail", {"to": "silence"}))
    assert reply.text == "sail is done; it had nothing to say."


async def test_a_call_that_a_crash_has_cut_off_is_not_done_again() -> None:
    broken = ToolResult("direct-run-1", "sail", "no result", is_error=True)
    request = ModelRequest("m", Head(""), (*REQUEST.messages, AssistantMessage((CALL,)), broken))
    [reply] = await said(make([]), request=request)
    assert reply.text == "no result"


async def test_stop_ends_it() -> None:
    stop = Stop()
    task = asyncio.create_task(said(make([], stop), ToolCall("1", "sail", {"to": "nowhere"})))
    await asyncio.sleep(0)
    stop.request()
    *_, reply = await asyncio.wait_for(task, 60)
    assert isinstance(reply, AssistantMessage)
    assert (reply.text, reply.stop_reason) == (STOPPED, "aborted")


def spec(*names: str, required: tuple[str, ...] = (), closed: bool = True) -> ToolSpec:
    properties = {name: {"type": "string"} for name in names}
    return ToolSpec(
        "x" if closed else "mail__x", "x", {"type": "object", "properties": properties, "required": list(required)}
    )


def test_arguments_are_those_that_the_tool_knows() -> None:
    whole = {"command": "to Ithaca", "commandName": "sails", "skillName": "sails"}
    assert fitting_arguments(CALLED, None) == whole
    assert fitting_arguments(CALLED, spec("command", closed=False)) == whole
    assert fitting_arguments(CALLED, spec("command", "timeout", required=("command",))) == {"command": "to Ithaca"}
    assert fitting_arguments(CALLED, spec("query", "count", required=("query",))) == {"query": "to Ithaca"}
    assert fitting_arguments(CALLED, spec()) == {}
