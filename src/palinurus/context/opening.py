"""How a turn opens: what is added to the transcript, and the request that follows from it. Pure.

Gathering (files, rows, the time) is done before; here it is only decided: does the epoch go on, which notes ride in
the newest message, and what exactly is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

import msgspec
from msgspec import Struct

from palinurus.context.assemble import assemble
from palinurus.context.epoch import BOOTSTRAPPED, EPOCH, Epoch, Route, reason_for_new
from palinurus.context.prompt import PromptPart, PromptSettings, shown_file, system_prompt
from palinurus.context.view import View
from palinurus.domain.clock import time_text
from palinurus.domain.envelope import Inbound
from palinurus.domain.messages import ContextNote, Message, Origin, Text, UserMessage
from palinurus.domain.tool import ToolSpec
from palinurus.providers.provider import ModelRequest
from palinurus.sessions.journal import Journal
from palinurus.sessions.transcript import Entry, MessageEntry
from palinurus.workspace.files import BootstrapFile

SKILLS = "Skills"  # the name of their list, among those of files

Injection = Literal["always", "continuation-skip", "never"]


class ContextSettings(Struct, frozen=True):
    prompt: PromptSettings = PromptSettings()
    injection: Injection = "always"
    twelve_hours: bool = False  # how the time is written that rides with a message; no part of the head

    @property
    def fingerprint(self) -> str:
        return msgspec.json.encode({"prompt": self.prompt, "injection": self.injection}).decode()


class Gathered(Struct, frozen=True):
    """Everything outside the transcript that a request is made of."""

    files: tuple[BootstrapFile, ...]
    tools: tuple[ToolSpec, ...]
    route: Route
    now: datetime
    heartbeat: BootstrapFile | None = None  # HEARTBEAT.md, in the runs that are for it
    skills: BootstrapFile | None = None  # the list of skills, where one is offered
    runtime: str = ""  # on what the agent runs, in one line

    def prompt(self, settings: PromptSettings) -> tuple[str, tuple[PromptPart, ...]]:
        """The system prompt that is made of this, and what each part of it costs."""
        route = f"model={self.route.provider}/{self.route.model} | thinking={self.route.thinking}"
        runtime = f"{self.runtime} | {route}" if self.runtime else ""
        return system_prompt(settings, self.tools, self.files, self.skills, runtime)


class Spoken(Struct, frozen=True):
    """What a turn answers: one message, or several that came together."""

    run_id: str
    inbound: Inbound
    also: tuple[str, ...] = ()  # runs whose words are in the message as well
    notes: tuple[ContextNote, ...] = ()
    thinking: str = ""  # for this message only


class Opening(Struct, frozen=True):
    entries: tuple[Entry, ...]
    request: ModelRequest
    epoch: Epoch
    first_of_epoch: bool


def open_turn(view: View, gathered: Gathered, settings: ContextSettings, journal: Journal, spoken: Spoken) -> Opening:
    """Continue the story with this message; or go on where it broke off, when the message is in it already."""
    entries: list[Entry] = []
    epoch, epoch_start = view.epoch, view.epoch_start
    reason = reason_for_new(epoch, gathered.route, settings.fingerprint, gathered.tools)
    if epoch is None or reason:
        epoch = _clean(new_epoch(view.reason if epoch is None else reason, gathered, settings), journal)
        epoch_start = len(view.lines)
        entries.append(journal.custom(EPOCH, msgspec.to_builtins(epoch)))
    messages: list[Message] = [line.message for line in view.lines]
    if spoken.run_id not in view.said:
        told = epoch.files if reason else view.told
        edits_ride = settings.injection == "always" or (settings.injection != "never" and not view.bootstrapped)
        edits = (
            *_skills_edit(told, gathered.skills),
            *(_edits(told, gathered.files, settings.prompt) if edits_ride else ()),
        )
        beside = (*spoken.notes, *_news(view, spoken.inbound.notes))
        notes = (*edits, *_heartbeat(gathered.heartbeat, settings.prompt), *beside)
        came = heard(spoken, gathered.now, journal, notes, twelve_hours=settings.twelve_hours)
        entries += came
        messages += [entry.message for entry in came]
    request = ModelRequest(
        model=gathered.route.model,
        head=epoch.head,
        messages=assemble(messages, epoch_start=epoch_start),
        thinking=gathered.route.thinking,
    )
    return Opening(tuple(entries), request, epoch, first_of_epoch=not view.bootstrapped or bool(reason))


def new_epoch(reason: str, gathered: Gathered, settings: ContextSettings) -> Epoch:
    system, _ = gathered.prompt(settings.prompt)
    shown = (*((gathered.skills,) if gathered.skills else ()), *(gathered.files if settings.prompt.inject else ()))
    files = {file.name: file.digest for file in shown}
    return Epoch(reason, gathered.route, settings.fingerprint, system, gathered.tools, files)


def _clean(epoch: Epoch, journal: Journal) -> Epoch:
    """Its prompt without the secrets that stand in workspace files: the head is stored and sent like any message."""
    return msgspec.structs.replace(epoch, system=journal.clean(Text(epoch.system)).text)


def closing(journal: Journal, opening: Opening) -> tuple[Entry, ...]:
    """What the end of a good turn adds: the mark that a model has read the whole head once."""
    return (journal.custom(BOOTSTRAPPED),) if opening.first_of_epoch else ()


def heard(
    spoken: Spoken, now: datetime, journal: Journal, notes: tuple[ContextNote, ...] = (), *, twelve_hours: bool = False
) -> list[MessageEntry]:
    """What came in, as it enters the transcript: results of the client's tools, then words. The last has the run's id.

    Where there are no words there is no place for notes either: they ride with the next ones.
    """
    inbound, run_id = spoken.inbound, spoken.run_id
    messages: list[Message] = [*inbound.results]
    if inbound.text or inbound.images or not inbound.results:
        messages.append(said(spoken, now, notes, twelve_hours=twelve_hours))
    ids = [*(f"{run_id}-{number}" for number in range(1, len(messages))), run_id]
    return [journal.message(message, entry_id=entry_id) for message, entry_id in zip(messages, ids, strict=True)]


def said(
    spoken: Spoken, now: datetime, notes: tuple[ContextNote, ...] = (), *, twelve_hours: bool = False
) -> UserMessage:
    """The message as it enters the transcript."""
    inbound = spoken.inbound
    content = (*((Text(inbound.text),) if inbound.text else ()), *inbound.images)
    time = ContextNote("time", time_text(now, twelve_hours=twelve_hours))
    sources = (sender_source(inbound),) if inbound.origin == Origin.OUTSIDE else ()
    return UserMessage(content, int(now.timestamp() * 1000), inbound.origin, (time, *notes), spoken.also, sources)


def sender_source(inbound: Inbound) -> str:
    return f"sender:{inbound.channel}:{inbound.sender}"


def _news(view: View, notes: Sequence[ContextNote]) -> tuple[ContextNote, ...]:
    """Notes without those that say what the model was last told under the same name."""
    return tuple(note for note in notes if not note.digest or note.digest != _last_told(view, note))


def _last_told(view: View, note: ContextNote) -> str:
    for line in reversed(view.lines):
        if isinstance(line.message, UserMessage):
            for told in line.message.context:
                if told.name == note.name and told.kind == note.kind:
                    return told.digest
    return ""


def _edits(
    told: Mapping[str, str], files: Sequence[BootstrapFile], settings: PromptSettings
) -> tuple[ContextNote, ...]:
    """Files that read differently from what the model was last shown."""
    if not settings.inject:
        return ()
    present = {file.name for file in files}
    edited = [
        ContextNote("file", shown_file(file, settings.file_limit).text, file.name, file.digest)
        for file in files
        if told.get(file.name) != file.digest
    ]
    removed = [
        ContextNote("file", "[removed from the workspace]", name)
        for name, digest in told.items()
        if name not in present and digest and name != SKILLS
    ]
    return (*edited, *removed)


def _skills_edit(told: Mapping[str, str], skills: BootstrapFile | None) -> tuple[ContextNote, ...]:
    """The list of skills, when it reads differently: no setting about workspace files has a say in it."""
    if skills is None:
        return (ContextNote("file", "[no skill can be used any more]", SKILLS),) if told.get(SKILLS) else ()
    if told.get(SKILLS) == skills.digest:
        return ()
    return (ContextNote("file", skills.text, SKILLS, skills.digest),)


def _heartbeat(file: BootstrapFile | None, settings: PromptSettings) -> tuple[ContextNote, ...]:
    """Rides in the newest message each time: in the head it would be there for every other turn too."""
    if file is None:
        return ()
    return (ContextNote("heartbeat", shown_file(file, settings.file_limit).text, file.name),)
