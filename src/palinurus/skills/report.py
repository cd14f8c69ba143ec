"""The skills of an agent as people and programs are shown them."""

from __future__ import annotations

from msgspec import Struct

from palinurus.domain.tool import Restriction
from palinurus.skills.capabilities import restriction_of, told
from palinurus.skills.catalog import same_name
from palinurus.skills.offer import Form, shortened
from palinurus.skills.requirements import Missing
from palinurus.skills.skill import Install, LeftOut, Manifest, Shadowed, Tier
from palinurus.skills.skills import Skills, Standing


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
    missing: Missing = Missing()
    install: tuple[Install, ...] = ()  # ways to get what is missing; only shown


class ListSize(Struct, frozen=True):
    """What the list of skills costs in every prompt."""

    characters: int
    listed: int
    total: int
    form: Form


class SkillList(Struct, frozen=True, rename="camel"):
    skills: tuple[ListedSkill, ...]
    shadowed: tuple[Shadowed, ...]
    left_out: tuple[LeftOut, ...]
    prompt: ListSize


class SkillInfo(Struct, frozen=True, rename="camel"):
    skill: ListedSkill
    about: Manifest
    digest: str
    may_use: str  # in one line
    restriction: Restriction | None


class SkillTrouble(Struct, frozen=True):
    name: str
    what: str


class SkillCheck(Struct, frozen=True, rename="camel"):
    usable: tuple[str, ...]
    waiting: tuple[ListedSkill, ...]  # something is missing that could be had
    unwanted: tuple[ListedSkill, ...]  # switched off, or for another system
    shadowed: tuple[Shadowed, ...]
    left_out: tuple[LeftOut, ...]
    remarks: tuple[SkillTrouble, ...]
    prompt: ListSize


def list_skills(skills: Skills) -> SkillList:
    listing = skills.listing()
    shown = tuple(_listed(each, skills) for each in listing.standings)
    return SkillList(shown, listing.found.shadowed, listing.found.left_out, _size(skills))


def show_skill(skills: Skills, name: str) -> SkillInfo:
    """Raises NotFound."""
    listing = skills.listing()
    skill = listing.found.get(name)
    standing = next(each for each in listing.standings if each.skill is skill)
    restriction = restriction_of(skill, skills.workspace)
    return SkillInfo(_listed(standing, skills), skill.about, skill.digest, told(restriction), restriction)


def check_skills(skills: Skills) -> SkillCheck:
    listing = skills.listing()
    shown = [_listed(each, skills) for each in listing.standings]
    idle = [each for each in shown if not each.usable]
    waiting = [each for each in idle if len(each.reasons) == _mendable(each.missing)]
    return SkillCheck(
        usable=tuple(each.name for each in shown if each.usable),
        waiting=tuple(waiting),
        unwanted=tuple(each for each in idle if each not in waiting),
        shadowed=listing.found.shadowed,
        left_out=listing.found.left_out,
        remarks=tuple(
            SkillTrouble(each.skill.name, remark) for each in listing.standings for remark in each.skill.about.remarks
        ),
        prompt=_size(skills),
    )


def standing_of(skills: Skills, name: str) -> Standing:
    """Raises NotFound."""
    listing = skills.listing()
    wanted = same_name(listing.found.get(name).name)
    return next(each for each in listing.standings if same_name(each.skill.name) == wanted)


def _mendable(missing: Missing) -> int:
    """How many of the reasons could be done away with by installing or setting something."""
    return sum(bool(each) for each in (missing.bins, missing.any_bins, missing.env, missing.config))


def _listed(standing: Standing, skills: Skills) -> ListedSkill:
    skill, verdict = standing.skill, standing.verdict
    return ListedSkill(
        name=skill.name,
        description=skill.about.description,
        tier=skill.tier,
        location=shortened(skill.location, skills.user_home),
        usable=verdict.usable,
        offered=standing.offered,
        command=standing.command,
        emoji=skill.about.emoji,
        registry=skill.registry,
        reasons=verdict.reasons,
        missing=verdict.missing,
        install=skill.about.install if verdict.missing else (),
    )


def _size(skills: Skills) -> ListSize:
    offer = skills.offer()
    return ListSize(len(offer.text), offer.listed, offer.total, offer.form)
