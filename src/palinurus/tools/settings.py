"""Which tools exist and who may use them, where commands run, and MCP servers.

An agent's own entry takes precedence. Only the allow and deny lists of tools are not merged here: each scope narrows
separately, in tools/policy/.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from msgspec import Struct

from palinurus.config.home import Home
from palinurus.config.load import Config
from palinurus.config.section import OptionForm, Secret, Section, option
from palinurus.sandbox.settings import SandboxSettings, sandbox_settings
from palinurus.workspace.settings import UNTRUSTED_PATHS

Profile = Literal["minimal", "coding", "messaging", "full"]
Security = Literal["deny", "allowlist", "full"]
Ask = Literal["off", "on-miss", "always"]
SAFE_BINS = ("cut", "uniq", "head", "tail", "tr", "wc")  # OpenClaw's list of 2026.9
_SENDERS = OptionForm(
    dict[str, tuple[str | int, ...]],
    lambda said: {channel: tuple(map(str, senders)) for channel, senders in said.items()},
    lambda value: value,
)


class Allowance(Section, frozen=True):
    """Tools by name, group:name or pattern with `*`; deny wins."""

    allow: Annotated[tuple[str, ...] | None, option("Only these tools. Not together with alsoAllow.")] = None
    also_allow: Annotated[tuple[str, ...] | None, option("These tools in addition to those of the profile.")] = None
    deny: Annotated[tuple[str, ...], option("Never these tools, whatever else is allowed.")] = ()

    def __post_init__(self) -> None:
        if self.allow is not None and self.also_allow is not None:
            raise ValueError("has both allow and alsoAllow: allow names all tools, alsoAllow adds to the profile")


class ProfiledAllowance(Allowance, frozen=True):
    """The same, with a base set of tools."""

    profile: Annotated[Profile | None, option("The base set of tools: minimal, coding, messaging or full.")] = None


class AgentToolOptions(ProfiledAllowance, frozen=True):
    """Which tools may be used, and by whom."""

    foreign: ClassVar = {"": "codeMode toolSearch experimental codeExecution loopDetection message"}

    by_provider: Annotated[
        dict[str, ProfiledAllowance], option("Rules for one provider or provider/model, by name.")
    ] = {}
    by_sender: Annotated[
        dict[str, Allowance],
        option("Rules for one sender: channel:<channel>:<id>, id:, e164:, username:, name: or *.", "toolsBySender"),
    ] = {}
    sandbox: Annotated[Allowance | None, option("Tools of sandboxed sessions.", "sandbox.tools")] = None
    subagents: Annotated[Allowance | None, option("Tools of subagents.", "subagents.tools")] = None
    workspace_only: Annotated[
        bool,
        option(
            "Whether file tools stay inside the workspace. Always so here; read for old configs.",
            "fs.workspaceOnly",
            idle=lambda said: "" if said else "file tools always stay inside the workspace",
        ),
    ] = True


class AllTools(Section, frozen=True):
    """Tool settings for all agents."""

    foreign: ClassVar = {"": "media links bash alsoAllowPlugins"}

    untrusted: Annotated[
        Literal["ask", "deny", "allow"],
        option(
            "What happens when a turn that has read text from outside wants to run a command outside the sandbox, write"
            " to a person, change files that later sessions start with, or reach an address that was not named."
        ),
    ] = "ask"
    untrusted_paths: Annotated[
        tuple[str, ...],
        option(
            "Files that count as text from outside by their kind: *.eml is a name, inbox/ a folder anywhere,"
            " docs/mail/* a path."
        ),
    ] = UNTRUSTED_PATHS


class ExecSettings(Section, frozen=True):
    """How commands run outside the sandbox, and when approval is needed."""

    foreign: ClassVar = {
        "": "host node pathPrepend safeBinProfiles safeBinTrustedDirs strictInlineEval notifyOnExit mode",
        "applyPatch": "allowModels workspaceOnly",
    }

    security: Annotated[
        Security, option("Outside the sandbox: deny, allowlist (only what a grant or the allowlist covers), full.")
    ] = "allowlist"
    ask: Annotated[Ask, option("When approval is needed: off, on-miss (not on the allowlist), always.")] = "on-miss"
    ask_fallback: Annotated[Security, option("The decision if an approval is not answered.")] = "deny"
    allowlist: Annotated[
        tuple[str, ...], option('Commands that are always allowed, such as "git status" or "git diff *". Ours.')
    ] = ()
    safe_bins: Annotated[tuple[str, ...], option("Filters that may always run on their standard input.")] = SAFE_BINS
    timeout_sec: Annotated[float, option("Seconds that a command may take.", gt=0)] = 1800.0
    background_ms: Annotated[int, option("Milliseconds after which a command continues in the background.", ge=0)] = (
        10_000
    )
    approval_timeout_sec: Annotated[float, option("Seconds until an approval times out.", gt=0)] = 1800.0
    grant_days: Annotated[float, option("Days after which a grant expires.", gt=0)] = 90.0
    patches: Annotated[bool, option("Whether there is a tool apply_patch.", "applyPatch.enabled")] = False


class ElevatedSettings(Section, frozen=True):
    """Whether exec may leave the sandbox when the model requests it."""

    enabled: Annotated[bool, option("Whether commands may leave the sandbox; the owner must approve.")] = True
    allow_from: Annotated[
        Mapping[str, tuple[str, ...]] | None,
        option("Senders by channel who may use it. Unset: the owner only.", form=_SENDERS),
    ] = None


class SearchSettings(Section, frozen=True):
    """The endpoint of web_search."""

    foreign: ClassVar = {"": "cacheTtlMinutes perplexity grok gemini kimi openaiCodex"}

    enabled: Annotated[bool, option("Whether there is a tool web_search.")] = True
    provider: Annotated[str, option("The endpoint's format: searxng or brave. Unset: derived from the other keys.")] = (
        ""
    )
    base_url: Annotated[str, option("The endpoint's address, such as http://127.0.0.1:8888/search.")] = ""
    api_key: Annotated[Secret | None, option("The endpoint's key: text or ${NAME}.")] = None
    max_results: Annotated[int, option("Results of one search.", ge=1, le=20)] = 5
    timeout_seconds: Annotated[float, option("Seconds that a search may take.", gt=0)] = 20.0


class FetchSettings(Section, frozen=True):
    """How web_fetch reads pages."""

    foreign: ClassVar = {"": "cacheTtlMinutes userAgent readability firecrawl maxCharsCap ssrfPolicy useEnvProxy"}

    enabled: Annotated[bool, option("Whether there is a tool web_fetch.")] = True
    max_chars: Annotated[int, option("Characters of a page that are shown.", ge=100)] = 50_000
    max_response_bytes: Annotated[int, option("Bytes that are read.", ge=1_000)] = 2_000_000
    max_redirects: Annotated[int, option("Redirects that are followed.", ge=0, le=10)] = 3
    timeout_seconds: Annotated[float, option("Seconds that a fetch may take.", gt=0)] = 30.0
    allow_private: Annotated[tuple[str, ...], option("Private hosts that may be fetched, as host or host:port.")] = ()


class McpServerEntry(Section, frozen=True):
    """One server: a command that uses its standard streams, or an address."""

    foreign: ClassVar = {"": "transport type toolFilter auth oauth disabledTools requestTimeout"}

    command: Annotated[str | None, option("The program to start.")] = None
    args: Annotated[tuple[str, ...], option("Its arguments.")] = ()
    env: Annotated[dict[str, Secret], option("Its variables; it gets no others except PATH, HOME, LANG and TERM.")] = {}
    cwd: Annotated[str | None, option("Its working directory. Unset: the agent's workspace.")] = None
    url: Annotated[str | None, option("The address of a server that speaks streamable HTTP.")] = None
    headers: Annotated[dict[str, Secret], option("HTTP headers sent to that address.")] = {}
    enabled: Annotated[bool, option("Whether its tools are offered.")] = True
    timeout_seconds: Annotated[float, option("Seconds that one call may take.", gt=0)] = 60.0

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise ValueError("needs either a command or a url")


class McpOptions(Section, frozen=True):
    """Servers that bring more tools."""

    foreign: ClassVar = {"": "sessionIdleTtlMs apps"}

    servers: Annotated[
        dict[str, McpServerEntry], option("Servers by name; their tools are called <name>__<tool>.")
    ] = {}


class ToolSettings(Struct, frozen=True):
    """The merged tool settings of one agent."""

    exec: ExecSettings
    elevated: ElevatedSettings
    sandbox: SandboxSettings
    search: SearchSettings
    fetch: FetchSettings
    untrusted: Literal["ask", "deny", "allow"] = "ask"
    untrusted_paths: tuple[str, ...] = UNTRUSTED_PATHS


def tool_settings(config: Config, home: Home, agent_id: str) -> ToolSettings:
    everybody = config.section(AllTools)
    return ToolSettings(
        exec=config.section(ExecSettings, agent_id),
        elevated=_elevated(config.said(ElevatedSettings, agent_id)),
        sandbox=sandbox_settings(config, home, agent_id),
        search=config.section(SearchSettings),
        fetch=config.section(FetchSettings),
        untrusted=everybody.untrusted,
        untrusted_paths=everybody.untrusted_paths,  # the same for all agents: one may read what another was sent
    )


def _elevated(places: list[ElevatedSettings]) -> ElevatedSettings:
    """An agent can only restrict the general setting: both must enable it, and a sender must be on both lists."""
    lists = [each.allow_from for each in places if each.allow_from is not None]
    senders = {}
    for channel in sorted(set.intersection(*map(set, lists))) if lists else ():
        senders[channel] = tuple(name for name in lists[-1][channel] if all(name in each[channel] for each in lists))
    return ElevatedSettings(all(each.enabled for each in places), senders if lists else None)
