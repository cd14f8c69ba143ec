"""Commands and preferences that are answered at once, outside the lane, also during a run.

They need no model and no turn. Such an answer is not a job; listeners see the end of a run, and the answer is sent once
however often the command arrives.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct

from palinurus.agent.agent import Agent
from palinurus.agent.turn import TurnRunner
from palinurus.dispatch import commands
from palinurus.dispatch.agents import Agents
from palinurus.dispatch.delivery import Deliveries
from palinurus.dispatch.directives import DEFAULT_MODEL, Directives, changed_preferences, describe
from palinurus.dispatch.runs import Run, Runs
from palinurus.domain.clock import Clock, NewId
from palinurus.domain.envelope import Inbound
from palinurus.domain.events import RunResult
from palinurus.domain.keys import SessionKey

REFUSED = "refused"  # the error kind of an invalid command
Answer = Callable[[SessionKey, str, Inbound], Awaitable[str]]
"""Answers a command outside the lane: gets the session, the text after the command, and the message."""


class ImmediateCommands(Struct, eq=False):
    _runs: Runs
    _turns: TurnRunner
    _agents: Agents
    _clock: Clock
    _new_id: NewId
    _deliveries: Deliveries | None
    answers: dict[str, Answer] = {}  # set by runtime: /status, /context, /approve

    async def answer(self, key: SessionKey, command: commands.Command, inbound: Inbound) -> Run:
        known = self.answers.get(command.name)
        own = _whoami(key, inbound) if command.name == "whoami" else commands.help_text()
        return await self.reply(key, await known(key, command.rest, inbound) if known else own, inbound)

    async def refuse(self, key: SessionKey, why: str, inbound: Inbound) -> Run:
        """Refuses a message that looks like a command and is none. Nothing is stored, and no model gets it."""
        return await self.reply(key, why, inbound, is_refusal=True)

    async def prefer(self, key: SessionKey, directives: Directives, inbound: Inbound) -> Run:
        """Stores preferences that do not affect the model at once, also during a run."""
        return await self.reply(key, f"For this session: {await self._keep(key, directives)}.", inbound)

    async def reply(self, key: SessionKey, text: str, inbound: Inbound, *, is_refusal: bool = False) -> Run:
        run = Run(self._new_id(), key, self._clock.now_ms())
        result = make_result(run, text, self._clock)
        if self._deliveries:
            await self._deliveries.answer(inbound, result)
        self._runs.add(run)  # before its end, so that listeners get it
        refused = RunResult(run.id, str(key), "", "error", error=text, error_kind=REFUSED)
        run.end(refused if is_refusal else result)
        return run

    async def choose(self, run: Run, agent: Agent, directives: Directives) -> str:
        """Stores a model or thinking level for the session, or shows the current one. In the lane of the session."""
        if directives.asked:
            view = await self._turns.history.view_of(run.key)
            _, route = await agent.choose_model(view.model)
            return f"model {route.provider}/{route.model}, thinking {view.thinking or route.thinking}"
        chosen = []
        model = None
        if directives.model is not None:
            model = "" if directives.model.lower() == DEFAULT_MODEL else await agent.find_model(directives.model)
            _, route = await agent.choose_model(model)
            chosen.append(f"model {route.provider}/{route.model}{'' if model else ' (the default)'}")
        if directives.thinking is not None:
            chosen.append(f"thinking {directives.thinking}")
        await self._turns.history.choose(run.key, run.id, model=model, thinking=directives.thinking)
        if directives.preferences:
            chosen.append(await self._keep(run.key, directives))
        return f"For this session: {', '.join(chosen)}."

    async def _keep(self, key: SessionKey, directives: Directives) -> str:
        before = await self._turns.history.preferences(key)
        after = changed_preferences(before, directives)
        if after != before:
            await self._turns.history.set_preferences(key, after)
        return describe(after, self._agents.queue("cli"))


def _whoami(key: SessionKey, inbound: Inbound) -> str:
    account = f", account {key.account}" if key.account else ""
    lines = (
        ("you", f"{inbound.sender}, treated as {inbound.origin}"),
        ("channel", f"{inbound.channel}{account}"),
        ("agent", key.agent),
        ("session", str(key)),
    )
    return "\n".join(f"{name:<8} {value}" for name, value in lines)


def make_result(run: Run, text: str, clock: Clock) -> RunResult:
    """The result of a run that needed no model."""
    return RunResult(run.id, str(run.key), "", "ok", text, duration_ms=clock.now_ms() - run.accepted_at)
