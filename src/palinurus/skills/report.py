"""The skills of an agent as people and programs see them."""

from __future__ import annotations

from msgspec import Struct

from palinurus.domain.tool import Restriction
from palinurus.skills.offer import Form, shortened
from palinurus.skills.requirements import MissingRequirements
from palinurus.skills.skill import (
    Install,
    OmittedSkill,
    ShadowedSkill,
    SkillManifest,
    Tier,
    restriction_of,
    restriction_text,
)
from palinurus.skills.skills import Skills, SkillState


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
    missing: MissingRequirements = MissingRequirements()
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


def _mendable(missing: MissingRequirements) -> int:
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
