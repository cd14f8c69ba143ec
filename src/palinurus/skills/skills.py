"""The skills of one agent: what there is, what can be used, what is offered, and what happens when one is used.

Everything is asked anew each time and answered from what was worked out before, unless something has changed on disk,
among the programs or in the variables that skills ask for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec
from msgspec import Struct

from palinurus.config.offering import SkillsSettings
from palinurus.domain.messages import ContextNote, Origin, ToolCall, ToolResult
from palinurus.domain.provenance import OutsideText
from palinurus.domain.tool import ToolRun
from palinurus.skills.capabilities import restriction_of
from palinurus.skills.catalog import Catalog, Catalogued, same_name
from palinurus.skills.commands import Invoked, command_names, parse_invocation
from palinurus.skills.discovery import Mark
from palinurus.skills.environment import Values, nothing, run_variables
from palinurus.skills.offer import Offer, offer
from palinurus.skills.reading import SCHEME, SkillFiles, SkillText, instructions, origin_of, read_file, source_of
from palinurus.skills.recognising import Recogniser, Wordings
from palinurus.skills.requirements import Surroundings, Verdict, judge
from palinurus.skills.skill import Skill
from palinurus.workspace.files import BootstrapFile

RUNS = frozenset({"exec"})  # calls that act on what a skill's folder holds, and do not only show it


class Standing(Struct, frozen=True, gc=False):
    skill: Skill
    verdict: Verdict
    command: str = ""  # its slash command, if people may call it

    @property
    def offered(self) -> bool:
        """Whether a model may choose it."""
        return self.verdict.usable and self.skill.about.model_invocable


class Listing(Struct, frozen=True):
    found: Catalogued
    standings: tuple[Standing, ...]
    offer: Offer
    commands: Mapping[str, Skill]
    files: SkillFiles
    restricted: Recogniser  # usable ones that are held to something

    @property
    def usable(self) -> tuple[Skill, ...]:
        return tuple(each.skill for each in self.standings if each.verdict.usable)


class RestsOn(Struct, frozen=True):
    """All that has a say in a listing, besides the settings."""

    marks: tuple[Mark, ...]
    programs: tuple[str, ...]  # folders and files
    variables: frozenset[str]


class Skills:
    def __init__(
        self,
        catalog: Catalog,
        settings: SkillsSettings,
        here: Surroundings,
        *,
        workspace: str,
        user_home: str,
        taken: Collection[str] = (),  # names of the house's own slash commands
        values: Values = nothing,
    ) -> None:
        self.settings = settings
        self.workspace = workspace
        self.user_home = user_home
        self._catalog = catalog
        self._here = here
        self._taken = taken
        self._values = values
        self._wordings = Wordings()
        self._last: Listing | None = None
        self._variables: frozenset[str] = frozenset()  # that skills ask for
        self._present: frozenset[str] = frozenset()

    def listing(self) -> Listing:
        """Blocks for a few milliseconds at most when nothing has changed, with a thousand skills."""
        found = self._catalog.look()
        programs_changed = self._here.programs.renew()
        if self._last is None or self._last.found is not found:
            self._variables = frozenset(name for skill in found.skills for name in skill.about.requires.env)
            self._last = None
        present = self._here.present(self._variables)
        if self._last is None or programs_changed or present != self._present:
            self._last, self._present = self._list(found, present), present
        return self._last

    def rests_on(self) -> RestsOn | None:
        """What the last listing was made from; None when some of it changed so recently that it cannot be told."""
        scanned = self._catalog.known()
        if self._last is None or not all(each.settled for each in scanned):
            return None
        marks = [mark for each in scanned for mark in (*each.marks, *(read.mark for read in each.reads))]
        return RestsOn(tuple(dict.fromkeys(marks)), tuple(self._here.programs.seen()), self._variables)

    def offer(self) -> Offer:
        """What stands in the prompt. The same text, as long as nothing has changed."""
        return self.listing().offer

    def invoked(self, text: str) -> Invoked | None:
        """The skill that a message asks for by a slash command. Raises NotFound for `/skill` with a wrong name."""
        return parse_invocation(text, self.listing().commands) if text.startswith("/") else None

    def text(self, path: str) -> SkillText | None:
        """A file of a usable skill, wherever it lies; None when the path is in none. Raises as `read_file` does."""
        place = self.listing().files.find(path)
        return None if place is None else read_file(place)

    def before(self, run: ToolRun, call: ToolCall) -> ToolRun:
        """For whom a call runs: a command that runs a skill's script does so within what the skill declares."""
        return self._with(run, self._used_by(call)) if call.name in RUNS else run

    def after(self, run: ToolRun, call: ToolCall, result: str = "") -> ToolRun:
        """For whom the rest of the run goes on, when a call may have shown a skill's instructions."""
        return self._having_read(run, (*self._used_by(call), *self._recognised(run, result)))

    def shown(self, run: ToolRun, text: str) -> ToolRun:
        """The same when only the text is known that the model reads."""
        return self._having_read(run, self._recognised(run, text))

    def called(self, run: ToolRun, invoked: Invoked) -> ToolRun:
        """The same for a skill that a person has called."""
        return self._having_read(run, (invoked.skill,))

    def lasting(self, run: ToolRun) -> ToolRun:
        """The same for skills of registries whose words the model reads from earlier runs, or from a summary of them.

        What such a skill is held to holds for as long as its words are in the conversation, whoever reads them.
        """
        names = {same_name(text.source.removeprefix(SCHEME)) for text in run.outside if text.source.startswith(SCHEME)}
        if not names:
            return run
        return self._with(run, [skill for skill in self.listing().found.skills if same_name(skill.name) in names])

    def marked(self, result: ToolResult, call: ToolCall | None = None) -> ToolResult:
        """The result, which says so when it shows the words of a skill from a registry, however it came by them."""
        used = self._used_by(call) if call else ()
        held = self.listing().restricted
        shown = held.among(result.text) if any(skill.registry for skill in held.skills) else ()
        found = (*used, *shown)
        sources = dict.fromkeys(source_of(skill) for skill in found if origin_of(skill) == Origin.OUTSIDE)
        more = tuple(source for source in sources if source not in result.sources)
        if not more:
            return result
        return msgspec.structs.replace(result, origin=Origin.OUTSIDE, sources=(*result.sources, *more))

    def in_use(self, run: ToolRun) -> tuple[Skill, ...]:
        return tuple(skill for skill in self.listing().usable if skill.name in run.skills) if run.skills else ()

    def variables(self, run: ToolRun, *, sandboxed: bool) -> dict[str, str]:
        """For a command of this run: what the config has for the skills in use. Secrets; raises ConfigError."""
        used = self.in_use(run)
        return run_variables(used, self.settings, self._here.env, self._values, sandboxed=sandboxed) if used else {}

    def folders(self, run: ToolRun) -> tuple[str, ...]:
        """Folders outside the workspace that a command of this run needs to see, to read only."""
        inside = f"{self.workspace.rstrip('/')}/"
        return tuple(skill.folder for skill in self.in_use(run) if not skill.folder.startswith(inside))

    def _used_by(self, call: ToolCall) -> tuple[Skill, ...]:
        return self.listing().files.used_by(call.name, call.arguments)

    def _recognised(self, run: ToolRun, text: str) -> tuple[Skill, ...]:
        restricted = self.listing().restricted
        idle = any(skill.name not in run.skills for skill in restricted.skills)
        return restricted.among(text) if text and idle else ()

    def _having_read(self, run: ToolRun, used: Sequence[Skill]) -> ToolRun:
        """What a registry brought are words from outside, also when a command shows them (promise 18)."""
        later = self._with(run, used)
        outside = (skill for skill in used if origin_of(skill) == Origin.OUTSIDE)
        return later.having_read(tuple(OutsideText(source=source_of(skill)) for skill in outside))

    def _with(self, run: ToolRun, used: Sequence[Skill]) -> ToolRun:
        """Taking up a skill twice changes nothing, and nothing is ever given back within a run."""
        fresh = [skill for skill in used if skill.name not in run.skills]
        if not fresh:
            return run
        found = (restriction_of(skill, self.workspace) for skill in fresh)
        more = tuple(each for each in found if each is not None)
        names = (*run.skills, *(skill.name for skill in fresh))
        return msgspec.structs.replace(run, skills=names, restrictions=(*run.restrictions, *more))

    def _list(self, found: Catalogued, present: Collection[str]) -> Listing:
        verdicts = [(skill, judge(skill, self.settings, self._here, present)) for skill in found.skills]
        usable = [skill for skill, verdict in verdicts if verdict.usable]
        commands = command_names(usable, self._taken)
        by_name = {same_name(skill.name): command for command, skill in commands.items()}
        standings = tuple(
            Standing(skill, verdict, by_name.get(same_name(skill.name), "")) for skill, verdict in verdicts
        )
        chosen = [each.skill for each in standings if each.offered]
        return Listing(
            found,
            standings,
            offer(chosen, self.settings.limits, self.user_home),
            commands,
            SkillFiles(usable, self.workspace, self.user_home),
            Recogniser((each for each in usable if restriction_of(each, self.workspace)), self._wordings.runs),
        )


def called_note(invoked: Invoked) -> ContextNote:
    """What rides beside the words of somebody who calls a skill: its instructions, which need not be read any more."""
    skill = invoked.skill
    text = f"The user calls this skill for the message. Follow it.\n\n{instructions(skill)}"
    return ContextNote("skill", text, skill.name, origin=origin_of(skill), sources=(source_of(skill),))


def skill_list(offered: Offer) -> BootstrapFile | None:
    """The list as a prompt shows it: a change of it rides in the newest message, as those of workspace files do."""
    if not offered.text:
        return None
    return BootstrapFile("Skills", "present", offered.text, offered.digest, len(offered.text))
