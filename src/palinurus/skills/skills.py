"""The skills of one agent: which exist, which can be used, what a model is offered, and how using one changes a run.

Everything is answered from a listing that is rebuilt only if something has changed on disk, among the programs, or in
the environment variables that skills require.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct

from palinurus.config.agents import agent_settings
from palinurus.config.home import Home
from palinurus.config.load import LoadedConfig, load_config
from palinurus.domain.messages import ContextNote, Origin, OutsideText, ToolCall, ToolResult
from palinurus.domain.tool import ToolRun
from palinurus.skills import use
from palinurus.skills.catalog import SkillCache, SkillCatalog, SkillSet, same_name
from palinurus.skills.discovery import skill_roots
from palinurus.skills.offer import SkillCall, SkillOffer, command_names, offer, parse_invocation
from palinurus.skills.requirements import Eligibility, Programs, SkillEnvironment, judge, run_variables
from palinurus.skills.settings import SkillsSettings, skill_variables, skills_settings
from palinurus.skills.skill import Skill, restriction_of

RUNS = frozenset({"exec"})  # calls that run what is in a skill's folder, and do not only show it


class SkillState(Struct, frozen=True, gc=False):
    skill: Skill
    verdict: Eligibility
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


class Skills:
    def __init__(
        self,
        catalog: SkillCatalog,
        settings: SkillsSettings,
        here: SkillEnvironment,
        *,
        workspace: str,
        user_home: str,
        taken: Collection[str] = (),  # names of our own slash commands
    ) -> None:
        self.settings = settings
        self.workspace = workspace
        self.user_home = user_home
        self._catalog = catalog
        self._here = here
        self._taken = taken
        self._last: SkillListing | None = None
        self._variables: frozenset[str] = frozenset()  # that skills require
        self._present: frozenset[str] = frozenset()

    def listing(self) -> SkillListing:
        """Returns the listing. Blocks for a few milliseconds at most if nothing has changed, with a thousand skills."""
        found = self._catalog.look()
        programs_changed = self._here.programs.renew()
        if self._last is None or self._last.found is not found:
            self._variables = frozenset(name for skill in found.skills for name in skill.about.requires.env)
            self._last = None
        present = self._here.present(self._variables)
        if self._last is None or programs_changed or present != self._present:
            self._last, self._present = self._list(found, present), present
        return self._last

    def has_program(self, name: str) -> bool:
        return self._here.programs.has(name)

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
        return run_variables(used, self.settings, self._here, sandboxed=sandboxed) if used else {}

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
        verdicts = [(skill, judge(skill, self.settings, self._here, present)) for skill in found.skills]
        usable = [skill for skill, verdict in verdicts if verdict.usable]
        commands = command_names(usable, self._taken)
        by_name = {same_name(skill.name): command for command, skill in commands.items()}
        states = tuple(
            SkillState(skill, verdict, by_name.get(same_name(skill.name), "")) for skill, verdict in verdicts
        )
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


class AgentSkills:
    """One per config; `cache` outlives it. `taken` are the names of our own slash commands."""

    def __init__(
        self, home: Home, loaded: LoadedConfig, *, cache: SkillCache | None = None, taken: Collection[str] = ()
    ) -> None:
        self._home = home
        self._loaded = loaded
        self._cache = cache
        self._taken = taken
        self._made: dict[str, Skills] = {}

    def of(self, agent_id: str = "") -> Skills:
        """Returns the skills of an agent, by default of the default agent. Raises NotFound."""
        if agent_id not in self._made:
            loaded = self._loaded
            agent = agent_settings(loaded.config, self._home, agent_id or None)
            self._made[agent_id] = open_skills(
                self._home,
                agent.workspace,
                skills_settings(loaded, self._home, agent.agent_id),
                look_around(self._home, loaded.env, partial(_values, loaded)),
                cache=self._cache,
                taken=self._taken,
            )
        return self._made[agent_id]


def read_skills(home: Home, env: Mapping[str, str], agent: str = "") -> Skills:
    """Returns the skills of an agent by the config on disk. Raises ConfigError, or NotFound for an unknown agent."""
    return AgentSkills(home, load_config(home, env)).of(agent.strip().lower())


def open_skills(
    home: Home,
    workspace: Path,
    settings: SkillsSettings,
    here: SkillEnvironment,
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
) -> SkillEnvironment:
    return SkillEnvironment(sys.platform, env, Programs(env.get("PATH", ""), tools_folders(home)), values)


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


def _values(loaded: LoadedConfig, skill: Skill) -> Mapping[str, str]:
    return skill_variables(loaded, skill.key, skill.about.primary_env)
