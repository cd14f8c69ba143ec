"""The agents of a config, made anew when its files change."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct

from palinurus import __version__
from palinurus.agent.agent import Agent
from palinurus.config.compacting_settings import compaction_settings, prune_settings, startup_settings
from palinurus.config.home import Home, env_value
from palinurus.config.load import Loaded, load_config
from palinurus.config.memory_settings import memory_settings
from palinurus.config.remembering import MemorySettings
from palinurus.config.secrets import Redactor
from palinurus.config.settings import AgentSettings, agent_ids, agent_settings, default_agent, reset_rule
from palinurus.context.epoch import Route
from palinurus.context.opening import ContextSettings
from palinurus.context.prompt import PromptSettings
from palinurus.context.recall import Recall, Recalling, nothing_recalled
from palinurus.dispatch.queueing import QueueSettings, parse_mode
from palinurus.domain.clock import Clock, NewId
from palinurus.domain.errors import ConfigError, WorkspaceError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Usage
from palinurus.domain.tool import Tool
from palinurus.ledger.audit import AuditLog
from palinurus.memory.memory import Memory
from palinurus.providers.choose import key_variables
from palinurus.providers.keys.cooldowns import NAME as COOLDOWNS
from palinurus.providers.keys.cooldowns import CooldownFile
from palinurus.providers.keys.credentials import Credentials, gather_credentials
from palinurus.providers.keys.oauth import oauth_client
from palinurus.providers.keys.pool import CredentialPool, CredentialState
from palinurus.providers.keys.renewal import Renewals
from palinurus.providers.keys.sealed import PASSPHRASE_ENV
from palinurus.providers.provider import ModelRef, Provider
from palinurus.providers.relay import Sleep
from palinurus.sessions.reset import ResetPolicy
from palinurus.sessions.store import SessionStore
from palinurus.skills.opening import skill_cache
from palinurus.skills.skills import Skills
from palinurus.skills.watch import SkillWatch
from palinurus.tools.approvals.approval import Approvals, ApprovalStore
from palinurus.tools.gate import Watch
from palinurus.tools.grants.grants import GrantStore
from palinurus.tools.grants.trust import trust_in
from palinurus.tools.mcp.servers import McpServers
from palinurus.wiring.hands import Bench, Workshop, program_path
from palinurus.wiring.memory import Memories, Remembering
from palinurus.wiring.models import Models, lacking
from palinurus.wiring.policy import unknown_names
from palinurus.wiring.skills import SkillShelves
from palinurus.workspace.file_origins import FileOrigins, FileOriginStore
from palinurus.workspace.seed import seed_workspace

log = logging.getLogger(__name__)

PAGES = Path(__file__).parents[3] / "docs"  # of a checkout; an installed package brings none


class Keeping(Struct, frozen=True):
    """The stores behind the hands, and the tools that reach into rooms above this one."""

    approvals: ApprovalStore
    grants: GrantStore
    audit: AuditLog
    new_id: NewId
    sessions: SessionStore
    file_origins: FileOriginStore
    tools: tuple[Tool, ...] = ()
    readonly: bool = False
    process: str = ""  # who holds the home for others, for errors that are about that process
    was_spoken_to: Callable[[str], bool] = lambda _: False
    """Whether an agent has sessions already. May block for a moment."""


class ConfiguredAgents:
    """Implements dispatch.Agents. The config is one frozen object, replaced whole between turns when it changes."""

    def __init__(
        self,
        home: Home,
        env: Mapping[str, str],
        loaded: Loaded,
        clock: Clock,
        keeping: Keeping,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._home = home
        self._env = env
        self._readonly = keeping.readonly
        self._was_spoken_to = keeping.was_spoken_to
        self._process = keeping.process
        self._clock = clock
        self._sleep = sleep
        self.approvals = Approvals(
            keeping.approvals,
            keeping.grants,
            clock,
            keeping.new_id,
            lambda agent: self.hands.settings(agent).exec,
            redact=self.redact,
            writable=self._writable,
            path=program_path(loaded.env),
        )
        self.memories = Memories(
            home.root / "derived" / "memory", self._remembering, keeping.sessions, clock, readonly=keeping.readonly
        )
        watch = Watch(self.approvals, keeping.grants, keeping.audit, clock, self.redact)
        origins = FileOrigins(keeping.file_origins)
        self._bench = Bench(home, watch, keeping.new_id, self.memories.of, self._skills_of, origins)
        self._skill_cache = skill_cache(home)
        self.skill_watch = SkillWatch()
        self._house_tools = keeping.tools
        cooldowns = CooldownFile(home.root / "derived" / COOLDOWNS, readonly=keeping.readonly)
        self._pool = CredentialPool(clock, cooldowns)  # outlives it too: a key that rests goes on resting
        self._renewals = Renewals(
            clock,
            lambda provider: oauth_client(self.loaded, provider),
            lambda: env_value(self.loaded.env, PASSPHRASE_ENV),
            self._take_renewed,
        )
        self._retired: list[Models] = []  # a turn may still be speaking through them
        self._use(loaded)

    def _use(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.trouble = ""  # what keeps a newer config from being used
        self._credentials = self._gather(loaded)
        self.models = Models(
            loaded,
            self._clock,
            self.credentials,
            self._pool,
            self.redact,
            self._sleep,
            self._renewals.renew,
            process=self._process,
        )
        self._redactor = self._make_redactor()
        self.shelves = SkillShelves(self._home, loaded, self._skill_cache, self.skill_watch)
        self.hands = Workshop(loaded, self._bench, self._house_tools)
        self._agents: dict[str, Agent] = {}
        self._seen = self._signature()

    def _make_redactor(self) -> Redactor:
        keys = [secret for known in self._credentials.values() for secret in known.secrets]
        return Redactor((*self.loaded.secrets, *keys))

    def _take_renewed(self) -> None:
        """Tokens in the credentials file are new ones. Nothing else has changed, so agents and models stay."""
        config = 1 + len(self.loaded.files)  # of these a change has to be noticed yet
        seen = self._seen
        self._credentials = self._gather(self.loaded)
        self._redactor = self._make_redactor()
        self._seen = (*seen[:config], *self._signature()[config:])

    def _gather(self, loaded: Loaded) -> dict[str, Credentials]:
        main = default_agent(loaded.config)
        variables = key_variables(loaded.env)
        return {
            agent: gather_credentials(loaded, self._home.root, agent, main, variables)
            for agent in agent_ids(loaded.config)
        }

    def _signature(self) -> tuple[tuple[int, int, int] | None, ...]:
        """Of everything that a change of which makes new agents: config files, also one yet to come, and keys."""
        keys = [path for known in self._credentials.values() for path in known.files]
        return tuple(_stat(path) for path in (self._home.config_path, *self.loaded.files, *keys))

    def refresh(self) -> None:
        """Take up a config that was edited. One that cannot be used is reported, and the last good one stays."""
        seen = self._signature()
        if seen == self._seen:
            return
        models = self.models
        try:
            self._use(load_config(self._home, self._env))
            self._retired.append(models)
            log.info("the config or the keys have changed and are read anew")
        except ConfigError as error:
            self._seen, self.trouble = seen, str(error)
            log.warning("the config was changed and cannot be used; going on with the last good one: %s", error)

    @property
    def ids(self) -> Sequence[str]:
        self.refresh()  # who a message is for is asked first of all
        return agent_ids(self.loaded.config)

    @property
    def default(self) -> str:
        self.refresh()
        return default_agent(self.loaded.config)

    @property
    def reset_triggers(self) -> Sequence[str]:
        return self.loaded.config.session.reset_triggers

    @property
    def warnings(self) -> tuple[str, ...]:
        keys = dict.fromkeys(line for known in self._credentials.values() for line in known.troubles)
        return (
            *(self._with_process(line) for line in self.loaded.warnings),
            *keys,
            *self._unknown_tools(),
            *self._bench.mcp.warnings,
            *((self.trouble,) if self.trouble else ()),
        )

    def _with_process(self, line: str) -> str:
        """Whoever asks may have set a variable that the process which holds the home lacks."""
        lacks = any(line.endswith(f"the variable {name} is not set") for name in self.loaded.missing)
        return f"{line} {lacking(self._process)}".strip() if lacks else line

    def _unknown_tools(self) -> tuple[str, ...]:
        """Names in allow and deny lists that mean nothing here, of agents that were asked for."""
        told: dict[str, None] = {}
        for agent_id in self._agents:
            made = self.hands.of(agent_id)
            names = [tool.spec.name for tool in (*made.gate.tools.all(), *made.servers.listed)]
            told |= dict.fromkeys(unknown_names(made.policy, names, agent_id))
        return tuple(told)

    def get(self, agent_id: str) -> Agent:
        """Raises NotFound for an agent that config does not name, WorkspaceError when it has nowhere to live."""
        self.refresh()
        if agent_id not in self._agents:
            self._agents[agent_id] = self._make(agent_settings(self.loaded.config, self._home, agent_id))
        agent = self._agents[agent_id]
        check_workspace(Path(agent.context.prompt.workspace), self._home)
        return agent

    def reset_policy(self, key: SessionKey) -> ResetPolicy:
        rule = reset_rule(self.loaded.config, key.chat_type, key.channel)
        return ResetPolicy(rule.mode, rule.at_hour, rule.idle_minutes)

    def queue(self, channel: str) -> QueueSettings:
        options = self.loaded.config.messages.queue
        mode = parse_mode(options.by_channel.get(channel, options.mode)) or "steer"
        return QueueSettings(mode, options.debounce_ms / 1000, options.cap, options.drop)

    def redact(self, text: str) -> str:
        return self._redactor.redact(text)

    def credentials(self, agent_id: str) -> Credentials:
        return self._credentials.get(agent_id, Credentials())

    def credential_states(self, agent_id: str) -> tuple[CredentialState, ...]:
        """How the keys of an agent stand, in the order in which they would be asked, without their secrets."""
        self.refresh()
        known = self.credentials(agent_id)
        providers = dict.fromkeys(credential.provider for credential in known.known)
        usable = [item for name in providers for item in self._pool.order(known.of(name), known.order.get(name, ()))]
        expired = [item for item in known.known if self._pool.expired(item)]
        return tuple(self._pool.state(credential) for credential in (*usable, *expired))

    def fallbacks(self, agent_id: str) -> tuple[str, ...]:
        return agent_settings(self.loaded.config, self._home, agent_id).fallbacks

    async def choose(self, agent_id: str, wanted: str = "", credential: str = "") -> tuple[Provider, Route]:
        """Implements operations.ModelDesk."""
        self.refresh()
        settings = agent_settings(self.loaded.config, self._home, agent_id)
        return await self.models.choose(wanted, settings, credential)

    def workspace(self, agent_id: str) -> Path:
        """Raises NotFound."""
        return agent_settings(self.loaded.config, self._home, agent_id).workspace

    def memory(self, agent_id: str) -> Memory:
        """Raises NotFound."""
        self.refresh()
        return self.memories.of(agent_id)

    def skills(self, agent_id: str) -> Skills:
        """Raises NotFound."""
        self.refresh()
        return self.shelves.of(agent_id)

    def _skills_of(self, agent_id: str) -> Skills:
        return self.shelves.of(agent_id)  # of whatever config holds by then

    def _remembering(self, agent_id: str) -> Remembering:
        agent = agent_settings(self.loaded.config, self._home, agent_id)
        return Remembering(agent.workspace, memory_settings(self.loaded.config, self._home, agent_id))

    async def close(self) -> None:
        await self._renewals.close()
        await self._bench.close()
        await self.memories.close()
        await self.skill_watch.close()
        for models in (self.models, *self._retired):
            await models.close()

    def _make(self, settings: AgentSettings) -> Agent:
        self._give_workspace(settings)
        check_workspace(settings.workspace, self._home)
        files = self._bench.files(settings.workspace)
        hands = self.hands
        hands.of(settings.agent_id)  # what is wrong with their config is told now, and not by a turn half-way
        choose = partial(self.models.choose, settings=settings)
        context = _context(settings, self._remembering(settings.agent_id).settings)
        return Agent(
            settings.agent_id,
            files,
            hands.hands,
            context,
            choose,
            settings.timeout_seconds,
            self._cost,
            self._recall(settings.agent_id),
            compaction_settings(self.loaded.config, settings.agent_id),
            prune_settings(self.loaded.config, settings.agent_id),
            startup_settings(self.loaded.config, settings.agent_id),
            self.shelves.of(settings.agent_id),
            trusted=lambda key: trust_in(self.approvals.granting.grants, key, self._clock.now_ms()),
            runtime=runtime_line(settings.agent_id),
            workspace_of=partial(hands.workspace_of, agent=settings),
            find_model=partial(self.models.find, settings=settings),
        )

    def _give_workspace(self, settings: AgentSettings) -> None:
        """A folder that nobody named is made by whoever needs it first. Raises WorkspaceError.

        One that an agent has lived in and that is gone is not replaced: it may only have been moved.
        """
        root = settings.workspace
        if self._readonly or settings.workspace_named or os.path.lexists(root):
            return
        if self._was_spoken_to(settings.agent_id):
            return
        seed_workspace(
            root, skip_bootstrap=settings.skip_bootstrap, skip_optional=settings.skip_optional_bootstrap_files
        )
        log.warning("there was no workspace, so one was made in %s", root)

    def _recall(self, agent_id: str) -> Recalling:
        settings = self._remembering(agent_id).settings
        if settings.recall == "off" or not settings.enabled:
            return nothing_recalled
        files = self._bench.files(self.workspace(agent_id))
        return Recall(lambda question: self.memories.of(agent_id).search(question), settings, self._clock, files)

    async def stop_commands(self, run_id: str) -> None:
        """What a run has started in the background ends with it when somebody stops it."""
        await self._bench.processes.stop_run(run_id)

    def servers(self, agent_id: str) -> McpServers:
        return self.current_hands().of(agent_id).servers

    def current_hands(self) -> Workshop:
        self.refresh()
        return self.hands

    def _writable(self, agent_id: str) -> tuple[Path, ...]:
        """Where an agent can put files of its own: no program there is ever allowed for good."""
        agent = agent_settings(self.loaded.config, self._home, agent_id)
        return agent.workspace, self.hands.settings(agent_id).sandbox.root

    def _cost(self, provider: str, model: str, usage: Usage) -> float | None:
        return self.models.catalog.cost(ModelRef(provider, model), usage)


def check_workspace(root: Path, home: Home) -> None:
    """Raises WorkspaceError for a folder that an agent cannot live in."""
    try:
        there, taken = root.is_dir(), root.exists()
    except OSError as error:  # a folder on the way may not be entered
        raise WorkspaceError(
            f"the workspace {root} cannot be reached: {error.strerror}", hint="check who owns it"
        ) from None
    if taken and not there:
        raise WorkspaceError(f"the workspace {root} is no folder", hint="move what is there aside")
    if not there:
        make = f"check the path; `pal --workspace {root} setup` makes it"
        hint = make if root == home.workspace_override else "`pal setup` makes it, --workspace names another"
        raise WorkspaceError(f"the workspace {root} does not exist", hint=hint)
    if not os.access(root, os.R_OK | os.X_OK):
        raise WorkspaceError(f"the workspace {root} cannot be read", hint="check who owns it")


def runtime_line(agent_id: str) -> str:
    """On what an agent runs. The machine's own name is nobody's business."""
    machine, python = os.uname(), f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"agent={agent_id} | pal={__version__} | os={machine.sysname} ({machine.machine}) | python={python}"


def _context(settings: AgentSettings, memory: MemorySettings) -> ContextSettings:
    prompt = PromptSettings(
        mode=settings.prompt_mode,
        agent_name="" if settings.name == settings.agent_id else settings.name,
        identity=settings.identity,
        workspace=str(settings.workspace),
        documentation=str(PAGES) if (PAGES / "guide.md").is_file() else "",
        file_limit=settings.bootstrap_max_chars,
        total_limit=settings.bootstrap_total_max_chars,
        inject=settings.context_injection != "never",
        extra_files=settings.extra_bootstrap_files,
        citations=memory.citations,
    )
    return ContextSettings(prompt, settings.context_injection, twelve_hours=settings.time_format == "12")


def _stat(path: Path) -> tuple[int, int, int] | None:
    try:
        seen = path.stat()
    except OSError:
        return None
    return seen.st_ino, seen.st_size, seen.st_mtime_ns
