"""From a signature to a schema, and from a call to a result, whatever the model sends."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from palinurus.domain.errors import ConfigError, NotFound
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Image, Text, ToolCall
from palinurus.domain.tool import Tool, ToolOutput, ToolRun, tool
from palinurus.tools.registry import ToolRegistry

RUN = ToolRun(SessionKey.main(), "run-1", private=True)
NARROW = msgspec.structs.replace(RUN, max_characters=100)


class Span(Struct, frozen=True):
    start: int
    title: str = ""


@tool("demo", "Shows every kind of argument.")
async def demo(
    run: ToolRun,
    path: Annotated[str, "where"],
    count: Annotated[int, Meta(ge=1), "how many"] = 3,
    kind: Literal["a", "b"] = "a",
    title: str | None = None,
    spans: tuple[Span, ...] = (),
) -> ToolOutput:
    return ToolOutput(f"{run.run_id} {path} {count} {kind} {title} {[span.start for span in spans]}")


def raising(error: BaseException) -> Tool:
    @tool("bad", "Fails.")
    async def bad(run: ToolRun) -> ToolOutput:
        raise error

    return bad


async def run(tools: Tool | tuple[Tool, ...], name: str, **arguments: Any) -> ToolOutput:
    return await ToolRegistry(tools if isinstance(tools, tuple) else (tools,)).run(RUN, ToolCall("c1", name, arguments))


def test_the_schema_is_the_signature_in_one_piece_without_titles() -> None:
    assert demo.spec.parameters == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "where"},
            "count": {"type": "integer", "description": "how many"},
            "kind": {"enum": ["a", "b"]},
            "title": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "spans": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"start": {"type": "integer"}, "title": {"type": "string"}},
                    "required": ["start"],
                },
            },
        },
        "required": ["path"],
    }


async def test_arguments_arrive_typed_with_their_defaults() -> None:
    assert (await run(demo, "demo", path="x")).content == "run-1 x 3 a None []"
    output = await run(demo, "demo", path="x", count=5, kind="b", title="t", spans=[{"start": 7}])
    assert output == ToolOutput("run-1 x 5 b t [7]")


async def test_numbers_in_strings_and_nulls_for_what_was_left_out_are_understood() -> None:
    assert (await run(demo, "demo", path="x", count="5", kind=None)).content == "run-1 x 5 a None []"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "demo needs the argument 'path'"),
        ({"path": None}, "the argument 'path' is wrong: expected `str`, got `null`"),
        ({"path": 3}, "the argument 'path' is wrong: expected `str`, got `int`"),
        ({"path": "x", "count": 0}, "the argument 'count' is wrong: expected `int` >= 1"),
        ({"path": "x", "kind": "C"}, "the argument 'kind' is wrong: invalid enum value 'C'"),
        ({"path": "x", "spans": [{"start": "?"}]}, "the argument 'spans[0].start' is wrong"),
        ({"path": "x", "file": "y"}, "demo has no argument 'file'"),
        ({"_malformed": '{"path": '}, "the arguments of demo were not JSON: '{\"path\": '"),
    ],
)
async def test_wrong_arguments_come_back_naming_what_to_mend(arguments: dict[str, Any], said: str) -> None:
    output = await run(demo, "demo", **arguments)
    assert output.is_error
    assert said in output.content
    assert "path (string, required), count (integer)" in output.content


async def test_an_unknown_tool_is_answered_with_the_known_ones() -> None:
    output = await run((demo, raising(NotFound("x"))), "rm")
    assert output == ToolOutput("there is no tool called 'rm'; the tools are: bad, demo", is_error=True)


async def test_an_error_of_ours_is_a_result_with_its_hint() -> None:
    output = await run(raising(NotFound("there is no x", hint="look elsewhere")), "bad")
    assert output == ToolOutput("there is no x (look elsewhere)", is_error=True)


async def test_a_mistake_in_a_tool_costs_its_result_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    output = await run(raising(ZeroDivisionError("oh")), "bad")
    assert output.is_error
    assert "ZeroDivisionError: oh" in output.content
    assert "the tool bad failed" in caplog.text


async def test_cancellation_of_the_run_goes_through() -> None:
    began = asyncio.Event()

    @tool("hang", "Never ends.")
    async def hang(run: ToolRun) -> ToolOutput:
        began.set()
        await asyncio.Event().wait()
        return ToolOutput("never")

    running = asyncio.create_task(run(hang, "hang"))
    await asyncio.wait_for(began.wait(), 60)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_cancellation_of_the_tools_own_making_is_a_result() -> None:
    output = await run(raising(asyncio.CancelledError()), "bad")
    assert output.is_error
    assert "was cancelled" in str(output.content)


def said(content: Any) -> Tool:
    @tool("say", "Says it.")
    async def say(run: ToolRun) -> ToolOutput:
        return ToolOutput(content, details={"kept": True})

    return say


async def test_a_long_result_keeps_head_and_tail_around_a_line_that_counts_the_cut() -> None:
    text = "".join(f"{number:05}\n" for number in range(10_000))
    output = await run(said(text), "say")
    head, marker, _ = output.content.partition("\n[… 44,000 of 60,000 characters cut here")
    assert marker
    assert text.startswith(head)
    assert len(head) == 12_000
    assert output.content.endswith(text[-4_000:])
    assert output.details == {"kept": True}


async def test_the_limit_counts_all_text_blocks_together_and_leaves_images() -> None:
    image = Image("aGk=", "image/png")
    output = await ToolRegistry((said((Text("a" * 90), image, Text("b" * 90))),)).run(NARROW, ToolCall("1", "say", {}))
    first, second, third = output.content
    assert (first, second) == (Text("a" * 90), image)
    assert isinstance(third, Text)
    assert "80 of 90 characters cut" in third.text


@given(st.text(max_size=300))
async def test_every_result_can_be_stored_and_is_bounded(text: str) -> None:
    output = await ToolRegistry((said(text + "\udcff"),)).run(NARROW, ToolCall("1", "say", {}))
    assert len(msgspec.json.decode(msgspec.json.encode(output.content))) < 250


def test_specs_are_in_one_order_however_the_tools_came() -> None:
    bad = raising(NotFound("x"))
    assert ToolRegistry((demo, bad)).specs() == ToolRegistry((bad, demo)).specs()
    assert [spec.name for spec in ToolRegistry((demo, bad)).specs()] == ["bad", "demo"]


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two tools are called demo"):
        ToolRegistry((demo, demo))
