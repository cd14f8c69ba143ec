"""What is never shown in a sandbox, and what bubblewrap is asked for."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from palinurus.domain.errors import SandboxError
from palinurus.sandbox.kernel import FAMILIES, call_filter, dialect_of, explain, read_version
from palinurus.sandbox.sandbox import CommandLimits, SandboxCommand, SandboxMount
from palinurus.sandbox.spawn import free_user
from palinurus.sandbox.view import (
    BubblewrapDialect,
    Cover,
    Hidden,
    MountedDirectory,
    covered,
    directories,
    etc_files,
    isolation,
    prepare_mounts,
    scratch,
)


@pytest.fixture
def hidden(tmp_path: Path) -> Hidden:
    (tmp_path / "user" / ".palinurus" / "agents" / "main").mkdir(parents=True)
    (tmp_path / "user" / ".palinurus" / "workspace").mkdir()
    return Hidden(tmp_path / "user" / ".palinurus", tmp_path / "user")


def show(path: Path | str, hidden: Hidden) -> list[SandboxMount]:
    return prepare_mounts([SandboxMount(Path(path), "/work", writable=True)], hidden)


@pytest.mark.parametrize(
    "path", ["/", "/etc", "/etc/ssl", "/proc", "/proc/1", "/sys", "/dev", "/usr", "/home", "/var", "/tmp"]
)
def test_directories_of_the_system_are_not_shown(path: str, hidden: Hidden) -> None:
    if not Path(path).is_dir():
        pytest.skip(f"there is no {path}")
    with pytest.raises(SandboxError, match=r"belongs to the system|holds everything"):
        show(path, hidden)


@pytest.mark.parametrize("inside", ["", "agents", "agents/main"])
def test_the_home_of_pal_is_not_shown(inside: str, hidden: Hidden) -> None:
    assert hidden.pal_home is not None
    with pytest.raises(SandboxError, match="keys and sessions"):
        show(hidden.pal_home / inside, hidden)


def test_the_home_of_the_user_and_what_is_above_it_is_not_shown(hidden: Hidden) -> None:
    assert hidden.user_home is not None
    for path in (hidden.user_home, hidden.user_home.parent):
        with pytest.raises(SandboxError, match="all files of its user"):
            show(path, hidden)


def test_a_link_is_judged_by_where_it_leads(hidden: Hidden, tmp_path: Path) -> None:
    (tmp_path / "harmless").symlink_to("/")
    with pytest.raises(SandboxError, match="belongs to the system"):
        show(tmp_path / "harmless", hidden)


def test_what_is_not_there_is_not_made(hidden: Hidden, tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="there is no directory"):
        show(tmp_path / "nowhere", hidden)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("target", ["work", "/", "/work/../etc", "/proc/x", "/dev", "/etc/x", "/usr/x", "/work/"])
def test_nothing_is_shown_in_a_place_of_the_sandboxs_own(target: str, hidden: Hidden, tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match=r"inside a sandbox|sandbox itself"):
        prepare_mounts([SandboxMount(tmp_path / "user" / ".palinurus" / "workspace", target)], hidden)


def test_a_workspace_in_the_home_of_pal_is_shown_alone(hidden: Hidden) -> None:
    assert hidden.pal_home is not None
    found = show(hidden.pal_home / "workspace", hidden)
    assert [mount.source for mount in found] == [hidden.pal_home / "workspace"]


def test_a_home_of_pal_inside_what_is_shown_is_covered(tmp_path: Path) -> None:
    (tmp_path / "all" / "pal").mkdir(parents=True)
    hidden = Hidden(tmp_path / "all" / "pal", Path("/nobody"))
    shown = [MountedDirectory(tmp_path / "all", str(tmp_path / "all"), "/work", writable=True)]
    asked = directories(shown, hidden)
    cover = asked.index("--tmpfs")
    assert asked[cover + 1] == "/work/pal"
    assert cover > asked.index("--bind")


def test_outer_directories_are_shown_before_those_inside_them(hidden: Hidden, tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    mounts = [SandboxMount(tmp_path / "a" / "b", "/w/b"), SandboxMount(tmp_path / "a", "/w", writable=True)]
    assert [mount.target for mount in prepare_mounts(mounts, hidden)] == ["/w", "/w/b"]


def test_every_namespace_is_new_and_only_the_network_can_be_kept() -> None:
    command = SandboxCommand(("true",), "/", {})
    assert {"--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--disable-userns"} <= set(
        isolation(command, BubblewrapDialect())
    )
    assert "--share-net" not in isolation(command, BubblewrapDialect())
    assert "--share-net" in isolation(SandboxCommand(("true",), "/", {}, network=True), BubblewrapDialect())


def test_an_older_bubblewrap_is_not_asked_for_what_it_does_not_know() -> None:
    command = SandboxCommand(("true",), "/", {}, limits=CommandLimits())
    old = dialect_of((0, 6, 1))
    assert "--disable-userns" not in isolation(command, old)
    assert "--size" not in scratch(command, old)
    assert dialect_of((0, 8, 0)) == BubblewrapDialect()


def test_nobody_of_this_machine_is_named_inside() -> None:
    files = etc_files(network=False)
    assert files["/etc/passwd"].count(b"\n") == 3
    assert "/etc/resolv.conf" not in files
    assert "/etc/shadow" not in files


@pytest.mark.parametrize(
    ("said", "version"), [("bubblewrap 0.8.0", (0, 8, 0)), ("bubblewrap 0.11", (0, 11, 0)), ("nonsense", ())]
)
def test_the_version_is_read(said: str, version: tuple[int, ...]) -> None:
    assert read_version(said) == version


@pytest.mark.parametrize(
    ("switch", "value", "told"),
    [
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor"),
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "user.max_user_namespaces"),
    ],
)
def test_the_switch_behind_a_refusal_is_named(tmp_path: Path, switch: str, value: str, told: str) -> None:
    (tmp_path / switch).parent.mkdir()
    (tmp_path / switch).write_text(f"{value}\n")
    assert told in explain("bwrap: No permissions to create new namespace", tmp_path)


def test_other_trouble_is_told_in_its_own_words(tmp_path: Path) -> None:
    assert explain("bwrap: execvp /bin/sh: No such file\n", tmp_path) == "bwrap: execvp /bin/sh: No such file"
    assert explain("", tmp_path) == "it ended without a message"


def test_users_for_roots_sandboxes_differ_and_belong_to_nobody() -> None:
    everybody = "         0          0 4294967295\n"
    found = {free_user(everybody) for _ in range(50)}
    assert len(found) == 50
    assert all(uid >= 0x7000_0000 for uid in found)
    assert 64_000 <= free_user("0 100000 65536\n") < 65_534
    with pytest.raises(SandboxError, match="no other user"):
        free_user("0 1000 1\n")


# The filter of system calls, run as the kernel would run it.

ALLOW, X86, ARM = 0x7FFF0000, 0xC000003E, 0xC00000B7


def verdict(program: bytes, number: int, arguments: tuple[int, ...] = (), arch: int = X86) -> int:
    data = struct.pack("=IIQ6Q", number, arch, 0, *(*arguments, *([0] * 6))[:6])
    steps = list(struct.iter_unpack("=HBBI", program))
    at = loaded = 0
    while True:
        code, then, otherwise, value = steps[at]
        at += 1
        if code == 0x20:
            (loaded,) = struct.unpack_from("=I", data, value)
        elif code == 0x06:
            return value
        else:
            holds = loaded == value if code == 0x15 else loaded >= value
            at += then if holds else otherwise


def test_ordinary_calls_pass_and_others_do_not() -> None:
    program = call_filter("x86_64")
    assert program is not None
    assert all(verdict(program, number) == ALLOW for number in (0, 1, 2, 9, 56, 59, 101, 257, 435))
    assert all(verdict(program, number) != ALLOW for number in (250, 321, 425, 0x40000001))
    assert verdict(program, 1, arch=0x40000003) != ALLOW  # a 32-bit program


@pytest.mark.parametrize(("machine", "arch", "ioctl", "socket"), [("x86_64", X86, 16, 41), ("aarch64", ARM, 29, 198)])
def test_typing_into_terminals_and_strange_sockets_are_refused(
    machine: str, arch: int, ioctl: int, socket: int
) -> None:
    program = call_filter(machine)
    assert program is not None
    assert verdict(program, ioctl, (0, 0x5401), arch) == ALLOW
    assert verdict(program, ioctl, (0, 0x5412), arch) != ALLOW
    assert verdict(program, ioctl, (0, 0x1_0000_5412), arch) != ALLOW  # the kernel looks at the low word only
    allowed = [family for family in range(46) if verdict(program, socket, (family, 1), arch) == ALLOW]
    assert allowed == list(FAMILIES)


def test_a_machine_that_is_not_known_has_no_filter() -> None:
    assert call_filter("vax") is None


def test_folders_of_other_agents_are_empty_and_one_that_is_not_there_is_kept_free(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    mount = SandboxMount(tmp_path, str(tmp_path), writable=True, others=("work", "keys/later"))
    (prepared,) = prepare_mounts([mount], Hidden())
    assert (tmp_path / "keys" / "later").is_dir()
    assert covered(prepared) == (Cover("keys/later", "empty directory"), Cover("work", "empty directory"))
    readonly = SandboxMount(tmp_path, "/agent", others=("work", "gone"))
    assert covered(readonly) == (Cover("work", "empty directory"),)
