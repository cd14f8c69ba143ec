"""Run by spawn.py in a separate process, just before the command replaces it.

It must be quick: it imports only os and ctypes, because typing, signal and pathlib would double its start-up time, and
spawn.py passes it compiled. Its orders are a plain dictionary that comes through a descriptor. Started by root, it also
puts the directories of a sandbox where an unprivileged user can reach them: in its own mount namespace, as id-mapped
mounts, so that the new user has the owner's permissions there and new files belong to the owner.
"""

# ruff: noqa: PTH102, PTH123

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

STAGE = "/tmp"  # noqa: S108  covered by a file system that only the sandbox sees
AT_FDCWD, AT_EMPTY_PATH = -100, 0x1000
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 2, 4, 0x4000, 0x40000
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442  # the same on all machines: they are younger than the split
OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH = 1, 4
NOSUID, NODEV, IDMAP = 0x2, 0x4, 0x100000
SIGKILL, SIGPIPE, SIGXFSZ = 9, 13, 25
PR_SET_PDEATHSIG = 1


class Directory:
    """A directory that the sandbox will show, and its owner."""

    def __init__(self, source: str, owner: int, group: int, writable: bool) -> None:
        self.source, self.owner, self.group, self.writable = source, owner, group, writable


class CannotMap(Exception):
    """The file system does not support id-mapped mounts."""


def main(orders: dict[str, Any]) -> NoReturn:
    kernel = Kernel()
    if orders.get("terminal"):  # a session leader without one gets the first that it opens: Ctrl-C and /dev/tty work
        os.close(os.open(os.ttyname(0), os.O_RDWR))
    if "user" in orders:
        become_user(orders, kernel)
    run(orders, kernel)


def run(orders: dict[str, Any], kernel: Kernel) -> NoReturn:
    for number in (SIGPIPE, SIGXFSZ):  # Python ignores these two signals, and ignored signals stay ignored through exec
        kernel.libc.signal(number, None)
    try:
        os.execvpe(orders["argv"][0], orders["argv"], orders["env"])  # noqa: S606  no shell is wanted
    except OSError as error:
        refuse(f"{orders['argv'][0]}: {error.strerror}", 127 if isinstance(error, FileNotFoundError) else 126)


def become_user(orders: dict[str, Any], kernel: Kernel) -> None:
    try:
        user, group = stage(kernel, [Directory(*each) for each in orders["directories"]], orders["user"])
        set_limits(orders["limits"])
        os.chdir("/")
        os.setgroups([])
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
        kernel.call("prctl", PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)  # a change of user would reset it
        if os.getppid() != orders["parent"]:
            refuse("pal has ended", 125)
    except OSError as error:
        refuse(f"root could not become an unprivileged user for the sandbox: {error}", 125)


def set_limits(limits: dict[int, tuple[int, int]]) -> None:
    import resource

    for kind, (soft, hard) in limits.items():
        most = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (soft, hard) if most == -1 else (min(soft, most), min(hard, most)))
    with open("/proc/self/oom_score_adj", "w") as file:  # when memory runs out, the kernel ends sandboxes first
        file.write("500")


def stage(kernel: Kernel, directories: list[Directory], user: int) -> tuple[int, int]:
    """Puts each directory under STAGE, by its number. Returns the ids to become: those of an unused user or, where ids
    cannot be mapped, the owner's."""
    kernel.call("unshare", CLONE_NEWNS)
    kernel.call("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    try:
        trees, ids = [kernel.tree(each, user) for each in directories], (user, user)
    except CannotMap:
        owner, group = ids = owner_of(directories)
        trees = [kernel.tree(each, owner, group, must_map=False) for each in directories]
    kernel.call("mount", b"tmpfs", STAGE.encode(), b"tmpfs", MS_NOSUID | MS_NODEV, b"mode=0755,size=1m")
    for number, tree in enumerate(trees):
        target = f"{STAGE}/{number}"
        os.mkdir(target)
        kernel.syscall(MOVE_MOUNT, tree, b"", AT_FDCWD, target.encode(), MOVE_MOUNT_F_EMPTY_PATH)
        os.close(tree)
    return ids


def owner_of(directories: list[Directory]) -> tuple[int, int]:
    """Returns the owner of the writable ones; never root."""
    shown = [each for each in directories if each.writable] or directories
    owners = {(each.owner, each.group) for each in shown}
    owner = owners.pop()
    if owners or not owner[0] or not owner[1]:
        names = ", ".join(each.source for each in directories)
        refuse(
            f"{names}: owned by root on a file system without id-mapped mounts, so a sandbox without root's rights"
            " cannot use it. Give it to an ordinary user (chown), or run pal as one",
            125,
        )
    return owner


class Kernel:
    """System calls that Python's os does not have."""

    def __init__(self) -> None:
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.spaces: dict[tuple[int, ...], int] = {}

    def call(self, name: str, *arguments: Any) -> int:
        result = int(getattr(self.libc, name)(*arguments))
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{name}: {os.strerror(number)}")
        return result

    def syscall(self, number: int, *arguments: Any) -> int:
        longs = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
        return self.call("syscall", ctypes.c_long(number), *longs)

    def tree(self, directory: Directory, user: int, group: int | None = None, *, must_map: bool = True) -> int:
        """Returns a detached copy of the mount, in which the owner's files belong to the user."""
        tree = self.syscall(OPEN_TREE, AT_FDCWD, directory.source.encode(), OPEN_TREE_CLONE | os.O_CLOEXEC)
        wanted = (directory.owner, directory.group, user, user if group is None else group)
        if wanted[:2] != wanted[2:]:
            try:
                # The fields: set, clear, propagation, user namespace.
                fields = (ctypes.c_uint64 * 4)(NOSUID | NODEV | IDMAP, 0, 0, self.space(*wanted))
                self.syscall(MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, fields, ctypes.sizeof(fields))
            except OSError as error:
                if must_map:
                    raise CannotMap from error
        return tree

    def space(self, owner: int, group: int, user: int, user_group: int) -> int:
        """Returns a user namespace that maps ids on disk to ids here. It exists as long as its descriptor."""
        known = self.spaces.get(key := (owner, group, user, user_group))
        if known is None:
            known = self.spaces[key] = self.new_space(f"{owner} {user} 1", f"{group} {user_group} 1")
        return known

    def new_space(self, users: str, groups: str) -> int:
        (there, here), (hold, release) = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            os.close(release)
            os.write(here, b"x" if self.libc.unshare(CLONE_NEWUSER) == 0 else b"")
            os.close(here)
            os.read(hold, 1)
            os._exit(0)
        os.close(here)
        try:
            if not os.read(there, 1):
                raise OSError(1, "no user namespace could be created")
            for name, line in (("uid_map", users), ("gid_map", groups)):
                with open(f"/proc/{child}/{name}", "w") as file:
                    file.write(line)
            return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.close(release)
            os.waitpid(child, 0)
            os.close(there)
            os.close(hold)


def refuse(message: str, code: int) -> NoReturn:
    os.write(2, f"pal: {message}\n".encode(errors="replace"))
    os._exit(code)
