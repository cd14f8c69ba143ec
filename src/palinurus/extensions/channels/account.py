"""One account of a channel while the process stays: connected, watched, and connected again when it is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from palinurus.dispatch.channels import Channel, ChannelInbox
from palinurus.domain.errors import ConfigError
from palinurus.extensions.channels.settings import ReplySettings
from palinurus.operations.services import Services

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0  # seconds between two attempts to connect
STEADY_MS = 60_000  # after which a connection counts as good, and the pauses begin anew
CONNECT_SECONDS = 120.0
OUTAGE_SECONDS = 600.0  # that a channel may take to reconnect by itself
LOOK_SECONDS = 5.0
STOP_SECONDS = 10.0

AccountState = Literal["starting", "connected", "disconnected", "failed"]

log = logging.getLogger(__name__)


class AccountStatus(Struct, frozen=True, rename="camel"):
    """How one account of a channel stands. `failed`: only a change of the config helps."""

    channel: str
    account: str
    state: AccountState = "starting"
    identity: str = ""  # its name on the network
    since: int = 0  # of the state, in milliseconds since the epoch
    trouble: str = ""
    hint: str = ""
    received: int = 0  # messages since the process started
    sent: int = 0
    last_received_at: int = 0
    last_sent_at: int = 0


class RunningAccount:
    """Runs a channel until it is stopped: after an error again, with growing pauses."""

    def __init__(self, services: Services, channel: Channel, settings: Sequence[Mapping[str, Any]]) -> None:
        self.channel = channel
        self.settings = settings  # it was made with
        self.replies = channel.context.settings(ReplySettings)
        self.name, self.account = channel.context.channel, channel.context.account
        self.status = AccountStatus(self.name, self.account)
        self.log = logging.getLogger(f"{__name__}.{self.name}.{self.account}")
        self._services = services
        self._task: asyncio.Task[None] | None = None
        self._lost_at = 0  # when it was disconnected; 0: it is not
        self._run_again = True

    @property
    def is_connected(self) -> bool:
        return self.status.state == "connected"

    def start(self, inbox: ChannelInbox) -> None:
        self._task = asyncio.create_task(self._keep_running(inbox), name=f"channel {self.name}:{self.account}")

    async def stop(self) -> None:
        """It receives nothing more. One that does not end is left behind."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait([self._task], timeout=STOP_SECONDS)
        if not self._task.done():
            self.log.warning("%s:%s did not stop within %g s", self.name, self.account, STOP_SECONDS)

    def connected(self, identity: str) -> None:
        self._lost_at = 0
        self._change("connected", identity=identity, trouble="", hint="")
        self.log.info("%s:%s is connected as %s", self.name, self.account, identity)

    def disconnected(self, why: str) -> None:
        why = self._clean(why)
        if self.status.state != "disconnected":
            self._lost_at = self._services.clock.now_ms()
            self.log.warning("%s:%s is disconnected: %s", self.name, self.account, why)
        self._change("disconnected", trouble=why)

    def count_received(self) -> None:
        now = self._services.clock.now_ms()
        self._set(received=self.status.received + 1, last_received_at=now)

    def count_sent(self) -> None:
        self._set(sent=self.status.sent + 1, last_sent_at=self._services.clock.now_ms())

    async def _keep_running(self, inbox: ChannelInbox) -> None:
        pause = FIRST_PAUSE
        while True:
            began = self._services.clock.now_ms()
            try:
                await self._run_once(inbox)
                why = "it ended"
            except ConfigError as error:
                self._change("failed", trouble=self._clean(error.message), hint=error.hint)
                self.log.error("%s:%s: %s", self.name, self.account, self._clean(str(error)))  # noqa: TRY400  a sentence
                return
            except Exception as error:  # noqa: BLE001  the edge of an adapter: the others go on
                why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            self.disconnected(why)
            if self._services.clock.now_ms() - began > STEADY_MS:
                pause = FIRST_PAUSE
            await self._services.sleep(pause * (0.5 + self.channel.context.dice() / 2))
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _run_once(self, inbox: ChannelInbox) -> None:
        """Raises what the channel raises, or TimeoutError when it stays unconnected for too long."""
        running = asyncio.create_task(self.channel.run(inbox))
        self._lost_at = self._services.clock.now_ms()
        limit = CONNECT_SECONDS
        try:
            while True:
                done, _ = await asyncio.wait([running], timeout=LOOK_SECONDS)
                if done:
                    return running.result()
                limit = OUTAGE_SECONDS if self.is_connected else limit
                if self._lost_at and self._services.clock.now_ms() - self._lost_at > limit * 1000:
                    raise TimeoutError(f"not connected within {limit:g} s")
        finally:
            running.cancel()
            await asyncio.wait([running], timeout=STOP_SECONDS)

    def _clean(self, text: str) -> str:
        return self._services.jobs.redact(text)[:500]

    def _change(self, state: AccountState, **more: Any) -> None:
        changed = state != self.status.state
        self._set(state=state, **more, **({"since": self._services.clock.now_ms()} if changed else {}))
        if changed:
            told = {"channel": self.name, "account": self.account, "state": state}
            self._services.holder.publish("channels.changed", "", lambda: told)

    def _set(self, **more: Any) -> None:
        values = {name: getattr(self.status, name) for name in AccountStatus.__struct_fields__}
        self.status = AccountStatus(**{**values, **more})
