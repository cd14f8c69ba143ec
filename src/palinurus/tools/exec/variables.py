"""Which variables a call may set for its command.

Many of them make a program load or run other code. The worst are refused everywhere. Outside the sandbox those that are
known to run code are refused too, and as no such list is ever complete, any other but the few plain ones below makes
the command one that no grant covers: it asks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

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
PLAIN = re.compile(r"LANG|LC_[A-Z]+|TZ|TERM|COLUMNS|LINES|NO_COLOR|FORCE_COLOR|CLICOLOR|CI")


def refused(names: Iterable[str], *, host: bool) -> str:
    """Why these may not be set; empty when they may."""
    for name in names:
        if not NAME.fullmatch(name):
            return f"{name[:80]!r} is no name of a variable"
        if LOADERS.fullmatch(name) or (host and RUNNERS.fullmatch(name)):
            return f"the variable {name} may not be set: it can make programs run other code"
    return ""


def telling(env: Mapping[str, str]) -> list[str]:
    """The names that may change what a program does, sorted: outside the sandbox no grant covers them."""
    return sorted(name for name, value in env.items() if not (PLAIN.fullmatch(name) and PLAIN_VALUE.fullmatch(value)))
