"""Hooks that hang, raise, leak or change what they must not: the run goes on, and the hook is named and disabled."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from listeners import SHORT, Listeners

from palinurus.domain.hooks import HookEvent
from palinurus.domain.tool import ToolOutput, ToolRun, tool
from palinurus.testing.fakes import call, calls
from palinurus.testing.harness import Harness


@pytest.fixture
def listeners() -> Listeners:
    return Listeners()


@pytest.fixture
async def pal(workspace: Path, listeners: Listeners) -> AsyncIterator[Harness]:
    @tool("keep", "Keeps a list.")
    async def keep(run: ToolRun, items: list[str]) -> ToolOutput:
        return ToolOutput(f"kept {','.join(items)}")

    async with Harness(workspace, tools=[keep], hooks=listeners.service) as whole:
        yield whole


async def hang(_: HookEvent) -> None:
    await asyncio.Event().wait()


async def refuse_to_end(_: HookEvent) -> None:
    for _ in range(3):
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


def block(_: HookEvent) -> None:
    threading.Event().wait(60)


def fail(_: HookEvent) -> None:
    raise KeyError("berth")


async def leave(_: HookEvent) -> None:
    sys.exit(3)


async def cancel_itself(_: HookEvent) -> None:
    raise asyncio.CancelledError


BAD: list[tuple[Callable[[HookEvent], Any], str]] = [
    (hang, "not done within"),
    (refuse_to_end, "not done within"),
    (block, "not done within"),
    (fail, "KeyError: 'berth'"),
    (leave, "exit(3)"),
    (cancel_itself, "cancelled"),
]


@pytest.mark.parametrize(("bad", "why"), BAD, ids=lambda each: getattr(each, "__name__", ""))
@pytest.mark.parametrize("event", ["message:received", "command:new", "after_tool_call"])
async def test_an_observer_that_fails_costs_nothing_and_is_disabled_after_three_times(
    pal: Harness, listeners: Listeners, bad: Callable[[HookEvent], Any], why: str, event: str
) -> None:
    pal.hooks.limits = SHORT
    seen: list[int] = []

    def counted(given: HookEvent) -> Any:
        seen.append(1)
        return bad(given)

    async def counted_async(given: HookEvent) -> Any:
        seen.append(1)
        return await bad(given)

    listeners.add("bad", event, call=counted_async if asyncio.iscoroutinefunction(bad) else counted)
    listeners.add("good", event)
    for turn in range(5):
        if event == "command:new":
            assert (await pal.hears("/new")).status == "ok"
        else:
            pal.model.says(calls(call("keep", items=["a"])), f"reply {turn}")
            assert (await pal.hears("go")).text == f"reply {turn}"
        await pal.hooks.idle()
    assert len(seen) == 3
    assert len(listeners.told) == 5
    (warning,) = pal.hooks.warnings()
    assert "the hook bad failed 3 times in a row and is disabled" in warning
    assert why in warning


async def test_failures_that_are_not_in_a_row_do_not_disable(pal: Harness, listeners: Listeners) -> None:
    outcomes = iter([True, True, False, True, True, False, True])

    def sometimes(_: HookEvent) -> None:
        if next(outcomes):
            raise ValueError("no")

    listeners.add("moody", "message:received", call=sometimes)
    for _ in range(7):
        await pal.hears("hello")
        await pal.hooks.idle()
    assert pal.hooks.warnings() == ()
    assert next(outcomes, None) is None


async def test_a_new_version_and_a_person_give_it_another_chance(pal: Harness, listeners: Listeners) -> None:
    listeners.add("bad", "message:received", call=fail, version="1")
    for _ in range(3):
        await pal.hears("hello")
        await pal.hooks.idle()
    assert pal.hooks.is_disabled("bad")
    pal.hooks.reset_failures("bad")
    assert pal.hooks.warnings() == ()
    for _ in range(3):
        await pal.hears("hello")
        await pal.hooks.idle()
    assert pal.hooks.is_disabled("bad")
    listeners.hooks.clear()
    listeners.add("bad", "message:received", version="2")
    await pal.hears("hello")
    await pal.hooks.idle()
    assert listeners.names == ["message:received"]


async def test_what_a_hook_changes_or_keeps_reaches_nobody(pal: Harness, listeners: Listeners) -> None:
    kept: list[HookEvent] = []

    async def meddle(event: HookEvent) -> None:
        kept.append(event)
        event.context["params"]["items"].append("stolen")
        event.context["toolName"] = "delete"
        with pytest.raises(AttributeError):
            event.session_key = "agent:other:main"  # type: ignore[misc]

    listeners.add("meddler", "before_tool_call", "after_tool_call", "message:received", call=meddle)
    listeners.add("witness", "after_tool_call", priority=-1)
    pal.model.says(calls(call("keep", items=["a"])), calls(call("keep", items=["b"])), "done")
    await pal.hears("go")
    await pal.hooks.idle()
    for event in kept:
        event.context.clear()
    assert [result.text for result in await pal.tool_results()] == ["kept a", "kept b"]
    assert [event.context["params"]["items"] for event in listeners.told] == [["a"], ["b"]]


async def test_a_hook_in_a_thread_leaves_no_task_behind(pal: Harness, listeners: Listeners) -> None:
    cancelled = threading.Event()

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def leak() -> None:
        tasks.append(asyncio.create_task(forever()))
        await asyncio.sleep(0)

    tasks: list[asyncio.Task[None]] = []
    listeners.add("leaky", "command:new", call=lambda _: leak())
    assert (await pal.hears("/new")).status == "ok"
    assert cancelled.is_set()


async def test_events_for_a_slow_observer_wait_in_order_and_no_more_than_so_many(
    pal: Harness, listeners: Listeners
) -> None:
    free, told = asyncio.Event(), list[str]()

    async def slow(event: HookEvent) -> None:
        await free.wait()
        told.append(event.context["content"])

    listeners.add("slow", "message:received", call=slow)
    for number in range(105):
        await pal.hears(str(number))
    free.set()
    await pal.hooks.idle()
    assert told == [str(number) for number in range(100)]
    assert pal.hooks.health["slow"].dropped == 5


async def test_hooks_that_cannot_be_found_cost_an_observer_nothing(pal: Harness, listeners: Listeners) -> None:
    def broken(_: str) -> Any:
        raise ImportError("no module tides")

    pal.hooks._find = broken
    pal.model.says(calls(call("keep", items=["a"])), "done")
    assert (await pal.hears("go")).text == "done"
    (result,) = await pal.tool_results()
    assert result.is_error
    assert "no module tides" in result.text  # and a gate that may be among them blocks


async def test_a_secret_in_the_error_of_a_hook_is_not_shown(workspace: Path, listeners: Listeners) -> None:
    def fail_loudly(_: HookEvent) -> None:
        raise ValueError("the key is hunter2-hunter2")

    listeners.service._redact = lambda text: text.replace("hunter2-hunter2", "[redacted]")
    listeners.add("loud", "message:received", call=fail_loudly)
    async with Harness(workspace, hooks=listeners.service) as pal:
        for _ in range(3):
            await pal.hears("hello")
            await pal.hooks.idle()
        assert "hunter2" not in "".join(pal.hooks.warnings())
