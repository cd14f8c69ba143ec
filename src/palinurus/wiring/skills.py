"""The skills of each agent, as one config makes them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from palinurus.config.home import Home
from palinurus.config.load import Loaded
from palinurus.config.settings import agent_ids, agent_settings, default_agent
from palinurus.config.skill_settings import skill_variables, skills_settings
from palinurus.dispatch.commands import ALIASES, COMMANDS, DIRECTIVES
from palinurus.skills.cache import SkillCache
from palinurus.skills.opening import Known, open_skills, write_note
from palinurus.skills.skill import Skill
from palinurus.skills.skills import Skills
from palinurus.skills.watch import SkillWatch

TAKEN = (*COMMANDS, *DIRECTIVES, *ALIASES, "reset")


class SkillShelves:
    """One for each config; `cache` and `watch` outlive it."""

    def __init__(self, home: Home, loaded: Loaded, cache: SkillCache, watch: SkillWatch) -> None:
        self._home = home
        self._loaded = loaded
        self._cache = cache
        self._watch = watch
        self._made: dict[str, Skills] = {}

    def of(self, agent_id: str) -> Skills:
        """Raises NotFound."""
        if agent_id not in self._made:
            known = known_skills(self._loaded, self._home, agent_id)
            self._made[agent_id] = open_skills(
                self._home,
                known,
                self._loaded.env,
                cache=self._cache,
                taken=TAKEN,
                values=partial(_values, self._loaded),
                watch=self._watch,
            )
        return self._made[agent_id]


def known_skills(loaded: Loaded, home: Home, agent_id: str) -> Known:
    agent = agent_settings(loaded.config, home, agent_id)
    return Known(agent.workspace, skills_settings(loaded, home, agent.agent_id))


def leave_skill_note(home: Home, loaded: Loaded) -> None:
    """For a command that only looks at skills, so that it need not read the config."""
    known = {agent: known_skills(loaded, home, agent) for agent in agent_ids(loaded.config)}
    write_note(home, default_agent(loaded.config), known)


def _values(loaded: Loaded, skill: Skill) -> Mapping[str, str]:
    return skill_variables(loaded, skill.key, skill.about.primary_env)
