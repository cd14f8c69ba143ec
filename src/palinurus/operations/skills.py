"""Skills from any door: which there are, what one is and may do, what is missing.

Looking needs no house, only the ground it stands on, so it works while another process holds the home. Installing what
a skill needs is done by a person in a terminal and by no other door.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

from palinurus.config.load import Loaded, load_config
from palinurus.config.settings import agent_ids, agent_settings, default_agent
from palinurus.config.skill_settings import skill_variables, skills_settings
from palinurus.domain.errors import NotFound, PalinurusError
from palinurus.operations.config import Ground
from palinurus.operations.house import House
from palinurus.operations.operation import operation
from palinurus.operations.skill_drafts import draft_skill
from palinurus.skills import report
from palinurus.skills.fetching import Fetch, fetch, install_download
from palinurus.skills.installing import Plan, Step, Ways, install_plan
from palinurus.skills.opening import Known, open_skills, tools_folders, write_note
from palinurus.skills.report import SkillCheck, SkillInfo, SkillList, standing_of
from palinurus.skills.requirements import Programs
from palinurus.skills.skill import Skill
from palinurus.skills.skills import Skills

INSTALL_SECONDS = 1_800.0

OfAgent = Annotated[str, "Whose skills; the default agent's without it."]

Run = Callable[[Sequence[str], float], int]
"""Runs a command with the person's terminal and gives its exit code. Raises TimeoutExpired or OSError."""


def skills_known(loaded: Loaded, ground: Ground) -> dict[str, Known]:
    """What the skills of each agent are made of."""
    return {
        agent: Known(
            agent_settings(loaded.config, ground.home, agent).workspace, skills_settings(loaded, ground.home, agent)
        )
        for agent in agent_ids(loaded.config)
    }


def skills_on(ground: Ground, agent: str = "") -> Skills:
    """The skills of an agent as the config on disk has them. Leaves the note that makes the next look quick.

    Raises ConfigError, or NotFound for an unknown agent.
    """
    loaded = load_config(ground.home, ground.env)
    known = skills_known(loaded, ground)
    write_note(ground.home, default_agent(loaded.config), known)
    agent_id = agent.strip().lower() or default_agent(loaded.config)
    if agent_id not in known:
        raise NotFound(f"there is no agent {agent!r}", hint=f"the config has {', '.join(known)}")
    return open_skills(ground.home, known[agent_id], loaded.env, values=partial(_values, loaded))


def plan_install(ground: Ground, skills: Skills, name: str) -> Plan:
    """What would be run so that the skill finds its programs. Raises NotFound."""
    standing = standing_of(skills, name)
    programs = Programs(ground.env.get("PATH", ""), tools_folders(ground.home))
    missing = (*standing.verdict.missing.bins, *_one_of(standing.skill, standing.verdict.missing.any_bins))
    ways = Ways(sys.platform, programs.has, str(ground.home.root / "tools"), root=os.geteuid() == 0)
    return install_plan(standing.skill, missing, skills.settings, ways)


def do_step(step: Step, *, run: Run | None = None, get: Fetch = fetch) -> None:
    """One step of a plan that a person has said yes to. Raises PalinurusError when it fails."""
    if step.download is not None:
        install_download(step.download, get)
        return
    try:
        code = (run or _run)(step.argv, INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        raise PalinurusError(f"{step.argv[0]} took longer than {INSTALL_SECONDS:.0f} seconds and was ended") from None
    except OSError as error:
        raise PalinurusError(f"{step.argv[0]} could not be run: {error.strerror}") from None
    if code:
        raise PalinurusError(f"{' '.join(step.argv)} ended with code {code}", hint="what it said stands above")


def _one_of(skill: Skill, names: Sequence[str]) -> Sequence[str]:
    """Of programs any of which would do, the first that a spec brings."""
    brought = [name for name in names if any(name in spec.bins for spec in skill.about.install)]
    return brought[:1] or names[:1]


def _values(loaded: Loaded, skill: Skill) -> dict[str, str]:
    return dict(skill_variables(loaded, skill.key, skill.about.primary_env))


def _run(argv: Sequence[str], seconds: float) -> int:
    return subprocess.run(argv, check=False, timeout=seconds).returncode  # no shell, and shown before


@operation("skills.list", scope="read")
async def list_skills(house: House, agent: OfAgent = "") -> SkillList:
    """The skills, where they come from, and whether they can be used."""
    return await asyncio.to_thread(report.list_skills, _of(house, agent))


@operation("skills.info", scope="read")
async def show_skill(house: House, name: str, agent: OfAgent = "") -> SkillInfo:
    """All that is known about one skill, and what it may use."""
    return await asyncio.to_thread(report.show_skill, _of(house, agent), name)


@operation("skills.check", scope="read")
async def check_skills(house: House, agent: OfAgent = "") -> SkillCheck:
    """Which skills cannot be used, and why."""
    return await asyncio.to_thread(report.check_skills, _of(house, agent))


def _of(house: House, agent: str) -> Skills:
    return house.skills(agent.strip().lower() or house.agents.default)


OPERATIONS = (list_skills, show_skill, check_skills, draft_skill)
