"""What a config may say about tools, who may use them, where commands run, and servers that bring more tools."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from palinurus.config.section import Secret, Section, names

Profile = Literal["minimal", "coding", "messaging", "full"]
Security = Literal["deny", "allowlist", "full"]
Ask = Literal["off", "on-miss", "always"]


class Allowance(Section):
    """Tools by name, group:name or pattern with `*`; deny wins."""

    allow: tuple[str, ...] | None = Field(None, description="Only these tools. Not together with alsoAllow.")
    also_allow: tuple[str, ...] | None = Field(None, description="These tools besides those of the profile.")
    deny: tuple[str, ...] = Field((), description="Never these tools, whatever else is said.")

    @model_validator(mode="after")
    def _one_of_the_two(self) -> Self:
        if self.allow is not None and self.also_allow is not None:
            raise ValueError("has both allow and alsoAllow: allow names all tools, alsoAllow adds to the profile")
        return self


class ProfiledAllowance(Allowance):
    profile: Profile | None = Field(None, description="The base set of tools: minimal, coding, messaging or full.")


class PatchOptions(Section):
    foreign = names("allowModels workspaceOnly")

    enabled: bool = Field(False, description="Whether there is a tool apply_patch.")


class ExecOptions(Section):
    """How commands are run outside the sandbox, and who is asked."""

    foreign = names("host node pathPrepend safeBinProfiles safeBinTrustedDirs strictInlineEval notifyOnExit mode")

    security: Security | None = Field(
        None,
        description="Outside the sandbox: deny, allowlist (only what a grant or the allowlist covers), full."
        " Default allowlist.",
    )
    ask: Ask | None = Field(
        None, description="When a person is asked: off, on-miss (not on the allowlist), always. Default on-miss."
    )
    ask_fallback: Security | None = Field(None, description="What holds when nobody answers. Default deny.")
    allowlist: tuple[str, ...] | None = Field(
        None, description='Commands that are always allowed, such as "git status" or "git diff *". Ours.'
    )
    safe_bins: tuple[str, ...] | None = Field(
        None, description="Filters that may always run on their standard input. Default cut uniq head tail tr wc."
    )
    timeout_sec: float | None = Field(None, gt=0, description="Seconds that a command may take. Default 1800.")
    background_ms: int | None = Field(
        None, ge=0, description="After so many milliseconds a command goes on in the background. Default 10000."
    )
    approval_timeout_sec: float | None = Field(
        None, gt=0, description="Seconds that an approval waits for an answer. Default 1800. Ours."
    )
    grant_days: float | None = Field(None, gt=0, description="Days after which a grant expires. Default 90. Ours.")
    apply_patch: PatchOptions | None = Field(None, description="Whether patches can be applied.")


class ElevatedOptions(Section):
    """Whether exec may leave the sandbox when the model asks for it."""

    enabled: bool | None = Field(None, description="Whether it may at all. Default true; the owner is asked.")
    allow_from: dict[str, tuple[str | int, ...]] | None = Field(
        None, description="Senders by channel who may ask for it. Unset: the owner only."
    )


class FsOptions(Section):
    workspace_only: bool | None = Field(
        None, description="Whether file tools stay inside the workspace. Always so here; read for old configs."
    )


class SearchOptions(Section):
    """Where web_search asks."""

    foreign = names("cacheTtlMinutes perplexity grok gemini kimi openaiCodex")

    enabled: bool | None = Field(None, description="Whether there is a tool web_search. Default true.")
    provider: str | None = Field(None, description="Whose format the endpoint speaks: searxng or brave.")
    base_url: str | None = Field(None, description="The endpoint's address, such as http://127.0.0.1:8888/search.")
    api_key: Secret | None = Field(None, description="The endpoint's key: text or ${NAME}.")
    max_results: int | None = Field(None, ge=1, le=20, description="Results of one search. Default 5.")
    timeout_seconds: float | None = Field(None, gt=0, description="Seconds that a search may take. Default 20.")


class FetchOptions(Section):
    """How web_fetch reads pages."""

    foreign = names("cacheTtlMinutes userAgent readability firecrawl maxCharsCap ssrfPolicy useEnvProxy")

    enabled: bool | None = Field(None, description="Whether there is a tool web_fetch. Default true.")
    max_chars: int | None = Field(None, ge=100, description="Characters of a page that are shown. Default 50000.")
    max_response_bytes: int | None = Field(None, ge=1_000, description="Bytes that are read. Default 2000000.")
    max_redirects: int | None = Field(None, ge=0, le=10, description="Redirects that are followed. Default 3.")
    timeout_seconds: float | None = Field(None, gt=0, description="Seconds that a fetch may take. Default 30.")
    allow_private: tuple[str, ...] | None = Field(
        None, description="Private hosts that may be fetched all the same, as host or host:port. Ours."
    )


class WebOptions(Section):
    search: SearchOptions | None = Field(None, description="Where web_search asks.")
    fetch: FetchOptions | None = Field(None, description="How web_fetch reads pages.")


class NarrowedTools(Section):
    tools: Allowance | None = Field(None, description="Tools in such sessions.")


class AgentTools(ProfiledAllowance):
    """What one agent's tools may do."""

    foreign = names("codeMode toolSearch experimental codeExecution loopDetection message")

    by_provider: dict[str, ProfiledAllowance] = Field(
        {}, description="What holds for one provider or provider/model, by its name."
    )
    by_sender: dict[str, Allowance] = Field(
        {},
        alias="toolsBySender",
        description="What holds for one sender: channel:<channel>:<id>, id:, e164:, username:, name: or *.",
    )
    exec: ExecOptions | None = Field(None, description="How commands are run outside the sandbox.")
    elevated: ElevatedOptions | None = Field(None, description="Whether exec may leave the sandbox.")
    fs: FsOptions | None = Field(None, description="How far file tools reach.")
    sandbox: NarrowedTools | None = Field(None, description="Tools of sandboxed sessions.")
    subagents: NarrowedTools | None = Field(None, description="Tools of subagents.")


class Tools(AgentTools):
    """What tools there are, for all agents."""

    foreign = AgentTools.foreign | names("agentToAgent sessions media links bash alsoAllowPlugins")

    web: WebOptions | None = Field(None, description="How the web is searched and read.")
    untrusted: Literal["ask", "deny", "allow"] | None = Field(
        None,
        description="What happens when a turn that has read text from outside wants to run a command outside the"
        " sandbox, write to somebody new, or change the config. Default ask. Ours.",
    )
    untrusted_paths: tuple[str, ...] | None = Field(
        None,
        description="Files that count as text from outside by their kind: *.eml is a name, inbox/ a folder anywhere,"
        " docs/mail/* a path. Default mail, saved pages, and the folders inbox, mail, maildir, downloads, attachments."
        " Ours.",
    )


class DockerOptions(Section):
    foreign = names(
        """containerPrefix workdir readOnlyRoot tmpfs user capDrop setupCommand memorySwap ulimits seccompProfile
        apparmorProfile dns extraHosts binds dangerouslyAllowReservedContainerTargets
        dangerouslyAllowExternalBindSources dangerouslyAllowContainerNamespaceJoin"""
    )

    image: str | None = Field(None, description="The image that commands run in. Default debian:bookworm-slim.")
    network: str | None = Field(None, description="The container's network. Default none; host is refused.")
    env: dict[str, str] = Field({}, description="Variables that commands see.")
    memory: str | int | None = Field(None, description="Memory limit, such as 1g.")
    cpus: float | None = Field(None, gt=0, description="CPU limit.")
    pids_limit: int | None = Field(None, gt=0, description="Process limit.")


class SandboxOptions(Section):
    """Where commands run."""

    foreign = names("browser prune ssh perSession sessionToolsVisibility")

    mode: Literal["off", "non-main", "all"] | None = Field(
        None,
        description="Which sessions are sandboxed. Unset: all, if the machine can; else commands ask. Set: a sandbox"
        " that cannot be had is a refusal.",
    )
    scope: Literal["session", "agent", "shared"] | None = Field(
        None, description="Who shares one sandbox and its private workspace. Default agent."
    )
    backend: Literal["bubblewrap", "docker"] | None = Field(
        None, description="What makes the walls. Default bubblewrap; docker is experimental."
    )
    workspace_access: Literal["none", "ro", "rw"] | None = Field(
        None,
        description="The agent's workspace inside: none (a private copy), ro or rw. Default rw; none if mode is set.",
    )
    workspace_root: str | None = Field(None, description="Where private workspaces lie. Default <home>/sandboxes.")
    network: bool | None = Field(None, description="Whether commands reach the network. Default false. Ours.")
    memory_mb: int | None = Field(None, ge=64, description="Memory of one process, in MiB. Default 2048. Ours.")
    processes: int | None = Field(None, ge=8, description="Processes at the same time. Default 128. Ours.")
    cpu_seconds: int | None = Field(None, ge=1, description="CPU time of one process. Default 600. Ours.")
    file_mb: int | None = Field(None, ge=1, description="Size of one written file, in MiB. Default 1024. Ours.")
    env: dict[str, str] = Field({}, description="Variables that commands see. Ours.")
    docker: DockerOptions | None = Field(None, description="Options of the docker backend.")


class McpServer(Section):
    """One server: a command that speaks on its standard streams, or an address."""

    foreign = names("transport type toolFilter auth oauth disabledTools requestTimeout")

    command: str | None = Field(None, description="The program that is started.")
    args: tuple[str, ...] = Field((), description="Its arguments.")
    env: dict[str, Secret] = Field({}, description="Its variables; it gets no others but PATH, HOME, LANG and TERM.")
    cwd: str | None = Field(None, description="Its working directory. Default: the agent's workspace.")
    url: str | None = Field(None, description="The address of a server that speaks streamable HTTP.")
    headers: dict[str, Secret] = Field({}, description="HTTP headers sent to that address.")
    enabled: bool = Field(True, description="Whether its tools are offered.")
    timeout_seconds: float | None = Field(None, gt=0, description="Seconds that one call may take. Default 60.")

    @model_validator(mode="after")
    def _command_or_url(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("needs either a command or a url")
        return self


class McpOptions(Section):
    foreign = names("sessionIdleTtlMs apps")

    servers: dict[str, McpServer] = Field({}, description="Servers by name; their tools are called <name>__<tool>.")
