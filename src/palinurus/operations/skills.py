"""Skills from every surface: which there are, what one is and may do, what is missing.

Installing what a skill needs is done by a person in a terminal and by no other surface (cli/skills.py).
"""

from __future__ import annotations

import asyncio
from typing import Annotated

from palinurus.operations.operation import operation
from palinurus.operations.services import Services
from palinurus.skills import skills as reports
from palinurus.skills.skills import SkillCheck, SkillInfo, SkillList, Skills

OfAgent = Annotated[str, "Whose skills; the default agent's without it."]


@operation("skills.list", scope="read")
async def list_skills(services: Services, agent: OfAgent = "") -> SkillList:
    """The skills, where they come from, and whether they can be used."""
    return await asyncio.to_thread(reports.list_skills, _of(services, agent))


@operation("skills.info", scope="read")
async def show_skill(services: Services, name: str, agent: OfAgent = "") -> SkillInfo:
    """All that is known about one skill, and what it may use."""
    return await asyncio.to_thread(reports.show_skill, _of(services, agent), name)


@operation("skills.check", scope="read")
async def check_skills(services: Services, agent: OfAgent = "") -> SkillCheck:
    """Which skills cannot be used, and why."""
    return await asyncio.to_thread(reports.check_skills, _of(services, agent))


def _of(services: Services, agent: str) -> Skills:
    return services.skills(agent.strip().lower() or services.agents.default)
