"""A turn that was cut off: skills that it had taken up are in use again, and a direct result is never half stored."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from shelved import Shelf, write_skill

from palinurus.agent.gather import with_skills
from palinurus.context.assemble import TurnInput
from palinurus.context.view import Line, View
from palinurus.domain.envelope import Inbound
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, ToolCall, ToolResult, UserMessage
from palinurus.domain.tool import ToolRun
from palinurus.sessions.session import NO_CHANGE, Session, SessionChange
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import Entry, messages_of
from palinurus.testing.harness import Harness

RUN = ToolRun(SessionKey.main("main"), "run-1", private=True)


def view_of(lines: Sequence[Line]) -> View:
    return View(lines=tuple(lines), stored_ids=frozenset(line.id for line in lines))


BODY = "Fetch the table of the harbour from the address that the almanac of this year names, and add an hour.\n"


async def test_what_the_turn_had_read_still_holds(pal: Harness, shelf: Shelf) -> None:
    write_skill(shelf.skills, "tides", "capabilities: {tools: [web_fetch]}\n", BODY)
    agent = msgspec.structs.replace(pal.agents.agent, skills=shelf.open())
    spoken = TurnInput("run-1", Inbound("when is high water?", "m-1"))
    call = AssistantMessage((ToolCall("c1", "exec", {"command": "cat t*/*"}),), stop_reason="toolUse")
    read = [Line("run-1", UserMessage("when?")), Line("a", call), Line("b", ToolResult("c1", "exec", f"…\n{BODY}"))]
    assert with_skills(agent, RUN, spoken, view_of(read)).skills == ("tides",)
    assert with_skills(agent, RUN, spoken, view_of(read[:2])).skills == ()
    earlier = (Line("run-0", UserMessage("before")), *read[1:], Line("run-1", UserMessage("when?")))
    assert with_skills(agent, RUN, spoken, view_of(earlier)).skills == ()  # another turn has read it
    brought = msgspec.structs.replace(spoken.inbound, results=(ToolResult("c1", "theirs", BODY),))
    assert with_skills(agent, RUN, TurnInput("run-1", brought), View()).skills == ("tides",)


async def test_a_client_that_goes_on_with_a_turn_goes_on_under_its_skills(pal: Harness, shelf: Shelf) -> None:
    write_skill(shelf.skills, "tides", "capabilities: {tools: [web_fetch]}\n", BODY)
    agent = msgspec.structs.replace(pal.agents.agent, skills=shelf.open())
    reads = AssistantMessage((ToolCall("c1", "read", {"path": "skill:tides"}),), stop_reason="toolUse")
    asks = AssistantMessage((ToolCall("c2", "theirs", {}),), stop_reason="toolUse")
    turn = [
        Line("run-0", UserMessage("when?")),
        Line("a", reads),
        Line("b", ToolResult("c1", "read", "…")),
        Line("c", UserMessage("and hurry")),  # said into the turn
        Line("d", asks),
    ]
    brought = Inbound("", "m-1", results=(ToolResult("c2", "theirs", "calm"),), plain=True)
    assert with_skills(agent, RUN, TurnInput("run-1", brought), view_of(turn)).skills == ("tides",)
    other = [*turn[:3], Line("e", AssistantMessage((), stop_reason="stop")), Line("f", UserMessage("more")), turn[4]]
    assert with_skills(agent, RUN, TurnInput("run-1", brought), view_of(other)).skills == ()
    speaks = Inbound("another question", "m-2")
    assert with_skills(agent, RUN, TurnInput("run-2", speaks), view_of(turn)).skills == ()


class Noted(SessionStore):
    """Keeps what was stored at once."""

    def __init__(self, *parts: object) -> None:
        super().__init__(*parts)  # type: ignore[arg-type]
        self.writes: list[Sequence[Entry]] = []

    async def append(self, session_id: str, entries: Sequence[Entry], change: SessionChange = NO_CHANGE) -> Session:
        self.writes.append(entries)
        return await super().append(session_id, entries, change)


async def test_a_direct_result_and_its_reply_are_stored_at_once(pal: Harness, shelf: Shelf) -> None:
    """Or a crash between the two would leave a result that points to words which nobody has."""
    write_skill(shelf.skills, "looks", "command-dispatch: tool\ncommand-tool: read\n")
    (pal.files.boundary.root / "log.md").write_text("Wind from the west.\n")
    noted = Noted(pal.database, pal.clock, pal.new_id)
    async with Harness(pal.files.boundary.root, sessions=noted) as services:
        services.agents.agent = msgspec.structs.replace(services.agents.agent, skills=shelf.open())
        reply = await services.hears("/looks log.md")
        assert "Wind from the west." in reply.text
    *_, called, told = [found for found in map(messages_of, noted.writes) if found]
    assert [type(message) for message in called] == [AssistantMessage]  # before it is run
    assert [type(message) for message in told] == [ToolResult, AssistantMessage]
    assert ["Wind" in message.text for message in told] == [False, True]
