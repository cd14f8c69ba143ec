"""What a command sees in bubblewrap, as bubblewrap's arguments.

The root consists of the system's own directories, read-only, and nothing else: no home, no /var, no /srv. Of /etc it
has only what programs need to start and to check certificates. /tmp, /dev/shm and the root itself are small in-memory
file systems that end with the command; the root and /dev cannot be written.

Parts of a visible directory are covered. Where others take part, the owner's private files (MEMORY.md, memory/, the
history in .git) are hidden. In a turn that has read text from outside, the files that later sessions start with
(AGENTS.md, skills/) can be neither changed nor created, because a model reads them as the owner's instructions. To
prevent creation, an empty file or folder is put there first; the folders above it are separate mounts, which cannot be
moved. The same is done for memory in the private folder of a sandbox: memory is elsewhere, and a file written there
would be lost.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct, structs

from palinurus.domain.errors import SandboxError
from palinurus.sandbox.sandbox import MIB, SandboxCommand, SandboxMount
from palinurus.workspace.boundary import MEMORY_DIRECTORY, Boundary
from palinurus.workspace.files import is_private
from palinurus.workspace.instructions import Instructions, path_inside, spell
from palinurus.workspace.write import NEW_FILE, create_file

USER, USER_ID = "pal", 1000
HOSTNAME = "sandbox"
_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")  # links into /usr on most systems
_SYSTEM = ("/usr", "/nix/store", "/run/current-system")
# Few directories of /etc are visible, since each costs about half a millisecond; small files are copied.
_ETC_DIRECTORIES = ("alternatives", "ssl/certs", "pki/tls/certs", "pki/ca-trust/extracted", "crypto-policies", "fonts")
_ETC_FILES = ("ld.so.cache", "ssl/openssl.cnf", "ssl/cert.pem", "localtime", "mime.types", "protocols", "services")
_MADE_UP = {
    "passwd": f"root:x:0:0:root:/:/usr/sbin/nologin\n{USER}:x:{USER_ID}:{USER_ID}::/tmp:/bin/sh\n"
    "nobody:x:65534:65534::/:/usr/sbin/nologin\n",
    "group": f"root:x:0:\n{USER}:x:{USER_ID}:\nnogroup:x:65534:\n",
    "hosts": f"127.0.0.1 localhost {HOSTNAME}\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
}
_WHOLE_TREES = ("/proc", "/sys", "/dev", "/etc", "/boot")  # never visible, nor any part of them
SCRATCH = _TEMPORARY, _SHARED = "/tmp", "/dev/shm"  # noqa: S108  those of the sandbox
_ROOTS = (
    "/", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/var", "/home", "/root", "/run", "/opt", "/srv", "/mnt", "/media",
    _TEMPORARY,
)  # fmt: skip
_NOTHING = "/dev/null"  # as a file inside: devices do not work there, so it can be neither read nor written


class Cover(Struct, frozen=True):
    """`name` is a path below the directory. An empty file or directory hides what is there, or prevents its creation.

    A held path stays writable, and cannot be moved.
    """

    name: str
    how: Literal["as it is", "held", "empty file", "empty directory"]


def make_placeholders(mount: SandboxMount) -> None:
    """Creates an empty file where a command must find none. One created by bubblewrap could not be written later."""
    instructions = mount.instructions
    folders = {MEMORY_DIRECTORY, *instructions.folders, *mount.others}
    guarded = instructions.names if mount.guarded else ()
    names = {*guarded, *mount.closed, *mount.others} if mount.writable else set()
    for name in sorted(names):
        source = mount.source
        if os.path.lexists(source / name) or _in_the_way(source, name) or _behind_a_link(source, name):
            continue
        if name in folders:
            mode = 0o700 if is_private(name) or name in mount.others else 0o755
            (source / name).mkdir(mode=mode, parents=True, exist_ok=True)
        else:
            create_file(Boundary(source), name, b"", mode=0o600 if is_private(name) else NEW_FILE)


def covered(mount: SandboxMount) -> tuple[Cover, ...]:
    """Returns the covers. Its source must be resolved. A link is covered at its target; targets outside are not
    visible."""
    source = mount.source
    found = _guarded(source, mount.instructions) if mount.guarded and mount.writable else {}
    private = () if mount.private else filter(is_private, sorted(os.listdir(source)))  # noqa: PTH208  names
    for name in (*private, *mount.closed):
        if place := path_inside(source, name):
            found[place] = Cover(place, "empty directory" if (source / place).is_dir() else "empty file")
    found |= {place: Cover(place, "empty directory") for place in mount.others if (mount.source / place).is_dir()}
    whole = {place for place, cover in found.items() if cover.how != "held"}
    return tuple(cover for place, cover in sorted(found.items()) if not whole & set(_above(place)))


def _guarded(source: Path, instructions: Instructions) -> dict[str, Cover]:
    found: dict[str, Cover] = {}
    spelled = spell(source, (*instructions.names, *instructions.records))
    places = {place: name in instructions.folders for name in instructions.names for place in spelled[name]}
    records = (place for name in instructions.records for place in spelled[name] if os.path.lexists(source / place))
    places |= dict.fromkeys(records, False)
    for place, folder in places.items():
        if in_the_way := _in_the_way(source, place):
            found[in_the_way] = Cover(in_the_way, "as it is")
        elif not os.path.lexists(source / place):
            if _behind_a_link(source, place):
                continue  # an approval is needed: see Instructions.find_loose
            found[place] = Cover(place, "empty directory" if folder else "empty file")
        elif real := path_inside(source, place):
            found[real] = Cover(real, "as it is")
    above = {each for place in found for each in _above(place)}
    return {**{each: Cover(each, "held") for each in above if (source / each).is_dir()}, **found}


def _above(place: str) -> list[str]:
    """Returns the folders above it, below the source."""
    return [str(each) for each in Path(place).parents if str(each) != "."]


def _in_the_way(source: Path, name: str) -> str:
    """Returns a file in place of a folder above it: while it exists, the name cannot be created."""
    return next((each for each in _above(name) if (source / each).is_file()), "")


def _behind_a_link(source: Path, name: str) -> bool:
    return any((source / each).is_symlink() for each in _above(name))


class BubblewrapDialect(Struct, frozen=True):
    """What this release of bubblewrap supports."""

    sizes: bool = True  # 0.7
    no_more_namespaces: bool = True  # 0.8


class Hidden(Struct, frozen=True):
    """What must never be visible inside: our home, which contains keys; and the user's home as a whole."""

    pal_home: Path | None = None
    user_home: Path | None = None


class MountedDirectory(Struct, frozen=True):
    """One directory: its path on the host, its path when bubblewrap starts, and its path inside."""

    source: Path
    found_at: str
    target: str
    writable: bool
    covers: tuple[Cover, ...] = ()


def prepare_mounts(mounts: Iterable[SandboxMount], hidden: Hidden) -> list[SandboxMount]:
    """Returns the mounts, sources resolved, outer ones first, with an empty file where a command must find none.

    Raises SandboxError for one that would show too much. Blocks.
    """
    found = []
    for mount in mounts:
        source = mount.source.resolve()
        if not source.is_dir():
            raise SandboxError(f"there is no directory {mount.source} to show in the sandbox", hint="create it first")
        _check(source, hidden)
        _check_target(mount.target)
        found.append(structs.replace(mount, source=source))
    for mount in found:
        if mount.guarded or mount.closed or mount.others:
            make_placeholders(mount)
    return sorted(found, key=lambda mount: mount.target.count("/"))


def isolation(command: SandboxCommand, dialect: BubblewrapDialect) -> list[str]:
    args = ["--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    args += ["--uid", str(USER_ID), "--gid", str(USER_ID), "--hostname", HOSTNAME]
    args += ["--share-net"] if command.network else []
    return [*args, "--disable-userns"] if dialect.no_more_namespaces else args


def started(command: SandboxCommand) -> tuple[str, ...]:
    """Returns what bubblewrap starts. A terminal becomes the session's own, so that Ctrl-C reaches only the command,
    for which it was created. Without setsid a command has its terminal, but no Ctrl-C."""
    found = shutil.which("setsid", path="/usr/bin:/bin") if command.pty else None
    return (found, "-c", *command.argv) if found else command.argv


def root_file_system() -> list[str]:
    args: list[str] = []
    for path in _SYSTEM:
        args += ["--ro-bind-try", path, path]
    for name in _MERGED:
        place = Path("/", name)
        if place.is_symlink():
            args += ["--symlink", str(place.readlink()), str(place)]
        elif place.is_dir():
            args += ["--ro-bind", str(place), str(place)]
    for found in (*(Path("/etc", name) for name in _ETC_DIRECTORIES), *Path("/etc").glob("java-*")):
        args += ["--ro-bind-try", str(found), str(found)]
    return args


def etc_files(network: bool) -> dict[str, bytes]:
    """Returns files of /etc: the machine's own if they reveal nothing about its users, otherwise generated ones."""
    files = {f"/etc/{name}": text.encode() for name, text in _MADE_UP.items()}
    for name in (*_ETC_FILES, *(("resolv.conf", "hosts") if network else ())):
        with suppress(OSError):
            files[f"/etc/{name}"] = Path("/etc", name).read_bytes()
    return files


def scratch(command: SandboxCommand, dialect: BubblewrapDialect) -> list[str]:
    size = str(command.limits.memory_bytes // 2 or 512 * MIB)
    sized = ["--size", size] if dialect.sizes else []
    return [
        "--proc", "/proc",
        "--dev", "/dev", *sized, "--perms", "1777", "--tmpfs", _SHARED, "--remount-ro", "/dev",
        *sized, "--perms", "1777", "--tmpfs", _TEMPORARY, "--symlink", "../tmp", f"/var{_TEMPORARY}",
    ]  # fmt: skip


def directories(shown: Sequence[MountedDirectory], hidden: Hidden, closed: Collection[str] = ()) -> list[str]:
    args: list[str] = []
    for each in shown:
        args += ["--bind" if each.writable else "--ro-bind", each.found_at, each.target]
        if home := covers(each.source, hidden):  # a later mount may show a part of it again
            args += _nothing_in(os.path.join(each.target, home.relative_to(each.source)))  # noqa: PTH118  a path inside
        for cover in each.covers:
            args += _cover(each, cover)
        if f"{each.target}/.git" in closed:
            args += ["--ro-bind", f"{each.found_at}/.git", f"{each.target}/.git"]
    return [*args, "--remount-ro", "/"]


def repositories(shown: Sequence[MountedDirectory]) -> dict[str, tuple[int, int]]:
    """Returns the `.git` of each writable directory that is a repository, by its path inside, with its path on disk.

    git runs hooks and settings from there, and the owner's own git would run them outside the sandbox. So it is
    read-only; as a separate mount it cannot be moved either.
    """
    found: dict[str, tuple[int, int]] = {}
    for each in shown:
        with suppress(OSError):
            seen = (each.source / ".git").lstat()
            hidden = any(cover.name == ".git" for cover in each.covers)
            if each.writable and not hidden and not stat.S_ISLNK(seen.st_mode):  # a file points to one elsewhere
                found[f"{each.target}/.git"] = (seen.st_dev, seen.st_ino)
    return found


def covers(source: Path, hidden: Hidden) -> Path | None:
    """Returns our home if it is inside what would be visible."""
    home = hidden.pal_home.resolve() if hidden.pal_home else None
    return home if home is not None and home.is_dir() and home.is_relative_to(source.resolve()) else None


def _cover(shown: MountedDirectory, cover: Cover) -> list[str]:
    place = f"{shown.target}/{cover.name}"
    if cover.how == "empty directory":
        return _nothing_in(place)
    source = f"{shown.found_at}/{cover.name}" if cover.how in ("as it is", "held") else _NOTHING
    return ["--bind" if cover.how == "held" else "--ro-bind", source, place]


def _nothing_in(place: str) -> list[str]:
    return ["--perms", "0755", "--tmpfs", place, "--remount-ro", place]


def _check(source: Path, hidden: Hidden) -> None:
    home, user = (path.resolve() if path else None for path in (hidden.pal_home, hidden.user_home))
    ours = {home, *(home / name for name in ("agents", "derived", "logs"))} if home else set()
    if source in ours or (home and source.parent == home / "agents"):
        raise SandboxError(f"{source} contains keys and sessions: no sandbox shows it", hint="use another workspace")
    if str(source) in _ROOTS or any(source.is_relative_to(tree) for tree in _WHOLE_TREES):
        raise SandboxError(f"{source} belongs to the system: no sandbox shows it", hint="use another workspace")
    if user and user.is_relative_to(source):
        said = f"{source} contains all files of its user, including keys: no sandbox shows it"
        raise SandboxError(said, hint="use a separate directory as the agent's workspace")


def _check_target(target: str) -> None:
    if target != os.path.normpath(target) or not target.startswith("/") or target == "/":
        raise SandboxError(f"{target!r} is not a path inside a sandbox", hint="name an absolute path")
    if any(Path(target).is_relative_to(tree) for tree in (*_WHOLE_TREES, "/usr")):
        raise SandboxError(f"{target} belongs to the sandbox itself", hint="use another path for the directory")
