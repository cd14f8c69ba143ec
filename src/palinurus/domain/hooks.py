"""Hooks: functions of extensions and of people that are called when something happens, and what they may change.

An event has OpenClaw's name; a hook listens to it or to its family (`session` is every `session:…`). What the caller
does with the hook depends on the event:

    observers     called in the background, 30 s each; whatever they do, the run goes on
    replies       `command:new`, `command:reset`, compaction and `memory:noted` wait for theirs, which may add messages
    a modifier    `agent:bootstrap` may change the files of the prompt, 15 s; if it fails, they stay as they were
    a gate        `before_tool_call` may forbid a call or narrow it, 15 s; if it fails, the call is not run

A hook gets a copy: what it changes, keeps or fills later reaches nobody. An async function runs on the event loop;
every other runs in a thread, where a coroutine that it returns has a loop of its own. A hook that fails three times in
a row is not called any more until a person enables it again: an observer is then silent, and a gate goes on blocking,
because whoever can make it fail could otherwise remove it.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field

from palinurus.domain.clock import Clock, SystemClock
from palinurus.domain.keys import SessionKey
from palinurus.domain.tool import Restriction

T = TypeVar("T")
BOOTSTRAP = "agent:bootstrap"
NOTED = "memory:noted"
BEFORE_TOOL = "before_tool_call"
EVENTS = (
    *("message:received", "message:sent", "command:new", "command:reset", "command:stop"),
    *("session:auto-reset", "session:compact:before", "session:compact:after", "session_start", "session_end"),
    NOTED,
    *(BOOTSTRAP, "agent_end", BEFORE_TOOL, "after_tool_call", "gateway:startup", "gateway:shutdown"),
)
MOST_MESSAGES = 5  # that one hook adds to a reply
LONGEST_MESSAGE = 2_000  # characters

log = logging.getLogger(__name__)


class HookEvent(Struct, frozen=True):
    """What a hook is given. `context` depends on the event: docs/hooks.md."""

    type: str  # message, command, session, agent, gateway; of a name without a colon the whole name
    action: str  # what follows the colon
    session_key: str
    timestamp: int  # milliseconds
    context: dict[str, Any]
    messages: list[str] = field(default_factory=list)  # what it adds here is shown to the person
    env: dict[str, str] = {}  # variables that the config has for this hook


class Hook(Struct, frozen=True):
    name: str  # as people call it
    events: tuple[str, ...]  # names or families
    call: Callable[[HookEvent], Any]
    """May raise, block (unless it is async) and hang. What it returns counts for a gate only: see HookDecision."""
    priority: int = 0  # the higher, the earlier
    version: str = ""  # of its code: failures of another version do not count
    agents: frozenset[str] | None = None  # whose sessions it sees; None: all

    def listens(self, event: str) -> bool:
        return event in self.events or event.partition(":")[0] in self.events


class CallLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """A gate may narrow a call to these. Nothing here can allow what the policy denies."""

    hosts: tuple[str, ...] | None = None
    paths: tuple[str, ...] | None = None
    sandboxed: bool = False


class HookDecision(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What a gate returns, also as a dictionary with these keys in camelCase; None lets the call pass."""

    block: bool = False
    block_reason: str = ""
    require_approval: str = ""  # why a person shall be asked
    restrict: CallLimits | None = None


class HookLimits(Struct, frozen=True):
    gate_seconds: float = 15.0  # also of the modifier
    observer_seconds: float = 30.0
    close_seconds: float = 5.0  # that observers may still take when the process ends
    failures: int = 3  # in a row
    waiting: int = 100  # events for one observer


class HookHealth(Struct):
    """How the calls of one hook went."""

    version: str = ""
    failures: int = 0  # in a row
    trouble: str = ""  # why the last one failed
    waiting: int = 0
    dropped: int = 0  # events that were too many
    is_gate: bool = False


class HookFailed(Exception):
    """A hook failed; it is counted and logged already."""


Find = Callable[[str], Sequence[Hook]]
"""Returns the hooks that listen to an event, the first to be called first. Must not block; may raise."""


def find_none(_: str) -> Sequence[Hook]:
    return ()


class Hooks:
    """Calls hooks. Nothing but cancellation comes out of it, whatever a hook does."""

    def __init__(
        self,
        find: Find = find_none,
        clock: Clock | None = None,
        redact: Callable[[str], str] = lambda text: text,
        limits: HookLimits | None = None,
    ) -> None:
        self.limits = limits or HookLimits()
        self.health: dict[str, HookHealth] = {}  # by name, of those that were called
        self._find = find
        self._clock = clock or SystemClock()
        self._redact = redact
        self._observing: set[asyncio.Task[Any]] = set()
        self._calls: set[asyncio.Task[Any]] = set()  # also those that take too long and cannot be stopped
        self._locks: dict[str, asyncio.Lock] = {}  # an observer is told of one event after the other

    def listens(self, event: str, key: SessionKey | None) -> bool:
        return bool(self._hooks(event, key))

    def observe(self, event: str, key: SessionKey | None, context: Callable[[], dict[str, Any]]) -> None:
        """Tells the observers in the background. `context` is called only if there are any. Does not raise or block."""
        hooks = self._hooks(event, key)
        if not hooks:
            return
        try:
            events = [(hook, self._event(event, key, facts)) for facts in (context(),) for hook in hooks]
        except RecursionError:
            log.warning("observers of %s were not told: what happened is nested too deeply", event)
            return
        for hook, given in events:
            health = self._health(hook)
            if health.waiting >= self.limits.waiting:
                health.dropped += 1
                continue
            health.waiting += 1
            _spawn(self._observe(hook, given, health), self._observing)

    async def collect_messages(
        self, event: str, key: SessionKey | None, context: Callable[[], dict[str, Any]]
    ) -> tuple[str, ...]:
        """Tells the hooks one after the other, and returns what they want to be said."""
        messages: list[str] = []
        for hook, given in self._events(event, key, context):
            with suppress(HookFailed):
                messages += await self._call(hook, given, self.limits.observer_seconds, lambda _, told: _said(told))
        return tuple(messages)

    async def revise(
        self, event: str, key: SessionKey | None, context: dict[str, Any], read: Callable[[dict[str, Any]], T]
    ) -> T | None:
        """Lets each hook change the context of those before it. Returns what `read` makes of the last; None: no hook
        succeeded. A context that `read` refuses (by any exception) is a failure of its hook.
        """
        result: T | None = None
        for hook in self._hooks(event, key):
            given = self._event(event, key, context)
            with suppress(HookFailed):
                result = await self._call(hook, given, self.limits.gate_seconds, lambda _, told: read(told.context))
                context = given.context
        return result

    async def restrict(self, key: SessionKey, context: Callable[[], dict[str, Any]]) -> tuple[Restriction, ...]:
        """Asks the gates about a tool call, until one blocks it. They only restrict, and one that fails blocks.

        Raises RecursionError for arguments that are nested too deeply.
        """
        found: list[Restriction] = []
        for hook, given in self._events(BEFORE_TOOL, key, context):
            self._health(hook).is_gate = True
            source = f"hook:{hook.name}"
            try:
                decision = await self._call(
                    hook, given, self.limits.gate_seconds, lambda answer, _: read_decision(answer)
                )
            except HookFailed as error:
                off = f"`pal hooks disable {hook.name}` turns it off"
                return (Restriction(source, f"a hook that fails blocks every tool: {error}; {off}", deny=("*",)),)
            found += _restrictions(source, decision)
            if decision.block:
                break
        return tuple(found)

    def reset_failures(self, name: str) -> None:
        """Its failures do not count any more: a person has enabled it."""
        self.health.pop(name, None)

    def is_disabled(self, name: str) -> bool:
        return name in self.health and self.health[name].failures >= self.limits.failures

    def warnings(self) -> tuple[str, ...]:
        """One line for each hook that is not called any more."""
        return tuple(
            f"the hook {name} failed {health.failures} times in a row and is disabled"
            f"{', and as a gate it blocks every tool' if health.is_gate else ''}: {health.trouble}"
            f" (`pal hooks enable {name}` tries it again, `pal hooks disable {name}` turns it off)"
            for name, health in sorted(self.health.items())
            if self.is_disabled(name)
        )

    async def idle(self) -> None:
        """Until all observers were told."""
        while self._observing:
            await asyncio.wait(self._observing)

    async def close(self) -> None:
        """Lets observers end, for a short time."""
        if self._observing:
            await asyncio.wait(self._observing, timeout=self.limits.close_seconds)
        for task in (*self._observing, *self._calls):
            task.cancel()

    # -- one call -----------------------------------------------------------------------------------------------------

    async def _observe(self, hook: Hook, event: HookEvent, health: HookHealth) -> None:
        try:
            async with self._locks.setdefault(hook.name, asyncio.Lock()):
                with suppress(HookFailed):
                    await self._call(hook, event, self.limits.observer_seconds, lambda *_: None)
        finally:
            health.waiting -= 1

    async def _call(self, hook: Hook, event: HookEvent, seconds: float, read: Callable[[Any, HookEvent], T]) -> T:
        """What `read` makes of its answer. Raises HookFailed."""
        health = self._health(hook)
        if health.failures >= self.limits.failures:
            raise HookFailed(f"it failed {health.failures} times in a row and is disabled: {health.trouble}")
        work = _on_loop(hook, event) if inspect.iscoroutinefunction(hook.call) else _in_thread(hook, event, seconds)
        task = _spawn(work, self._calls)
        try:
            result = read(await _result(task, seconds), event)
        except asyncio.CancelledError:
            if (own := asyncio.current_task()) is not None and own.cancelling():
                raise
            raise self._failure(hook, event, "something that it waited for was cancelled") from None
        except Exception as error:  # noqa: BLE001  # foreign code: whatever it was, it must not end the run
            raise self._failure(hook, event, _described(error)) from None
        finally:
            task.cancel()  # one that does not end is left alone
        health.failures = 0
        return result

    def _failure(self, hook: Hook, event: HookEvent, why: str) -> HookFailed:
        health = self._health(hook)
        health.failures += 1
        health.trouble = self._redact(why)
        name = ":".join(filter(None, (event.type, event.action)))
        log.warning("the hook %s failed at %s: %s", hook.name, name, health.trouble)
        if health.failures == self.limits.failures:
            log.warning("the hook %s is disabled: it failed %d times in a row", hook.name, health.failures)
        return HookFailed(health.trouble)

    # -- parts --------------------------------------------------------------------------------------------------------

    def _hooks(self, event: str, key: SessionKey | None) -> Sequence[Hook]:
        try:
            found = self._find(event)
        except Exception as error:  # noqa: BLE001  # code of an extension, or its config: a failure that is logged
            found = (Hook("hooks", (event,), _fail_with(error)),)
        if not found:
            return ()
        return [hook for hook in found if hook.agents is None or key is None or key.agent in hook.agents]

    def _events(
        self, event: str, key: SessionKey | None, context: Callable[[], dict[str, Any]]
    ) -> Iterator[tuple[Hook, HookEvent]]:
        if hooks := self._hooks(event, key):
            facts = context()
            for hook in hooks:
                yield hook, self._event(event, key, facts)

    def _event(self, event: str, key: SessionKey | None, context: dict[str, Any]) -> HookEvent:
        kind, _, action = event.partition(":")
        return HookEvent(kind, action, str(key) if key else "", self._clock.now_ms(), copy.deepcopy(context))

    def _health(self, hook: Hook) -> HookHealth:
        known = self.health.get(hook.name)
        if known is None or known.version != hook.version:
            known = self.health[hook.name] = HookHealth(hook.version)
        return known


def _spawn(work: Coroutine[Any, Any, T], tasks: set[asyncio.Task[Any]]) -> asyncio.Task[T]:
    """Starts a task that is in `tasks` until it ends."""

    def end(task: asyncio.Task[Any]) -> None:
        tasks.discard(task)
        if not task.cancelled():
            task.exception()  # nobody waits for one that took too long

    task = asyncio.create_task(work, name="hook")
    tasks.add(task)
    task.add_done_callback(end)
    return task


def read_decision(answer: Any) -> HookDecision:
    """Raises ValidationError for what is not understood: a gate that says something unknown has not allowed it."""
    if answer is None or isinstance(answer, HookDecision):
        return answer or HookDecision()
    decision = msgspec.convert(answer, HookDecision)
    if decision.block_reason and not decision.block:
        raise ValueError("it gave a blockReason without block")
    return decision


def _restrictions(source: str, decision: HookDecision) -> Iterator[Restriction]:
    if decision.block:
        yield Restriction(source, decision.block_reason or "it blocks this call", deny=("*",))
    if decision.require_approval:
        yield Restriction(source, decision.require_approval, ask=("*",))
    if (limits := decision.restrict) is not None:
        why = "it narrows this call"
        yield Restriction(source, why, sandboxed=limits.sandboxed, hosts=limits.hosts, paths=limits.paths)


def _said(event: HookEvent) -> list[str]:
    texts = [each for each in event.messages[:MOST_MESSAGES] if isinstance(each, str) and each.strip()]
    return [text[:LONGEST_MESSAGE] for text in texts]


def _described(error: BaseException) -> str:
    text = str(error)
    return text if isinstance(error, TimeoutError | HookFailed) and text else f"{type(error).__name__}: {text}"[:500]


def _fail_with(error: Exception) -> Callable[[HookEvent], Any]:
    async def fail(_: HookEvent) -> None:
        raise HookFailed(f"the hooks of this home cannot be found: {_described(error)}")

    return fail


async def _result(task: asyncio.Task[Any], seconds: float) -> Any:
    """Its result. One that takes too long is not waited for: it may refuse to be cancelled."""
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if not done:
        raise TimeoutError(f"it was not done within {seconds:g} s")
    return task.result()


async def _on_loop(hook: Hook, event: HookEvent) -> Any:
    try:
        return await hook.call(event)
    except SystemExit as error:  # from a task, it would end the process
        raise HookFailed(f"it called exit({error.code})") from None


async def _in_thread(hook: Hook, event: HookEvent, seconds: float) -> Any:
    """Runs a function in a thread that nobody waits for at the end of the process."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()

    def work() -> None:
        try:
            result = hook.call(event)
            if inspect.iscoroutine(result):
                result = asyncio.run(asyncio.wait_for(result, seconds + 1))  # it ends by itself, if it can
            finish = lambda: None if answer.done() else answer.set_result(result)  # noqa: E731
        except BaseException as error:  # noqa: BLE001  # also what would end a process
            failure = HookFailed(_described(error))
            finish = lambda: None if answer.done() else answer.set_exception(failure)  # noqa: E731
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(finish)

    threading.Thread(target=work, name=f"hook {hook.name}", daemon=True).start()
    return await answer
