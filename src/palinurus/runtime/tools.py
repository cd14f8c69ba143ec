"""The tools of each agent: their policy, sandbox and approvals, joined as the config says."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from palinurus.agent.agent import SessionWorkspace
from palinurus.config.agents import AgentSettings, agent_folder, agent_ids, agent_settings
from palinurus.config.home import Home
from palinurus.config.load import LoadedConfig, resolve_secret, secret_providers
from palinurus.context.epoch import Route
from palinurus.domain.clock import NewId
from palinurus.domain.errors import PalinurusError
from palinurus.domain.keys import SessionKey
from palinurus.domain.tool import Tool, ToolRun
from palinurus.memory.settings import memory_settings
from palinurus.memory.tools import memory_retain_tool, memory_tools, memory_write_tool
from palinurus.runtime.policy import policy_of
from palinurus.runtime.tool_sources import SourceContext, ToolSources
from palinurus.sandbox.environment import ExecEnvironment, boundary_of, describe_sandbox, exec_environment
from palinurus.sandbox.sandbox import DeferredSandbox, FallbackSandbox, Sandbox, SandboxStatus
from palinurus.skills.discovery import skill_roots
from palinurus.skills.pins import client_locks
from palinurus.skills.settings import skills_settings
from palinurus.skills.skills import Skills
from palinurus.tools.built_in import edit_tools, exec_tools, file_tools, find_tool, patch_tool, web_tools
from palinurus.tools.exec.context import CommandExtras, ExecContext
from palinurus.tools.files.reach import FileAccess, TextLines, closed_in, text_lines
from palinurus.tools.gate import Gate, GatedTools, GateServices
from palinurus.tools.policy import Policy
from palinurus.tools.registry import ResultStore, ToolRegistry, characters_for_window
from palinurus.tools.settings import AllTools, ToolSettings, tool_settings
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.file_origins import FileOrigins
from palinurus.workspace.files import WorkspaceFiles
from palinurus.workspace.instructions import Instructions, instructions_in

if TYPE_CHECKING:
    from palinurus.memory.backend import AgentMemory
    from palinurus.sandbox.settings import DockerOptions
    from palinurus.tools.exec.processes import Processes

# What lies in a home besides workspaces, for a workspace that is the home itself.
OUR_FILES = (
    *("palinurus.json", "config.lock", "home.sqlite", "home.sqlite-wal", "home.sqlite-shm", "lock", "pal.sock"),
    *("agents", "credentials", "derived", "hooks", "logs", "results", "sandboxes", "gateway.token", "gateway.json"),
    "mcp-credentials.json",
)


class ToolResources:
    """What outlives a change of config: running commands, places to run them, files that were read, kept results."""

    def __init__(
        self,
        home: Home,
        watch: GateServices,
        new_id: NewId,
        memory: Callable[[str], AgentMemory],
        skills: Callable[[str], Skills],
        origins: FileOrigins,
        config: Callable[[], LoadedConfig],
    ) -> None:
        self.origins = origins
        self.home = home
        self.skills = skills
        self.memory = memory
        self.watch = watch
        self.host = DeferredSandbox("host", _host_sandbox)
        record = home.root / "derived" / "sandbox.json"
        self.bubblewrap = DeferredSandbox("bubblewrap", self._make_bubblewrap, record)
        self.results = ResultStore(home.root / "results", watch.redact, watch.clock)
        self._new_id = new_id
        self._closed = False
        self.sources = ToolSources(SourceContext(home, watch.clock, watch.redact, config))
        self._files: dict[Path, WorkspaceFiles] = {}
        self._copies: dict[tuple[Path, Path, bool, bool], WorkspaceFiles] = {}

    @cached_property
    def processes(self) -> Processes:
        from palinurus.tools.exec.processes import Processes

        if self._closed:
            raise PalinurusError("no command can be started: pal is shutting down")
        return Processes(self.watch.clock, self._new_id)

    async def stop_commands(self, run_id: str) -> None:
        """End what a run has started."""
        if "processes" in self.__dict__:
            await self.processes.stop_run(run_id)

    def files(self, root: Path) -> WorkspaceFiles:
        return self._files.setdefault(root, WorkspaceFiles(Boundary(root), self.origins))

    def files_of(self, place: ExecEnvironment) -> WorkspaceFiles:
        """The workspace of a session. The folder of its sandbox is made when it is first used."""
        if place.own is None:
            return self.files(place.workspace)
        _prepare_folder(place, place.own)
        kind = (place.workspace, place.own, place.private, place.shared)
        boundary = boundary_of(place, self.files(place.own).boundary)
        return self._copies.setdefault(kind, WorkspaceFiles(boundary, self.origins))

    async def close(self) -> None:
        """Nothing can be started any more."""
        self._closed = True
        if "processes" in self.__dict__:
            await self.processes.close()
        await self.sources.close()

    def _make_bubblewrap(self) -> Sandbox:
        from palinurus.sandbox.bubblewrap import BubblewrapSandbox

        return BubblewrapSandbox(self.home.root, self.home.user_home)

    def docker(self, options: DockerOptions) -> DeferredSandbox:
        def make() -> Sandbox:
            from palinurus.sandbox.docker import DockerSandbox

            return DockerSandbox(options, self.home.root, self.home.user_home)

        return DeferredSandbox("docker", make)

    def with_fallback(self, make: Callable[[], Sandbox | None], ours: DeferredSandbox) -> DeferredSandbox:
        """The sandbox of a plugin, and ours while it does not work."""

        def chosen() -> Sandbox:
            made = make()
            return ours if made is None else FallbackSandbox(made, ours)

        return DeferredSandbox("plugin", chosen)


class AgentTools(Struct, frozen=True):
    """One agent's, as one config makes them."""

    gate: Gate  # without the tools of sources, which come and go
    settings: ToolSettings
    environment: Callable[[SessionKey], ExecEnvironment]
    sandbox: DeferredSandbox


class Toolsets:
    """Implements operations.ToolService for one config."""

    def __init__(
        self,
        loaded: LoadedConfig,
        resources: ToolResources,
        more: Sequence[Tool] = (),
        chosen: Callable[[], Sandbox | None] | None = None,
    ) -> None:
        self._chosen = chosen  # a plugin's sandbox
        self._loaded = loaded
        self._resources = resources
        self._more = more  # those that reach into packages above
        resources.origins.use_kinds(loaded.config.section(AllTools).untrusted_paths)
        self._made: dict[str, AgentTools] = {}
        self._wider: dict[str, tuple[tuple[Tool, ...], Gate]] = {}  # with the tools of sources, as they were last

    def of(self, agent_id: str) -> AgentTools:
        if agent_id not in self._made:
            self._made[agent_id] = self._make(agent_settings(self._loaded.config, self._resources.home, agent_id))
        return self._made[agent_id]

    async def offer(self, key: SessionKey, route: Route, window: int) -> GatedTools:
        gate = await self._gate(key.agent)
        return gate.offer(key, route.provider, route.model, characters_for_window(window))

    async def tools(self, agent_id: str) -> Sequence[Tool]:
        return (await self._gate(agent_id)).tools.all()

    async def _gate(self, agent_id: str) -> Gate:
        await self._resources.origins.load()
        made = self.of(agent_id)
        more = await self._resources.sources.tools(agent_id)
        if not more:
            return made.gate
        known, gate = self._wider.get(agent_id, ((), made.gate))
        if known is not more:
            gate = made.gate.with_tools(more)
            self._wider[agent_id] = (more, gate)
        return gate

    def policy(self, agent_id: str) -> Policy:
        return self.of(agent_id).gate.policy

    def settings(self, agent_id: str) -> ToolSettings:
        return self.of(agent_id).settings

    def environment(self, key: SessionKey) -> ExecEnvironment:
        return self.of(key.agent).environment(key)

    def sandbox(self, agent_id: str) -> Sandbox:
        return self.of(agent_id).sandbox

    async def workspace_of(self, key: SessionKey, agent: AgentSettings) -> SessionWorkspace:
        """Where a session works, brought up to date. Trouble with it is something that the model is told."""
        await self._resources.origins.load()
        place = self.environment(key)
        told = describe_sandbox(place, await self._expected_walls(place, key.agent))
        try:
            if place.own is None:
                files = self._resources.files_of(place)
            else:
                files = await asyncio.to_thread(self._resources.files_of, place)
                await asyncio.to_thread(_follow_workspace, place, agent)
        except PalinurusError as error:
            return SessionWorkspace(
                self._resources.files(agent.workspace), str(place.workspace), f"{told} Now: {error}"
            )
        return SessionWorkspace(files, str(place.workspace), told)

    async def _expected_walls(self, place: ExecEnvironment, agent_id: str) -> SandboxStatus:
        sandbox = self.of(agent_id).sandbox
        return SandboxStatus(sandbox.name, works=False) if place.sandboxed == "no" else await sandbox.expect()

    def _make(self, agent: AgentSettings) -> AgentTools:
        config, resources = self._loaded.config, self._resources
        settings = tool_settings(config, resources.home, agent.agent_id)
        policy = policy_of(config, agent.agent_id)
        options = settings.sandbox
        sandbox = resources.docker(options.docker) if options.backend == "docker" else resources.bubblewrap
        if self._chosen is not None:
            sandbox = resources.with_fallback(self._chosen, sandbox)
        told, others = self._instructions(agent), tuple(self._others_inside(agent))

        def place(key: SessionKey) -> ExecEnvironment:
            return exec_environment(settings.sandbox, agent.workspace, key, told, others)

        tools = [*self._file_tools(agent.workspace, place, settings), *self._web_tools(settings), *self._more]
        if memory_settings(config, resources.home, agent.agent_id).enabled:
            tools += memory_tools(
                lambda: resources.memory(agent.agent_id), Boundary(agent.workspace), resources.origins
            )
        tools += exec_tools(
            ExecContext(
                place,
                sandbox,
                resources.host,
                resources.watch.grants,
                settings.exec,
                settings.elevated,
                resources.watch.clock,
                lambda: resources.processes,
                program_path(self._loaded.env),
                str(resources.home.user_home),
                lambda place: _prepare_folder(place, agent.workspace),
                extras=self._given,
                heeds_outside=settings.untrusted != "allow",
                origins=resources.origins,
            )
        )
        gate = Gate(
            ToolRegistry(tools, results=resources.results),
            policy,
            resources.watch,
            sandboxed=lambda key: place(key).sandboxed == "required",
            untrusted=settings.untrusted,
        )
        return AgentTools(gate, settings, place, sandbox)

    def _instructions(self, agent: AgentSettings) -> Instructions:
        """What its conversations begin with, from the lists that its prompt and its skills are made from."""
        known = skills_settings(self._loaded, self._resources.home, agent.agent_id)
        roots = [root.path for root in skill_roots(agent.workspace, self._resources.home, known)]
        records = (record for root in roots for record in client_locks(root))
        return instructions_in(agent.workspace, agent.extra_bootstrap_files, (*roots, *known.link_targets), records)

    def _others_inside(self, agent: AgentSettings) -> Iterator[str]:
        """Where other agents live and where keys are, as far as that is inside this agent's workspace: old configs.

        A home that is inside is closed as a whole.
        """
        config, home = self._loaded.config, self._resources.home
        ids = agent_ids(config)
        folders = {agent_folder(config, home, each) for each in ids}
        folders |= {agent_settings(config, home, each).workspace for each in ids if each != agent.agent_id}
        inside = closed_in(agent.workspace, [home.root])
        for place in closed_in(agent.workspace, folders):
            if not any(place.startswith(f"{each}/") for each in inside):
                yield place

    def _file_tools(
        self, workspace: Path, place: Callable[[SessionKey], ExecEnvironment], settings: ToolSettings
    ) -> list[Tool]:
        resources = self._resources
        home = resources.home.root
        own = [home / name for name in OUR_FILES] if workspace == home else [home]
        closed = closed_in(workspace, own)

        def reach(key: SessionKey) -> FileAccess:
            room = place(key)
            why = "" if room.writable else "this session's sandbox may only read the workspace"
            mine = (*closed, *room.others) if room.own is None else ()
            return FileAccess(resources.files_of(room), room.writable, why, mine, room.fixed, room.instructions)

        clock = resources.watch.clock
        tools = [*file_tools(reach, resources.results, self._skill_lines), *edit_tools(reach, clock), find_tool(reach)]
        if settings.exec.patches:
            tools.append(patch_tool(reach, clock))

        # Notes are the agent's memory and not the sandbox's: search, prompt and the next session read the real ones.
        makers = (memory_write_tool, memory_retain_tool)
        return [*tools, *(make(lambda _: (resources.files(workspace).boundary, ""), clock) for make in makers)]

    def _skill_lines(self, key: SessionKey, path: str) -> TextLines | None:
        """A file of a skill, which may lie outside the workspace."""
        found = self._resources.skills(key.agent).text(path)
        return TextLines(found.path, text_lines(found.text), found.origin, (found.source,)) if found else None

    def _given(self, run: ToolRun, sandboxed: bool) -> CommandExtras:
        if not run.skills:
            return CommandExtras()
        skills = self._resources.skills(run.key.agent)
        return CommandExtras(skills.variables(run, sandboxed=sandboxed), skills.folders(run))

    def _web_tools(self, settings: ToolSettings) -> tuple[Tool, ...]:
        loaded = self._loaded
        key = resolve_secret(settings.search.api_key, loaded.env, secret_providers(loaded))
        return web_tools(settings.fetch, settings.search, api_key=key or "")


def _host_sandbox() -> Sandbox:
    from palinurus.sandbox.host import HostSandbox

    return HostSandbox()


def _prepare_folder(place: ExecEnvironment, source: Path) -> None:
    from palinurus.sandbox.folders import prepare_private

    prepare_private(place, source)


def _follow_workspace(place: ExecEnvironment, agent: AgentSettings) -> None:
    from palinurus.sandbox.folders import follow_workspace

    follow_workspace(place, agent.extra_bootstrap_files)


def program_path(env: Mapping[str, str]) -> str:
    """Where programs are looked for outside the sandbox.

    A relative entry would find programs in whatever folder a command runs in: the agent's own, for one.
    """
    folders = [folder for folder in env.get("PATH", "").split(os.pathsep) if folder.startswith("/")]
    return os.pathsep.join(folders or ["/usr/local/bin", "/usr/bin", "/bin"])
