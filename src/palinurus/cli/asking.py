"""A person is asked at a terminal: what they are shown, and what their answer means."""

from __future__ import annotations

import asyncio

from palinurus.cli.approvals_text import trial_lines
from palinurus.cli.lines import Lines
from palinurus.cli.output import echo
from palinurus.cli.shell import Shell
from palinurus.domain.errors import NotConfirmed, PalinurusError
from palinurus.domain.events import ApprovalAsked, ApprovalSettled
from palinurus.operations.approvals import answer_approval, show_approval
from palinurus.operations.table import Caller
from palinurus.tools.approvals.approval import Answer
from palinurus.tools.approvals.rendering import render_plan, visible

WORDS: dict[str, Answer] = {
    "y": "allow-once",
    "yes": "allow-once",
    "once": "allow-once",
    "a": "allow-always",
    "always": "allow-always",
    "n": "deny",
    "no": "deny",
    "deny": "deny",
}
CHOICES = "y allow once · a allow always · n no"


def meaning(text: str) -> Answer | None:
    """The answer that these words are, or None when they are something else."""
    return WORDS.get(text.strip().lower())


def question(event: ApprovalAsked) -> tuple[str, list[str]]:
    """The headline, and the exact plan below it."""
    return f"May I? {visible(event.reason)} (approval {event.id})", render_plan(event.plan)


def settled(event: ApprovalSettled) -> str:
    said = {
        "allowed-once": "allowed once",
        "allowed-always": "allowed always",
        "expired": "nobody answered in time",
        "unattended": "nobody was there to be asked",
        "abandoned": "given up",
    }
    return f"approval {event.id}: {said.get(event.status, event.status)}{f' by {event.by}' if event.by else ''}"


class Asking:
    """Asks line by line, where there is no screen: on standard error, and of `lines` when somebody sits there."""

    def __init__(self, shell: Shell, caller: Caller, lines: Lines | None) -> None:
        self._shell = shell
        self._caller = caller
        self._lines = lines
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._warned: set[str] = set()

    def hear(self, event: ApprovalAsked | ApprovalSettled) -> None:
        if isinstance(event, ApprovalSettled):
            self._shell.warn(settled(event))
            if task := self._tasks.pop(event.id, None):
                task.cancel()
            return
        headline, plan = question(event)
        how = CHOICES if self._lines else f"answer with: pal approvals allow {event.id}, or deny {event.id}"
        echo("\n".join([headline, *(f"  {line}" for line in plan), f"  {how}"]), err=True)
        if self._lines is not None:
            self._tasks[event.id] = asyncio.create_task(self._ask(event, self._lines))

    async def _ask(self, event: ApprovalAsked, lines: Lines) -> None:
        while (line := await lines.next()) is not None:
            said = meaning(line)
            if said is None:
                echo(f"  {CHOICES}", err=True)
                continue
            try:
                return await answer(self._caller, event, said, self._warned)
            except PalinurusError as error:
                self._shell.warn(str(error))
        return None


async def answer(caller: Caller, event: ApprovalAsked, said: Answer, warned: set[str]) -> None:
    """Hand the answer in, for the very plan that was shown. Raises what the operation raises.

    What needs a second yes raises NotConfirmed with what it means, and puts the approval among the `warned`; said
    again, it is meant.
    """
    again = event.id in warned
    try:
        asked = answer_approval.params(id=event.id, answer=said, where="terminal", digest=event.digest, confirmed=again)
        await caller.call(answer_approval, asked)
    except NotConfirmed as error:
        warned.add(event.id)
        trial = (await caller.call(show_approval, show_approval.params(event.id))).always
        told = [error.message, *(trial_lines(trial) if trial else ())]
        raise NotConfirmed("\n".join(told), hint="say it again to allow it") from None
