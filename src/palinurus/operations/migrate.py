"""Bring another home into this one: look first, then carry. For those on the machine only.

Every process that opens a home imports this module, and hardly one migrates: the readers are loaded by name when they
are needed.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from palinurus.config.include import read_text
from palinurus.config.load import load_config, load_text
from palinurus.config.settings import agent_ids, agent_settings, default_agent
from palinurus.domain.errors import BadRequest, NotOffered
from palinurus.migrate.foreign import ForeignAgent, ForeignHome, ForeignSecrets
from palinurus.migrate.importer import Destination
from palinurus.migrate.openclaw.places import find_openclaw, is_packed
from palinurus.migrate.report import FoundSetting, MigrationProgress, MigrationReport, only_settings
from palinurus.operations.config import Ground, setup
from palinurus.operations.config_changes import config_edit
from palinurus.operations.following import follow
from palinurus.operations.house import House
from palinurus.operations.operation import operation
from palinurus.providers.keys.credential_file import CredentialFile, credential_paths, profiles_of
from palinurus.providers.keys.sealed import PASSPHRASE_ENV

READER = "palinurus.migrate.migration"
OPENCLAW = "palinurus.migrate.openclaw.home"
PLANNER = "palinurus.migrate.openclaw.config_plan"
HOLDING = "palinurus.migrate.openclaw.holding"
OTHERS = "palinurus.migrate.others.home"
UNPACKER = "palinurus.migrate.export.unpacking"
HOW = "`--allow KEY` takes one, or all below a key"


Program = Literal["openclaw", "claude-code", "codex", "nanobot", "hermes"]


class MigrateHome(Struct, frozen=True, omit_defaults=True):
    source: str  # the folder, as a whole path
    apply: bool = False
    keys: bool = False  # also the stored keys of model providers, and the secrets that stand in the config
    program: Program = "openclaw"  # whose home it is
    allow: tuple[str, ...] = ()  # settings that may run programs, move secrets or loosen rules, each with all below it
    settings: bool = False  # only look at the config: `config` of the report is all that is in it


class Migrating(Struct, frozen=True, omit_defaults=True):
    """How far it is, many times; at the end what was found and done."""

    progress: MigrationProgress | None = None
    report: MigrationReport | None = None


@operation("migrate.openclaw", scope="admin", local=True)
async def migrate_home(house: House, params: MigrateHome) -> AsyncIterator[Migrating]:
    """Bring another home into this one.

    Whoever stops listening stops the work; what was not shown yet goes on with the next try.
    """
    if house.importer is None:
        raise NotOffered("this house takes nothing in")
    latest: list[MigrationProgress] = []
    steps = follow(_migrated(house, params, latest), latest)
    async with aclosing(steps):
        async for progress, report in steps:
            yield Migrating(progress, report)


async def _migrated(house: House, params: MigrateHome, latest: list[MigrationProgress]) -> MigrationReport:
    if params.program != "openclaw":
        return await _carried(house, params, Path(params.source), latest)
    if is_packed(Path(params.source)):
        with tempfile.TemporaryDirectory(prefix="pal-unpacked-") as folder:
            await asyncio.to_thread(_unpack, Path(params.source), Path(folder))
            return await _carried(house, params, Path(folder), latest)
    return await _carried(house, params, find_openclaw(os.environ, house.home.user_home, Path(params.source)), latest)


def _unpack(path: Path, folder: Path) -> None:
    importlib.import_module(UNPACKER).unpack(path, folder)


async def _carried(house: House, params: MigrateHome, root: Path, latest: list[MigrationProgress]) -> MigrationReport:
    if await asyncio.to_thread(os.path.samefile, root, house.home.root):
        raise BadRequest(f"{root} is this home itself", hint="name the folder of the other one")
    assert house.importer is not None  # noqa: S101  # asked by the caller
    ground = Ground(house.home, os.environ)

    def tell(progress: MigrationProgress) -> None:
        latest[:] = [progress]

    reader = await asyncio.to_thread(importlib.import_module, READER)
    home: ForeignHome = await asyncio.to_thread(_opened, root, params.program, ground)
    try:
        settings: tuple[FoundSetting, ...] = ()
        heir = await _heir(house, ground, home.agents)
        if params.program == "openclaw":
            settings = await asyncio.to_thread(lambda: _take_config(ground, home, heir, params))
        if params.settings:
            return only_settings(params.source, settings)
        to = await asyncio.to_thread(_destination, ground, home.agents, heir)
        migration = reader.Migration(
            home, house.importer, to, house.clock, tell, apply=params.apply, source=params.source
        )
        report: MigrationReport = await migration.run()
        report = msgspec.structs.replace(
            report, config=settings, notes=(*_left(settings), *_held(settings, params.allow), *report.notes)
        )
        if params.apply:
            await asyncio.to_thread(setup, ground)  # what an agent's workspace still lacks
        if params.apply and params.keys:
            told = await asyncio.to_thread(_take_keys, ground, home.stored_keys(), params.allow)
            report = msgspec.structs.replace(report, notes=(*report.notes, *told))
        return report
    finally:
        await asyncio.to_thread(home.close)


def _opened(root: Path, program: Program, ground: Ground) -> ForeignHome:
    if program == "openclaw":
        home: ForeignHome = importlib.import_module(OPENCLAW).OpenClawHome(root, ground.home.user_home)
    else:
        agent = default_agent(load_config(ground.home, ground.env).config)
        home = importlib.import_module(OTHERS).OtherHome(root, program, agent)
    return home


async def _heir(house: House, ground: Ground, agents: list[ForeignAgent]) -> str:
    """The agent of the other home that becomes the default here: its own default, when it says so and ours is nobody
    yet, that is: the config names no agent and nothing was said to the one that is there without being named."""
    config = load_config(ground.home, ground.env).config
    marked = next((agent.id for agent in agents if agent.marked), "")
    if not marked or config.agents.listed or config.agents.entries:
        return ""
    return "" if await house.sessions.recent(agent=default_agent(config), limit=1, archived=True) else marked


def _take_config(ground: Ground, home: ForeignHome, heir: str, params: MigrateHome) -> tuple[FoundSetting, ...]:
    """Let our config say what the other one says, as far as it does not speak for itself. Names agents, too."""
    planner = importlib.import_module(PLANNER)
    to = _destination(ground, home.agents, heir)
    places = {agent.workspace: to.workspaces[agent.id] for agent in home.agents if agent.workspace is not None}
    folders = {home.root / "skills": to.skills, **places}
    moved = importlib.import_module(HOLDING).Moved(home.root, ground.home.user_home, folders)
    told: list[tuple[FoundSetting, ...]] = []

    def edited(text: str) -> str:
        loaded = load_text(ground.home, ground.env, text)
        ours = planner.Ours(text, loaded.raw, heir or default_agent(loaded.config), ground.env)
        plan = planner.plan_config(home.config.data, home.agents, ours, moved, keys=params.keys, allow=params.allow)
        told[:] = [plan.settings]
        return str(plan.text)

    if params.apply and not params.settings:
        config_edit(ground, edited, lambda _, __: None)
    else:
        edited(read_text(ground.home.config_path) or "{}")
    return told[0]


def _left(settings: tuple[FoundSetting, ...]) -> list[str]:
    names = [each.path for each in settings if each.outcome == "left" and "." not in each.path]
    return [f"of the config, {', '.join(names)} stay behind"] if names else []


def _held(settings: tuple[FoundSetting, ...], allow: tuple[str, ...]) -> list[str]:
    count = sum(each.outcome == "held" for each in settings)
    told = [f"{count} settings can run programs, move secrets or loosen rules: {HOW}"] if count else []
    unknown = [key for key in allow if not key.startswith("auth") and not _names_any(key, settings)]
    return [*told, *(f"--allow {key!r} names no setting of the other config" for key in unknown)]


def _names_any(key: str, settings: tuple[FoundSetting, ...]) -> bool:
    return any(f"{each.path}.".startswith((f"{key}.", f"{key}[")) for each in settings)


def _destination(ground: Ground, agents: list[ForeignAgent], heir: str) -> Destination:
    """Where each agent's files go. One that is not in the config yet gets the folder that it will have there."""
    config = load_config(ground.home, ground.env).config
    known = agent_ids(config)
    shared = config.agents.defaults.workspace or (config.agent.workspace if config.agent else None)
    comes = heir and heir not in known
    workspaces = {}
    for agent in agents:
        if comes and agent.id == heir:
            workspaces[agent.id] = agent_settings(config, ground.home).workspace  # that of the default agent
        elif agent.id in known and not comes:
            workspaces[agent.id] = agent_settings(config, ground.home, agent.id).workspace
        elif shared:
            workspaces[agent.id] = ground.home.expand(shared, ground.home.root) / agent.id
        else:
            workspaces[agent.id] = ground.home.root / f"workspace-{agent.id}"
    return Destination(workspaces, ground.home.root / "skills")


def _take_keys(ground: Ground, found: list[ForeignSecrets], allow: tuple[str, ...]) -> list[str]:
    """Profiles that are not there yet, each where its agent looks. A key that is there is never replaced.

    One that only says where a key is would have secrets of this machine read, and comes when it is allowed.
    """
    loaded = load_config(ground.home, ground.env)
    main, added, held = default_agent(loaded.config), 0, []
    for keys in found:
        path = credential_paths(ground.home.root, keys.agent or main, main)[0]
        file = CredentialFile(path, ground.env.get(PASSPHRASE_ENV, ""))
        there = profiles_of(file.read())
        for name, profile in keys.profiles.items():
            refers = any(field.endswith("Ref") and value for field, value in profile.items())
            if refers and not {"auth", "auth.profiles", f"auth.profiles.{name}"} & set(allow):
                held.append(name)
            elif name not in there:
                with suppress(BadRequest):  # an id that can be none here
                    file.add(name, profile)
                    added += 1
        if keys.order:
            file.prescribe(keys.order)
    why = "refer to secrets of this machine and were not taken: `--allow auth.profiles` takes them"
    return [f"{added} stored keys were taken over", *([f"{len(held)} stored keys {why}"] if held else [])]


OPERATIONS = (migrate_home,)
