"""The words behind a slash, for those who complete them: the house's own, and the skills that people may call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from msgspec import Struct

from palinurus.dispatch.commands import COMMANDS, DIRECTIVES, SKILL
from palinurus.domain.errors import NotOffered
from palinurus.gateway.talk.methods import Method, Talk
from palinurus.skills.skills import Skills


class AskCommands(Struct, frozen=True, rename="camel", omit_defaults=True):
    agent_id: str = ""  # whose skills; empty: the default one's


class SlashCommand(Struct, frozen=True, omit_defaults=True):
    name: str
    words: str  # how it is written
    meaning: str
    skill: str = ""  # the one that it calls


class SlashCommands(Struct, frozen=True):
    commands: tuple[SlashCommand, ...]


async def _list(talk: Talk, params: AskCommands) -> SlashCommands:
    house = talk.desk.house
    known = {**COMMANDS, **DIRECTIVES}
    own = [SlashCommand(name, each.words, each.meaning) for name, each in known.items()]
    try:
        skills = house.skills(params.agent_id.strip().lower() or house.agents.default)
    except NotOffered:  # a house without skills
        return SlashCommands(tuple(own))
    called = await asyncio.to_thread(lambda: list(_called(skills)))
    by_name = SlashCommand("skill", SKILL.words, SKILL.meaning)
    return SlashCommands((*own, *((by_name, *called) if called else ())))


def _called(skills: Skills) -> Iterator[SlashCommand]:
    for command, skill in skills.listing().commands.items():
        yield SlashCommand(command, f"/{command} [words]", skill.about.description, skill.name)


METHODS = (Method("commands.list", AskCommands, SlashCommands, "read", _list, about="Words behind a slash."),)
