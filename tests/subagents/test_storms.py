"""Models that start subagents without end stay inside the limits, and every refusal says so."""

from __future__ import annotations

import json
from pathlib import Path

from family import is_subagent, living

from palinurus.providers.wires.reply import MAX_CALLS
from support.wire import Behaviour, Calls, Json, Says

SPAWN = ("sessions_spawn", {"task": "dig"})


async def test_a_thousand_calls_in_one_reply_start_as_many_as_may_run(tmp_path: Path) -> None:
    def answer(text: str, body: Json) -> Behaviour:
        if is_subagent(body):
            return Says("dug", delay=5.0)
        return Calls(*[SPAWN] * 1_000, whole=True) if "please" in text else Says("ok")

    async with living(tmp_path, answer) as pal:
        run = pal.services.dispatcher.runs
        assert (await pal.hears("please")).status == "ok"
        told = [json.loads(result.text) for result in await pal.results()]
        assert [each["status"] for each in told] == ["accepted"] * 5 + ["forbidden"] * (MAX_CALLS - 5)
        assert "maxChildrenPerAgent" in told[-1]["error"]
        assert len(run.active()) <= 5
        assert (await pal.hears("/stop")).text.startswith("Stopped")
        await pal.rests()
        assert not await pal.announced()


async def test_a_model_that_always_starts_another_ends_at_the_depth_of_the_config(tmp_path: Path) -> None:
    def answer(text: str, body: Json) -> Behaviour:
        done = "[Subagent result" in text or "accepted" in text or "forbidden" in text or "error" in text
        return Says("done") if done else Calls(SPAWN)

    async with living(tmp_path, answer, defaults={"subagents": {"maxSpawnDepth": 5}}) as pal:
        await pal.hears("please")
        await pal.rests()
        sessions = await pal.services.sessions.recent(limit=100)
        assert sorted(each.spawn_depth for each in sessions) == [0, 1, 2, 3, 4, 5]
        assert len(await pal.announced()) == 1
        assert not await pal.services.jobs.recent(kinds=["announce"], states=["failed", "ambiguous", "retry"])


async def test_a_model_that_starts_one_for_every_result_keeps_the_limit_and_can_be_stopped(tmp_path: Path) -> None:
    started = 0

    def answer(text: str, body: Json) -> Behaviour:
        nonlocal started
        if is_subagent(body):
            return Says("dug")
        if started < 20 and ("please" in text or "[Subagent result" in text):
            started += 1
            return Calls(SPAWN, SPAWN)
        return Says("ok")

    async with living(tmp_path, answer) as pal:
        await pal.hears("please")
        await pal.rests()
        told = [json.loads(result.text)["status"] for result in await pal.results()]
        accepted = told.count("accepted")
        assert len(told) == 40
        assert accepted >= 20
        announced = await pal.announced()
        assert sum(text.count("agent:main:subagent:") for text in announced) == accepted
