"""What "always" makes: grants for exactly what was asked, or for a wider rule that a person chose.

Some plans get no lasting grant, because nobody could say what it would let through: commands that were not understood,
programs that the agent could replace, commands in the sandbox (a grant counts outside).
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Sequence
from pathlib import Path

from palinurus.config.handling import ExecSettings
from palinurus.domain.clock import Clock, NewId
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.keys import SessionKey
from palinurus.domain.plan import Plan
from palinurus.tools.commands.allowlist import problem
from palinurus.tools.commands.hazards import allows, runs_scripts
from palinurus.tools.commands.resolve import resolve
from palinurus.tools.exec.variables import telling
from palinurus.tools.grants.grants import (
    EXEC,
    Grant,
    GrantDraft,
    GrantStore,
    Scope,
    covers_call,
    exact_call,
    exactly,
    words,
)
from palinurus.tools.grants.patterns import rule_arguments, split_rule, unescape

PATH = "/usr/local/bin:/usr/bin:/bin"
DAY_MS = 24 * 3600 * 1000
LONGEST_DAYS = 3650.0
ALPHABET = "23456789bcdfghjkmnpqrstvwxz"  # nothing that is mistaken for something else, and no vowels: no words
ID_LENGTH = 6
ANYBODY_WRITES = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  # programs there are refused, nothing is put there
SYSTEM = frozenset({"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"})


class Granting:
    """Draws up grants and gives them."""

    def __init__(
        self,
        grants: GrantStore,
        clock: Clock,
        new_id: NewId,
        settings: Callable[[str], ExecSettings],
        writable: Callable[[str], Sequence[Path]],
        path: str,
    ) -> None:
        self.grants = grants
        self._clock = clock
        self._new_id = new_id
        self._settings = settings
        self._writable = writable
        self.path = path

    def why_not(self, plan: Plan, agent: str) -> str:
        """Why there is no lasting grant for this plan; empty when there is one."""
        if plan.tool != EXEC:
            return ""
        if plan.where == "sandbox":
            return "it runs in the sandbox, and a grant would let it run outside"
        if not plan.invocations:
            return "the command was not understood, so there is no telling which programs it starts"
        if names := telling(dict.fromkeys(plan.env, "")):
            return f"it sets variables ({', '.join(names)}), and a grant names none"
        if (own := self._writable(agent)) and not _within(plan.cwd, own):
            return f"it runs outside the workspace, in {plan.cwd}, where no grant counts"
        for each in plan.invocations:
            if not each.binary or not each.resolved:
                return f"the program {each.name} was not found"
            if self._replaceable((each.binary, each.resolved), agent, plan.cwd):
                return f"{each.binary} lies where the agent can write, and may be another program next time"
            if runs_scripts(each.binary) or runs_scripts(each.resolved):
                return (
                    f"{each.name} runs files that the agent can write; `pal approvals grant` makes such a rule by hand"
                )
        return ""

    def read(self, rule: str, agent: str) -> GrantDraft:
        """A rule as a person writes it, such as `git diff *`, for the program that has this name now."""
        if why := problem(rule):
            raise BadRequest(f"the rule `{rule}` cannot be used: {why}")
        parts = split_rule(rule)
        found = resolve((unescape(parts[0]),), cwd="/", path=self.path)
        if not found.binary:
            raise BadRequest(f"there is no program {found.name!r}", hint="is it installed, and on the PATH?")
        if self._replaceable((found.binary, found.resolved), agent, ""):
            raise BadRequest(f"{found.binary} lies where the agent can write, and may be another program next time")
        return GrantDraft(EXEC, found.binary, found.resolved, rule_arguments(parts))

    def _replaceable(self, paths: Sequence[str], agent: str, cwd: str) -> bool:
        """Whether the agent could put another program in this place."""
        places = [*self._writable(agent), *map(Path, (*ANYBODY_WRITES, *([cwd] if cwd else [])))]
        return any(str(Path(path).parent) not in SYSTEM and _within(path, places) for path in paths)

    async def drawn_up(
        self,
        drafts: Sequence[GrantDraft],
        *,
        session_key: str,
        by: str,
        scope: Scope = "agent",
        days: float | None = None,
    ) -> list[Grant]:
        """Grants with an id and an end, not yet given. `days` None: as the agent's config says."""
        agent, now = SessionKey.parse(session_key).agent, self._clock.now_ms()
        lasting = self._settings(agent).grant_days if days is None else days
        if not 0 < lasting <= LONGEST_DAYS:
            raise BadRequest(f"a grant cannot last {lasting:g} days", hint=f"from 1 to {LONGEST_DAYS:g}")
        taken = {grant.id for grant in await self.grants.all()}
        drawn = []
        for draft in drafts:
            while (fresh := short_id(self._new_id)) in taken:
                pass
            taken.add(fresh)
            drawn.append(
                Grant(
                    fresh,
                    draft.tool,
                    scope,
                    agent=agent if scope != "home" else "",
                    session_key=session_key if scope == "session" else "",
                    binary=draft.binary,
                    resolved=draft.resolved,
                    args=draft.args,
                    created_at=now,
                    expires_at=now + round(lasting * DAY_MS),
                    created_by=by,
                )
            )
        return drawn

    async def give(self, grants: Sequence[Grant]) -> None:
        for grant in grants:
            await self.grants.add(grant)

    async def revoke(self, grant_id: str) -> Grant:
        """By its id or the beginning of one. Raises NotFound or BadRequest."""
        wanted = grant_id.strip().lower()
        known = [grant for grant in await self.grants.all() if wanted and grant.id.startswith(wanted)]
        fitting = [grant for grant in known if grant.id == wanted] or known
        if not fitting:
            raise NotFound(f"there is no grant {grant_id!r}", hint="`pal approvals grants` lists them")
        if len(fitting) > 1:
            raise BadRequest(f"several grants begin with {wanted!r}: {', '.join(grant.id for grant in fitting)}")
        return await self.grants.revoke(fitting[0].id, self._clock.now_ms())


def rules_for(plan: Plan, drafts: Sequence[GrantDraft] = ()) -> tuple[GrantDraft, ...]:
    """What always allows: the chosen rules, and exactly what they leave of the plan. Raises BadRequest."""
    for draft in drafts:
        if not _fits(draft, plan):
            raise BadRequest(
                f"the rule `{words(draft)}` does not fit what was asked: {plan.summary}",
                hint="`pal approvals grant` makes rules for other commands",
            )
    if plan.tool != EXEC:
        return tuple(drafts) or (exact_call(plan.tool, plan.arguments),)
    left = [each for each in plan.invocations if not any(allows(draft, each) for draft in drafts)]
    return tuple(dict.fromkeys((*drafts, *map(exactly, left))))


def short_id(new_id: NewId) -> str:
    """Short enough to be typed. Whoever takes it looks whether it is taken."""
    number = int(new_id(), 16)
    return "".join(ALPHABET[number // len(ALPHABET) ** place % len(ALPHABET)] for place in range(ID_LENGTH))


def _within(path: str, places: Sequence[Path]) -> bool:
    return any(Path(path).is_relative_to(os.path.realpath(place)) for place in places)


def _fits(draft: GrantDraft, plan: Plan) -> bool:
    if plan.tool != EXEC:
        return covers_call(draft, plan.tool, plan.arguments)
    return any(allows(draft, each) for each in plan.invocations)
