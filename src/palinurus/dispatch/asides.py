"""Asides: what is answered beside the lane, also while a run goes on, and what a session is told to keep.

Commands and preferences need no model and no turn. Such an answer has no row; it is told like the end of any run, and
sent once however often it was asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from palinurus.agent.agent import Agent
from palinurus.agent.turn import TurnRunner
from palinurus.dispatch import commands
from palinurus.dispatch.agents import Agents
from palinurus.dispatch.delivery import Deliveries
from palinurus.dispatch.directives import DEFAULT_MODEL, Directives
from palinurus.dispatch.preferences import changed_preferences, describe
from palinurus.dispatch.runs import Run, Runs
from palinurus.domain.clock import Clock, NewId
from palinurus.domain.envelope import Inbound
from palinurus.domain.events import RunResult
from palinurus.domain.keys import SessionKey

REFUSED = "refused"  # the kind of error of a command that is none
Answer = Callable[[SessionKey, str, Inbound], Awaitable[str]]
"""Answers a command beside the lane: the session it was asked in, the words behind the command, and who asked."""


class Asides:
    def __init__(
        self,
        runs: Runs,
        turns: TurnRunner,
        agents: Agents,
        clock: Clock,
        new_id: NewId,
        deliveries: Deliveries | None,
    ) -> None:
        self.answers: dict[str, Answer] = {}  # filled by wiring: /status, /context, /approve
        self._runs = runs
        self._turns = turns
        self._agents = agents
        self._clock = clock
        self._new_id = new_id
        self._deliveries = deliveries

    async def answer(self, key: SessionKey, command: commands.Command, inbound: Inbound) -> Run:
        known = self.answers.get(command.name)
        own = _whoami(key, inbound) if command.name == "whoami" else commands.help_text()
        return await self.say(key, await known(key, command.rest, inbound) if known else own, inbound)

    async def refuse(self, key: SessionKey, why: str, inbound: Inbound) -> Run:
        """A message that was meant as a command and is none. Nothing is kept, and no model hears of it."""
        run = Run(self._new_id(), key, self._clock.now_ms())
        if self._deliveries:
            await self._deliveries.answer(inbound, said(run, why, self._clock))
        self._runs.add(run)
        run.end(RunResult(run.id, str(key), "", "error", error=why, error_kind=REFUSED))
        return run

    async def prefer(self, key: SessionKey, directives: Directives, inbound: Inbound) -> Run:
        """What changes nothing that a model reads is answered at once, also while a run goes on."""
        return await self.say(key, f"For this session: {await self._keep(key, directives)}.", inbound)

    async def say(self, key: SessionKey, text: str, inbound: Inbound) -> Run:
        run = Run(self._new_id(), key, self._clock.now_ms())
        result = said(run, text, self._clock)
        if self._deliveries:
            await self._deliveries.answer(inbound, result)
        self._runs.add(run)  # before its end, so that whoever listens hears it
        run.end(result)
        return run

    async def choose(self, run: Run, agent: Agent, directives: Directives) -> str:
        """Keep a model or a level of thinking for the session; or say what holds now. In the lane of the session."""
        if directives.asked:
            view = await self._turns.view_of(run.key)
            _, route = await agent.choose_model(view.model)
            return f"model {route.provider}/{route.model}, thinking {view.thinking or route.thinking}"
        told = []
        model = None
        if directives.model is not None:
            model = await self._wanted_model(agent, directives.model)
            _, route = await agent.choose_model(model)
            told.append(f"model {route.provider}/{route.model}{'' if model else ' (the default)'}")
        if directives.thinking is not None:
            told.append(f"thinking {directives.thinking}")
        await self._turns.choose(run.key, run.id, model=model, thinking=directives.thinking)
        if directives.preferences:
            told.append(await self._keep(run.key, directives))
        return f"For this session: {', '.join(told)}."

    async def _wanted_model(self, agent: Agent, name: str) -> str:
        """Its whole name; "" for the agent's own. Raises BadRequest."""
        return "" if name.lower() == DEFAULT_MODEL else await agent.find_model(name)

    async def _keep(self, key: SessionKey, directives: Directives) -> str:
        before = await self._turns.preferences(key)
        after = changed_preferences(before, directives)
        if after != before:
            await self._turns.prefer(key, after)
        return describe(after, self._agents.queue("cli"))


def _whoami(key: SessionKey, inbound: Inbound) -> str:
    account = f", account {key.account}" if key.account else ""
    lines = (
        ("you", f"{inbound.sender}, heard as {inbound.origin}"),
        ("channel", f"{inbound.channel}{account}"),
        ("agent", key.agent),
        ("session", str(key)),
    )
    return "\n".join(f"{name:<8} {told}" for name, told in lines)


def said(run: Run, text: str, clock: Clock) -> RunResult:
    """The end of a run that needed no model."""
    return RunResult(run.id, str(run.key), "", "ok", text, duration_ms=clock.now_ms() - run.accepted_at)
