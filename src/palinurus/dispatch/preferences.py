"""What the people of a session have chosen about queueing and what is shown. Pure."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from palinurus.dispatch.directives import Directives
from palinurus.dispatch.queueing import DROPS, QueueChange, QueueSettings, parse_mode, with_change
from palinurus.domain.events import RunResult
from palinurus.domain.messages import Usage
from palinurus.providers.provider import ModelRef
from palinurus.sessions.session import Preferences


def preferred(settings: QueueSettings, preferences: Preferences) -> QueueSettings:
    """The queue settings of a session: its own where it has any, else the config's."""
    milliseconds = preferences.queue_debounce_ms
    change = QueueChange(
        parse_mode(preferences.queue_mode),
        None if milliseconds is None else milliseconds / 1000,
        preferences.queue_cap,
        next((drop for drop in DROPS if drop == preferences.queue_drop), None),
    )
    return with_change(settings, change)


def changed_preferences(before: Preferences, directives: Directives) -> Preferences:
    after = before
    if directives.verbose is not None:
        after = msgspec.structs.replace(after, verbose_level=directives.verbose)
    if directives.usage is not None:
        after = msgspec.structs.replace(after, response_usage=directives.usage)
    if directives.elevated is not None:
        after = msgspec.structs.replace(after, elevated_level=directives.elevated)
    if directives.reasoning is not None:
        after = msgspec.structs.replace(after, reasoning_level=directives.reasoning)
    queue = directives.queue
    if queue is not None and queue.clear:
        return msgspec.structs.replace(after, queue_mode="", queue_debounce_ms=None, queue_cap=None, queue_drop="")
    if queue is not None:
        after = msgspec.structs.replace(
            after,
            queue_mode=queue.mode or after.queue_mode,
            queue_debounce_ms=after.queue_debounce_ms if queue.debounce is None else round(queue.debounce * 1000),
            queue_cap=queue.cap or after.queue_cap,
            queue_drop=queue.drop or after.queue_drop,
        )
    return after


def describe(preferences: Preferences, settings: QueueSettings) -> str:
    queue = preferred(settings, preferences)
    return (
        f"queue {queue.mode} (waits {queue.debounce:g} s, at most {queue.cap}, then drop:{queue.drop}), "
        f"verbose {preferences.verbose_level or 'off'}, usage {preferences.response_usage or 'off'}, "
        f"reasoning {preferences.reasoning_level or 'off'}, "
        f"elevated {preferences.elevated_level or 'as the config says'}"
    )


def usage_line(shown: str, result: RunResult, cost: Callable[[str, str, Usage], float | None]) -> str:
    """The line below a reply that `/usage` asks for; empty when it asks for none."""
    if shown not in ("tokens", "cost", "full") or result.status != "ok":
        return ""
    ref = ModelRef.parse(result.model)
    usage, price = result.usage, cost(ref.provider, ref.model, result.usage)
    tokens = f"{usage.input + usage.cache_read + usage.cache_write:,} in, {usage.output:,} out"
    money = "price unknown" if price is None else f"${price:.4f}"
    cached = f", {usage.cache_read:,} from the cache" if usage.cache_read else ""
    return {"tokens": tokens, "cost": money, "full": f"{tokens}{cached}, {money}, {result.model}"}[shown]
