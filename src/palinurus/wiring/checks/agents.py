"""What the config promises: workspaces that fit, known providers, keys that can be read, a model that answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial

from palinurus.config.home import Home
from palinurus.config.load import Loaded
from palinurus.config.settings import AgentSettings, agent_ids, agent_settings, default_agent
from palinurus.domain.clock import SystemClock
from palinurus.domain.errors import PalinurusError
from palinurus.operations.catalog import usable_model
from palinurus.operations.models import ProbeReport, probe
from palinurus.providers.catalog import catalog_of
from palinurus.providers.choose import key_variables
from palinurus.providers.keys.credentials import gather_credentials
from palinurus.providers.keys.pool import CredentialPool
from palinurus.providers.scout.scout import SCOUT
from palinurus.wiring.agents import check_workspace
from palinurus.wiring.checks.check import Check, bad, ok, warning
from palinurus.wiring.models import Models
from palinurus.wiring.redaction import redactor_of
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.files import WorkspaceFiles

PROBE_SECONDS = 30.0


def check_agents(home: Home, loaded: Loaded) -> Iterator[Check]:
    seen = set()
    for agent_id in agent_ids(loaded.config):
        settings = agent_settings(loaded.config, home, agent_id)
        if settings.workspace not in seen:
            seen.add(settings.workspace)
            yield from _workspace(settings)
        yield from _models(loaded, settings)
        yield from _keys(home, loaded, agent_id)


def _workspace(settings: AgentSettings) -> Iterator[Check]:
    root = settings.workspace
    try:
        check_workspace(root)
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


def _models(loaded: Loaded, settings: AgentSettings) -> Iterator[Check]:
    """A provider that nobody knows fails at the first message; better to hear of it here."""
    for name in filter(None, (settings.model, *settings.fallbacks)):
        try:
            usable_model(loaded, catalog_of(loaded.config), name, trusted=True)
        except PalinurusError as error:
            yield bad("provider", f"{name}: {error.message}", f"agent {settings.agent_id}", error.hint)


def _keys(home: Home, loaded: Loaded, agent_id: str) -> Iterator[Check]:
    main = default_agent(loaded.config)
    found = gather_credentials(loaded, home.root, agent_id, main, key_variables(loaded.env))
    yield from (bad("keys", trouble, f"agent {agent_id}") for trouble in found.troubles)
    if agent_id == main:
        providers = sorted({known.provider for known in found.known})
        yield ok("keys", f"for {', '.join(providers)}" if providers else "none")


async def check_model(home: Home, env: Mapping[str, str], loaded: Loaded) -> Check:
    """One tiny request to what the default agent would ask."""
    clock, main = SystemClock(), default_agent(loaded.config)
    found = gather_credentials(loaded, home.root, main, main, key_variables(loaded.env))
    redact = redactor_of(home, env).redact
    models = Models(loaded, clock, lambda _: found, CredentialPool(clock), redact, asyncio.sleep)
    settings = agent_settings(loaded.config, home, main)
    try:
        check_workspace(settings.workspace)
        async with asyncio.timeout(PROBE_SECONDS):
            return _probed(await probe(partial(models.choose, settings=settings)))
    except TimeoutError:
        return bad("model", f"no answer within {PROBE_SECONDS:g} s", "", "`pal models test` shows more")
    except PalinurusError as error:  # no workspace: told above, and nothing to ask a model for
        return warning("model", f"not asked: {error.message}")
    finally:
        await models.close()


def _probed(report: ProbeReport) -> Check:
    if not report.ok:
        return bad("model", f"{report.asked}: {report.error_kind}: {report.error}", "", report.hint)
    if report.answered == str(SCOUT):
        return warning("model", "none; scout notes, finds and quotes", "", "`pal onboard` sets one up")
    return ok("model", f"{report.answered} answers, {report.total_ms} ms")
