"""Decides whether and where a command may run, and with which variables and network. Nothing here starts anything.

Inside the sandbox no approval is needed. Outside, the config's security setting applies. A command leaves the sandbox
by `elevated`, if the config, the session and the sender allow it, or on a machine without a sandbox, unless one is
required.

Variables: many make a program load or run other code. The worst are refused everywhere. Outside the sandbox those known
to run code are refused too. Because no such list is complete, every other variable except the few plain ones below
makes the command one that no grant covers: it needs approval.

Network: in a private turn that has read text from outside, a command in the sandbox with a network could send
everything it can read. So it has a network without approval only if it just downloads an address that a person has
named (tools/web/addresses.py): curl or wget with plain options, and filters after it. Another command that names a
program which fetches needs approval; all others run without a network and say so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct, structs

from palinurus.domain.errors import BadRequest
from palinurus.domain.tool import Restriction, ToolRun
from palinurus.sandbox.environment import ExecEnvironment
from palinurus.sandbox.sandbox import SandboxStatus
from palinurus.tools.commands.judge import Judgement
from palinurus.tools.commands.shell import Opaque, Script, Segment, name_set, parse_argv, parse_shell
from palinurus.tools.exec.context import ExecCall
from palinurus.tools.settings import Ask, ElevatedSettings, ExecSettings, Security
from palinurus.tools.web.addresses import Addresses, addresses_of

EVERYBODY = "*"
MAX_CHARACTERS = 65_536
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PLAIN_VALUE = re.compile(r"[A-Za-z0-9 _.,:@+=-]*")  # no path: some of the plain names can also point to a file
LOADERS = re.compile(r"PATH|LD_\w*|DYLD_\w*|GLIBC_TUNABLES|GCONV_PATH|MALLOC_\w*")
RUNNERS = re.compile(
    r"BASH_ENV|BASH_FUNC_\w*|ENV|ZDOTDIR|SHELLOPTS|BASHOPTS|IFS|PS4|PROMPT_COMMAND|SHELL|HOME|XDG_\w*"
    r"|PYTHON\w*|NODE_\w*|NPM_CONFIG_\w*|PERL\w*|RUBY\w*|GEM_\w*|BUNDLE_\w*|LUA_\w*|PHP\w*|TCL\w*"
    r"|JAVA_TOOL_OPTIONS|JDK_JAVA_OPTIONS|_JAVA_OPTIONS|CLASSPATH|GO\w*|CARGO\w*|RUSTC\w*|CC|CXX|MAKE\w*"
    r"|GIT_\w*|SSH_\w*|GPG_\w*|PAGER|MANPAGER|LESS\w*|EDITOR|VISUAL|BROWSER|OPENSSL_\w*|TERMINFO\w*|LOCPATH|NLSPATH",
    re.IGNORECASE,
)
PLAIN_NAME = re.compile(r"LANG|LC_[A-Z]+|TZ|TERM|COLUMNS|LINES|NO_COLOR|FORCE_COLOR|CLICOLOR|CI")
_ALWAYS = name_set(
    """curl wget aria2c http https xh lynx w3m links elinks ssh scp sftp rsync ftp lftp nc ncat netcat socat telnet
    openssl dig host nslookup whois gh glab svn hg npm npx pnpm yarn bun pip pip3 pipx uv uvx poetry conda mamba cargo
    gem bundle brew apt apt-get dnf yum apk pacman docker podman kubectl helm aws gcloud az yt-dlp mutt mail mbsync
    himalaya rclone"""
)

_WITH = {"git": name_set("clone fetch pull push ls-remote submodule remote svn"), "go": name_set("get install mod run")}
_WORD = re.compile(r"[\w.+-]+")
MAY_SEND = "a command that may send something out, in a turn that has read text from outside"
NO_NETWORK = (
    "[without network, since this session contains text from outside; a command that names curl, git… needs approval]\n"
)
NO_HOME: Mapping[str, str] = {"HOME": "/nonexistent"}  # otherwise curl would read its settings from there
_FILTERS = name_set("head tail wc cut tr grep cat jq")
_LETTERS = {"curl": frozenset("sSfLOI#"), "wget": frozenset("qc")}
_PLAIN = {
    "curl": name_set("--silent --show-error --fail --location --remote-name --head --compressed --progress-bar"),
    "wget": name_set("--quiet --no-verbose --continue -nv -nc"),
}
_WITH_VALUE = {
    "curl": name_set("-o --output -m --max-time --retry --connect-timeout"),
    "wget": name_set("-O --output-document -T --timeout -t --tries"),
}


def find_fault(call: ExecCall) -> str:
    """Returns what the model has to correct; empty if nothing."""
    if bool(call.command.strip()) == bool(call.argv):
        return "exec: give either command, a string for a shell, or argv, a list of words."
    if call.command[:1] in ("-", "+"):
        return "exec: a shell takes a command that begins with - or + for options. Give it as argv."
    if call.argv and not call.argv[0]:
        return "exec: the first word of argv names the program; it is empty."
    texts = (call.command, *call.argv, *call.env, *call.env.values(), call.workdir)
    if sum(map(len, texts)) > MAX_CHARACTERS:
        return f"exec: more than {MAX_CHARACTERS} characters. Write a file and run that."
    if not all(map(_can_be_given, texts)):
        return "exec: a NUL or half a character cannot be passed to a program."
    return ""


def working_directory(workdir: str, workspace: Path, *, within: bool) -> str:
    """Returns the start directory with links resolved. Raises BadRequest if it is no directory.

    `within`: it must be inside the workspace, whose own path is kept unresolved, as it appears in the sandbox.
    """
    root = Path(os.path.realpath(workspace))
    place = Path(os.path.realpath(root / workdir))
    if within and not place.is_relative_to(root):
        raise BadRequest(f"{workdir} is outside the workspace", hint="the sandbox shows only the workspace")
    # A private workspace may not exist yet.
    if workdir and not os.path.isdir(place) and (not within or root.exists()):  # noqa: PTH112  raises nothing
        raise BadRequest(f"there is no directory {workdir}", hint="workdir is relative to the workspace")
    return str(workspace / place.relative_to(root) if within else place)


def _can_be_given(text: str) -> bool:
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def refuse_variables(names: Iterable[str], *, host: bool) -> str:
    """Returns why these variables may not be set; empty if they may."""
    for name in names:
        if not NAME.fullmatch(name):
            return f"{name[:80]!r} is not a valid variable name"
        if LOADERS.fullmatch(name) or (host and RUNNERS.fullmatch(name)):
            return f"the variable {name} may not be set: it can make programs run other code"
    return ""


def deciding_variables(env: Mapping[str, str]) -> list[str]:
    """Returns the sorted names that may change what a program does: outside the sandbox no grant covers them."""
    return sorted(
        name for name, value in env.items() if not (PLAIN_NAME.fullmatch(name) and PLAIN_VALUE.fullmatch(value))
    )


class ExecTarget(Struct, frozen=True):
    where: Literal["sandbox", "host"]
    refusal: str = ""  # why it does not run at all
    security: Security = "allowlist"  # on the host
    ask: Ask = "on-miss"
    no_sandbox: str = ""  # why a preferred sandbox does not work


class HostPermission(Struct, frozen=True):
    """What is needed to run a command on the host. The fields are those of PreparedCall."""

    refusal: str = ""
    ask: str = ""
    unanswered: bool = False
    granted: tuple[str, ...] = ()


def choose_target(
    run: ToolRun,
    environment: ExecEnvironment,
    status: SandboxStatus,
    settings: ExecSettings,
    elevated: ElevatedSettings,
    *,
    leave: bool,
) -> ExecTarget:
    """Chooses where a command runs. `leave`: the call asks to run outside the sandbox."""
    confined = next((each for each in run.restrictions if each.sandboxed), None)
    sandboxed = environment.sandboxed != "no" or confined is not None
    refusal = _why_not_elevated(run, elevated, confined)
    host = ExecTarget("host", security=settings.security, ask=settings.ask)
    if leave and not refusal and is_unrestricted(run):
        host = ExecTarget("host", security="full", ask="off")
    if not sandboxed:
        return host
    if leave:
        return ExecTarget("host", refusal=f"the command may not leave the sandbox: {refusal}") if refusal else host
    if status.works:
        return ExecTarget("sandbox")
    if environment.sandboxed == "required" or confined:
        why = f"commands of this session run in a sandbox, and there is none: {status.why}"
        return ExecTarget("sandbox", refusal=why)
    return structs.replace(host, no_sandbox=status.why)


def is_unrestricted(run: ToolRun) -> bool:
    """Returns whether `/elevated full` applies: for the owner, if nobody else has written in the session."""
    return run.elevated == "full" and run.owner and run.private


def host_permission(place: ExecTarget, fallback: Security, judgement: Judgement) -> HostPermission:
    """Returns what is needed on the host. `fallback`: the decision when no person answers."""
    if place.security == "deny":
        return HostPermission("commands outside the sandbox are switched off (tools.exec.security is deny)")
    covered = judgement.covered and place.security == "allowlist"
    granted = judgement.granted if covered else ()
    unanswered = fallback == "full" or (fallback == "allowlist" and judgement.covered)
    if covered or place.security == "full":
        always = "every command outside the sandbox asks (tools.exec.ask is always)" if place.ask == "always" else ""
        return HostPermission(ask=always, unanswered=unanswered, granted=granted)
    if place.ask == "off":
        return HostPermission(f"outside the sandbox only allowed commands run, and approvals are off: {judgement.why}")
    return HostPermission(ask=judgement.why, unanswered=unanswered)


def _why_not_elevated(run: ToolRun, elevated: ElevatedSettings, confined: Restriction | None) -> str:
    """Returns why a call may not be elevated; empty if it may."""
    if confined is not None:
        return f"{confined.reason} ({confined.source})"
    if not elevated.enabled:
        return "tools.elevated.enabled is false"
    if run.elevated == "off":
        return "the owner has switched that off in this session (/elevated off)"
    allowed = (elevated.allow_from or {}).get(run.channel, ())
    if not (run.owner or run.sender in allowed or EVERYBODY in allowed):
        return "only the owner may ask for that"
    return ""


def fetches(command: str) -> bool:
    """Returns whether a command fetches text from outside, as far as its words show, quoted or not.

    This protects against accidents, not against attacks: a program that hides what it does is not detected.
    """
    words = set(_WORD.findall(command))
    return bool(words & _ALWAYS) or any(name in words and words & further for name, further in _WITH.items())


class NetworkPermission(Struct, frozen=True):
    network: bool
    ask: str = ""
    env: Mapping[str, str] = {}


async def network_permission(run: ToolRun, call: ExecCall) -> NetworkPermission:
    if not fetches(call.shown):
        return NetworkPermission(network=False)
    script = parse_argv(call.argv) if call.argv else parse_shell(call.command)
    if call.env or call.background or call.pty or not is_download(script, await addresses_of(run)):
        return NetworkPermission(network=True, ask=MAY_SEND)
    return NetworkPermission(network=True, env=NO_HOME)


def is_download(script: Script | Opaque, known: Addresses) -> bool:
    """Returns whether it only downloads named addresses."""
    if isinstance(script, Opaque):
        return False
    return all(
        _downloads(segment, known) if segment.argv[0] in _PLAIN else place > 0 and segment.argv[0] in _FILTERS
        for pipeline in script.pipelines
        for place, segment in enumerate(pipeline.segments)
    )


def _downloads(segment: Segment, known: Addresses) -> bool:
    program, *words = segment.argv
    urls: list[str] = []
    follows = program == "wget"  # curl follows redirects unless told not to
    todo = iter(words)
    for word in todo:
        if word in _WITH_VALUE[program]:
            if next(todo, "-").startswith(("-", "@")) and word not in ("-O", "-o"):
                return False
        elif word in _PLAIN[program] or (word[:1] == "-" and word[1:] and set(word[1:]) <= _LETTERS[program]):
            follows = follows or "L" in word or word == "--location"
        elif word.startswith(("http://", "https://")) and not set("[]{}") & set(word):
            urls.append(word)
        else:
            return False
    wanted = ("exact",) if follows else ("exact", "host")
    return bool(urls) and all(known.standing(url) in wanted for url in urls)
