"""The agents of a config, rebuilt when its files change.

Each part of an agent is built when it is first used: a command that only looks at sessions reads the config and nothing
else.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from palinurus.config.agents import (
    AgentSettings,
    QueueOptions,
    SessionSettings,
    agent_ids,
    agent_settings,
    default_agent,
    reset_rule,
)
from palinurus.config.home import env_value
from palinurus.config.load import Config, LoadedConfig, load_config, unused_in_short
from palinurus.domain.errors import ConfigError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Usage
from palinurus.operations.services import Services
from palinurus.runtime.extensions import LOADED, PLUGIN_INDEX
from palinurus.runtime.workspaces import check_workspace, give_workspace, runtime_line

if TYPE_CHECKING:
    from palinurus.agent.agent import Agent, Recalling
    from palinurus.config.secrets import Redactor
    from palinurus.context.epoch import Route
    from palinurus.dispatch.queue import QueueSettings
    from palinurus.memory.backend import AgentMemory
    from palinurus.providers.keys.credentials import Credentials
    from palinurus.providers.keys.oauth import Renewals
    from palinurus.providers.keys.pool import CredentialPool, CredentialState
    from palinurus.providers.provider import Provider
    from palinurus.runtime.memory import AgentMemories, Memories
    from palinurus.runtime.models import Models
    from palinurus.runtime.tool_sources import S
    from palinurus.runtime.tools import ToolResources, Toolsets
    from palinurus.sessions.reset import ResetPolicy
    from palinurus.skills.discovery import SkillCache
    from palinurus.skills.skills import AgentSkills, Skills
    from palinurus.tools.approval import Approvals

log = logging.getLogger(__name__)


class _ConfigParts:
    """Everything that is rebuilt when the config changes, each part when it is first used."""

    def __init__(self, agents: ConfiguredAgents, loaded: LoadedConfig) -> None:
        self._owner = agents
        self.loaded = loaded
        self.agents: dict[str, Agent] = {}
        self.asked_for: set[str] = set()  # of which agents something was asked
        home = agents.home
        config = (home.config_path, home.root / PLUGIN_INDEX, *loaded.files, *LOADED.plugin_files)  # or yet to come
        self.seen = {path: _stat(path) for path in config}
        """Everything that a change of which makes new agents, as it was when it was read."""

    @cached_property
    def credentials(self) -> dict[str, Credentials]:
        from palinurus.providers.choose import key_variables
        from palinurus.providers.keys.credentials import gather_credentials

        loaded, home = self.loaded, self._owner.home
        variables = key_variables(loaded.env)
        found = {agent: gather_credentials(loaded, home, agent, variables) for agent in agent_ids(loaded.config)}
        self.seen |= {path: _stat(path) for known in found.values() for path in known.files}
        return found

    @cached_property
    def redactor(self) -> Redactor:
        from palinurus.config.secrets import Redactor

        keys = [secret for known in self.credentials.values() for secret in known.secrets]
        return Redactor((*self.loaded.secrets, *keys))

    @cached_property
    def models(self) -> Models:
        from palinurus.runtime.models import Models

        owner = self._owner
        return Models(
            self.loaded,
            owner.services.clock,
            owner.credentials,
            owner.pool,
            owner.redact,
            owner.services.sleep,
            lambda credential, refused: owner.renewals.renew(credential, refused),  # noqa: PLW0108  # made when used
            process=owner.services.process,
        )

    @cached_property
    def skills(self) -> AgentSkills:
        from palinurus.dispatch.commands import SLASH_WORDS
        from palinurus.skills.skills import AgentSkills

        return AgentSkills(self._owner.home, self.loaded, cache=self._owner.skill_cache, taken=SLASH_WORDS)

    @cached_property
    def hands(self) -> Toolsets:
        from palinurus.runtime.tools import Toolsets

        services = self._owner.services
        more = (*services.core_tools, *LOADED.find_tools(self.loaded.config, services))
        make = LOADED.find_slot("sandbox")
        return Toolsets(self.loaded, self._owner.tool_resources, more, partial(make, services) if make else None)

    def forget_keys(self) -> None:
        """They are read anew when somebody asks for them."""
        for known in vars(self).pop("credentials", {}).values():
            for path in known.files:
                self.seen.pop(path, None)
        vars(self).pop("redactor", None)


class ConfiguredAgents:
    """Implements dispatch.Agents. The config is one frozen object, replaced whole between turns when it changes."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.home = services.home
        self._retired: list[Models] = []  # a turn may still be speaking through them
        self._use(self._load())

    def _load(self) -> LoadedConfig:
        known = LOADED.known
        loaded = LOADED.take_plugins(self.home, load_config(self.home, self.services.env))
        if known is LOADED.known:
            return loaded
        if (dispatcher := self.services.built("dispatcher")) is not None:
            from palinurus.runtime.commands import slash_commands

            dispatcher.answers |= slash_commands(self.services)
        return LOADED.take_plugins(self.home, load_config(self.home, self.services.env))  # with their sections

    def _use(self, loaded: LoadedConfig) -> None:
        self._now = _ConfigParts(self, loaded)
        self.trouble = ""  # what keeps a newer config from being used

    @property
    def loaded(self) -> LoadedConfig:
        return self._now.loaded

    @property
    def models(self) -> Models:
        return self._now.models

    @property
    def hands(self) -> Toolsets:
        return self._now.hands

    # What outlives a change of the config.

    def make_approvals(self) -> Approvals:
        from palinurus.runtime.tools import program_path
        from palinurus.tools.approval import Approvals
        from palinurus.tools.grant_issuer import GrantIssuer

        issuer = GrantIssuer(
            self.services.grants,
            self.services.clock,
            self.services.new_id,
            lambda agent: self.hands.settings(agent).exec,
            self._writable,
            program_path(self.loaded.env),
        )
        return Approvals(self.services.approval_store, issuer, redact=self.redact)

    @cached_property
    def memories(self) -> Memories:
        from palinurus.runtime.memory import BackendSource, EmbedderSource, Memories

        folder, services = self.home.root / "derived" / "memory", self.services
        return Memories(
            folder,
            self._remembering,
            services.sessions,
            services.clock,
            readonly=services.readonly,
            backends=BackendSource(LOADED.find_memory_backend, services.env, self.redact),
            embedders=EmbedderSource(
                LOADED.find_embedder,
                self._address_of,
                self._stored_key,
                services.secret,
                lambda: services.usage,
                services.new_id,
                lambda: services.jobs,
            ),
        )

    def _address_of(self, provider: str) -> str:
        from palinurus.providers.keys.credentials import provider_address

        return provider_address(self.loaded, provider) or ""

    def _stored_key(self, agent_id: str, provider: str) -> str:
        """Of no sign-in: those are for models that chat."""
        known = self.credentials(agent_id).of(provider)
        return next((each.secret for each in known if each.kind != "oauth"), "")

    @cached_property
    def tool_resources(self) -> ToolResources:
        from palinurus.runtime.tools import ToolResources
        from palinurus.tools.gate import GateServices
        from palinurus.workspace.file_origins import FileOrigins

        services = self.services
        watch = GateServices(
            services.approvals, services.grants, services.audit, services.clock, self.redact, hooks=services.hooks
        )
        origins = FileOrigins(services.file_origins)
        return ToolResources(
            self.home, watch, services.new_id, self._memory_of, self._skills_of, origins, lambda: self.loaded
        )

    @cached_property
    def skill_cache(self) -> SkillCache:
        from palinurus.skills.skills import skill_cache

        return skill_cache(self.home)

    @cached_property
    def pool(self) -> CredentialPool:
        """A key that rests goes on resting."""
        from palinurus.providers.keys.pool import NAME, CredentialPool

        file = self.home.root / "derived" / NAME
        return CredentialPool(self.services.clock, file, readonly=self.services.readonly)

    @cached_property
    def renewals(self) -> Renewals:
        from palinurus.providers.keys.credential_file import PASSPHRASE_ENV
        from palinurus.providers.keys.oauth import Renewals, oauth_client

        return Renewals(
            self.services.clock,
            lambda provider: oauth_client(self.loaded, provider),
            lambda: env_value(self.loaded.env, PASSPHRASE_ENV),
            self._take_renewed,
        )

    def _take_renewed(self) -> None:
        """Tokens in the credentials file are new ones. Nothing else has changed, so agents and models stay."""
        self._now.forget_keys()

    def refresh(self) -> None:
        """Take up a config that was edited. One that cannot be used is reported, and the last good one stays."""
        before = self._now
        seen = {path: _stat(path) for path in before.seen}
        if seen == before.seen:
            return
        try:
            self._use(self._load())
            if "models" in vars(before):
                self._retired.append(before.models)
            log.info("the config or the keys have changed and are read again")
        except ConfigError as error:
            before.seen, self.trouble = seen, str(error)
            log.warning("the changed config cannot be used; the last valid one stays in use: %s", error)

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
        return self.loaded.config.section(SessionSettings).reset_triggers

    @property
    def warnings(self) -> tuple[str, ...]:
        keys = dict.fromkeys(line for known in self._now.credentials.values() for line in known.troubles)
        return (
            *(self._with_process(line) for line in self.loaded.warnings),
            *unused_in_short(self.loaded),
            *keys,
            *self._unknown_tools(),
            *(self.tool_resources.sources.warnings if "tool_resources" in vars(self) else ()),
            *((self.trouble,) if self.trouble else ()),
        )

    def _with_process(self, line: str) -> str:
        """Whoever asks may have set a variable that the process which holds the home lacks."""
        lacks = any(line.endswith(f"the variable {name} is not set") for name in self.loaded.missing)
        if not lacks:
            return line
        from palinurus.runtime.models import lacking

        return f"{line} {lacking(self.services.process)}".strip()

    def _unknown_tools(self) -> tuple[str, ...]:
        """Names in allow and deny lists that mean nothing here, of agents that were asked for."""
        told: dict[str, None] = {}
        for agent_id in sorted(self._now.asked_for):
            from palinurus.runtime.policy import policy_of, unknown_names
            from palinurus.tools.tool_names import BUILT_IN

            if not unknown_names(policy_of(self.loaded.config, agent_id), BUILT_IN, agent_id):
                continue  # as most: their tools need not be made for this
            made = self.hands.of(agent_id)
            listed = self.tool_resources.sources.listed(agent_id)
            names = [tool.spec.name for tool in (*made.gate.tools.all(), *listed)]
            told |= dict.fromkeys(unknown_names(made.gate.policy, names, agent_id))
        return tuple(told)

    def get(self, agent_id: str) -> Agent:
        """Raises NotFound for an agent that config does not name, WorkspaceError when it has nowhere to live."""
        self.refresh()
        if agent_id not in self._now.agents:
            self._now.agents[agent_id] = self._make(agent_settings(self.loaded.config, self.home, agent_id))
        agent = self._now.agents[agent_id]
        check_workspace(Path(agent.context.prompt.workspace), self.home)
        return agent

    def reset_policy(self, key: SessionKey) -> ResetPolicy:
        from palinurus.sessions.reset import ResetPolicy

        rule = reset_rule(self.loaded.config, key.chat_type, key.channel)
        return ResetPolicy(rule.mode, rule.at_hour, rule.idle_minutes)

    def queue(self, channel: str) -> QueueSettings:
        from palinurus.dispatch.queue import QueueSettings, parse_mode

        options = self.loaded.config.section(QueueOptions)
        mode = parse_mode(options.by_channel.get(channel, options.mode)) or "steer"
        return QueueSettings(mode, options.debounce_ms / 1000, options.cap, options.drop)

    def redact(self, text: str) -> str:
        return self._now.redactor.redact(text)

    def credentials(self, agent_id: str) -> Credentials:
        from palinurus.providers.keys.credentials import Credentials

        return self._now.credentials.get(agent_id, Credentials())

    def credential_states(self, agent_id: str) -> tuple[CredentialState, ...]:
        """How the keys of an agent stand, in the order in which they would be asked, without their secrets."""
        self.refresh()
        known = self.credentials(agent_id)
        providers = dict.fromkeys(credential.provider for credential in known.known)
        usable = [item for name in providers for item in self.pool.order(known.of(name), known.order.get(name, ()))]
        expired = [item for item in known.known if self.pool.expired(item)]
        return tuple(self.pool.state(credential) for credential in (*usable, *expired))

    def fallbacks(self, agent_id: str) -> tuple[str, ...]:
        return agent_settings(self.loaded.config, self.home, agent_id).fallbacks

    async def choose(self, agent_id: str, wanted: str = "", credential: str = "") -> tuple[Provider, Route]:
        """Implements operations.ModelService."""
        self.refresh()
        settings = agent_settings(self.loaded.config, self.home, agent_id)
        return await self.models.choose(wanted, settings, credential)

    def workspace(self, agent_id: str) -> Path:
        """Raises NotFound."""
        return agent_settings(self.loaded.config, self.home, agent_id).workspace

    def memory(self, agent_id: str) -> AgentMemory:
        """Raises NotFound."""
        self.refresh()
        return self.memories.of(agent_id)

    def skills(self, agent_id: str) -> Skills:
        """Raises NotFound."""
        self.refresh()
        return self._now.skills.of(agent_id)

    def _memory_of(self, agent_id: str) -> AgentMemory:
        return self.memories.of(agent_id)

    def _skills_of(self, agent_id: str) -> Skills:
        return self._now.skills.of(agent_id)  # of whatever config holds by then

    def _remembering(self, agent_id: str) -> AgentMemories:
        from msgspec.structs import replace

        from palinurus.memory.settings import BUILTIN, EMBEDDED, MemoryEngine, memory_settings
        from palinurus.runtime.memory import AgentMemories

        agent = agent_settings(self.loaded.config, self.home, agent_id)
        config = self.loaded.config
        settings = memory_settings(config, self.home, agent_id)
        owner = next((each.name for each in LOADED.known if "memory" in each.slots), "")
        if owner and settings.backend == BUILTIN and config.section(MemoryEngine).backend is None:
            settings = replace(settings, backend=owner)
        is_plain = settings.backend == BUILTIN and settings.embedders in ((), (EMBEDDED,))
        return AgentMemories(agent.workspace, settings, None if is_plain else config)

    async def close(self) -> None:
        LOADED.leave_plugins(self.home)
        for part in ("renewals", "tool_resources", "memories"):
            if part in vars(self):
                await vars(self)[part].close()
        models = vars(self._now).get("models")
        for each in (*self._retired, *((models,) if models else ())):
            await each.close()

    def _make(self, settings: AgentSettings) -> Agent:
        from palinurus.agent.agent import Agent
        from palinurus.context.prompt import context_settings
        from palinurus.context.settings import CompactionSettings, PruneSettings, StartupSettings
        from palinurus.tools.grants import trust_in

        self.prepare_workspace(settings)
        files = self.tool_resources.files(settings.workspace)
        hands, config = self.hands, self.loaded.config
        hands.of(settings.agent_id)  # what is wrong with their config is told now, and not by a turn half-way
        choose = partial(self.models.choose, settings=settings)
        sections = LOADED.find_prompt_sections(config, settings.agent_id)
        context = context_settings(settings, self._remembering(settings.agent_id).settings, sections)
        return Agent(
            settings.agent_id,
            files,
            hands.offer,
            context,
            choose,
            settings.timeout_seconds,
            self._cost,
            self._recall(settings.agent_id),
            config.section(CompactionSettings, settings.agent_id),
            config.section(PruneSettings, settings.agent_id),
            config.section(StartupSettings, settings.agent_id),
            self._now.skills.of(settings.agent_id),
            trusted=lambda key: trust_in(self.services.grants, key, self.services.clock.now_ms()),
            runtime=runtime_line(settings.agent_id),
            workspace_of=partial(hands.workspace_of, agent=settings),
            find_model=partial(self.models.find, settings=settings),
        )

    def prepare_workspace(self, settings: AgentSettings) -> None:
        """Raises WorkspaceError for a folder that an agent cannot live in."""
        self._now.asked_for.add(settings.agent_id)
        give_workspace(settings, self.services)
        check_workspace(settings.workspace, self.home)

    def _recall(self, agent_id: str) -> Recalling | None:
        settings = self._remembering(agent_id).settings
        if settings.recall == "off" or not settings.enabled:
            return None
        from palinurus.context.recall import Recall

        files = self.tool_resources.files(self.workspace(agent_id))
        return Recall(
            lambda question: self.memories.of(agent_id).search(question),
            settings,
            self.services.clock,
            files,
            lambda path: self.memories.of(agent_id).own_path(path),
        )

    async def stop_commands(self, run_id: str) -> None:
        """What a run has started in the background ends with it when somebody stops it."""
        if "tool_resources" in vars(self):
            await self.tool_resources.stop_commands(run_id)

    def source(self, kind: type[S]) -> S:
        """A source of tools that an extension brings."""
        self.refresh()
        return self.tool_resources.sources.get(kind)

    def current_config(self) -> Config:
        self.refresh()
        return self.loaded.config

    def current_hands(self) -> Toolsets:
        self.refresh()
        return self.hands

    def _writable(self, agent_id: str) -> tuple[Path, ...]:
        """Where an agent can put files of its own: no program there is ever allowed for good."""
        agent = agent_settings(self.loaded.config, self.home, agent_id)
        return agent.workspace, self.hands.settings(agent_id).sandbox.root

    def _cost(self, provider: str, model: str, usage: Usage) -> float | None:
        from palinurus.providers.provider import ModelRef

        return self.models.catalog.cost(ModelRef(provider, model), usage)


def _stat(path: Path) -> tuple[int, int, int] | None:
    try:
        seen = path.stat()
    except OSError:
        return None
    return seen.st_ino, seen.st_size, seen.st_mtime_ns
