"""Attempts to get out of bubblewrap's walls, or to harm the machine from inside: all fail, and nothing is left running.

Each is bounded in number and time and stays inside the sandbox's limits. Where an attempt could fail for a dull reason
(a missing program), the same thing is done inside the limits first and must succeed.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest
from starters import Starter, running

from palinurus.sandbox.family import descendants

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap needs Linux"),
]
MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def nothing_is_left(room: Starter) -> Iterator[None]:
    """Whoever started the sandbox answers as before, and has no process left."""
    yield
    room.tidy()
    assert room.tries("cat notes.md").said == "in the workspace\n"
    assert descendants(room.pid) == []


# Files


def test_what_is_in_the_workspace_can_be_read_and_written(room: Starter) -> None:
    tried = room.tries("cat notes.md; echo new > made && cat made; id -u")
    assert (tried.said, tried.code) == ("in the workspace\nnew\n1000\n", 0)
    assert (room.workspace / "made").stat().st_uid == room.workspace.stat().st_uid


@pytest.mark.parametrize(
    "line",
    [
        "cat {secret}",
        "cat ../../../secret.txt ../../../../../../../../../../{secret}",
        "cat {home}/credentials.json ../credentials.json; ls -la .. {home} {user}",
        "ln -s {secret} l1; cat l1; ln -s / l2; cat l2/{secret}; ln -s .. l3; cat l3/credentials.json; rm l1 l2 l3",
        "cat /proc/1/environ /proc/self/environ /proc/*/environ; env",
        "cat /proc/*/root/{secret} /proc/1/cwd/{secret} /proc/*/cwd/../../../../../{secret}",
        "for f in /proc/*/fd/*; do cat $f/../../../{secret} $f/{secret}; done </dev/null",
        "cat /proc/1/cmdline /proc/*/cmdline /proc/*/mountinfo >/dev/null; cat /proc/self/fd/3 /proc/self/fd/9",
        "cat notes.md `find / -name secret.txt -o -name credentials.json`; grep -rhs secret- /tmp /run /var /etc /root",
    ],
)
def test_a_secret_outside_is_never_seen(room: Starter, line: str) -> None:
    asked = line.format(secret=room.secret_file, home=room.home, user=room.home.parent)
    tried = room.tries(f"({asked}) 2>&1; echo tried")
    assert tried.said.endswith("tried\n")
    assert room.word not in tried.said


def test_a_link_that_changes_all_the_time_never_leads_out(room: Starter) -> None:
    tried = room.tries(
        f"echo fine > ok; (while :; do ln -sfn ok l; ln -sfn {room.secret_file} l; done) & n=0;"
        " while [ $n -lt 300 ]; do cat l 2>/dev/null; n=$((n+1)); done; kill $!"
    )
    assert "fine" in tried.said
    assert room.word not in tried.said


def test_the_workspace_itself_cannot_be_moved_or_replaced(room: Starter) -> None:
    here = room.workspace
    room.tries(f"cd /; mv {here} /tmp/w; rmdir {here}; ln -sfn / {here}")
    assert (room.workspace / "notes.md").read_text() == "in the workspace\n"
    assert not room.workspace.is_symlink()


def test_a_link_in_place_of_the_next_workspace_is_not_shown(room: Starter) -> None:
    """What a command leaves behind in its workspace must not decide what the next one is shown."""
    room.tries("ln -s / sub")
    assert "belongs to the system" in room.tries("ls", workspace=str(room.workspace / "sub")).error


def test_what_the_owners_git_would_run_cannot_be_written(room: Starter) -> None:
    """Hooks and settings of the workspace's own repository: its owner's git would run them outside."""
    git = room.workspace / ".git"
    (git / "hooks").mkdir(parents=True)
    (git / "config").write_text("[core]\n\tbare = false\n")
    owner = room.workspace.stat()
    for path in (git, git / "hooks", git / "config"):
        os.chown(path, owner.st_uid, owner.st_gid)
    tried = room.tries(
        "echo evil > .git/hooks/pre-commit; echo evil >> .git/config; mv .git away; mv .git/hooks h; rm -rf .git;"
        " ln -sfn /tmp .git; mkdir -p .git/hooks && echo evil > .git/hooks/post-checkout; cat .git/config"
    )
    assert tried.said.endswith("bare = false\n")
    assert (git / "config").read_text() == "[core]\n\tbare = false\n"
    assert list((git / "hooks").iterdir()) == []
    assert not git.is_symlink()


def test_the_pointer_to_a_repository_elsewhere_cannot_be_turned(room: Starter) -> None:
    """In a worktree `.git` is a file that says where the repository is."""
    (room.workspace / ".git").write_text("gitdir: /srv/repository/.git/worktrees/w\n")
    os.chown(room.workspace / ".git", room.workspace.stat().st_uid, room.workspace.stat().st_gid)
    room.tries("echo 'gitdir: evil' > .git; rm -f .git; mv .git away; mkdir evil; ln -sfn evil .git")
    assert (room.workspace / ".git").read_text() == "gitdir: /srv/repository/.git/worktrees/w\n"


def test_only_the_standard_streams_are_open(room: Starter) -> None:
    tried = room.tries("for f in /proc/self/fd/*; do readlink $f; done")
    links = [line for line in tried.said.splitlines() if not line.startswith("/proc/")]
    assert len(links) == 3
    assert all(line.startswith("pipe:") for line in links)


@pytest.mark.parametrize(
    "place", ["/", "/usr", "/usr/bin", "/etc", "/dev", "/bin", "/lib", "/proc/sys/kernel", "/var", "/root"]
)
def test_nothing_of_the_system_can_be_written(room: Starter, place: str) -> None:
    tried = room.tries(f"(echo x > {place}/made-by-escape) 2>/dev/null && echo written")
    assert "written" not in tried.said
    assert not Path(place, "made-by-escape").exists()


def test_settings_of_the_kernel_cannot_be_changed(room: Starter) -> None:
    before = Path("/proc/sys/kernel/hostname").read_text()
    room.tries("echo owned > /proc/sys/kernel/hostname; hostname owned; echo c > /proc/sysrq-trigger")
    assert Path("/proc/sys/kernel/hostname").read_text() == before


def test_a_read_only_workspace_stays_as_it_is(room: Starter) -> None:
    tried = room.tries(
        "echo x > notes.md; touch new; rm notes.md; mkdir d; mv notes.md n; chmod 777 .; cat notes.md", writable=False
    )
    assert "in the workspace" in tried.said
    assert sorted(path.name for path in room.workspace.iterdir()) == ["notes.md"]


def test_no_device_can_be_made(room: Starter) -> None:
    room.tries("mknod d b 1 0; mknod c c 1 1")
    assert not (room.workspace / "d").exists()
    assert not (room.workspace / "c").exists()


# Networks


@contextmanager
def listening(family: int, address: object) -> Iterator[socket.socket]:
    with socket.socket(family, socket.SOCK_STREAM) as door:
        door.bind(address)
        door.listen()
        door.settimeout(0.2)
        yield door


def knocked(door: socket.socket) -> bool:
    try:
        door.accept()[0].close()
    except TimeoutError:
        return False
    return True


_CONNECT = """use Socket; socket(my $s, {family}, SOCK_STREAM, 0) or die "no socket: $!";
connect($s, {address}) ? print "connected" : print "refused: $!";"""


def test_the_loopback_of_the_machine_cannot_be_reached(room: Starter) -> None:
    with listening(socket.AF_INET, ("127.0.0.1", 0)) as door:
        address = f'sockaddr_in({door.getsockname()[1]}, inet_aton("127.0.0.1"))'
        tried = room.perl(_CONNECT.format(family="AF_INET", address=address))
        assert tried.said.startswith("refused")
        assert not knocked(door)
        allowed = room.perl(_CONNECT.format(family="AF_INET", address=address), network=True)
        assert (allowed.said, knocked(door)) == ("connected", True)


def test_an_abstract_socket_of_the_machine_cannot_be_reached(room: Starter) -> None:
    name = f"pal-escape-{secrets.token_hex(8)}"
    with listening(socket.AF_UNIX, f"\0{name}") as door:
        tried = room.perl(_CONNECT.format(family="AF_UNIX", address=f'pack("S a*", AF_UNIX, "\\0{name}")'))
        assert tried.said.startswith("refused")
        assert not knocked(door)


def test_a_socket_file_outside_cannot_be_reached(room: Starter) -> None:
    path = room.base / "door.sock"
    with listening(socket.AF_UNIX, str(path)) as door:
        path.chmod(0o777)
        tried = room.perl(_CONNECT.format(family="AF_UNIX", address=f'sockaddr_un("{path}")'))
        assert tried.said.startswith("refused")
        assert not knocked(door)


def test_names_are_not_looked_up(room: Starter) -> None:
    tried = room.perl('my @a = gethostbyname("example.org"); print @a ? "found" : "unknown"')
    assert tried.said == "unknown"
    assert room.tries("cat /etc/resolv.conf").code != 0


def test_there_is_no_interface_but_a_loopback_of_its_own(room: Starter) -> None:
    tried = room.tries("tail -n +3 /proc/net/dev | cut -d: -f1")
    assert tried.said.split() == ["lo"]


@pytest.mark.parametrize("family", [40, 17, 38, 31])  # vsock, packet, crypto, bluetooth
def test_sockets_that_belong_to_no_network_are_refused(room: Starter, family: int) -> None:
    tried = room.perl(f'socket(my $s, {family}, 1, 0) ? print "made" : print "refused"')
    assert tried.said == "refused"


# Limits


def test_two_hundred_forks_stop_at_the_limit(room: Starter) -> None:
    program = """my $n = 0;
    while ($n < %d) { my $p = fork; last unless defined $p; exec "sleep", "3" unless $p; $n++ } print $n;"""
    assert room.perl(program % 10, limits={"processes": 40}).said == "10"
    assert 20 <= int(room.perl(program % 200, limits={"processes": 40}).said) < 40


def test_the_limit_of_processes_counts_this_sandbox_alone(room: Starter) -> None:
    """Who has many processes already can still run a command, whatever its limit."""
    user = room.workspace.stat().st_uid
    if not user:
        pytest.skip("root's own processes are never counted")
    crowd = [subprocess.Popen(["sleep", "30"], user=user, group=user, extra_groups=()) for _ in range(40)]
    try:
        tried = room.tries("for i in 1 2 3 4 5; do sleep 0.01 & done; wait; echo all", limits={"processes": 12})
    finally:
        for process in crowd:
            process.kill()
            process.wait()
    assert tried.said == "all\n"


def test_a_gigabyte_is_not_to_be_had(room: Starter) -> None:
    limits = {"memory_bytes": 256 * MIB}
    assert room.perl('my $x = "a" x (32 << 20); print "got it"', limits=limits).said == "got it"
    tried = room.perl('my $x = "a" x (1 << 30); print "got it"', limits=limits)
    assert "got it" not in tried.said
    assert tried.code != 0


@pytest.mark.parametrize("place", ["/tmp", "/dev/shm"])
def test_memory_cannot_be_taken_as_files(room: Starter, place: str) -> None:
    line = f"head -c {300 * MIB} /dev/zero > {place}/big; wc -c < {place}/big"
    tried = room.tries(line, limits={"memory_bytes": 128 * MIB})
    assert int(tried.said.split()[-1]) <= 64 * MIB


def test_a_loop_ends_when_its_cpu_time_is_used_up(room: Starter) -> None:
    tried = room.tries("while :; do :; done", limits={"cpu_seconds": 1})
    assert (tried.code > 128, tried.reason) == (True, "")


def test_a_file_does_not_grow_beyond_its_limit(room: Starter) -> None:
    tried = room.tries("head -c 8000000 /dev/zero > big; wc -c < big; rm big", limits={"file_bytes": MIB})
    assert int(tried.said.split()[-1]) <= MIB


def test_limits_cannot_be_raised_from_inside(room: Starter) -> None:
    tried = room.tries("ulimit -d unlimited 2>/dev/null && echo raised; ulimit -t unlimited 2>/dev/null && echo raised")
    assert "raised" not in tried.said


def test_no_core_is_dumped(room: Starter) -> None:
    room.tries("kill -SEGV $$")
    assert [path.name for path in room.workspace.iterdir()] == ["notes.md"]


# What is covered


@pytest.mark.parametrize("writable", [True, False])
def test_where_others_listen_what_is_the_owners_alone_is_not_there(room: Starter, writable: bool) -> None:
    for name in ("MEMORY.md", "user.MD", "memory/2026-11-01.md", ".git/objects/old", ".pal/backups/x", "real.md"):
        (room.workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (room.workspace / name).write_text(room.word)
    (room.workspace / "USER.md").symlink_to("real.md")
    line = (
        "grep -rsh secret- . ; cat MEMORY.md USER.md user.MD real.md memory/* .git/objects/old .pal/backups/x;"
        " mv memory m2; mv MEMORY.md m3; rm MEMORY.md; umount memory; echo x > MEMORY.md; echo x > memory/x;"
        " cat notes.md"
    )
    tried = room.tries(f"( {line} ) 2>/dev/null", private=False, writable=writable)
    assert tried.said == "in the workspace\n"
    assert (room.workspace / "MEMORY.md").read_text() == room.word
    assert [path.name for path in (room.workspace / "memory").iterdir()] == ["2026-11-01.md"]
    assert room.tries("cat MEMORY.md memory/*").said == room.word * 2


def test_what_conversations_begin_with_can_be_neither_changed_nor_made_by_a_guarded_command(room: Starter) -> None:
    (room.workspace / "AGENTS.md").write_text("as the owner wrote it\n")
    (room.workspace / "skills" / "pdf").mkdir(parents=True)
    (room.workspace / "skills" / "pdf" / "SKILL.md").write_text("as the owner wrote it\n")
    line = (
        "cat AGENTS.md; for f in AGENTS.md SOUL.md BOOTSTRAP.md MEMORY.md memory.md skills/pdf/SKILL.md skills/x; do"
        " echo obey > $f; ln -sf /tmp/x $f; rm -f $f; mv notes.md $f; done;"
        " mv skills s2; rm -rf skills; mkdir skills/new; echo fine > other; cat other"
    )
    tried = room.tries(f"( {line} ) 2>/dev/null", guarded=True)
    assert tried.said == "as the owner wrote it\nfine\n"
    for name in ("AGENTS.md", "skills/pdf/SKILL.md"):
        assert (room.workspace / name).read_text() == "as the owner wrote it\n"
    for name in ("SOUL.md", "BOOTSTRAP.md", "MEMORY.md", "memory.md"):
        assert (room.workspace / name).read_bytes() == b""  # an empty file stands where none may be made
    assert room.tries("echo mine > SOUL.md && cat SOUL.md").said == "mine\n"


def test_folders_of_skills_and_files_that_the_config_adds_are_guarded_with_all_above_them(room: Starter) -> None:
    kept = {"docs/house/RULES.md": "rules\n", ".agents/skills/pdf/SKILL.md": "skill\n", "Skills/x/SKILL.md": "odd\n"}
    for name, text in kept.items():  # by whoever starts the sandbox, whose they are
        room.tries(f"mkdir -p {Path(name).parent} && printf '{text}' > {name}")
    line = (
        "for f in docs/house/RULES.md .agents/skills/pdf/SKILL.md .agents/skills/new team/lib/x Skills/x/SKILL.md; do"
        " echo obey > $f; ln -sf /tmp/x $f; rm -f $f; mv notes.md $f; mkdir -p $f; done;"
        " for d in docs docs/house .agents .agents/skills team team/lib Skills; do mv $d gone; rm -rf $d; done;"
        " ln docs/house/RULES.md link && echo obey >> link; mkdir -p .agents/skills/evil team/lib/evil;"
        " echo fine > docs/house/new.md; cat docs/house/new.md; echo more > docs/fresh; cat docs/fresh"
    )
    more = {"files": ["docs/house/RULES.md"], "folders": [str(room.workspace / "team" / "lib")]}
    tried = room.tries(f"( {line} ) 2>/dev/null", guarded=True, **more)
    assert tried.said == "fine\nmore\n"
    for name, text in kept.items():
        assert (room.workspace / name).read_text() == text
    assert (room.workspace / "docs" / "house").is_dir()
    assert list((room.workspace / "team" / "lib").iterdir()) == []
    assert [path.name for path in (room.workspace / ".agents" / "skills").iterdir()] == ["pdf"]


def test_a_record_of_what_a_registry_brought_stays_and_none_is_made(room: Starter) -> None:
    room.tries("mkdir .clawhub && echo '{}' > .clawhub/lock.json")
    more = {"records": [str(room.workspace / name / "lock.json") for name in (".clawhub", ".clawdhub")]}
    line = "( echo x > .clawhub/lock.json; rm -rf .clawhub; mv .clawhub gone ) 2>/dev/null; cat .clawhub/lock.json"
    assert room.tries(line, guarded=True, **more).said == "{}\n"
    assert not (room.workspace / ".clawdhub").exists()


def test_a_file_where_a_folder_of_skills_would_lie_stays(room: Starter) -> None:
    (room.workspace / ".agents").write_text("a file\n")
    tried = room.tries("( rm -f .agents; mkdir -p .agents/skills/evil ) 2>/dev/null; echo done", guarded=True)
    assert tried.said == "done\n"
    assert (room.workspace / ".agents").read_text() == "a file\n"


def test_a_link_out_of_the_workspace_makes_no_folder_elsewhere(room: Starter) -> None:
    elsewhere = room.base / "elsewhere"
    elsewhere.mkdir(mode=0o777)
    elsewhere.chmod(0o777)
    (room.workspace / ".agents").symlink_to(elsewhere)
    assert room.tries("echo done", guarded=True).said == "done\n"
    assert list(elsewhere.iterdir()) == []


# Processes


def test_what_is_stopped_leaves_no_orphan(room: Starter) -> None:
    nap = f"sleep 599.{secrets.randbelow(10**9)}"
    tried = room.tries(
        f"{nap} & setsid {nap} & (nohup {nap} >/dev/null 2>&1 &)"
        f" ; (setsid sh -c '(env -i {nap} >/dev/null 2>&1 </dev/null &)' &)"
        f" ; (trap '' TERM HUP INT QUIT; {nap}; {nap}) & trap '' TERM; echo up; {nap}; {nap}",
        stop_at="up",
    )
    assert (tried.error, tried.reason) == ("", "stopped")
    assert not running(nap)


def test_what_a_command_leaves_behind_ends_with_it(room: Starter) -> None:
    nap = f"sleep 598.{secrets.randbelow(10**9)}"
    tried = room.tries(f"(setsid nohup {nap} >/dev/null 2>&1 </dev/null &); echo done")
    assert tried.said == "done\n"
    assert not running(nap)


def test_processes_outside_are_neither_seen_nor_signalled(room: Starter) -> None:
    assert running(str(room.home))  # the driver itself, which is there and seen from outside
    tried = room.tries(f"kill -0 {room.pid} && echo rea''ched; cat /proc/[0-9]*/cmdline; kill -9 -1")
    assert "reached" not in tried.said
    assert str(room.home / "workspace") not in tried.said.replace("\0", " ")
    assert room.tries("echo still here").said == "still here\n"


def test_no_process_of_the_machine_can_be_traced(room: Starter) -> None:
    tried = room.perl(f'print syscall(101, 16, {room.pid}, 0, 0) == 0 ? "traced" : "refused"')
    assert tried.said == "refused"


def test_nothing_can_be_mounted_and_no_namespace_made(room: Starter) -> None:
    tried = room.tries(
        "for c in 'mount -t tmpfs none /tmp' 'mount --bind /usr /tmp' 'mount -o remount,rw /' 'umount /usr'"
        " 'chroot / true' 'unshare -Ur true' 'unshare -m true' 'unshare -n true' 'unshare -p true';"
        " do $c 2>/dev/null && echo did: $c; done; echo tried"
    )
    assert tried.said == "tried\n"


def test_there_are_no_capabilities_and_none_can_be_gained(room: Starter) -> None:
    tried = room.tries("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status")
    state = dict(line.split(":\t") for line in tried.said.splitlines())
    assert {state[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (state["NoNewPrivs"], state["Seccomp"]) == ("1", "2")


@pytest.mark.parametrize("pty", [False, True])
def test_nothing_can_be_typed_into_a_terminal(room: Starter, pty: bool) -> None:
    program = """open(my $t, "+<", "/dev/tty"); my $c = "x";
    for my $h (*STDIN, $t) { print "typed" if $h && ioctl($h, 0x5412, $c) } print "end";"""
    assert room.perl(program, pty=pty).said == "end"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of calls are those of x86-64")
@pytest.mark.parametrize("call", [250, 248, 321, 298, 323, 425, 304, 175, 246])
def test_calls_that_nobody_needs_are_refused(room: Starter, call: int) -> None:
    """keyctl, add_key, bpf, perf_event_open, userfaultfd, io_uring_setup, open_by_handle_at, init_module, kexec."""
    tried = room.perl(f'syscall({call}, 0, 0, 0, 0, 0); print $!{{EPERM}} ? "refused" : "let through: $!"')
    assert tried.said == "refused"


def test_variables_of_a_command_do_not_show_in_a_listing_of_processes(room: Starter) -> None:
    """Every user of the machine can read command lines."""
    nap, token = f"sleep 0.{secrets.randbelow(10**9) + 10**9}", secrets.token_hex(16)
    with ThreadPoolExecutor(1) as pool:
        trying = pool.submit(room.tries, f"echo $TOKEN; while [ ! -e go ]; do {nap}; done", env={"TOKEN": token})
        until = monotonic() + 60
        while not (seen := running(nap)) and monotonic() < until:
            sleep(0.01)
        shown = [line for line in seen if token in line]
        (room.workspace / "go").touch()
        assert trying.result(60).said == f"{token}\n"
    assert (bool(seen), shown) == (True, [])
