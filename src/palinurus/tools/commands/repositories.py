"""Decides whether a grant applies to git here: only in a repository that the agent cannot have written.

git runs programs named by the repository it is started in (hooks and a dozen settings), so in a repository made by the
agent `git status` may run anything. A grant applies where there is no repository, in a repository that the agent cannot
write, and in the workspace's own as long as that names no program: the sandbox shows its `.git` read-only, and the file
tools do not write there. Everywhere else git needs approval, whatever is granted.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path

from palinurus.domain.events import Invocation
from palinurus.tools.commands.shell import base_name, name_set

_GIT = name_set("git gh glab hub tig lazygit git-lfs")  # the others start git in the same directory
_OTHERS = {"hg": ".hg", "jj": ".jj"}  # we do not read their settings: they always need approval
_PLAIN_OPTIONS = name_set("--no-pager -P --version -v")  # before a sub-command; others name a directory or a setting

_HEADER = re.compile(r'\[\s*([\w.-]+)(?:\s+"(?:[^"\\]|\\.)*")?\s*\]\s*(.*)')
_SETTING = re.compile(r"([A-Za-z][\w-]*)\s*(?:=\s*(.*))?")
_HARMLESS = re.compile(
    r"core\.(?:repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf"
    r"|eol|safecrlf|quotepath|untrackedcache|preloadindex|abbrev|compression|whitespace|longpaths|commentchar)"
    r"|(?:user|author|committer)\.(?:name|email)"
    r"|remote\.(?:url|pushurl|fetch|push|prune|prunetags|tagopt|mirror|skipdefaultupdate|skipfetchall|gh-resolved)"
    r"|branch\.(?:remote|merge|rebase|pushremote|description|vscode-merge-base|github-pr-owner-number)"
    r"|pull\.(?:rebase|ff)|push\.(?:default|autosetupremote|followtags)|fetch\.(?:prune|prunetags|parallel|all)"
    r"|diff\.(?:algorithm|renames|colormoved|mnemonicprefix|noprefix|context)|merge\.(?:ff|conflictstyle|renames|stat)"
    r"|rebase\.(?:autostash|autosquash)|rerere\.(?:enabled|autoupdate)|gc\.auto|init\.defaultbranch|tag\.sort"
    r"|lfs\.repositoryformatversion|(?:color|column|advice|status)\.[\w-]+"
)
_FAR = re.compile(r"(?:https?|ssh|git)://[^-]|(?:[\w.-]+@)?[\w][\w.-]*:(?!:|//)[^-]")  # a path here may be a repository
_MOST_CONFIG, _MOST_INDEX = 256 * 1024, 32 * 1024 * 1024


_SETTINGS = {
    "core.fsmonitor": "",
    "core.hooksPath": "/dev/null",
    "submodule.recurse": "false",
    "fetch.recurseSubmodules": "false",
    "push.recurseSubmodules": "no",
    "diff.ignoreSubmodules": "all",
    "status.submoduleSummary": "false",
    "diff.submodule": "short",
    "protocol.ext.allow": "never",
}


def git_variables(home: str, workspace: str) -> dict[str, str]:
    """Returns the environment for git when a grant lets it run: our settings override those of any repository and
    submodule.

    No pager and no editor: on a terminal both would run commands that are typed. The config of `home` applies unless
    the agent can write it.
    """
    own = {"GIT_PAGER": "cat", "PAGER": "cat", "GIT_EDITOR": "false", "GIT_SEQUENCE_EDITOR": "false"}
    for place, (key, value) in enumerate(_SETTINGS.items()):
        own |= {f"GIT_CONFIG_KEY_{place}": key, f"GIT_CONFIG_VALUE_{place}": value}
    own |= {"GIT_CONFIG_COUNT": str(len(_SETTINGS)), "GIT_TERMINAL_PROMPT": "0"}
    if _within(Path(os.path.realpath(home)), [os.path.realpath(workspace)]):
        own["GIT_CONFIG_GLOBAL"] = "/dev/null"
    return own


def uses_repository(found: Invocation) -> bool:
    """Returns whether its effect depends on the repository that it is started in."""
    return bool({base_name(found.binary), base_name(found.resolved)} & (_GIT | _OTHERS.keys()))


def why_repository_distrusted(found: Invocation, *, cwd: str, workspace: str, writable: Sequence[str]) -> str:
    """Returns why no grant applies to this program in this directory; empty if one may, and for most programs."""
    kinds = {base_name(found.binary), base_name(found.resolved)}
    reach = [os.path.realpath(root) for root in (workspace, *writable) if root]
    for kind, mark in _OTHERS.items():
        above = (folder for folder in (Path(cwd), *Path(cwd).parents) if os.path.lexists(folder / mark))
        folder = next(above, None) if kind in kinds else None
        if folder and _within(folder, reach):
            return _writable(folder / mark)
    return _git(found, cwd, workspace, reach) if kinds & _GIT else ""


def _git(found: Invocation, cwd: str, workspace: str, reach: Sequence[str]) -> str:
    before = takewhile(lambda arg: arg.startswith("-"), found.args)
    if option := next((arg for arg in before if arg not in _PLAIN_OPTIONS), ""):
        return f"{found.name} has an option for another directory or setting ({option})"
    place = _repository(Path(cwd))
    if place is None or not _within(place, reach):
        return ""
    own = Path(os.path.realpath(workspace), ".git") if workspace else None
    if place != own or not stat.S_ISDIR(place.lstat().st_mode):
        return _writable(place)
    named = next(_programs(place), "")
    return f"the repository names programs that git would run ({named})" if named else ""


def _writable(place: Path) -> str:
    return f"{place} is writable by the agent, so it may name any program"


def _repository(cwd: Path) -> Path | None:
    """Returns the repository that git would use, or a path that prevents the search. A folder of any name may be
    one."""
    for folder in (cwd, *cwd.parents):
        if os.path.lexists(folder / "HEAD") and (
            os.path.lexists(folder / "objects") or os.path.lexists(folder / "commondir")
        ):
            return folder
        if os.path.lexists(folder / ".git"):
            return folder / ".git"
    return None


def _programs(place: Path) -> Iterator[str]:
    """Returns what in a repository makes git start a program or enter another repository; empty if nothing does."""
    try:
        yield from _settings(place / "config")
        hooks = place / "hooks"
        if hooks.is_symlink() or os.path.lexists(place / "commondir"):
            yield "a link to another repository"
        if hooks.is_dir():
            yield from (f"the hook {each.name}" for each in sorted(hooks.iterdir()) if _is_hook(each))
        if os.path.lexists(place / "index") and _has_repositories(_read(place / "index", _MOST_INDEX)):
            yield "a repository inside it"
    except (OSError, ValueError) as error:
        yield f"it cannot be read: {error}"


def _settings(config: Path) -> Iterator[str]:
    """Returns the settings that are not known to be harmless, including those that cannot be parsed."""
    section = ""
    for line in _read(config, _MOST_CONFIG).decode().splitlines() if os.path.lexists(config) else ():
        text = line.strip()
        if header := _HEADER.fullmatch(text):
            section, text = header[1].lower(), header[2]
        if not text or text[0] in "#;":
            continue
        setting = _SETTING.fullmatch(text)
        if setting is None or text.endswith("\\") or not _is_harmless(section, setting[1].lower(), setting[2] or ""):
            yield f"{section}.{setting[1]}" if setting else text[:80]


def _is_harmless(section: str, key: str, value: str) -> bool:
    known = bool(_HARMLESS.fullmatch(f"{section}.{key}"))
    return known and (key not in ("url", "pushurl") or bool(_FAR.match(value)))


def _is_hook(path: Path) -> bool:
    return path.suffix != ".sample" and (path.is_symlink() or os.access(path, os.X_OK))


def _has_repositories(index: bytes) -> bool:
    """Returns whether the index contains submodules: git enters a submodule with the submodule's own settings."""
    signature, version, count = struct.unpack(">4sLL", index[:12]) if len(index) > 32 else (b"", 0, 0)
    if signature != b"DIRC" or version not in (2, 3):
        return True
    at = 12
    for _ in range(count):
        mode, flags = int.from_bytes(index[at + 24 : at + 28]), int.from_bytes(index[at + 60 : at + 62])
        end = index.find(b"\0", at + (64 if flags & 0x4000 else 62))
        # Modes of files and links; other modes mean a submodule or a sparse folder.
        if mode & 0o170000 not in (0o100000, 0o120000) or end < 0:
            return True
        at += ((end - at) // 8 + 1) * 8
    while at + 8 <= len(index) - 20:
        if index[at : at + 4] == b"link":  # a split index keeps the rest in another file
            return True
        at += 8 + int.from_bytes(index[at + 4 : at + 8])
    return False


def _read(path: Path, most: int) -> bytes:
    if not stat.S_ISREG(path.lstat().st_mode):
        raise ValueError(f"{path.name} is not a regular file")
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"{path.name} is too large")
    return data


def _within(path: Path, roots: Sequence[str]) -> bool:
    return any(path.is_relative_to(root) for root in roots)
