"""What the config promises: workspaces that fit, known providers, keys that can be read, a model that answers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from palinurus.config.agents import AgentSettings, agent_ids, agent_settings, default_agent
from palinurus.config.home import Home, env_value
from palinurus.config.load import LoadedConfig
from palinurus.domain.clock import SystemClock
from palinurus.domain.errors import PalinurusError
from palinurus.operations.models import ProbeReport, probe, usable_model
from palinurus.providers.catalog import catalog_of
from palinurus.providers.choose import key_variables
from palinurus.providers.keys.credential_file import PASSPHRASE_ENV
from palinurus.providers.keys.credentials import gather_credentials
from palinurus.providers.keys.oauth import Renewals, oauth_client
from palinurus.providers.keys.pool import CredentialPool
from palinurus.providers.provider import SCOUT
from palinurus.runtime.checks.check import Check, bad, ok, warning
from palinurus.runtime.models import Models
from palinurus.runtime.redaction import redactor_of
from palinurus.runtime.workspaces import check_workspace
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.files import WorkspaceFiles
from palinurus.workspace.git import find_git
from palinurus.workspace.history import WorkspaceHistory

PROBE_SECONDS = 30.0
OLD_HOMES = ("openclaw", "clawd", "moltbot")  # under the user's home, where older releases of OpenClaw had it
OLD_STATES = (".openclaw", ".clawdbot", ".moltbot")
SIGNS = ("AGENTS.md", "SOUL.md", "MEMORY.md")


def check_agents(home: Home, loaded: LoadedConfig) -> Iterator[Check]:
    seen = set[Path]()
    for agent_id in agent_ids(loaded.config):
        settings = agent_settings(loaded.config, home, agent_id)
        if settings.workspace not in seen:
            seen.add(settings.workspace)
            yield from _workspace(home, settings)
            yield from _history(settings)
        yield from _models(loaded, settings)
        yield from _keys(home, loaded, agent_id)
    yield from _shared_folders(home, loaded)
    yield from _other_workspaces(home, seen)


def _shared_folders(home: Home, loaded: LoadedConfig) -> Iterator[Check]:
    """Agents that share a folder share files, memory and instructions; one inside another's is in its way."""
    places: dict[str, Path] = {}
    for agent_id in agent_ids(loaded.config) if home.workspace_override is None else ():
        here = Path(os.path.realpath(agent_settings(loaded.config, home, agent_id).workspace))
        for other, there in places.items():
            if here == there:
                what = f"{other} and {agent_id} share it, and so their files, memory and instructions"
                yield warning("agents", what, here, f"name another workspace in the entry of {agent_id}")
            elif here.is_relative_to(there) or there.is_relative_to(here):
                inner, outer = (agent_id, other) if here.is_relative_to(there) else (other, agent_id)
                what = f"the workspace of {inner} is inside that of {outer}, whose tools do not see it"
                yield warning("agents", what, max(here, there, key=lambda path: len(path.parts)), "move it elsewhere")
        places[agent_id] = here


def _other_workspaces(home: Home, used: set[Path]) -> Iterator[Check]:
    """Folders of an earlier life: what stands in them is not read, and people go on editing the wrong one."""
    places = {place for root in used for place in root.parent.glob(f"{root.name}?*")}
    places |= {home.user_home / name for name in OLD_HOMES}
    places |= {place for name in OLD_STATES for place in (home.user_home / name).glob("workspace*")}
    lived = {root.resolve() for root in used}
    for place in sorted(places):
        if place.resolve() not in lived and any(os.access(place / name, os.R_OK) for name in SIGNS):
            what = f"another one lies in {place}: nothing in it is read"
            todo = f"take over what you need and move it away; or live there: `pal setup --workspace {place}`"
            yield warning("workspace", what, place, todo)


def _workspace(home: Home, settings: AgentSettings) -> Iterator[Check]:
    root = settings.workspace
    if not settings.workspace_named and not os.path.lexists(root):
        yield warning("workspace", "there is none yet; the next message makes it", root, "`pal setup` makes it now")
        return
    try:
        check_workspace(root, home)
        files = WorkspaceFiles(Boundary(root)).bootstrap_files(
            "full", private=True, extra=settings.extra_bootstrap_files
        )
    except PalinurusError as error:
        yield bad("workspace", error.message, root, error.hint)
        return
    total = sum(len(file.text) for file in files if file.state == "present")
    limit, whole = settings.bootstrap_max_chars, settings.bootstrap_total_max_chars
    yield ok("workspace", f"{total:,} of at most {whole:,} characters go into each prompt", root)
    for file in files:
        if file.state == "unreadable":
            yield bad("workspace", f"{file.name} cannot be read: {file.text}", root / file.name)
        elif len(file.text) > limit:
            what = f"{file.name} has {len(file.text):,} characters, of which {limit:,} are sent"
            yield warning("workspace", what, root / file.name, "shorten it, or raise bootstrapMaxChars")
    if total > whole:
        what = f"the files together have {total:,} characters, of which {whole:,} are sent"
        yield warning("workspace", what, root, "shorten them, or raise bootstrapTotalMaxChars")


def _history(settings: AgentSettings) -> Iterator[Check]:
    """Only where one could be expected: git is there and the workspace is a repository."""
    root = settings.workspace
    history = WorkspaceHistory(root)
    try:
        if settings.workspace_history == "off" or not find_git() or history.why_not():
            return
        why = history.why_not_ours()
    except PalinurusError as error:
        yield warning("history", error.message, root, error.hint)
        return
    yield ok("history", f"not kept by itself: {why}" if why else "what the agent's tools write is committed", root)


def _models(loaded: LoadedConfig, settings: AgentSettings) -> Iterator[Check]:
    """A provider that nobody knows fails at the first message; better to hear of it here."""
    for name in filter(None, (settings.model, *settings.fallbacks)):
        try:
            usable_model(loaded, catalog_of(loaded.config), name, trusted=True)
        except PalinurusError as error:
            yield bad("provider", f"{name}: {error.message}", f"agent {settings.agent_id}", error.hint)


def _keys(home: Home, loaded: LoadedConfig, agent_id: str) -> Iterator[Check]:
    main = default_agent(loaded.config)
    found = gather_credentials(loaded, home, agent_id, key_variables(loaded.env))
    yield from (bad("keys", trouble, f"agent {agent_id}") for trouble in found.troubles)
    if agent_id == main:
        providers = sorted({known.provider for known in found.known})
        yield ok("keys", f"for {', '.join(providers)}" if providers else "none")


async def check_model(home: Home, env: Mapping[str, str], loaded: LoadedConfig) -> Check:
    """One tiny request to what the default agent would ask."""
    clock, main = SystemClock(), default_agent(loaded.config)
    found = gather_credentials(loaded, home, main, key_variables(loaded.env))
    redact = redactor_of(home, env).redact
    renewals = Renewals(
        clock, partial(oauth_client, loaded), lambda: env_value(loaded.env, PASSPHRASE_ENV), lambda: None
    )
    models = Models(loaded, clock, lambda _: found, CredentialPool(clock), redact, asyncio.sleep, renewals.renew)
    settings = agent_settings(loaded.config, home, main)
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            return _probed(await probe(partial(models.choose, settings=settings)))
    except TimeoutError:
        return bad("model", f"no answer within {PROBE_SECONDS:g} s", "", "`pal models test` shows more")
    finally:
        await renewals.close()
        await models.close()


def _probed(report: ProbeReport) -> Check:
    if not report.ok:
        return bad("model", f"{report.asked}: {report.error_kind}: {report.error}", "", report.hint)
    if report.answered == str(SCOUT):
        return warning("model", "none; scout notes, finds and quotes", "", "`pal onboard` sets one up")
    return ok("model", f"{report.answered} answers, {report.total_ms} ms")
