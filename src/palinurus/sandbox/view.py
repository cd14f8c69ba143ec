"""What a command sees behind bubblewrap's walls, as bubblewrap's arguments.

The root is made up of the system's own directories, read-only, and of nothing else: no home, no /var, no /srv, nobody's
files. Of /etc only what programs need to start and to check certificates. /tmp, /dev/shm and the root itself are small
file systems in memory that go with the command; the root and /dev can not be written.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from palinurus.domain.errors import SandboxError
from palinurus.sandbox.covers import Cover
from palinurus.sandbox.sandbox import MIB, Command, Mount

USER, USER_ID = "pal", 1000
HOSTNAME = "sandbox"
_PROGRAMS = "/usr/bin:/bin"
_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")  # links into /usr on most systems
_SYSTEM = ("/usr", "/nix/store", "/run/current-system")
# Of /etc few directories are shown, since each costs about half a millisecond, and small files are copied.
_ETC_DIRECTORIES = ("alternatives", "ssl/certs", "pki/tls/certs", "pki/ca-trust/extracted", "crypto-policies", "fonts")
_ETC_FILES = ("ld.so.cache", "ssl/openssl.cnf", "ssl/cert.pem", "localtime", "mime.types", "protocols", "services")
_ETC_FILES_WITH_NETWORK = ("resolv.conf", "hosts")
_MADE_UP = {
    "passwd": f"root:x:0:0:root:/:/usr/sbin/nologin\n{USER}:x:{USER_ID}:{USER_ID}::/tmp:/bin/sh\n"
    "nobody:x:65534:65534::/:/usr/sbin/nologin\n",
    "group": f"root:x:0:\n{USER}:x:{USER_ID}:\nnogroup:x:65534:\n",
    "hosts": f"127.0.0.1 localhost {HOSTNAME}\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
}
_WHOLE_TREES = ("/proc", "/sys", "/dev", "/etc", "/boot")  # never shown, nor any part of them
_TEMPORARY, _SHARED = "/tmp", "/dev/shm"  # noqa: S108  those of the sandbox
_ROOTS = (
    "/", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/var", "/home", "/root", "/run", "/opt", "/srv", "/mnt", "/media",
    _TEMPORARY,
)  # fmt: skip
_SCRATCH = 512 * MIB
_NOTHING = "/dev/null"  # as a file inside: devices do not work there, so it can be neither read nor written


class Dialect(Struct, frozen=True):
    """What this release of bubblewrap understands."""

    sizes: bool = True  # 0.7
    no_more_namespaces: bool = True  # 0.8


class Hidden(Struct, frozen=True):
    """What must never be seen inside: our own home, which holds keys; and the user's, as a whole."""

    pal_home: Path | None = None
    user_home: Path | None = None


class Shown(Struct, frozen=True):
    """One directory: where it is on the host, where it can be found when bubblewrap starts, where it stands inside."""

    source: Path
    found_at: str
    target: str
    writable: bool
    covers: tuple[Cover, ...] = ()


def real_mounts(mounts: Iterable[Mount], hidden: Hidden) -> list[Mount]:
    """The mounts, sources resolved, outer ones first. Raises SandboxError for one that would show too much."""
    found = []
    for mount in mounts:
        source = mount.source.resolve()
        if not source.is_dir():
            raise SandboxError(f"there is no directory {mount.source} to show in the sandbox", hint="make it first")
        _check(source, hidden)
        _check_target(mount.target)
        found.append(replace(mount, source=source))
    return sorted(found, key=lambda mount: mount.target.count("/"))


def walls(command: Command, dialect: Dialect) -> list[str]:
    asked = ["--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    asked += ["--uid", str(USER_ID), "--gid", str(USER_ID), "--hostname", HOSTNAME]
    asked += ["--share-net"] if command.network else []
    return [*asked, "--disable-userns"] if dialect.no_more_namespaces else asked


def started(command: Command) -> tuple[str, ...]:
    """What bubblewrap starts. A terminal is made the session's own, so that Ctrl-C reaches the command and nobody else:
    it was made for this command alone. Without setsid a command has its terminal, but no Ctrl-C."""
    found = shutil.which("setsid", path=_PROGRAMS) if command.pty else None
    return (found, "-c", *command.argv) if found else command.argv


def root_file_system() -> list[str]:
    asked: list[str] = []
    for path in _SYSTEM:
        asked += ["--ro-bind-try", path, path]
    for name in _MERGED:
        place = Path("/", name)
        if place.is_symlink():
            asked += ["--symlink", str(place.readlink()), str(place)]
        elif place.is_dir():
            asked += ["--ro-bind", str(place), str(place)]
    for found in (*(Path("/etc", name) for name in _ETC_DIRECTORIES), *Path("/etc").glob("java-*")):
        asked += ["--ro-bind-try", str(found), str(found)]
    return asked


def etc_files(network: bool) -> dict[str, bytes]:
    """Files of /etc: the machine's own where they tell nothing about its people, made-up ones else."""
    files = {f"/etc/{name}": text.encode() for name, text in _MADE_UP.items()}
    for name in (*_ETC_FILES, *(_ETC_FILES_WITH_NETWORK if network else ())):
        with suppress(OSError):
            files[f"/etc/{name}"] = Path("/etc", name).read_bytes()
    return files


def scratch(command: Command, dialect: Dialect) -> list[str]:
    size = str(command.limits.memory_bytes // 2 or _SCRATCH)
    sized = ["--size", size] if dialect.sizes else []
    return [
        "--proc", "/proc",
        "--dev", "/dev", *sized, "--perms", "1777", "--tmpfs", _SHARED, "--remount-ro", "/dev",
        *sized, "--perms", "1777", "--tmpfs", _TEMPORARY, "--symlink", "../tmp", f"/var{_TEMPORARY}",
    ]  # fmt: skip


def directories(shown: Sequence[Shown], hidden: Hidden, closed: Collection[str] = ()) -> list[str]:
    asked: list[str] = []
    for each in shown:
        asked += ["--bind" if each.writable else "--ro-bind", each.found_at, each.target]
        asked += _mask(each, hidden)
        for cover in each.covers:
            asked += _cover(each, cover)
        if f"{each.target}/.git" in closed:
            asked += ["--ro-bind", f"{each.found_at}/.git", f"{each.target}/.git"]
    return [*asked, "--remount-ro", "/"]


def repositories(shown: Sequence[Shown]) -> dict[str, tuple[int, int]]:
    """The `.git` of each writable directory that is a repository, by its place inside, with what it is on the disk.

    git takes programs from there, hooks and settings alike, and the owner's own git would run them outside the walls.
    So it is shown read-only; being a mount of its own it can not be moved away either.
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
    """Our home, when it lies inside what would be shown."""
    home = hidden.pal_home.resolve() if hidden.pal_home else None
    return home if home is not None and home.is_dir() and home.is_relative_to(source.resolve()) else None


def _mask(shown: Shown, hidden: Hidden) -> list[str]:
    """Cover our home where it lies inside what is shown. Mounts that come after may show a part of it again."""
    home = covers(shown.source, hidden)
    if home is None:
        return []
    return _nothing_in(os.path.join(shown.target, home.relative_to(shown.source)))  # noqa: PTH118  a path inside


def _cover(shown: Shown, cover: Cover) -> list[str]:
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
        raise SandboxError(f"{source} holds keys and conversations: no sandbox shows it", hint="use another workspace")
    if str(source) in _ROOTS or any(source.is_relative_to(tree) for tree in _WHOLE_TREES):
        raise SandboxError(f"{source} belongs to the system: no sandbox shows it", hint="use another workspace")
    if user and user.is_relative_to(source):
        raise SandboxError(
            f"{source} holds everything of its user, keys included: no sandbox shows it",
            hint="give the agent a directory of its own as workspace",
        )


def _check_target(target: str) -> None:
    if target != os.path.normpath(target) or not target.startswith("/") or target == "/":
        raise SandboxError(f"{target!r} is no place inside a sandbox", hint="name an absolute path")
    if any(Path(target).is_relative_to(tree) for tree in (*_WHOLE_TREES, "/usr")):
        raise SandboxError(f"{target} belongs to the sandbox itself", hint="show the directory in another place")
