"""What a door is told about tools: which there are, who may use them here, and why not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from palinurus.config.home import Home
from palinurus.domain.errors import NotFound
from palinurus.operations.table import LocalCaller
from palinurus.operations.tools import explain_tool, list_tools
from palinurus.testing.harness import Harness
from palinurus.tools.policy import Policy, Rules

GROUP = "agent:main:telegram:group:-100"


def door(workspace: Path, home: Home, policy: Policy) -> LocalCaller:
    return LocalCaller(Harness(workspace, policy=policy).services(home))


async def test_every_tool_is_listed_with_its_group_and_what_decided(workspace: Path, home: Home) -> None:
    listed = await door(workspace, home, Policy(Rules(deny=("memory_write",)))).call(list_tools, list_tools.params())
    rows = {tool.name: tool for tool in listed.tools}
    assert listed.session_key == "agent:main:main"
    assert (rows["read"].allowed, rows["read"].group, rows["read"].layer) == (True, "fs", "profile")
    noting = rows["memory_write"]
    assert (noting.allowed, noting.group, noting.layer) == (False, "memory", "deny")
    assert noting.why == "tools.deny has memory_write"


async def test_the_same_tools_stand_differently_in_a_group_and_for_a_stranger(workspace: Path, home: Home) -> None:
    caller = door(workspace, home, Policy(by_sender={"channel:telegram:42": Rules(also_allow=("read",))}))
    in_group = await caller.call(list_tools, list_tools.params(session_key=GROUP))
    assert not any(tool.allowed for tool in in_group.tools)
    for_42 = await caller.call(list_tools, list_tools.params(session_key=GROUP, sender="telegram:42"))
    assert [tool.name for tool in for_42.tools if tool.allowed] == ["read"]
    for_43 = await caller.call(list_tools, list_tools.params(sender="telegram:43"))
    assert not any(tool.allowed for tool in for_43.tools)


async def test_the_model_is_the_session_s_last_unless_one_is_named(workspace: Path, home: Home) -> None:
    async with Harness(workspace, policy=Policy(by_provider={"other": Rules(deny=("read",))})) as pal:
        pal.model.says("Hello.")
        await pal.hears("hi")
        caller = LocalCaller(pal.services(home))
        told = await caller.call(explain_tool, explain_tool.params("read"))
        assert told.model.endswith("/model-1")
        assert told.verdict.allowed
        other = await caller.call(explain_tool, explain_tool.params("read", model="other/one"))
        assert (other.verdict.allowed, other.verdict.layer) == (False, "provider")


async def test_an_explanation_has_the_whole_chain_and_knows_other_names(workspace: Path, home: Home) -> None:
    told = await door(workspace, home, Policy()).call(explain_tool, explain_tool.params("file_read", session_key=GROUP))
    assert (told.name, told.group, told.present) == ("read", "fs", True)
    assert (told.verdict.allowed, told.verdict.layer) == (False, "profile")
    assert len(told.verdict.chain) >= 9


async def test_a_tool_that_there_is_not_is_told_as_such(workspace: Path, home: Home) -> None:
    caller = door(workspace, home, Policy())
    assert not (await caller.call(explain_tool, explain_tool.params("browser"))).present
    for name in ("raed", "group:raed", "*"):
        with pytest.raises(NotFound, match="there is no tool"):
            await caller.call(explain_tool, explain_tool.params(name))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("group:fs", r"group:fs is a group: read, write, edit, delete, .* \(name one of them, such as read\)"),
        ("group:ui", r"group:ui is a group: browser, canvas, .* \(this version has no such tool\)"),
        ("Group:Nodes", r"group:nodes is a group: nodes, .* \(this version has no such tool\)"),
    ],
)
async def test_a_group_is_told_as_such(workspace: Path, home: Home, name: str, said: str) -> None:
    with pytest.raises(NotFound) as caught:
        await door(workspace, home, Policy()).call(explain_tool, explain_tool.params(name))
    assert re.fullmatch(said, f"{caught.value} ({caught.value.hint})")
