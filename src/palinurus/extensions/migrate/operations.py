"""Operations that import another home or one session, and export this home or one session. Local callers only."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.agents import AgentEntry, agent_ids, agent_settings, default_agent, key_folder
from palinurus.config.include import read_text
from palinurus.config.load import load_config, load_text
from palinurus.config.rewrite import merged
from palinurus.domain.errors import BadRequest, NotFound, StorageError
from palinurus.domain.keys import SessionKey
from palinurus.extensions.migrate.channel_export import channel_config
from palinurus.extensions.migrate.copies import Copies, Copy
from palinurus.extensions.migrate.cron_import import import_cron_runs, import_jobs
from palinurus.extensions.migrate.export_tree import ExportedAccess, ExportedAgent, ExportReport, TreeWriter, unpack
from palinurus.extensions.migrate.exporter import SessionExporter, TranscriptWriter
from palinurus.extensions.migrate.files import find_openclaw, is_export_file
from palinurus.extensions.migrate.foreign import ForeignAgent, ForeignHome, ForeignSecrets
from palinurus.extensions.migrate.import_store import Destination, database_of, import_store_of
from palinurus.extensions.migrate.importer import SessionImporter
from palinurus.extensions.migrate.migration import Migration
from palinurus.extensions.migrate.model_export import model_config
from palinurus.extensions.migrate.openclaw.channel_notes import channel_notes
from palinurus.extensions.migrate.openclaw.config_plan import ConfigPlanner, Ours
from palinurus.extensions.migrate.openclaw.config_rules import NEVER, PathMoves, heartbeats_in
from palinurus.extensions.migrate.openclaw.cron_jobs import JobSurroundings
from palinurus.extensions.migrate.openclaw.home import OpenClawHome
from palinurus.extensions.migrate.openclaw.transcripts import single_session
from palinurus.extensions.migrate.others import OtherHome
from palinurus.extensions.migrate.others import Program as OtherProgram
from palinurus.extensions.migrate.report import (
    FoundJob,
    FoundSession,
    FoundSetting,
    Losses,
    MigrationProgress,
    MigrationReport,
    SecretFindings,
    SkippedItem,
)
from palinurus.extensions.schedule.store import CronStore
from palinurus.operations.config import edit_config, setup
from palinurus.operations.operation import operation
from palinurus.operations.progress import follow
from palinurus.operations.scopes import LOCAL
from palinurus.operations.services import Services
from palinurus.providers.keys.credential_file import NAME, PASSPHRASE_ENV, CredentialFile, profiles_of
from palinurus.sessions.names import LISTED, require_session

PAGE = 200  # entries of a session that are returned at a time
HOW = "`--allow KEY` takes one, or all below a key"
Program = Literal["openclaw"] | OtherProgram


class MigrateHome(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    source: str  # the folder, as an absolute path
    apply: bool = False
    keys: bool = False  # also stored keys of model providers, and secrets in the config
    program: Program = "openclaw"  # whose home it is
    allow: tuple[str, ...] = ()  # settings that may run programs, move secrets or loosen rules, each with all below it
    settings: bool = False  # only read the config: `config` of the report is all that is in it


class MigrateStep(Struct, frozen=True, omit_defaults=True):
    """Progress, many times; at the end the report."""

    progress: MigrationProgress | None = None
    report: MigrationReport | None = None


class ExportProgress(Struct, frozen=True):
    done: int  # bytes of transcripts
    total: int


class ExportStep(Struct, frozen=True, omit_defaults=True):
    """Progress, many times; at the end the report."""

    progress: ExportProgress | None = None
    report: ExportReport | None = None


class ImportedSession(Struct, frozen=True, rename="camel"):
    session: FoundSession
    skipped: tuple[SkippedItem, ...]
    skipped_total: int


class TranscriptLines(Struct, frozen=True):
    text: str  # whole lines


@operation("migrate.openclaw", scope="admin", local=True)
async def migrate_home(services: Services, params: MigrateHome) -> AsyncIterator[MigrateStep]:
    """Bring another home into this one.

    A caller that stops listening stops the work; the next call continues it.
    """
    latest: list[MigrationProgress] = []
    steps = follow(_migrate(services, params, latest), latest)
    async with aclosing(steps):
        async for progress, report in steps:
            yield MigrateStep(progress, report)


async def _migrate(services: Services, params: MigrateHome, latest: list[MigrationProgress]) -> MigrationReport:
    source = Path(params.source)
    with tempfile.TemporaryDirectory(prefix="pal-unpacked-") as folder:
        if params.program == "openclaw" and is_export_file(source):
            await asyncio.to_thread(unpack, source, Path(folder))
            source = Path(folder)
        elif params.program == "openclaw":
            source = find_openclaw(os.environ, services.home.user_home, source)
        if await asyncio.to_thread(os.path.samefile, source, services.home.root):
            raise BadRequest(f"{source} is this home itself", hint="name the folder of the other one")
        home = await asyncio.to_thread(_open_home, source, params.program, services)
        try:
            return await _migrate_from(home, services, params, latest)
        finally:
            await asyncio.to_thread(home.close)


async def _migrate_from(
    home: ForeignHome, services: Services, params: MigrateHome, latest: list[MigrationProgress]
) -> MigrationReport:
    def tell(progress: MigrationProgress) -> None:
        latest[:] = [progress]

    settings: tuple[FoundSetting, ...] = ()
    new_default = await _new_default(services, home.agents)
    if params.program == "openclaw":
        settings = await asyncio.to_thread(_import_config, services, home, new_default, params)
    if params.settings:
        return MigrationReport(params.source, config=settings)
    to = await asyncio.to_thread(_destination, services, home.agents, new_default)
    store = import_store_of(services)
    report = await Migration(home, store, to, services.clock, tell, apply=params.apply, source=params.source).run()
    jobs = await _import_jobs(services, home, frozenset(to.workspaces), apply=params.apply)
    channels = await asyncio.to_thread(channel_notes, home.config.data, home.root, settings)
    notes = [*_setting_notes(settings, params.allow), *heartbeat_notes(settings, home), *channels, *report.notes]
    if params.apply:
        await asyncio.to_thread(setup, services)  # what an agent's workspace still lacks
    if params.apply and (runs := await import_cron_runs(services, home.documents.kept)):
        notes.append(f"past runs of cron jobs: {runs}; `pal cron runs` shows them")
    if params.apply and params.keys:
        notes += await asyncio.to_thread(_import_keys, services, home.stored_keys(), params.allow)
    return replace(report, config=settings, cron_jobs=jobs, notes=tuple(notes))


async def _import_jobs(
    services: Services, home: ForeignHome, agents: frozenset[str], *, apply: bool
) -> tuple[FoundJob, ...]:
    """`agents` come with them."""
    config = load_config(services.home, services.env).config
    default = next((agent.id for agent in home.agents if agent.is_default), default_agent(config))
    now, zone = services.clock.now_ms(), services.clock.zone
    around = JobSurroundings(agents | set(agent_ids(config)), default, now, zone)
    return await import_jobs(services, home.documents.jobs, around, apply=apply) if home.documents.jobs else ()


def _open_home(root: Path, program: Program, services: Services) -> ForeignHome:
    if program == "openclaw":
        return OpenClawHome(root, services.home.user_home)
    return OtherHome(root, program, default_agent(load_config(services.home, services.env).config))


async def _new_default(services: Services, agents: list[ForeignAgent]) -> str:
    """The agent that becomes the default one here: the marked default of the other home, if our config names no agent
    and our unnamed default agent has no sessions. Empty: our default agent stays."""
    config = load_config(services.home, services.env).config
    marked = next((agent.id for agent in agents if agent.marked), "")
    if not marked or config.own_places:
        return ""
    return "" if await services.sessions.recent(agent=default_agent(config), limit=1, archived=True) else marked


def _import_config(
    services: Services, home: ForeignHome, new_default: str, params: MigrateHome
) -> tuple[FoundSetting, ...]:
    """Add the settings of the other config to ours, where ours has none. This also adds agents."""
    to = _destination(services, home.agents, new_default)
    places = {agent.workspace: to.workspaces[agent.id] for agent in home.agents if agent.workspace is not None}
    moves = PathMoves(home.root, services.home.user_home, {home.root / "skills": to.skills, **places})
    settings: list[FoundSetting] = []

    def edit(text: str) -> str:
        loaded = load_text(services.home, services.env, text)
        ours = Ours(text, loaded.raw, new_default or default_agent(loaded.config), services.env)
        plan = ConfigPlanner(home.config.data, home.agents, ours, moves, keys=params.keys, allow=params.allow).plan()
        settings[:] = plan.settings
        return plan.text

    if params.apply and not params.settings:
        edit_config(services, edit, LOCAL)
    else:
        edit(read_text(services.home.config_path) or "{}")
    return tuple(settings)


def _setting_notes(settings: tuple[FoundSetting, ...], allow: tuple[str, ...]) -> list[str]:
    left = [each.path for each in settings if each.outcome == "left" and "." not in each.path]
    notes = [f"of the config, {', '.join(left)} are not imported"] if left else []
    if held := sum(each.outcome == "held" for each in settings):
        notes.append(f"{held} settings can run programs, move secrets or loosen rules: {HOW}")
    paths = [f"{each.path}." for each in settings]
    unknown = [key for key in allow if not any(path.startswith((f"{key}.", f"{key}[")) for path in paths)]
    notes += [f"--allow {key!r} names no setting of the other config" for key in unknown if not key.startswith("auth")]
    return notes


def heartbeat_notes(settings: tuple[FoundSetting, ...], home: ForeignHome) -> list[str]:
    is_taken = any(each.outcome == "taken" and "heartbeat" in each.path.split(".") for each in settings)
    found = heartbeats_in(home.config.data).items() if is_taken else ()
    on = [f"{name or 'all agents'} every {every}" for name, every in found if every != NEVER]
    return [f"the heartbeat is on ({', '.join(on)}): `pal heartbeat disable` turns it off"] if on else []


def _destination(services: Services, agents: list[ForeignAgent], new_default: str) -> Destination:
    """Where each agent's files go. One that our config does not have yet gets the folder that it will have."""
    config = load_config(services.home, services.env).config
    known = agent_ids(config)
    shared = config.section(AgentEntry).workspace
    is_new = bool(new_default) and new_default not in known
    workspaces = {}
    for agent in agents:
        workspaces[agent.id] = services.home.root / f"workspace-{agent.id}"
        if is_new and agent.id == new_default:
            workspaces[agent.id] = agent_settings(config, services.home).workspace  # that of the default agent
        elif agent.id in known and not is_new:
            workspaces[agent.id] = agent_settings(config, services.home, agent.id).workspace
        elif shared:
            workspaces[agent.id] = services.home.expand(shared, services.home.root) / agent.id
    return Destination(workspaces, services.home.root / "skills")


def _import_keys(services: Services, found: list[ForeignSecrets], allow: tuple[str, ...]) -> list[str]:
    """Add profiles that are not there yet, each for its agent. A stored key is never replaced.

    A profile that only refers to a key makes us read secrets of this machine, so it needs to be allowed.
    """
    loaded = load_config(services.home, services.env)
    main, added, held = default_agent(loaded.config), 0, 0
    for keys in found:
        path = key_folder(loaded.config, services.home, keys.agent or main) / NAME
        file = CredentialFile(path, services.env.get(PASSPHRASE_ENV, ""))
        there = profiles_of(file.read())
        for name, profile in keys.profiles.items():
            refers = any(field.endswith("Ref") and value for field, value in profile.items())
            if refers and not {"auth", "auth.profiles", f"auth.profiles.{name}"} & set(allow):
                held += 1
            elif name not in there:
                with suppress(BadRequest):  # an id that is not valid here
                    file.add(name, profile)
                    added += 1
        if keys.order:
            file.prescribe(keys.order)
    why = "refer to secrets of this machine and were not taken: `--allow auth.profiles` takes them"
    return [f"{added} stored keys were taken over", *([f"{held} stored keys {why}"] if held else [])]


@operation("sessions.import", scope="admin", local=True)
async def import_session(
    services: Services,
    file: Annotated[str, "An absolute path."],
    key: Annotated[str, "The key here; empty: the key it had."] = "",
    agent: Annotated[str, "The agent here; empty: the agent it had, or the default agent."] = "",
) -> ImportedSession:
    """Import a session that was exported, or a transcript of OpenClaw. Doing it twice changes nothing."""
    store = import_store_of(services)
    path = Path(file)
    if not await asyncio.to_thread(path.is_file):
        raise NotFound(f"there is no file {path}")
    losses = Losses()
    config = load_config(services.home, services.env).config
    known = agent_ids(config)

    def choose_key(before: str) -> SessionKey:
        wanted = SessionKey.parse(key or before)
        has_agent = bool(key) or before.startswith("agent:")
        wanted = replace(wanted, agent=agent or (wanted.agent if has_agent else default_agent(config)))
        if wanted.agent not in known:
            raise BadRequest(f"there is no agent {wanted.agent!r} here", hint=f"name one: --agent {known[0]}")
        return wanted

    session = await asyncio.to_thread(single_session, path, losses, choose_key)
    importer = SessionImporter(store, losses, SecretFindings(), apply=True, now=services.clock.now_ms())
    found = await importer.import_session(session)
    for each in await store.publish():
        if each.session_id == found.into:
            found = replace(found, archived=each.archived, note=each.note or found.note)
    return ImportedSession(found, tuple(losses.listed), losses.total)


@operation("home.export", scope="admin", local=True)
async def export_home(
    services: Services,
    into: Annotated[str, "A new folder, or a new file that ends in .pal; an absolute path."],
) -> AsyncIterator[ExportStep]:
    """Write the whole home. A caller that stops listening stops the work, and nothing is left behind."""
    latest: list[ExportProgress] = []
    steps = follow(_export(services, Path(into), latest), latest)
    async with aclosing(steps):
        async for progress, report in steps:
            yield ExportStep(progress, report)


async def _export(services: Services, into: Path, latest: list[ExportProgress]) -> ExportReport:
    exporter = SessionExporter(database_of(services))
    if not into.is_absolute():
        raise BadRequest(f"{into} is not an absolute path")
    if into.is_relative_to(services.home.root):
        raise BadRequest(f"{into} is inside the home itself", hint="name a place outside of it")
    config = await asyncio.to_thread(load_config, services.home, services.env)
    models = model_config(config.raw)
    agents = await asyncio.to_thread(_exported_agents, services, models.by_agent)

    def tell(done: int, total: int) -> None:
        latest[:] = [ExportProgress(done, total)]

    try:
        jobs = await CronStore(database_of(services), services.new_id).all()
        skills = services.home.root / "skills"
        parts = merged(models.config, channel_config(config.raw))
        access = ExportedAccess(parts, models.left_out, tuple(await services.pairings.entries()))
        report = await TreeWriter(exporter, into, services.clock, tell).write(agents, skills, jobs, access)
    except OSError as error:
        raise StorageError(f"{into} cannot be written: {error.strerror or error}") from None
    made = Copy("export", str(into), str(services.home.root), services.clock.now_ms())
    await asyncio.to_thread(Copies(services.home.root).add, made)  # so that `pal forget` knows it
    return report


def _exported_agents(services: Services, models: Mapping[str, Any] | None = None) -> list[ExportedAgent]:
    config = load_config(services.home, services.env).config
    found = [agent_settings(config, services.home, each) for each in agent_ids(config)]
    default, every = default_agent(config), heartbeats_in(config.data)
    return [
        ExportedAgent(
            of.agent_id,
            of.workspace,
            of.name,
            of.identity,
            of.agent_id == default,
            every.get(of.agent_id, every.get("", NEVER)),
            (models or {}).get(of.agent_id),
        )
        for of in found
    ]


@operation("sessions.lines", scope="read", local=True)
async def write_lines(
    services: Services, session: Annotated[str, "A key, or the id of a session, which may be archived."]
) -> AsyncIterator[TranscriptLines]:
    """Read the transcript of one session, page by page."""
    exporter = SessionExporter(database_of(services))
    found = await require_session(services.sessions, session, agent=services.agents.default, archived=True)
    sessions = await exporter.sessions(found.id)
    if not sessions:
        raise NotFound(f"there is no session {session[:200]!r}", hint=LISTED)
    workspaces = {each.id: str(each.workspace) for each in await asyncio.to_thread(_exported_agents, services)}
    writer = TranscriptWriter(sessions[0], workspaces.get(found.agent, ""))
    async for page in exporter.pages(found.id, PAGE):
        yield TranscriptLines((await asyncio.to_thread(writer.lines, page)).decode())
    yield TranscriptLines(writer.colophon().decode())
