"""Where in its arguments a program is told what to run: a script, the text of a program, a command of its own.

Counting words does not tell: in `sed -n 5p a` it is the second one, in `awk -F : '{print}' a` the third. So options are
read as the program reads them, as far as the table below knows them. With one that it does not know, any word may be
the one that decides.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping

from msgspec import Struct

from palinurus.tools.commands.script import names


class Options(Struct, frozen=True):
    """Letters and long names, by what stands behind them."""

    switches: str = ""  # nothing
    digits: str = ""  # perhaps a number, in the same word
    inline: str = ""  # the rest of the word
    valued: str = ""  # the rest of the word, or the next one
    free: str = ""  # the same, and the value decides nothing
    text: str = ""  # the same, and the value is the program: then no operand is
    long: frozenset[str] = frozenset()
    long_valued: frozenset[str] = frozenset()
    long_text: frozenset[str] = frozenset()
    permutes: bool = False  # options may stand behind operands
    last_text: bool = False  # behind such a text no more options are read
    apart: bool = False  # letters and values stand in words of their own
    cluster: bool = False  # the first word is letters of options, with a dash or without, and no operand decides


class Reading(Struct, frozen=True):
    """What the arguments of one call are. `decides`: places of words that say what is run."""

    decides: frozenset[int] = frozenset()
    known: bool = True  # otherwise any word may decide
    told: bool = False  # some word says what to run; otherwise its standard input does


_STDIN = names("- /dev/stdin /dev/fd/0 /proc/self/fd/0")
_GNU = sys.platform == "linux"  # elsewhere the suffix of `sed -i` may be a word of its own

_AWK = Options(valued="Fv", text="f")
_SED = Options(
    switches="nErsuz",
    inline="i" if _GNU else "",
    valued="l" if _GNU else "il",
    text="ef",
    long=names("quiet silent regexp-extended separate unbuffered null-data posix sandbox in-place"),
    long_text=names("expression file"),
    permutes=True,
)
_JQ = Options(
    switches="rcnsSeRaCMj",
    long=names("raw-output compact-output null-input slurp sort-keys exit-status raw-input ascii-output tab"),
    long_valued=names("indent"),
    permutes=True,
)
_PYTHON = Options("bBdEIOPqsSuvx", valued="WX", text="cm", last_text=True)
_NODE = Options(
    switches="c",
    valued="r",
    text="e",
    long=names("check no-warnings"),
    long_valued=names("require import"),
    long_text=names("eval"),
    apart=True,
)
_TAR = Options(
    switches="AcdrtuxvzjJZakmpPSOwhlUoW",
    free="fCXbNVK",
    long=names("extract create list verbose gzip bzip2 xz"),
    long_valued=names("file directory strip-components exclude"),
    permutes=True,
    cluster=True,
)  # a file for -T may hold any option

TABLE: Mapping[str, Options] = {
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk", "original-awk"), _AWK),
    **dict.fromkeys(("sed", "gsed"), _SED),
    "jq": _JQ,
    **dict.fromkeys(("python", "pypy"), _PYTHON),
    "perl": Options("wWXctTnapsSU", digits="l0", inline="iMmF", valued="I", text="eE"),
    "ruby": Options("acnplswS", digits="0W", inline="iFK", valued="IrCE", text="e"),
    **dict.fromkeys(("node", "nodejs"), _NODE),
    "php": Options("nq", valued="cd", text="rf"),
    **dict.fromkeys(("lua", "luajit"), Options("EW", valued="el")),
    **dict.fromkeys(("tar", "bsdtar", "gtar"), _TAR),
    "git": Options("P", long=names("no-pager no-replace-objects literal-pathspecs no-optional-locks")),
}  # fmt: skip
"""Of the others no option is known."""

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
"""Options of other programs behind which a program is named, or what makes them run one."""

GIT_PLAIN = names(
    """--all --tags --no-tags --prune -p -q --quiet -v --verbose -f --force --force-with-lease --set-upstream --dry-run
    -n --ff-only --no-ff --rebase --no-rebase --heads --bare --no-verify --progress"""
)  # nothing stands behind them, whatever of git reaches elsewhere


class _Option(Struct, frozen=True):
    values: int = 0  # how many of the next words are its values
    free: bool = False  # those decide nothing
    text: bool = False


def read_options(kind: str, args: tuple[str, ...]) -> Reading:
    """How a program that is called so reads its arguments."""
    options = TABLE.get(kind, Options())
    decides: set[int] = set()
    at, told, ended = 0, False, False
    while at < len(args):
        arg, old = args[at], options.cluster and at == 0
        if ended or not (old or (arg.startswith("-") and arg != "-")):
            decides |= set() if told or options.cluster else {at}
            told = told or arg not in _STDIN
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
            return Reading(known=False)
        decides |= set() if found.free else set(range(at + 1, at + 1 + found.values))
        told, at = told or found.text, at + 1 + found.values
        if found.text and options.last_text:
            break
    return Reading(frozenset(decides), told=told)


def starts_program(kind: str, args: tuple[str, ...]) -> bool:
    """Whether one of its options has it start another program."""
    return any(_is_starter(arg, starter) for starter in STARTERS.get(kind, ()) for arg in args if arg.startswith("-"))


def _read_option(options: Options, arg: str, *, old: bool) -> _Option | None:
    """None for one that is not known. `old`: the word may be letters without a dash."""
    if arg.startswith("--"):
        return _read_long(options, arg)
    letters = arg.lstrip("-") if old else arg[1:]
    taken = 0  # old letters take their values one after the other, from the next words
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


def _read_long(options: Options, arg: str) -> _Option | None:
    name, equals, _ = arg[2:].partition("=")
    if name in options.long:
        return _Option()
    if name in options.long_valued | options.long_text:
        return _Option(0 if equals else 1, text=name in options.long_text)
    return None


def _is_starter(arg: str, starter: str) -> bool:
    name = arg.partition("=")[0]
    if starter.startswith("--"):
        return len(name) > 2 and starter.startswith(name)  # GNU programs take a long name that is cut short
    if len(starter) == 2:
        return bool(re.fullmatch(rf"-\w*{re.escape(starter[1])}.*", arg, re.DOTALL)) and not arg.startswith("--")
    return arg == starter
