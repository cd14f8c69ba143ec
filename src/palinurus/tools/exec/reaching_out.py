"""Whether a command in the sandbox may use its network, in a private turn that has read text from outside.

A command with a network can send whatever it can read. So it has one unasked only when it does no more than download
what somebody has named (tools/web/addresses.py): curl or wget with plain options, and filters behind. Another command
that names a program which fetches asks a person; all others run without a network, and say so.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from palinurus.domain.tool import ToolRun
from palinurus.tools.commands.script import Opaque, Script, Segment, names, of_argv
from palinurus.tools.commands.shell import parse
from palinurus.tools.exec.call import Call
from palinurus.tools.exec.fetchers import fetches
from palinurus.tools.web.addresses import Addresses, addresses_of

MAY_SEND = "a command that may send something out, in a turn that has read text from outside"
NO_NETWORK = (
    "[without network, since this conversation holds text from outside; a command that names curl, git… asks]\n"
)
NO_HOME: Mapping[str, str] = {"HOME": "/nonexistent"}  # or the settings of curl that lie there would have a say

_FILTERS = names("head tail wc cut tr grep cat jq")
_LETTERS = {"curl": frozenset("sSfLOI#"), "wget": frozenset("qc")}
_PLAIN = {
    "curl": names("--silent --show-error --fail --location --remote-name --head --compressed --progress-bar"),
    "wget": names("--quiet --no-verbose --continue -nv -nc"),
}
_WITH_VALUE = {
    "curl": names("-o --output -m --max-time --retry --connect-timeout"),
    "wget": names("-O --output-document -T --timeout -t --tries"),
}


class Outlet(Struct, frozen=True):
    network: bool
    ask: str = ""
    env: Mapping[str, str] = {}


async def find_outlet(run: ToolRun, call: Call) -> Outlet:
    if not fetches(call.shown):
        return Outlet(network=False)
    script = of_argv(call.argv) if call.argv else parse(call.command)
    if call.env or call.background or call.pty or not is_download(script, await addresses_of(run)):
        return Outlet(network=True, ask=MAY_SEND)
    return Outlet(network=True, env=NO_HOME)


def is_download(script: Script | Opaque, known: Addresses) -> bool:
    """Whether it only gets what was named."""
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
    follows = program == "wget"  # unless it is told not to
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
