"""Programs that run what their arguments or files tell them to, so that allowing one of them allows more than it seems.

People are told so before they allow one for longer. And for some the words that decide what is run have to be named by
a grant: there a `*` does not stand for them. `git *` is for git's common commands, not for `git bisect run ./x`; and
`awk *` is for nothing, because the first word of awk is a program.
"""

from __future__ import annotations

import re

from palinurus.domain.plan import Invocation
from palinurus.tools.commands.options import GIT_PLAIN, Reading, read_options, starts_program
from palinurus.tools.commands.script import base_name, names
from palinurus.tools.commands.wrappers import SHELLS, never
from palinurus.tools.grants.grants import Grant, GrantDraft, covers
from palinurus.tools.grants.patterns import REST, is_literal

_INTERPRETERS = SHELLS | names(
    """python pypy perl ruby node nodejs deno bun php lua luajit tclsh wish Rscript java groovy scala julia guile
    osascript pwsh irb ipython elixir escript octave R ghci ocaml racket sbcl clisp gs"""
)
_LANGUAGES = names("awk gawk mawk nawk original-awk sed gsed jq m4")
_EDITORS = names(
    """vi vim vim.basic vim.tiny vim.nox nvim view vimdiff ex ed emacs nano less more most man info pager editor
    sqlite3 sqlcipher duckdb psql mysql mariadb ftp sftp telnet dc gnuplot lynx w3m mutt"""
)
_PACKAGERS = names("npm npx yarn yarnpkg pnpm pip pipx uv uvx poetry cargo go bundle gem composer mix dotnet")
_BUILDERS = names(
    """make gmake cmake ninja meson just task rake tox nox pytest rustc mvn gradle ant bazel pre-commit tsc webpack vite
    jest gcc cc g++ c++ clang ld invoke fab ansible ansible-playbook"""
)
_ARCHIVERS = names("tar bsdtar gtar")
_STEWARDS = names("docker podman kubectl helm systemctl ip apt apt-get brew snap flatpak crontab")
_OPENERS = names("xdg-open open start run-mailcap see nc ncat netcat")
_REPOSITORIES = names("git hg svn bzr gh")

_REMARKS = {
    "it runs whatever its script says, and the script may be changed later": _INTERPRETERS,
    "its first word is a program, which can start others and write files": _LANGUAGES,
    "it can start other programs by commands of its own": _EDITORS | _OPENERS | _STEWARDS,
    "it runs what the files of the project tell it to": _PACKAGERS | _BUILDERS,
    "it runs what the repository's config and hooks name": _REPOSITORIES,
    "some of its options start other programs": _ARCHIVERS
    | names(
        """find fd fdfind cpio zip unzip 7z rsync scp rg ag env nice nohup timeout stdbuf ionice time chrt sort split
        tcpdump nmap openssl wget dpkg rpm yum dnf pacman logrotate"""
    ),
}
_REMARK = {name: remark for remark, group in _REMARKS.items() for name in group}

_GIT = names(
    """add apply archive blame branch cat-file checkout cherry cherry-pick clean clone commit describe diff diff-tree
    fetch for-each-ref gc grep init log ls-files ls-remote ls-tree merge merge-base mv name-rev pull range-diff
    reflog reset restore rev-list rev-parse revert rm shortlog show show-ref stash status switch symbolic-ref tag
    version whatchanged worktree"""
)  # the others take programs as arguments, or are somebody's alias for anything; a push runs hooks where it arrives
_GIT_ELSEWHERE = names(
    "push fetch pull clone ls-remote"
)  # where to is named too: it may be a repository of the agent's
_TRANSPORT = re.compile(r"[\w.+-]*::")  # addresses by which git starts a program, such as ext::./x

_DECIDED = _INTERPRETERS | _LANGUAGES | _PACKAGERS | _ARCHIVERS | _STEWARDS | _REPOSITORIES
"""Of these some words are a script, the text of a program, or a command that may run anything: options.py says which.
Tar's are old options, which need no dash: `tar xIf ./x a.tar` runs ./x."""

_EVERY = _EDITORS | _OPENERS  # of these any word may be
_VERSION = re.compile(r"[-\d.]+$")
_TELLS = names("--version -version -V --help -h")  # then it says something and runs nothing
_TELL_VERSION = names("node nodejs perl php")  # by -v too; others run the same and say more
_LISTENERS = _INTERPRETERS | _EDITORS | names("m4 crontab")  # without a file they do what their standard input says
_CONSOLES = names(
    """sqlite3 sqlcipher duckdb psql mysql mariadb ftp sftp telnet ed ex vi vim vim.basic vim.tiny vim.nox nvim view
    vimdiff dc lynx w3m"""
)  # with one, too: a database, a host, a text; then they take commands
_TOLD = {
    **dict.fromkeys(
        ("psql", "mysql", "mariadb"), re.compile(r"-[cefl].*|--(?:command|execute|file|list)\b.*", re.DOTALL)
    ),
    **dict.fromkeys(("lynx", "w3m"), re.compile("-dump|-source|-dump_source")),
    "dc": re.compile(r"-[ef].*|--(?:expression|file)\b.*", re.DOTALL),
}  # by one of these a console is told all that it does
_STATEMENT = names("sqlite3 sqlcipher duckdb")  # their second operand is
_SHOWING = re.compile(
    "--?(?:(?:no)?header|csv|json|line|list|column|html|quote|tabs|table|box|markdown|readonly|batch|bail)"
)
_INTERACTIVE = {
    **dict.fromkeys(("python", "pypy", "lua", "luajit", "julia"), re.compile(r"-\w*i.*|--interactive", re.DOTALL)),
    **dict.fromkeys(("node", "nodejs"), re.compile("-i|--interactive")),
    "php": re.compile("-a|--interactive"),
}  # after their script they read on


def runs_other_programs(name: str) -> str:
    """What to tell people before they allow this program for longer; empty for most."""
    base = base_name(name)
    return never(base) or _REMARK.get(base, "") or _REMARK.get(_VERSION.sub("", base), "")


def runs_scripts(name: str) -> bool:
    """Whether a file among its arguments says what it does."""
    base = base_name(name)
    return base in _INTERPRETERS or _VERSION.sub("", base) in _INTERPRETERS


def reads_program(found: Invocation) -> bool:
    """Whether what it does is written on its standard input: then no words of the command say what it will be."""
    if not _kinds(found) & _LISTENERS:
        return False
    if found.args in ((), ("-",)):
        return True
    kinds = _kinds(found)
    return any(_takes_commands(kind, found.args) for kind in kinds & (_CONSOLES | _INTERACTIVE.keys())) or any(
        _listens(kind, found.args) for kind in kinds & _INTERPRETERS
    )


def _takes_commands(kind: str, args: tuple[str, ...]) -> bool:
    """Whether it takes commands from its standard input, whatever else it is given."""
    if {*args} & _TELLS:
        return False
    if kind in _INTERACTIVE:
        return any(map(_INTERACTIVE[kind].fullmatch, args))
    if kind in _STATEMENT:
        words = [arg for arg in args if not _SHOWING.fullmatch(arg)]
        return len(words) < 2 or any(word.startswith("-") for word in words)
    told = _TOLD.get(kind)
    return told is None or "-" in args or not any(map(told.fullmatch, args))


def _listens(kind: str, args: tuple[str, ...]) -> bool:
    reading = read_options(kind, args)
    if reading.known:
        return not reading.told
    says = bool({*args} & _TELLS) or (args == ("-v",) and kind in _TELL_VERSION)
    return not says and all(arg.startswith("-") for arg in args)


def allows(grant: Grant | GrantDraft, found: Invocation) -> bool:
    """Whether the grant covers it, and by name where a `*` is not enough."""
    return covers(grant, found) and not unnamed(grant, found)


def unnamed(grant: Grant | GrantDraft, found: Invocation) -> str:
    """The first argument that the grant would have to name and does not; empty when there is none."""
    open_places = [
        place
        for place in range(len(found.args))
        if place >= len(grant.args) or grant.args[place] == REST or not is_literal(grant.args[place])
    ]
    if not open_places:
        return ""
    decides = _deciding(_kinds(found), found.args)
    place = next((place for place in open_places if decides is None or place in decides), None)
    return "" if place is None else found.args[place] or "''"


def _kinds(found: Invocation) -> set[str]:
    """What it is called, with and without its version."""
    called = {base_name(found.binary), base_name(found.resolved)}
    return called | {_VERSION.sub("", each) for each in called}


def _deciding(kinds: set[str], args: tuple[str, ...]) -> set[int] | None:
    """The places of the words that have to be named; None for all of them."""
    if kinds & _EVERY or any(starts_program(kind, args) for kind in kinds):
        return None
    places: set[int] = set()
    for kind in kinds & _DECIDED:
        reading = read_options(kind, args)
        if not reading.known:
            return None
        decided = _deciding_of_git(reading, args) if kind == "git" else reading.decides
        if decided is None:
            return None
        places |= decided
    return places


def _deciding_of_git(reading: Reading, args: tuple[str, ...]) -> set[int] | None:
    """The common commands need no naming; of those that reach elsewhere, where to has to be named."""
    places = {place for place, arg in enumerate(args) if _TRANSPORT.match(arg)}
    command = max(reading.decides, default=-1)
    if command < 0 or not reading.told:
        return places | reading.decides
    places |= reading.decides - ({command} if args[command] in _GIT else set())
    if args[command] in _GIT_ELSEWHERE:
        for place in range(command + 1, len(args)):
            places.add(place)
            if not args[place].startswith("-"):
                break
        if any(arg.startswith("-") and arg not in GIT_PLAIN for arg in args[command + 1 :]):
            return None
    return places
