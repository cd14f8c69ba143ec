"""The hands of each agent: tools, policy, walls and approvals, joined as the config says."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from palinurus.agent.agent import SessionWorkspace
from palinurus.agent.loop import Hands
from palinurus.config.handling import HandsSettings, hands_settings, untrusted_paths
from palinurus.config.home import Home
from palinurus.config.load import Loaded, resolve_secret, secret_providers
from palinurus.config.memory_settings import memory_settings
from palinurus.config.settings import AgentSettings, agent_settings
from palinurus.context.epoch import Route
from palinurus.domain.clock import NewId
from palinurus.domain.errors import PalinurusError
from palinurus.domain.keys import SessionKey
from palinurus.domain.tool import Tool, ToolRun
from palinurus.memory.memory import Memory
from palinurus.memory.tools import memory_tools, memory_write_tool
from palinurus.sandbox.bubblewrap import BubblewrapSandbox
from palinurus.sandbox.description import describe_sandbox
from palinurus.sandbox.docker import DockerSandbox
from palinurus.sandbox.host import HostSandbox
from palinurus.sandbox.quarters import Quarters, boundary_of, prepare_private, quarters
from palinurus.sandbox.sandbox import Sandbox
from palinurus.sandbox.seeds import follow_workspace
from palinurus.skills.roots import skill_roots
from palinurus.skills.skills import Skills
from palinurus.tools.exec.exec import ExecDesk, Given, exec_tools
from palinurus.tools.exec.processes import Processes
from palinurus.tools.files.edits import edit_tools
from palinurus.tools.files.find import find_tool
from palinurus.tools.files.patch import patch_tool
from palinurus.tools.files.reach import Reach, closed_in
from palinurus.tools.files.reading import Lines, file_tools, text_lines
from palinurus.tools.gate import Gate, Watch
from palinurus.tools.mcp.servers import McpServers
from palinurus.tools.policy.decide import Policy
from palinurus.tools.registry import Registry
from palinurus.tools.results import ResultShelf, characters_for_window
from palinurus.tools.web.tools import web_tools
from palinurus.wiring.mcp import McpBench
from palinurus.wiring.policy import policy_of
from palinurus.wiring.skills import known_skills
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.file_origins import FileOrigins
from palinurus.workspace.files import WorkspaceFiles
from palinurus.workspace.instructions import Instructions, instructions_in

# What lies in a home besides workspaces, for a workspace that is the home itself.
OUR_FILES = (
    *("palinurus.json", "config.lock", "home.sqlite", "home.sqlite-wal", "home.sqlite-shm", "lock", "pal.sock"),
    *("agents", "credentials", "derived", "logs", "results", "sandboxes", "gateway.token", "gateway.json"),
)


class Bench:
    """What outlives a change of config: running commands, places to run them, files that were read, kept results."""

    def __init__(
        self,
        home: Home,
        watch: Watch,
        new_id: NewId,
        memory: Callable[[str], Memory],
        skills: Callable[[str], Skills],
        origins: FileOrigins,
    ) -> None:
        self.origins = origins
        self.home = home
        self.skills = skills
        self.memory = memory
        self.watch = watch
        self.host = HostSandbox()
        self.bubblewrap = BubblewrapSandbox(home.root, home.user_home)
        self.processes = Processes(watch.clock, new_id)
        self.shelf = ResultShelf(home.root / "results", watch.redact, watch.clock)
        self.mcp = McpBench(home, watch.clock, watch.redact)
        self._files: dict[Path, WorkspaceFiles] = {}
        self._copies: dict[tuple[Path, Path, bool, bool], WorkspaceFiles] = {}

    def files(self, root: Path) -> WorkspaceFiles:
        return self._files.setdefault(root, WorkspaceFiles(Boundary(root), self.origins))

    def files_of(self, place: Quarters) -> WorkspaceFiles:
        """The workspace of a session. The folder of its sandbox is made when it is first used."""
        if place.own is None:
            return self.files(place.workspace)
        prepare_private(place, place.own)
        kind = (place.workspace, place.own, place.private, place.shared)
        boundary = boundary_of(place, self.files(place.own).boundary)
        return self._copies.setdefault(kind, WorkspaceFiles(boundary, self.origins))

    async def close(self) -> None:
        await self.processes.close()
        await self.mcp.close()


class AgentHands(Struct, frozen=True):
    """One agent's, as one config makes them."""

    gate: Gate  # without the tools of servers, which come and go
    servers: McpServers
    settings: HandsSettings
    policy: Policy
    quarters: Callable[[SessionKey], Quarters]
    sandbox: Sandbox


class Workshop:
    """Implements operations.HandsDesk for one config."""

    def __init__(self, loaded: Loaded, bench: Bench, house_tools: Sequence[Tool] = ()) -> None:
        self._loaded = loaded
        self._bench = bench
        self._house_tools = house_tools  # those that reach into rooms above
        bench.origins.use_kinds(untrusted_paths(loaded.config))
        self._made: dict[str, AgentHands] = {}
        self._wider: dict[str, tuple[tuple[Tool, ...], Gate]] = {}  # with the tools of servers, as they were last

    def of(self, agent_id: str) -> AgentHands:
        if agent_id not in self._made:
            self._made[agent_id] = self._make(agent_settings(self._loaded.config, self._bench.home, agent_id))
        return self._made[agent_id]

    async def hands(self, key: SessionKey, route: Route, window: int) -> Hands:
        gate = await self._gate(key.agent)
        return gate.hands(key, route.provider, route.model, characters_for_window(window))

    async def tools(self, agent_id: str) -> Sequence[Tool]:
        return (await self._gate(agent_id)).tools.all()

    async def _gate(self, agent_id: str) -> Gate:
        await self._bench.origins.load()
        made = self.of(agent_id)
        more = await made.servers.tools()
        if not more:
            return made.gate
        known, gate = self._wider.get(agent_id, ((), made.gate))
        if known is not more:
            gate = made.gate.with_tools(more)
            self._wider[agent_id] = (more, gate)
        return gate

    def policy(self, agent_id: str) -> Policy:
        return self.of(agent_id).policy

    def settings(self, agent_id: str) -> HandsSettings:
        return self.of(agent_id).settings

    def quarters(self, key: SessionKey) -> Quarters:
        return self.of(key.agent).quarters(key)

    def sandbox(self, agent_id: str) -> Sandbox:
        return self.of(agent_id).sandbox

    async def workspace_of(self, key: SessionKey, agent: AgentSettings) -> SessionWorkspace:
        """Where a session works, brought up to date. Trouble with it is something that the model is told."""
        await self._bench.origins.load()
        place = self.quarters(key)
        told = describe_sandbox(place, await self.sandbox(key.agent).check())
        try:
            files = await asyncio.to_thread(self._bench.files_of, place)
            await asyncio.to_thread(follow_workspace, place, agent.extra_bootstrap_files)
        except PalinurusError as error:
            return SessionWorkspace(self._bench.files(agent.workspace), str(place.workspace), f"{told} Now: {error}")
        return SessionWorkspace(files, str(place.workspace), told)

    def _make(self, agent: AgentSettings) -> AgentHands:
        config, bench = self._loaded.config, self._bench
        settings = hands_settings(config, bench.home, agent.agent_id)
        policy = policy_of(config, agent.agent_id)
        sandbox: Sandbox = bench.bubblewrap
        if settings.sandbox.backend == "docker":
            sandbox = DockerSandbox(settings.sandbox.docker, bench.home.root, bench.home.user_home)

        told = self._instructions(agent)

        def place(key: SessionKey) -> Quarters:
            return quarters(settings.sandbox, agent.workspace, key, told)

        tools = [*self._file_tools(agent.workspace, place, settings), *self._web_tools(settings), *self._house_tools]
        if memory_settings(config, bench.home, agent.agent_id).enabled:
            tools += memory_tools(lambda: bench.memory(agent.agent_id), Boundary(agent.workspace), bench.origins)
        tools += exec_tools(
            ExecDesk(
                place,
                sandbox,
                bench.host,
                bench.watch.grants,
                settings.exec,
                settings.elevated,
                bench.watch.clock,
                bench.processes,
                program_path(self._loaded.env),
                str(bench.home.user_home),
                lambda room: prepare_private(room, agent.workspace),
                given=self._given,
                heeds_outside=settings.untrusted != "allow",
                origins=bench.origins,
            )
        )
        gate = Gate(
            Registry(tools, shelf=bench.shelf),
            policy,
            bench.watch,
            sandboxed=lambda key: place(key).sandboxed == "required",
            untrusted=settings.untrusted,
        )
        servers = bench.mcp.of(self._loaded, agent)
        return AgentHands(gate, servers, settings, policy, place, sandbox)

    def _instructions(self, agent: AgentSettings) -> Instructions:
        """What its conversations begin with, from the lists that its prompt and its skills are made from."""
        known = known_skills(self._loaded, self._bench.home, agent.agent_id).settings
        roots = (root.path for root in skill_roots(agent.workspace, self._bench.home, known))
        return instructions_in(agent.workspace, agent.extra_bootstrap_files, (*roots, *known.link_targets))

    def _file_tools(
        self, workspace: Path, place: Callable[[SessionKey], Quarters], settings: HandsSettings
    ) -> list[Tool]:
        bench = self._bench
        home = bench.home.root
        own = [home / name for name in OUR_FILES] if workspace == home else [home]
        closed = closed_in(workspace, own)

        def reach(key: SessionKey) -> Reach:
            room = place(key)
            why = "" if room.writable else "this session's sandbox may only read the workspace"
            mine = closed if room.own is None else ()
            return Reach(bench.files_of(room), room.writable, why, mine, room.fixed, room.instructions)

        clock = bench.watch.clock
        tools = [*file_tools(reach, bench.shelf, self._skill_lines), *edit_tools(reach, clock), find_tool(reach)]
        if settings.exec.patches:
            tools.append(patch_tool(reach, clock))

        # Notes are the agent's memory and not the sandbox's: search, prompt and the next session read the real ones.
        return [*tools, memory_write_tool(lambda _: (bench.files(workspace).boundary, ""), clock)]

    def _skill_lines(self, key: SessionKey, path: str) -> Lines | None:
        """A file of a skill, which may lie outside the workspace."""
        found = self._bench.skills(key.agent).text(path)
        return Lines(found.path, text_lines(found.text), found.origin, (found.source,)) if found else None

    def _given(self, run: ToolRun, sandboxed: bool) -> Given:
        if not run.skills:
            return Given()
        skills = self._bench.skills(run.key.agent)
        return Given(skills.variables(run, sandboxed=sandboxed), skills.folders(run))

    def _web_tools(self, settings: HandsSettings) -> tuple[Tool, ...]:
        loaded = self._loaded
        key = resolve_secret(settings.search.api_key, loaded.env, secret_providers(loaded))
        return web_tools(settings.fetch, settings.search, api_key=key or "")


class CurrentHands:
    """Implements operations.HandsDesk: the workshop of whatever config holds now."""

    def __init__(self, current: Callable[[], Workshop]) -> None:
        self._current = current

    async def tools(self, agent_id: str) -> Sequence[Tool]:
        return await self._current().tools(agent_id)

    def policy(self, agent_id: str) -> Policy:
        return self._current().policy(agent_id)

    def settings(self, agent_id: str) -> HandsSettings:
        return self._current().settings(agent_id)

    def quarters(self, key: SessionKey) -> Quarters:
        return self._current().quarters(key)

    def sandbox(self, agent_id: str) -> Sandbox:
        return self._current().sandbox(agent_id)


def program_path(env: Mapping[str, str]) -> str:
    """Where programs are looked for outside the sandbox.

    A relative entry would find programs in whatever folder a command runs in: the agent's own, for one.
    """
    folders = [folder for folder in env.get("PATH", "").split(os.pathsep) if folder.startswith("/")]
    return os.pathsep.join(folders or ["/usr/local/bin", "/usr/bin", "/bin"])
