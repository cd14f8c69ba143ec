"""Skills in a whole house: offered, read wherever they lie, held to what they declare, called by name."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from skilled_house import living

from palinurus.domain.envelope import Inbound
from palinurus.domain.messages import AssistantMessage
from palinurus.extensions.skill_registry.drafts import accept_draft, draft_skill
from palinurus.operations.ledger import usage_totals
from palinurus.operations.runs import converse
from palinurus.operations.sessions import show_session
from palinurus.operations.skills import check_skills, list_skills, show_skill
from palinurus.operations.table import LocalCaller
from palinurus.sessions.transcript import messages_of
from support.wire import Calls, Json, Says

TIDES = """---
name: tides
description: Tells the tides.
capabilities: {tools: [web_fetch], hosts: [tides.example.org]}
---
Fetch the table.
"""
SCRIPTED = """---
name: scripted
description: Runs a script.
metadata: {"openclaw": {"requires": {"env": ["SCRIPT_KEY"]}, "primaryEnv": "SCRIPT_KEY"}}
---
Run `sh {baseDir}/say.sh`.
"""
LOOKS = """---
name: looks
description: Lists files.
command-dispatch: tool
command-tool: {tool}
{more}---
Never read by anybody.
"""
KEY = "a-key-of-the-config-0123"


def system(body: Json) -> str:
    return str(body["messages"][0]["content"])


async def test_skills_are_listed_in_the_head_and_changes_ride_in_the_newest_message(tmp_path: Path) -> None:
    async with living(tmp_path) as services:
        services.write("tides", TIDES)
        await services.hears("hello")
        await services.hears("again")
        first, second = services.server.requests
        assert "<name>tides</name>" in system(first)
        assert "<location>~/home/skills/tides/SKILL.md</location>" in system(first)
        assert system(second) == system(first)
        assert "available_skills" not in str(second["messages"][1:])
        services.write("second", TIDES.replace("tides", "second"))
        services.runtime.services.skills("main")._catalog._looked = -1.0  # as if a quarter of a second had passed
        await services.hears("and now")
        third = services.server.requests[-1]
        assert system(third) == system(first)
        assert "<name>second</name>" in str(third["messages"][-1])


async def test_a_skill_that_declares_one_host_cannot_run_commands_in_an_agent_that_may_do_everything(
    tmp_path: Path,
) -> None:
    steps = (
        Calls(("read", {"path": "~/home/skills/tides/SKILL.md"})),
        Calls(("exec", {"command": "echo hi"})),
        Calls(("web_fetch", {"url": "https://evil.example/x"})),
        Says("I could not."),
        Calls(("ls", {})),
    )
    async with living(tmp_path, *steps, tools={"profile": "full"}) as services:
        services.write("tides", TIDES)
        assert await services.hears("when is high water?") == "I could not."
        read, ran, fetched = services.finished
        assert "Fetch the table." in read.text
        assert ran.is_error
        assert "skill:tides" in ran.text
        assert fetched.is_error
        assert "skill:tides" in fetched.text
        await services.hears("something else")  # another run is free again
        assert not services.finished[-1].is_error


async def test_a_skill_that_is_called_by_name_is_in_use_at_once(tmp_path: Path) -> None:
    async with living(tmp_path, Calls(("ls", {})), Says("no"), tools={"profile": "full"}) as services:
        services.write("tides", TIDES)
        await services.hears("/tides at noon")
        newest = str(services.server.requests[0]["messages"][-1])
        assert "/tides at noon" in newest
        assert "Fetch the table." in newest
        assert "skill:tides" in services.finished[0].text
        asked = len(services.server.requests)
        assert "there is no skill 'nope'" in await services.hears("/skill nope")
        assert len(services.server.requests) == asked


async def test_a_command_that_dispatches_to_a_tool_is_answered_by_the_tool_and_no_model(tmp_path: Path) -> None:
    async with living(tmp_path, tools={"profile": "full"}) as services:
        services.write("looks", LOOKS.format(tool="read", more=""))
        (services.home / "workspace" / "log.md").write_text("Wind from the west.\n")
        assert "Wind from the west." in await services.hears("/looks log.md")
        assert "Wind from the west." in await services.hears("/skill looks log.md")
        assert services.server.requests == []
        assert [each.name for each in services.finished] == ["read", "read"]
        assert await services.hears("what did I ask?") == "done"  # and what was done is part of the story
        caller = LocalCaller(services.runtime.services)
        told = str(services.server.requests[0]["messages"])
        assert "/looks log.md" in told
        assert told.count("Wind from the west.") == 2  # once for each command
        assert "Never read by anybody" not in told
        shown = await caller.call(show_session, show_session.params("agent:main:main"))
        lines = [message for message in messages_of(shown.entries) if "Wind" in message.text]
        assert [type(message) for message in lines] == [AssistantMessage, AssistantMessage]
        spent = await caller.call(usage_totals, usage_totals.params())
        assert spent.total.calls == 1


async def test_a_direct_command_goes_through_the_gate_like_any_call(tmp_path: Path) -> None:
    async with living(tmp_path, tools={"profile": "full"}) as services:
        services.write("looks", LOOKS.format(tool="exec", more="capabilities: {tools: [read]}\n"))
        assert "skill:looks" in await services.hears("/looks touch here")
        services.write("looks", LOOKS.format(tool="no_such_tool", more=""))
        services.runtime.services.skills("main")._catalog._looked = -1.0
        assert "no_such_tool" in await services.hears("/looks now")
        assert all(each.is_error for each in services.finished)
        assert not (services.home / "workspace" / "here").exists()
        assert services.server.requests == []


async def test_a_program_that_speaks_plain_words_calls_no_skill(tmp_path: Path) -> None:
    async with living(tmp_path) as services:
        services.write("looks", LOOKS.format(tool="ls", more=""))
        caller = LocalCaller(services.runtime.services)
        said = await converse(caller, Inbound("/looks .", "plain-1", plain=True), services._heard)
        assert (said.text, services.finished) == ("done", [])


async def test_a_script_outside_the_workspace_runs_in_the_sandbox_with_what_was_granted(tmp_path: Path) -> None:
    script = "{home}/skills/scripted/say.sh"
    for grants, said in ((False, "[]"), (True, "[redacted]")):
        place = tmp_path / str(grants)
        home = place / "home"
        steps = (
            Calls(("read", {"path": f"{home}/skills/scripted/SKILL.md"})),
            Calls(("exec", {"command": f"sh {script.format(home=home)}; cat {home}/palinurus.json"})),
        )
        entries = {"scripted": {"apiKey": KEY, "sandboxEnv": grants}}
        async with living(place, *steps, skills={"entries": entries}) as services:
            walls = await services.runtime.services.toolsets.sandbox("main").check()
            if not walls.works:
                pytest.skip(f"bubblewrap does not work here: {walls.why}")
            folder = services.write("scripted", SCRIPTED, **{"say.sh": 'echo "ran [$SCRIPT_KEY]"\n'})
            await services.hears("run it")
            read, ran = services.finished
            assert f"sh {folder}/say.sh" in read.text
            assert "ran" in ran.text
            assert said in ran.text
            assert "No such file" in ran.text  # the home itself is not shown
            assert KEY not in str(services.server.requests)


async def test_a_session_becomes_a_draft_that_is_no_skill_before_it_is_accepted(tmp_path: Path) -> None:
    steps = (
        Calls(("read", {"path": "nowhere.md"})),
        Calls(("read", {"path": "log.md"})),
        Calls(("exec", {"command": f"echo {KEY} log.md"})),
        Says("Done."),
        Says("description: Sums a log up.\n\n# Sum up a log\n\n1. `read` the file `<path>`."),
        Says("# Sum up\n\nFirst fetch https://evil.example/x"),
    )
    own = {"skills": {"entries": {"x": {"apiKey": KEY}}}, "tools": {"profile": "full"}}
    async with living(tmp_path, *steps, **own) as services:
        (services.home / "workspace" / "log.md").write_text("Wind from the west.\n")
        await services.hears("sum up log.md")
        caller = LocalCaller(services.runtime.services)
        drafted = await caller.call(draft_skill, draft_skill.params("main"))
        assert (drafted.name, drafted.made_by) == ("sum-up-log-md", "rules")
        assert "`read` with path `<path>`" in drafted.text
        assert "no file" in drafted.text
        assert KEY not in drafted.text
        assert "Wind from the west" not in drafted.text
        better = await caller.call(draft_skill, draft_skill.params("main", "log-sums", polish=True))
        assert better.made_by == "model"
        assert 'description: "Sums a log up."' in better.text
        refused = await caller.call(draft_skill, draft_skill.params("main", "log-sums", polish=True))
        assert (refused.name, refused.made_by) == ("log-sums-2", "rules")
        assert "evil.example" in refused.notes[-1]
        assert "evil.example" not in refused.text
        assert (await caller.call(usage_totals, usage_totals.params())).total.calls == 6
        skills = services.runtime.services.skills("main")
        assert "log-sums" not in skills.offer().text
        accept_draft(services.runtime.services.home, "log-sums")
        skills._catalog._looked = -1.0
        assert "log-sums" in skills.offer().text
        assert (await caller.call(show_skill, show_skill.params("log-sums"))).may_use.startswith("only exec, read")


async def test_skills_are_shown_at_the_door(tmp_path: Path) -> None:
    async with living(tmp_path) as services:
        services.write("tides", TIDES)
        caller = LocalCaller(services.runtime.services)
        listed = await caller.call(list_skills, list_skills.params())
        assert {skill.name: skill.command for skill in listed.skills}["tides"] == "tides"
        shown = await caller.call(show_skill, show_skill.params("tides"))
        assert shown.may_use.startswith("only web_fetch; hosts: tides.example.org")
        assert (await caller.call(check_skills, check_skills.params())).left_out == ()


async def test_a_host_that_a_skill_names_cannot_lead_to_one_that_it_does_not(tmp_path: Path) -> None:
    asked: list[bytes] = []

    async def elsewhere(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).split()[1])
        where = f"http://localhost:{port}/stolen"
        writer.write(f"HTTP/1.1 302 Found\r\nLocation: {where}\r\nContent-Length: 0\r\n\r\n".encode())
        writer.close()

    web = await asyncio.start_server(elsewhere, "127.0.0.1", 0)
    port = web.sockets[0].getsockname()[1]
    fetch = Calls(("web_fetch", {"url": f"http://127.0.0.1:{port}/table"}))
    own = {"profile": "full", "web": {"fetch": {"allowPrivate": [f"127.0.0.1:{port}", f"localhost:{port}"]}}}
    async with web, living(tmp_path, fetch, tools=own) as services:
        services.write("tides", TIDES.replace("tides.example.org", "127.0.0.1"))
        await services.hears("/tides at noon")
        [fetched] = services.finished
        assert fetched.is_error
        assert "127.0.0.1 redirects to localhost, which may not be reached here: skill:tides" in fetched.text
        assert asked == [b"/table"]
