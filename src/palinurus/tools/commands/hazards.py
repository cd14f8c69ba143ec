"""Programs that run what their arguments or files name, so that allowing them allows more than it seems.

A person is warned before granting one of them. For some, a grant must name the words that decide what is run: there a
`*` does not match them. `git *` covers git's common commands, not `git bisect run ./x`; and `awk *` covers nothing,
because the first argument of awk is a program.

Counting words does not show which argument names what is run (a script, program text, or a command): in `sed -n 5p a`
it is the second one, in `awk -F : '{print}' a` the third. So options are read as the program reads them, as far as the
table below knows them. With an unknown option, any word may decide.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping

from msgspec import Struct

from palinurus.domain.events import Invocation
from palinurus.tools.commands.programs import SHELLS, why_never_covered
from palinurus.tools.commands.shell import base_name, name_set
from palinurus.tools.grants import REST, Grant, GrantDraft, covers, is_literal

_STDIN = name_set("- /dev/stdin /dev/fd/0 /proc/self/fd/0")
_GNU = sys.platform == "linux"  # on other systems the suffix of `sed -i` may be a separate word
STARTERS: Mapping[str, tuple[str, ...]] = {
    "find": ("-exec", "-execdir", "-ok", "-okdir"),
    **dict.fromkeys(("fd", "fdfind"), ("-x", "-X", "--exec", "--exec-batch")),
    "rsync": ("-e", "--rsh", "--rsync-path"),
    "scp": ("-S", "-o", "-F"),
    "rg": ("--pre", "--hostname-bin"),
    "ag": ("--pager",),
    "sort": ("--compress-program",),
    "split": ("--filter",),
    "zip": ("-TT", "--unzip-command"),
    "tcpdump": ("-z",),
    "wget": ("-e", "--execute", "--use-askpass"),
    "cpio": ("--rsh-command",),
    "nmap": ("--script",),
    "openssl": ("-engine", "-provider", "-provider-path"),
    "git": ("--exec", "--remote", "--upload-pack", "--receive-pack", "--config", "--template", "--open-files-in-pager"),
}
"""Options of other programs that name a program to run, or make them run one."""

GIT_PLAIN = name_set(
    """--all --tags --no-tags --prune -p -q --quiet -v --verbose -f --force --force-with-lease --set-upstream --dry-run
    -n --ff-only --no-ff --rebase --no-rebase --heads --bare --no-verify --progress"""
)  # these take no value in any git command that reaches another repository

_INTERPRETERS = SHELLS | name_set(
    """python pypy perl ruby node nodejs deno bun php lua luajit tclsh wish Rscript java groovy scala julia guile
    osascript pwsh irb ipython elixir escript octave R ghci ocaml racket sbcl clisp gs"""
)

_LANGUAGES = name_set("awk gawk mawk nawk original-awk sed gsed jq m4")
_EDITORS = name_set(
    """vi vim vim.basic vim.tiny vim.nox nvim view vimdiff ex ed emacs nano less more most man info pager editor
    sqlite3 sqlcipher duckdb psql mysql mariadb ftp sftp telnet dc gnuplot lynx w3m mutt"""
)

_PACKAGERS = name_set("npm npx yarn yarnpkg pnpm pip pipx uv uvx poetry cargo go bundle gem composer mix dotnet")
_BUILDERS = name_set(
    """make gmake cmake ninja meson just task rake tox nox pytest rustc mvn gradle ant bazel pre-commit tsc webpack vite
    jest gcc cc g++ c++ clang ld invoke fab ansible ansible-playbook"""
)

_ARCHIVERS = name_set("tar bsdtar gtar")
_STEWARDS = name_set("docker podman kubectl helm systemctl ip apt apt-get brew snap flatpak crontab")
_OPENERS = name_set("xdg-open open start run-mailcap see nc ncat netcat")
_REPOSITORIES = name_set("git hg svn bzr gh")
_REMARKS = {
    "it runs whatever its script says, and the script may be changed later": _INTERPRETERS,
    "its first word is a program, which can start others and write files": _LANGUAGES,
    "it can start other programs by commands of its own": _EDITORS | _OPENERS | _STEWARDS,
    "it runs what the files of the project tell it to": _PACKAGERS | _BUILDERS,
    "it runs what the repository's config and hooks name": _REPOSITORIES,
    "some of its options start other programs": _ARCHIVERS
    | name_set(
        """find fd fdfind cpio zip unzip 7z rsync scp rg ag env nice nohup timeout stdbuf ionice time chrt sort split
        tcpdump nmap openssl wget dpkg rpm yum dnf pacman logrotate"""
    ),
}

_REMARK = {name: remark for remark, group in _REMARKS.items() for name in group}
_GIT = name_set(
    """add apply archive blame branch cat-file checkout cherry cherry-pick clean clone commit describe diff diff-tree
    fetch for-each-ref gc grep init log ls-files ls-remote ls-tree merge merge-base mv name-rev pull range-diff
    reflog reset restore rev-list rev-parse revert rm shortlog show show-ref stash status switch symbolic-ref tag
    version whatchanged worktree"""
)  # other commands take programs as arguments or may be aliases; a push runs hooks in the target repository

_GIT_ELSEWHERE = name_set("push fetch pull clone ls-remote")  # the target must be named too: it may be the agent's
_TRANSPORT = re.compile(r"[\w.+-]*::")  # addresses that make git start a program, such as ext::./x
_DECIDED = _INTERPRETERS | _LANGUAGES | _PACKAGERS | _ARCHIVERS | _STEWARDS | _REPOSITORIES
"""In these, some words are a script, program text, or a command that may run anything: TABLE says which. Tar has old
options without a dash: `tar xIf ./x a.tar` runs ./x."""

_VERSION = re.compile(r"[-\d.]+$")
_TELLS = name_set("--version -version -V --help -h")  # with these the program prints something and runs nothing
_TELL_VERSION = name_set("node nodejs perl php")  # for these also -v; other programs run as usual and print more
_LISTENERS = _INTERPRETERS | _EDITORS | name_set("m4 crontab")  # without a file they run what their standard input says
_CONSOLES = name_set(
    """sqlite3 sqlcipher duckdb psql mysql mariadb ftp sftp telnet ed ex vi vim vim.basic vim.tiny vim.nox nvim view
    vimdiff dc lynx w3m"""
)  # they read commands even when given a database, a host or a text

_STATEMENTS = re.compile(r"-[cefl].*|--(?:command|execute|file|list)\b.*", re.DOTALL)
_GIVEN = {
    **dict.fromkeys(("psql", "mysql", "mariadb"), _STATEMENTS),
    **dict.fromkeys(("lynx", "w3m"), re.compile("-dump|-source|-dump_source")),
    "dc": re.compile(r"-[ef].*|--(?:expression|file)\b.*", re.DOTALL),
}  # options that tell a console everything it does
_STATEMENT = name_set("sqlite3 sqlcipher duckdb")  # for these the second operand does
_SHOWING = re.compile(
    "--?(?:(?:no)?header|csv|json|line|list|column|html|quote|tabs|table|box|markdown|readonly|batch|bail)"
)
_INTERACTIVE = {
    **dict.fromkeys(("python", "pypy", "lua", "luajit", "julia"), re.compile(r"-\w*i.*|--interactive", re.DOTALL)),
    **dict.fromkeys(("node", "nodejs"), re.compile("-i|--interactive")),
    "php": re.compile("-a|--interactive"),
}  # after their script they read standard input


class ProgramOptions(Struct, frozen=True):
    """Letters and long names of options, by the value that follows."""

    switches: str = ""  # nothing
    digits: str = ""  # an optional number in the same word
    inline: str = ""  # the rest of the word
    valued: str = ""  # the rest of the word, or the next one
    free: str = ""  # the same, and the value does not decide what is run
    text: str = ""  # the same, and the value is the program: then no operand decides
    long: str = ""
    long_valued: str = ""
    long_text: str = ""
    permutes: bool = False  # options may follow operands
    last_text: bool = False  # after such a text no more options are read
    apart: bool = False  # letters and values are separate words
    cluster: bool = False  # the first word is option letters, with or without a dash, and no operand decides


class OptionReading(Struct, frozen=True):
    """What the arguments of one call mean. `decides`: positions of words that decide what is run."""

    decides: frozenset[int] = frozenset()
    given: bool = False  # a word decides what to run; otherwise standard input does


_SED = ProgramOptions(
    "nErsuz", inline="i" if _GNU else "", valued="l" if _GNU else "il", text="ef", long_text="expression file",
    long="quiet silent regexp-extended separate unbuffered null-data posix sandbox in-place", permutes=True,
)  # fmt: skip
_JQ = ProgramOptions(
    "rcnsSeRaCMj", long_valued="indent", permutes=True,
    long="raw-output compact-output null-input slurp sort-keys exit-status raw-input ascii-output tab",
)  # fmt: skip
_PYTHON = ProgramOptions("bBdEIOPqsSuvx", valued="WX", text="cm", last_text=True)
_NODE = ProgramOptions(
    "c", valued="r", text="e", long="check no-warnings", long_valued="require import", long_text="eval", apart=True
)
# A file for -T may hold any option.
_TAR = ProgramOptions(
    "AcdrtuxvzjJZakmpPSOwhlUoW", free="fCXbNVK", long="extract create list verbose gzip bzip2 xz",
    long_valued="file directory strip-components exclude", permutes=True, cluster=True,
)  # fmt: skip
TABLE: Mapping[str, ProgramOptions] = {
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk", "original-awk"), ProgramOptions(valued="Fv", text="f")),
    **dict.fromkeys(("sed", "gsed"), _SED),
    "jq": _JQ,
    **dict.fromkeys(("python", "pypy"), _PYTHON),
    "perl": ProgramOptions("wWXctTnapsSU", digits="l0", inline="iMmF", valued="I", text="eE"),
    "ruby": ProgramOptions("acnplswS", digits="0W", inline="iFK", valued="IrCE", text="e"),
    **dict.fromkeys(("node", "nodejs"), _NODE),
    "php": ProgramOptions("nq", valued="cd", text="rf"),
    **dict.fromkeys(("lua", "luajit"), ProgramOptions("EW", valued="el")),
    **dict.fromkeys(("tar", "bsdtar", "gtar"), _TAR),
    "git": ProgramOptions("P", long="no-pager no-replace-objects literal-pathspecs no-optional-locks"),
}  # fmt: skip
"""No options are known for the other programs."""


class _Option(Struct, frozen=True):
    values: int = 0  # how many of the next words are its values
    free: bool = False  # values that decide nothing
    text: bool = False


def read_options(kind: str, args: tuple[str, ...]) -> OptionReading | None:
    """Returns how the program reads its arguments. None: an option is unknown, so that any word may decide."""
    options = TABLE.get(kind, ProgramOptions())
    decides: set[int] = set()
    at, given, ended = 0, False, False
    while at < len(args):
        arg, old = args[at], options.cluster and at == 0
        if ended or not (old or (arg.startswith("-") and arg != "-")):
            decides |= set() if given or options.cluster else {at}
            given = given or arg not in _STDIN
            if not options.permutes:
                break
            at += 1
            continue
        decides.add(at)
        if arg == "--":
            ended, at = True, at + 1
            continue
        found = _read_option(options, arg, old=old)
        if found is None:
            return None
        decides |= set() if found.free else set(range(at + 1, at + 1 + found.values))
        given, at = given or found.text, at + 1 + found.values
        if found.text and options.last_text:
            break
    return OptionReading(frozenset(decides), given)


def starts_program(kind: str, args: tuple[str, ...]) -> bool:
    """Returns whether one of its options makes it start another program."""
    return any(_is_starter(arg, starter) for starter in STARTERS.get(kind, ()) for arg in args if arg.startswith("-"))


def _read_option(options: ProgramOptions, arg: str, *, old: bool) -> _Option | None:
    """Returns None for an unknown option. `old`: the word may be letters without a dash."""
    if arg.startswith("--"):
        return _read_long(options, arg)
    letters = arg.lstrip("-") if old else arg[1:]
    taken = 0  # old-style letters take their values one by one from the next words
    while letters:
        letter, letters = letters[0], letters[1:]
        if letter in options.digits:
            letters = letters.lstrip("0123456789")
        elif letter in options.inline:
            return _Option()
        elif letter in options.free and old:
            taken += 1
        elif letter in options.valued + options.free + options.text:
            if letters and options.apart:
                return None
            return _Option(0 if letters else 1, free=letter in options.free, text=letter in options.text)
        elif letter not in options.switches:
            return None
    return _Option(taken, free=True)


def _read_long(options: ProgramOptions, arg: str) -> _Option | None:
    name, equals, _ = arg[2:].partition("=")
    if name in options.long.split():
        return _Option()
    is_text = name in options.long_text.split()
    return _Option(0 if equals else 1, text=is_text) if is_text or name in options.long_valued.split() else None


def _is_starter(arg: str, starter: str) -> bool:
    name = arg.partition("=")[0]
    if starter.startswith("--"):
        return len(name) > 2 and starter.startswith(name)  # GNU programs accept shortened long names
    if len(starter) == 2:
        return bool(re.fullmatch(rf"-\w*{re.escape(starter[1])}.*", arg, re.DOTALL)) and not arg.startswith("--")
    return arg == starter


def runs_other_programs(name: str) -> str:
    """Returns the warning to show before this program is granted; empty for most programs."""
    base = base_name(name)
    return why_never_covered(base) or _REMARK.get(base, "") or _REMARK.get(_VERSION.sub("", base), "")


def runs_scripts(name: str) -> bool:
    """Returns whether a file among its arguments decides what it does."""
    base = base_name(name)
    return base in _INTERPRETERS or _VERSION.sub("", base) in _INTERPRETERS


def reads_program(found: Invocation) -> bool:
    """Returns whether its standard input decides what it does: then the command's words do not show it."""
    kinds, args = _kinds(found), found.args
    if not kinds & _LISTENERS:
        return False
    commanded = any(_takes_commands(kind, args) for kind in kinds & (_CONSOLES | _INTERACTIVE.keys()))
    return args in ((), ("-",)) or commanded or any(_listens(kind, args) for kind in kinds & _INTERPRETERS)


def _takes_commands(kind: str, args: tuple[str, ...]) -> bool:
    """Returns whether it reads commands from its standard input, whatever its arguments are."""
    if {*args} & _TELLS:
        return False
    if kind in _INTERACTIVE:
        return any(map(_INTERACTIVE[kind].fullmatch, args))
    if kind in _STATEMENT:
        words = [arg for arg in args if not _SHOWING.fullmatch(arg)]
        return len(words) < 2 or any(word.startswith("-") for word in words)
    given = _GIVEN.get(kind)
    return given is None or "-" in args or not any(map(given.fullmatch, args))


def _listens(kind: str, args: tuple[str, ...]) -> bool:
    reading = read_options(kind, args)
    if reading:
        return not reading.given
    says = bool({*args} & _TELLS) or (args == ("-v",) and kind in _TELL_VERSION)
    return not says and all(arg.startswith("-") for arg in args)


def covers_by_name(grant: Grant | GrantDraft, found: Invocation) -> bool:
    """Returns whether the grant covers the call, and names the arguments that a `*` must not match."""
    return covers(grant, found) and not find_unnamed_argument(grant, found)


def find_unnamed_argument(grant: Grant | GrantDraft, found: Invocation) -> str:
    """Returns the first argument that the grant must name and does not; empty if there is none."""
    literal = {place for place, pattern in enumerate(grant.args) if pattern != REST and is_literal(pattern)}
    open_places = [place for place in range(len(found.args)) if place not in literal]
    if not open_places:
        return ""
    decides = _deciding(_kinds(found), found.args)
    place = next((place for place in open_places if decides is None or place in decides), None)
    return "" if place is None else found.args[place] or "''"


def _kinds(found: Invocation) -> set[str]:
    """Returns its name with and without the version."""
    called = {base_name(found.binary), base_name(found.resolved)}
    return called | {_VERSION.sub("", each) for each in called}


def _deciding(kinds: set[str], args: tuple[str, ...]) -> set[int] | None:
    """Returns the positions of the words that a grant must name; None for all."""
    if kinds & (_EDITORS | _OPENERS) or any(starts_program(kind, args) for kind in kinds):
        return None
    places: set[int] = set()
    for kind in kinds & _DECIDED:
        reading = read_options(kind, args)
        if reading is None:
            return None
        decided = _deciding_of_git(reading, args) if kind == "git" else reading.decides
        if decided is None:
            return None
        places |= decided
    return places


def _deciding_of_git(reading: OptionReading, args: tuple[str, ...]) -> set[int] | None:
    """The common commands need no naming; commands that reach another repository must name it."""
    places = {place for place, arg in enumerate(args) if _TRANSPORT.match(arg)}
    command = max(reading.decides, default=-1)
    if command < 0 or not reading.given:
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
