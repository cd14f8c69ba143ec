"""Families that only look: models, tools, usage, health, status and the log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from family_asking import Asking

from palinurus.config.home import Home
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.gateway.protocol import Refused
from palinurus.operations.logs import tail_logs
from palinurus.testing.harness import Harness
from palinurus.tools.policy import Policy, Rules

MAIN = "agent:main:main"


async def test_models_that_can_be_asked_are_listed_and_all_on_request(ask: Asking) -> None:
    usable = (await ask("models.list"))["models"]
    assert ("embedded", "scout") in [(model["provider"], model["id"]) for model in usable]
    assert all(model["available"] for model in usable)
    everything = (await ask("models.list", view="all"))["models"]
    assert len(everything) > len(usable)
    lacking = next(model for model in everything if model["provider"] == "openai")
    assert (lacking["available"], lacking["unavailableReason"]) == (False, "no key")
    assert lacking["contextWindow"] > 0
    only = (await ask("models.list", view="all", provider="openai"))["models"]
    assert {model["provider"] for model in only} == {"openai"}


async def test_the_catalog_of_tools_has_groups_and_profiles(ask: Asking) -> None:
    told = await ask("tools.catalog")
    assert [profile["id"] for profile in told["profiles"]] == ["minimal", "coding", "messaging", "full"]
    files = next(group for group in told["groups"] if group["id"] == "fs")
    read = next(tool for tool in files["tools"] if tool["id"] == "read")
    assert (read["source"], read["defaultProfiles"]) == ("core", ["coding", "full"])
    with pytest.raises(NotFound):
        await ask("tools.catalog", agentId="nobody")


async def test_the_tools_of_a_session_are_those_that_its_policy_lets_it_use(workspace: Path, home: Home) -> None:
    async with Harness(workspace, policy=Policy(Rules(deny=("memory_write",)))) as pal:
        ask = Asking(pal, home)
        told = await ask("tools.effective", sessionKey=MAIN)
        names = [tool["id"] for group in told["groups"] for tool in group["tools"]]
        assert "read" in names
        assert "memory_write" not in names
        assert told["agentId"] == "main"
        group = await ask("tools.effective", sessionKey="agent:main:telegram:group:1")
        assert not any(group["groups"])


async def test_the_page_asks_for_the_tools_of_a_session_by_its_key(workspace: Path, home: Home) -> None:
    async with Harness(workspace) as pal:
        ask = Asking(pal, home)
        group = "agent:main:telegram:group:1"
        assert (await ask("tools.list", sessionKey=group))["sessionKey"] == group
        assert (await ask("tools.explain", name="read", sessionKey=group))["sessionKey"] == group


async def test_costs_are_told_by_day_and_in_all(ask: Asking) -> None:
    await ask.pal.hears("one")
    ask.pal.clock.advance(hours=24)
    await ask.pal.hears("two")
    told = await ask("usage.cost", days=7)
    assert told["days"] == 7
    assert [(day["input"], day["output"], day["calls"]) for day in told["daily"]] == [(100, 10, 1), (100, 10, 1)]
    assert (told["totals"]["totalTokens"], told["totals"]["missingCostEntries"]) == (220, 2)
    today = told["daily"][-1]["date"]
    one = await ask("usage.cost", startDate=today, endDate=today)
    assert (one["days"], one["totals"]["calls"]) == (1, 1)
    assert (await ask("usage.cost", agentId="other"))["totals"]["calls"] == 0
    by_provider = await ask("usage.status")
    assert [(each["provider"], each["totals"]["calls"]) for each in by_provider["providers"]] == [("scripted", 2)]


@pytest.mark.parametrize(
    "params",
    [
        {"startDate": "yesterday"},
        {"startDate": "2026-02-30"},
        {"startDate": "2026-11-20", "endDate": "2026-11-01"},
        {"startDate": "0001-01-01"},
        {"endDate": "9999-12-31"},
        {"days": 0},
        {"days": 10**30},
    ],
)
async def test_days_that_make_no_sense_are_refused(ask: Asking, params: dict[str, object]) -> None:
    with pytest.raises(BadRequest):
        await ask("usage.cost", **params)


async def test_health_says_that_it_is_well_and_who_is_there(ask: Asking) -> None:
    await ask.pal.hears("hi")
    await ask.pal.idle()
    ask.pal.clock.advance(minutes=1)
    told = await ask("health", ("read",))
    assert (told["ok"], told["defaultAgentId"], told["busy"], told["uptimeMs"]) == (True, "main", 0, 60_000)
    assert told["sessions"]["recent"][0] == {"key": MAIN, "updatedAt": told["ts"] - 60_000, "age": 60_000}
    assert [agent["agentId"] for agent in told["agents"]] == ["main"]
    assert (told["channels"], told["channelOrder"]) == ({}, [])


async def test_status_tells_places_to_an_admin_only(ask: Asking) -> None:
    await ask.pal.hears("hi")
    told = await ask("status", ("read",))
    assert told["sessions"]["recent"][0]["key"] == MAIN
    assert told["sessions"]["defaults"] == {"model": "scripted/model-1", "contextTokens": 32_000}
    assert str(ask.home.root) not in json.dumps(told)
    assert (await ask("status", ("admin",)))["home"] == str(ask.home.root)


class Log:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / "logs" / "pal.jsonl"
        self.path.parent.mkdir(parents=True)

    def write(self, *lines: str, end: str = "\n") -> None:
        with self.path.open("a") as file:
            file.write("\n".join(lines) + end)


async def test_the_log_is_read_on_from_a_cursor(ask: Asking) -> None:
    log = Log(ask.home.root)
    log.write(*(f"line {number}" for number in range(10)))
    first = await ask("logs.tail", limit=3)
    assert (first["lines"], first["truncated"]) == (["line 7", "line 8", "line 9"], True)
    assert (await ask("logs.tail", cursor=first["cursor"]))["lines"] == []
    log.write("line 10", "half a li", end="")
    second = await ask("logs.tail", cursor=first["cursor"])
    assert (second["lines"], second["truncated"], second["reset"]) == (["line 10"], False, False)
    log.write("ne")
    assert (await ask("logs.tail", cursor=second["cursor"]))["lines"] == ["half a line"]


async def test_a_log_that_began_anew_says_so(ask: Asking) -> None:
    log = Log(ask.home.root)
    log.write("one", "two")
    cursor = (await ask("logs.tail"))["cursor"]
    log.path.unlink()
    log.write("x")
    told = await ask("logs.tail", cursor=cursor)
    assert (told["lines"], told["reset"]) == (["x"], True)
    log.path.unlink()
    assert (await ask("logs.tail"))["lines"] == []


def test_a_tail_gives_whole_lines_within_its_bytes(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write("x" * 50, "second", "third")
    assert tail_logs(tmp_path, max_bytes=13).lines == ("second", "third")
    assert tail_logs(tmp_path, max_bytes=12).lines == ("third",)
    assert tail_logs(tmp_path, max_bytes=13).truncated
    whole = tail_logs(tmp_path, max_bytes=1000)
    assert (len(whole.lines), whole.truncated, whole.cursor) == (3, False, whole.size)
    assert tail_logs(tmp_path, max_bytes=1).lines == ()
    assert tail_logs(tmp_path, cursor=51, max_bytes=1000).lines == ("second", "third")


async def test_a_tool_is_called_for_a_program_within_its_reach(ask: Asking) -> None:
    done = await ask("tools.invoke", ("write",), name="read", args={"path": "SOUL.md"})
    assert (done["ok"], done["toolName"], done["source"]) == (True, "read", "core")
    assert "Curious and calm." in done["output"]["content"][0]["text"]
    failed = await ask("tools.invoke", name="read", args={"path": "nowhere.md"})
    assert (failed["ok"], failed["error"]["code"]) == (False, "TOOL_FAILED")
    for name in ("exec", "gateway", "no-such-tool"):
        with pytest.raises(Refused, match="no tool"):
            await ask("tools.invoke", name=name, args={})
