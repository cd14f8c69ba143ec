"""Makes the grants of "always": for exactly the approved plan, or for a wider rule that a person chose.

Some plans get no lasting grant because its effect cannot be known: commands that were not understood, programs that the
agent could replace, and commands in the sandbox (a grant applies outside it).
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from palinurus.domain.clock import Clock, NewId
from palinurus.domain.errors import BadRequest, NotConfirmed, NotFound
from palinurus.domain.events import Plan
from palinurus.domain.keys import SessionKey
from palinurus.tools.grants import (
    EXEC,
    PATH,
    Grant,
    GrantDraft,
    GrantStore,
    Scope,
    covers_call,
    exact_call,
    exact_draft,
    rule_arguments,
    rule_text,
    split_rule,
    unescape,
)
from palinurus.tools.settings import ExecSettings

DAY_MS = 24 * 3600 * 1000
LONGEST_DAYS = 3650.0
ALPHABET = "23456789bcdfghjkmnpqrstvwxz"  # no characters that look alike, and no vowels, so that ids form no words
ID_LENGTH = 6
SYSTEM = frozenset({"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"})


class GrantTerms(Struct, frozen=True):
    """What a person wants to grant. `days` None: the agent's configured period."""

    drafts: Sequence[GrantDraft] = ()  # empty with an approval: exactly the approved plan
    scope: Scope = "agent"
    days: float | None = None
    confirmed: bool = False  # confirmation of rules that carry a warning


class GrantIssuer(Struct, eq=False):
    """Creates and stores grants.

    `settings` are those of the agent with this id; `writable` are its workspace and the other paths it may write;
    `path` is where programs outside the sandbox are searched.
    """

    grants: GrantStore
    clock: Clock
    new_id: NewId
    settings: Callable[[str], ExecSettings]
    writable: Callable[[str], Sequence[Path]] = lambda _: ()
    path: str = PATH

    def why_not(self, plan: Plan, agent: str) -> str:
        """Returns why no lasting grant is possible for this plan; empty if one is."""
        from palinurus.tools.commands.hazards import runs_scripts
        from palinurus.tools.exec.permission import deciding_variables

        if plan.tool != EXEC:
            return ""
        if plan.where == "sandbox":
            return "it runs in the sandbox, and a grant would let it run outside"
        if not plan.invocations:
            return "the command was not understood, so the programs it starts are unknown"
        if names := deciding_variables(dict.fromkeys(plan.env, "")):
            return f"it sets variables ({', '.join(names)}), and grants do not cover variables"
        if (own := self.writable(agent)) and not _within(plan.cwd, own):
            return f"it runs outside the workspace, in {plan.cwd}, where grants do not apply"
        for each in plan.invocations:
            if not each.binary or not each.resolved:
                return f"the program {each.name} was not found"
            if self._replaceable((each.binary, each.resolved), agent, plan.cwd):
                return f"{each.binary} is in a directory that the agent can write, so the program may change"
            if runs_scripts(each.binary) or runs_scripts(each.resolved):
                return f"{each.name} runs files that the agent can write; create such a rule with `pal approvals grant`"
        return ""

    def read(self, rule: str, agent: str) -> GrantDraft:
        """Reads a rule written by a person, such as `git diff *`, for the program that has this name now."""
        from palinurus.tools.commands.judge import find_rule_problem
        from palinurus.tools.commands.programs import resolve_program

        if why := find_rule_problem(rule):
            raise BadRequest(f"the rule `{rule}` cannot be used: {why}")
        parts = split_rule(rule)
        found = resolve_program((unescape(parts[0]),), cwd="/", path=self.path)
        if not found.binary:
            raise BadRequest(f"there is no program {found.name!r}", hint="is it installed, and on the PATH?")
        if self._replaceable((found.binary, found.resolved), agent, ""):
            raise BadRequest(f"{found.binary} is in a directory that the agent can write, so the program may change")
        return GrantDraft(EXEC, found.binary, found.resolved, rule_arguments(parts))

    def _replaceable(self, paths: Sequence[str], agent: str, cwd: str) -> bool:
        """Returns whether the agent could replace this program."""
        from palinurus.tools.commands.programs import ANYBODY_WRITES

        places = [*self.writable(agent), *map(Path, (*ANYBODY_WRITES, *([cwd] if cwd else [])))]
        return any(str(Path(path).parent) not in SYSTEM and _within(path, places) for path in paths)

    async def draw_up(self, terms: GrantTerms, *, session_key: str, by: str) -> list[Grant]:
        """Returns grants with an id and an expiry time. They are not stored yet."""
        agent, now = SessionKey.parse(session_key).agent, self.clock.now_ms()
        days = self.settings(agent).grant_days if terms.days is None else terms.days
        if not 0 < days <= LONGEST_DAYS:
            raise BadRequest(f"{days:g} days is not a valid period for a grant", hint=f"use 1 to {LONGEST_DAYS:g}")
        common: dict[str, Any] = {
            "scope": terms.scope,
            "agent": agent if terms.scope != "home" else "",
            "session_key": session_key if terms.scope == "session" else "",
            "created_at": now,
            "expires_at": now + round(days * DAY_MS),
            "created_by": by,
        }
        taken = {grant.id for grant in await self.grants.all()}
        drawn = []
        for draft in terms.drafts:
            while (fresh := short_id(self.new_id)) in taken:
                pass
            taken.add(fresh)
            drawn.append(Grant(fresh, **common, **structs.asdict(draft)))
        return drawn

    async def issue(self, terms: GrantTerms, *, session_key: str, by: str) -> list[Grant]:
        grants = await self.draw_up(terms, session_key=session_key, by=by)
        await self.give(grants)
        return grants

    async def give(self, grants: Sequence[Grant]) -> None:
        for grant in grants:
            await self.grants.add(grant)

    async def revoke(self, grant_id: str) -> Grant:
        """Revokes a grant by its id or the start of it. Raises NotFound or BadRequest."""
        ids = [grant.id for grant in await self.grants.all()]
        found = find_id(grant_id, ids, "grant", "`pal approvals grants` lists them")
        return await self.grants.revoke(found, self.clock.now_ms())


def find_id(given: str, ids: Iterable[str], what: str, hint: str) -> str:
    """Returns the id that equals the given one, or the only one that starts with it. Raises NotFound or BadRequest."""
    wanted = given.strip().lower()
    known = [each for each in ids if wanted and each.startswith(wanted)]
    fitting = [wanted] if wanted in known else known
    if not fitting:
        raise NotFound(f"there is no {what} {given!r}", hint=hint)
    if len(fitting) > 1:
        raise BadRequest(f"several {what}s begin with {wanted!r}: {', '.join(fitting)}")
    return fitting[0]


def must_be_confirmed(warnings: Sequence[str]) -> None:
    """Raises NotConfirmed if the rules carry a warning and were not confirmed."""
    if warnings:
        raise NotConfirmed(
            f"this rule would allow something dangerous: {'; '.join(warnings)}", hint="confirm it if you mean it"
        )


def rules_for(plan: Plan, drafts: Sequence[GrantDraft] = ()) -> tuple[GrantDraft, ...]:
    """Returns the chosen rules, plus exact rules for what they do not cover of the plan. Raises BadRequest."""
    from palinurus.tools.commands.hazards import covers_by_name

    for draft in drafts:
        by_name = plan.tool == EXEC and any(covers_by_name(draft, each) for each in plan.invocations)
        if not (by_name or covers_call(draft, plan.tool, plan.arguments)):
            said = f"the rule `{rule_text(draft)}` does not match the requested command: {plan.summary}"
            raise BadRequest(said, hint="use `pal approvals grant` for other commands")
    if plan.tool != EXEC:
        return tuple(drafts) or (exact_call(plan.tool, plan.arguments),)
    left = [each for each in plan.invocations if not any(covers_by_name(draft, each) for draft in drafts)]
    return tuple(dict.fromkeys((*drafts, *map(exact_draft, left))))


def short_id(new_id: NewId) -> str:
    """Returns an id short enough to type. The caller checks that it is free."""
    number = int(new_id(), 16)
    return "".join(ALPHABET[number // len(ALPHABET) ** place % len(ALPHABET)] for place in range(ID_LENGTH))


def _within(path: str, places: Sequence[Path]) -> bool:
    return any(Path(path).is_relative_to(os.path.realpath(place)) for place in places)
