"""The skills of one agent: which exist, which can be used, what a model is offered, and how using one changes a run.

Everything is answered from a listing that is rebuilt only if something has changed on disk, among the programs, or in
the environment variables that skills require.

The skills of an agent as people and programs see them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from palinurus.config.agents import agent_settings
from palinurus.config.home import Home
from palinurus.config.load import LoadedConfig, load_config
from palinurus.domain.messages import ContextNote, Origin, OutsideText, ToolCall, ToolResult
from palinurus.domain.tool import Restriction, ToolRun
from palinurus.skills import requirements, use
from palinurus.skills.discovery import SkillCache, SkillCatalog, SkillSet, same_name, skill_roots
from palinurus.skills.offer import Form, SkillCall, SkillOffer, command_names, offer, parse_invocation, shortened
from palinurus.skills.settings import SkillsSettings, skill_variables, skills_settings
from palinurus.skills.skill import (
    Install,
    OmittedSkill,
    ShadowedSkill,
    Skill,
    SkillManifest,
    Tier,
    restriction_of,
    restriction_text,
)

RUNS = frozenset({"exec"})  # calls that run what is in a skill's folder, and do not only show it


class SkillState(Struct, frozen=True, gc=False):
    skill: Skill
    verdict: requirements.Eligibility
    command: str = ""  # its slash command, if people may call it

    @property
    def offered(self) -> bool:
        """Returns whether a model may choose it."""
        return self.verdict.usable and self.skill.about.model_invocable


class SkillListing(Struct, frozen=True):
    found: SkillSet
    states: tuple[SkillState, ...]
    offer: SkillOffer
    commands: Mapping[str, Skill]
    files: use.SkillFiles
    restricted: use.Recogniser  # usable skills with a restriction

    @property
    def usable(self) -> tuple[Skill, ...]:
        return tuple(each.skill for each in self.states if each.verdict.usable)


class Skills(Struct, eq=False):
    _catalog: SkillCatalog
    settings: SkillsSettings
    here: requirements.SkillEnvironment
    workspace: str
    user_home: str
    taken: Collection[str] = ()  # names of our own slash commands
    _last: SkillListing | None = None
    _variables: frozenset[str] = frozenset()  # that skills require
    _present: frozenset[str] = frozenset()

    def listing(self) -> SkillListing:
        """Returns the listing. Blocks for a few milliseconds at most if nothing has changed, with a thousand skills."""
        found = self._catalog.look()
        programs_changed = self.here.programs.renew()
        if self._last is None or self._last.found is not found:
            self._variables = frozenset(name for skill in found.skills for name in skill.about.requires.env)
            self._last = None
        present = self.here.present(self._variables)
        if self._last is None or programs_changed or present != self._present:
            self._last, self._present = self._list(found, present), present
        return self._last

    def has_program(self, name: str) -> bool:
        return self.here.programs.has(name)

    def offer(self) -> SkillOffer:
        """Returns the text in the prompt. It is the same as long as nothing has changed."""
        return self.listing().offer

    def invoked(self, text: str) -> SkillCall | None:
        """Returns the skill that a message calls by a slash command. Raises NotFound for `/skill` with an unknown
        name."""
        return parse_invocation(text, self.listing().commands) if text.startswith("/") else None

    def text(self, path: str) -> use.SkillText | None:
        """Returns a file of a usable skill; None if the path is in none. Raises as `read_file` does."""
        place = self.listing().files.find(path)
        return None if place is None else use.read_file(place)

    def before(self, run: ToolRun, call: ToolCall) -> ToolRun:
        """Returns the run's context before a call: a command that runs a skill's script gets the skill's
        restriction."""
        return self._with(run, self._used_by(call)) if call.name in RUNS else run

    def after(self, run: ToolRun, call: ToolCall, result: str = "") -> ToolRun:
        """Returns the run's context after a call that may have shown a skill's instructions."""
        return self._having_read(run, (*self._used_by(call), *self._recognised(run, result)))

    def shown(self, run: ToolRun, text: str) -> ToolRun:
        """The same if only the text that the model reads is known."""
        return self._having_read(run, self._recognised(run, text))

    def called(self, run: ToolRun, invoked: SkillCall) -> ToolRun:
        """The same for a skill that a person has called."""
        return self._having_read(run, (invoked.skill,))

    def lasting(self, run: ToolRun) -> ToolRun:
        """The same for registry skills whose text the model reads from earlier runs or from a summary of them.

        The restrictions of such a skill apply as long as its text is in the session, whoever reads it.
        """
        sources = (text.source for text in run.outside if text.source.startswith(use.SCHEME))
        names = {same_name(source.removeprefix(use.SCHEME)) for source in sources}
        if not names:
            return run
        return self._with(run, [skill for skill in self.listing().found.skills if same_name(skill.name) in names])

    def marked(self, result: ToolResult, call: ToolCall | None = None) -> ToolResult:
        """Returns the result, marked as from outside if it shows text of a skill from a registry."""
        used = self._used_by(call) if call else ()
        held = self.listing().restricted
        shown = held.among(result.text) if any(skill.registry for skill in held.skills) else ()
        found = (*used, *shown)
        sources = dict.fromkeys(use.source_of(skill) for skill in found if use.origin_of(skill) == Origin.OUTSIDE)
        more = tuple(source for source in sources if source not in result.sources)
        if not more:
            return result
        return msgspec.structs.replace(result, origin=Origin.OUTSIDE, sources=(*result.sources, *more))

    def in_use(self, run: ToolRun) -> tuple[Skill, ...]:
        return tuple(skill for skill in self.listing().usable if skill.name in run.skills) if run.skills else ()

    def variables(self, run: ToolRun, *, sandboxed: bool) -> dict[str, str]:
        """Returns the config's variables of the skills in use, for a command of this run. Secrets; raises
        ConfigError."""
        used = self.in_use(run)
        return requirements.run_variables(used, self.settings, self.here, sandboxed=sandboxed) if used else {}

    def folders(self, run: ToolRun) -> tuple[str, ...]:
        """Returns folders outside the workspace that a command of this run needs to read."""
        inside = f"{self.workspace.rstrip('/')}/"
        return tuple(skill.folder for skill in self.in_use(run) if not skill.folder.startswith(inside))

    def _used_by(self, call: ToolCall) -> tuple[Skill, ...]:
        return self.listing().files.used_by(call.name, call.arguments)

    def _recognised(self, run: ToolRun, text: str) -> tuple[Skill, ...]:
        restricted = self.listing().restricted
        idle = any(skill.name not in run.skills for skill in restricted.skills)
        return restricted.among(text) if text and idle else ()

    def _having_read(self, run: ToolRun, used: Sequence[Skill]) -> ToolRun:
        """A skill from a registry is text from outside, also if a command shows it (promise 18)."""
        later = self._with(run, used)
        outside = (skill for skill in used if use.origin_of(skill) == Origin.OUTSIDE)
        return later.having_read(tuple(OutsideText(source=use.source_of(skill)) for skill in outside))

    def _with(self, run: ToolRun, used: Sequence[Skill]) -> ToolRun:
        """Adds skills to the run. Adding one twice changes nothing, and nothing is removed within a run."""
        fresh = [skill for skill in used if skill.name not in run.skills]
        if not fresh:
            return run
        found = (restriction_of(skill, self.workspace) for skill in fresh)
        more = tuple(each for each in found if each is not None)
        names = (*run.skills, *(skill.name for skill in fresh))
        return msgspec.structs.replace(run, skills=names, restrictions=(*run.restrictions, *more))

    def _list(self, found: SkillSet, present: Collection[str]) -> SkillListing:
        verdicts = [(skill, requirements.judge(skill, self.settings, self.here, present)) for skill in found.skills]
        usable = [skill for skill, verdict in verdicts if verdict.usable]
        commands = command_names(usable, self.taken)
        by_name = {same_name(skill.name): command for command, skill in commands.items()}
        states = tuple(SkillState(skill, each, by_name.get(same_name(skill.name), "")) for skill, each in verdicts)
        chosen = [each.skill for each in states if each.offered]
        return SkillListing(
            found,
            states,
            offer(chosen, self.settings.limits, self.user_home),
            commands,
            use.SkillFiles(usable, self.workspace, self.user_home),
            use.Recogniser(each for each in usable if restriction_of(each, self.workspace)),
        )


def called_note(invoked: SkillCall) -> ContextNote:
    """Returns the note for a message that calls a skill: its instructions, so that the model need not read them."""
    skill = invoked.skill
    text = f"The user calls this skill for the message. Follow it.\n\n{use.instructions(skill)}"
    return ContextNote("skill", text, skill.name, origin=use.origin_of(skill), sources=(use.source_of(skill),))


class AgentSkills(Struct, eq=False):
    """One per config; `cache` outlives it. `taken` are the names of our own slash commands."""

    home: Home
    loaded: LoadedConfig
    cache: SkillCache | None = None
    taken: Collection[str] = ()
    _made: dict[str, Skills] = {}

    def of(self, agent_id: str = "") -> Skills:
        """Returns the skills of an agent, by default of the default agent. Raises NotFound."""
        if agent_id not in self._made:
            loaded = self.loaded
            agent = agent_settings(loaded.config, self.home, agent_id or None)
            self._made[agent_id] = open_skills(
                self.home,
                agent.workspace,
                skills_settings(loaded, self.home, agent.agent_id),
                look_around(self.home, loaded.env, lambda it: skill_variables(loaded, it.key, it.about.primary_env)),
                cache=self.cache,
                taken=self.taken,
            )
        return self._made[agent_id]


def read_skills(home: Home, env: Mapping[str, str], agent: str = "") -> Skills:
    """Returns the skills of an agent by the config on disk. Raises ConfigError, or NotFound for an unknown agent."""
    return AgentSkills(home, load_config(home, env)).of(agent.strip().lower())


def open_skills(
    home: Home,
    workspace: Path,
    settings: SkillsSettings,
    here: requirements.SkillEnvironment,
    *,
    cache: SkillCache | None = None,
    taken: Collection[str] = (),
) -> Skills:
    """Opens the skills of an agent. `cache` is shared by the agents of a process."""
    roots = skill_roots(workspace, home, settings)
    catalog = SkillCatalog(roots, settings, cache or skill_cache(home), home=home.root)
    return Skills(catalog, settings, here, workspace=str(workspace), user_home=str(home.user_home), taken=taken)


def look_around(
    home: Home, env: Mapping[str, str], values: Callable[[Skill], Mapping[str, str]] = lambda _: {}
) -> requirements.SkillEnvironment:
    return requirements.SkillEnvironment(
        sys.platform, env, requirements.Programs(env.get("PATH", ""), tools_folders(home)), values
    )


def skill_cache(home: Home) -> SkillCache:
    """Returns the cache on disk if there is a home: reading skills does not create one."""
    return SkillCache(home.root / "derived" / "skills.msgpack" if home.root.is_dir() else None)


def tools_folders(home: Home) -> list[str]:
    """Returns where `pal skills install-deps` puts programs that no package manager provides."""
    try:
        found = sorted((home.root / "tools").iterdir())
    except OSError:
        return []
    return [str(place) for folder in found for place in (folder, folder / "bin")]


class ListedSkill(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    name: str
    description: str
    tier: Tier
    location: str
    usable: bool
    offered: bool = False  # whether a model may choose it by itself
    command: str = ""
    emoji: str = ""
    registry: str = ""
    reasons: tuple[str, ...] = ()  # why it is not usable
    missing: requirements.MissingRequirements = requirements.MissingRequirements()
    install: tuple[Install, ...] = ()  # ways to install what is missing; only shown


class ListSize(Struct, frozen=True):
    """What the list of skills costs in every prompt."""

    characters: int
    listed: int
    total: int
    form: Form


class SkillList(Struct, frozen=True, rename="camel"):
    skills: tuple[ListedSkill, ...]
    shadowed: tuple[ShadowedSkill, ...]
    left_out: tuple[OmittedSkill, ...]
    prompt: ListSize


class SkillInfo(Struct, frozen=True, rename="camel"):
    skill: ListedSkill
    about: SkillManifest
    digest: str
    may_use: str  # in one line
    restriction: Restriction | None


class SkillTrouble(Struct, frozen=True):
    name: str
    what: str


class SkillCheck(Struct, frozen=True, rename="camel"):
    usable: tuple[str, ...]
    waiting: tuple[ListedSkill, ...]  # something is missing that can be installed or set
    unwanted: tuple[ListedSkill, ...]  # disabled, or for another system
    shadowed: tuple[ShadowedSkill, ...]
    left_out: tuple[OmittedSkill, ...]
    remarks: tuple[SkillTrouble, ...]
    prompt: ListSize


def list_skills(skills: Skills) -> SkillList:
    listing = skills.listing()
    shown = tuple(_listed(each, skills) for each in listing.states)
    return SkillList(shown, listing.found.shadowed, listing.found.left_out, _size(skills))


def show_skill(skills: Skills, name: str) -> SkillInfo:
    """Describes one skill. Raises NotFound."""
    state = find_state(skills, name)
    skill = state.skill
    restriction = restriction_of(skill, skills.workspace)
    return SkillInfo(_listed(state, skills), skill.about, skill.digest, restriction_text(restriction), restriction)


def check_skills(skills: Skills) -> SkillCheck:
    listing = skills.listing()
    shown = [_listed(each, skills) for each in listing.states]
    idle = [each for each in shown if not each.usable]
    waiting = [each for each in idle if len(each.reasons) == _mendable(each.missing)]
    return SkillCheck(
        usable=tuple(each.name for each in shown if each.usable),
        waiting=tuple(waiting),
        unwanted=tuple(each for each in idle if each not in waiting),
        shadowed=listing.found.shadowed,
        left_out=listing.found.left_out,
        remarks=tuple(
            SkillTrouble(each.skill.name, remark) for each in listing.states for remark in each.skill.about.remarks
        ),
        prompt=_size(skills),
    )


def find_state(skills: Skills, name: str) -> SkillState:
    """Returns the state of one skill. Raises NotFound."""
    listing = skills.listing()
    skill = listing.found.get(name)
    return next(each for each in listing.states if each.skill is skill)


def _mendable(missing: requirements.MissingRequirements) -> int:
    """Returns how many of the reasons end when something is installed or set."""
    return sum(bool(each) for each in (missing.bins, missing.any_bins, missing.env, missing.config))


def _listed(state: SkillState, skills: Skills) -> ListedSkill:
    skill, verdict = state.skill, state.verdict
    return ListedSkill(
        name=skill.name,
        description=skill.about.description,
        tier=skill.tier,
        location=shortened(skill.location, skills.user_home),
        usable=verdict.usable,
        offered=state.offered,
        command=state.command,
        emoji=skill.about.emoji,
        registry=skill.registry,
        reasons=verdict.reasons,
        missing=verdict.missing,
        install=skill.about.install if verdict.missing else (),
    )


def _size(skills: Skills) -> ListSize:
    offer = skills.offer()
    return ListSize(len(offer.text), offer.listed, offer.total, offer.form)
