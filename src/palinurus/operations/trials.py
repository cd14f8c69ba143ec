"""Rules tried on the commands of this home before anybody gives them: "would have allowed 37 of 412, among them …"."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from functools import cache

from msgspec import Struct

from palinurus.config.handling import ExecSettings
from palinurus.domain.errors import BadRequest
from palinurus.domain.keys import SessionKey
from palinurus.domain.plan import Invocation
from palinurus.ledger.audit import PastCommand
from palinurus.operations.house import House
from palinurus.tools.approvals.granting import Granting
from palinurus.tools.approvals.proposals import Proposal, Replay, narrowest, replay
from palinurus.tools.commands.allowlist import configured
from palinurus.tools.commands.hazards import allows, runs_other_programs
from palinurus.tools.commands.safe_bins import is_safe
from palinurus.tools.grants.grants import Grant, GrantDraft, words

SHOWN = 20  # commands that are listed, newest first; all are counted


class Told(Struct, frozen=True, omit_defaults=True):
    at: int
    command: str
    reasons: tuple[str, ...] = ()


class Trial(Struct, frozen=True, rename="camel"):
    """What rules would have let through of all commands that were asked for."""

    rules: tuple[str, ...]
    remarks: tuple[str, ...]
    total: int
    allowed: int
    examples: tuple[Told, ...]
    sensitive_count: int
    sensitive: tuple[Told, ...]


async def try_rules(house: House, drafts: Sequence[GrantDraft], key: SessionKey) -> Trial:
    """Beside the rules counts what holds already in this session: grants, the config's allowlist, safe filters."""
    past = await house.audit.commands(agent=key.agent)
    held = await house.grants.active(agent=key.agent, session_key=str(key), now=house.clock.now_ms())
    settings = house.hands.settings(key.agent).exec
    path = house.approvals.granting.path
    tried = await asyncio.to_thread(_replayed, drafts, past, held, settings, path)
    names = dict.fromkeys(draft.binary.rpartition("/")[2] for draft in drafts)
    return Trial(
        tuple(map(words, drafts)),
        tuple(f"{name}: {remark}" for name in names if (remark := runs_other_programs(name))),
        tried.total,
        len(tried.covered),
        tuple(_told(each) for each in tried.covered[:SHOWN]),
        len(tried.sensitive),
        tuple(_told(each.command, each.reasons) for each in tried.sensitive[:SHOWN]),
    )


def read_examples(granting: Granting, examples: Sequence[str], agent: str) -> tuple[Proposal, ...]:
    """The narrowest rules for commands as a person writes them, one program each. Raises BadRequest."""
    found = []
    for example in examples:
        try:
            argv = shlex.split(example)
        except ValueError as error:
            raise BadRequest(f"not a command: {example} ({error})") from None
        if not argv:
            raise BadRequest("an example is empty")
        program = granting.read(shlex.quote(argv[0]), agent)
        found.append(Invocation(argv[0], program.binary, program.resolved, tuple(argv[1:])))
    return narrowest(found)


def _replayed(
    drafts: Sequence[GrantDraft], past: Sequence[PastCommand], held: Sequence[Grant], settings: ExecSettings, path: str
) -> Replay:
    @cache
    def known(each: Invocation) -> bool:
        if is_safe(each, settings.safe_bins) or any(allows(grant, each) for grant in held):
            return True
        return any(allows(line, each) for line in configured(settings.allowlist, each, cwd="/", path=path))

    return replay(drafts, past, known)


def _told(command: PastCommand, reasons: tuple[str, ...] = ()) -> Told:
    return Told(command.at, command.plan.summary, reasons)
