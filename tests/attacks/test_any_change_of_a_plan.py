"""Whatever is changed between the question and the start: what was shown is done, or it is refused and said why.

Commands, and changes of what they name, are generated. What a command does is known from a twin of its world, in which
/bin/sh runs it at the moment of the question.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest
from hypothesis import HealthCheck, Phase, event, given, note, settings
from hypothesis import strategies as st
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parent.parent / "tools" / "exec"))
from exec_bench import PATH, Bench, a_run

from palinurus.domain.errors import BadRequest, PalinurusError
from palinurus.domain.tool import PreparedCall
from palinurus.tools.built_in import exec_tools
from palinurus.tools.settings import ExecSettings
from support import SOAK

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a folder is compared by its name")

MEMORY = "/dev/shm"
SECRET = "not for you"
SCRIPT = '#!/bin/sh\necho {} one "$@"\n'
FILES = ("a.log", "b.log", "notes.md", "build/a.log", "build/c.log", "build/deep/a.log", "elsewhere/z.txt")
SCRIPTS = ("tool", "build/tool")
LINKS = {"link": "notes.md", "way": "build"}

Effects: TypeAlias = dict[str, tuple[str | None, str | None]]
"""What a file, folder or link was before and is behind it."""


class World:
    """A workspace, a place beside it that is nobody's business, and a program on a PATH of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.workspace = root / "workspace"
        self.path = f"{root}/bin:{PATH}"
        for place in ("workspace", "outside"):
            for name in FILES:
                (root / place / name).parent.mkdir(parents=True, exist_ok=True)
                (root / place / name).write_text(f"{name} one\n" if place == "workspace" else f"{SECRET}\n")
            for name in SCRIPTS:
                write_script(root / place / name, name if place == "workspace" else SECRET)
            for name, target in LINKS.items():
                (root / place / name).symlink_to(target)
        (root / "bin").mkdir()
        write_script(root / "bin" / "prog", "prog")
        write_script(root / "outside" / "prog", SECRET)

    def tree(self) -> dict[str, str]:
        """All that is there, links as such."""
        return {str(each.relative_to(self.root)): described(each) for each in walk(self.root)}


def write_script(path: Path, says: str) -> None:
    path.write_text(SCRIPT.format(says))
    path.chmod(0o755)


def walk(folder: Path) -> Iterator[Path]:
    for each in sorted(folder.iterdir()):
        yield each
        if each.is_dir() and not each.is_symlink():
            yield from walk(each)


def described(path: Path) -> str:
    if path.is_symlink():
        return f"-> {os.readlink(path)}"  # noqa: PTH115  as text
    return "folder" if path.is_dir() else path.read_text()


def differences(before: dict[str, str], after: dict[str, str]) -> Effects:
    names = sorted(before.keys() | after.keys())
    return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}


# ——— commands


class Asked(NamedTuple):
    command: str = ""
    argv: tuple[str, ...] = ()
    workdir: str = ""

    @property
    def arguments(self) -> dict[str, Any]:
        return {name: value for name, value in self._asdict().items() if value}

    @property
    def started(self) -> list[str]:
        return list(self.argv) or ["/bin/sh", "-c", self.command]


NAMES = st.sampled_from(["a.log", "b.log", "notes.md", "link", "way/a.log", "build/a.log", "./build/../notes.md"])
PATTERNS = st.sampled_from(["*.log", "build/*.log", "*/a.log", "./*.log", "?.log", "[ab].log", "w*/*.log", "*"])
THINGS = st.one_of(NAMES, PATTERNS)
DEEDS = st.one_of(
    st.builds("cat {}".format, THINGS),
    st.builds("cat {} {}".format, NAMES, THINGS),
    st.builds("rm -f {}".format, THINGS),
    st.builds("rm -rf {}".format, st.sampled_from(["build", "way", "build/deep"])),
    st.builds("cp {} copy".format, NAMES),
    st.builds("prog {}".format, THINGS),
    st.builds("./tool {}".format, NAMES),
    st.builds("sh {}".format, st.sampled_from(["tool", "build/tool", "way/tool", "./tool"])),
    st.builds("grep -c 'o.*e' {}".format, NAMES),
)
LINES = st.one_of(
    DEEDS,
    st.builds("{} | cat".format, DEEDS),
    st.builds("{} && {}".format, DEEDS, DEEDS),
    st.builds("{}; {}".format, DEEDS, DEEDS),
    st.builds("{} > out".format, DEEDS),
    st.builds("sh -c '{}'".format, DEEDS.filter(lambda each: "'" not in each)),
    st.builds("cd build && {}".format, st.sampled_from(["cat *.log", "sh tool", "./tool x", "rm -f a.log", "rm -f *"])),
    st.builds("D=build; {}".format, st.sampled_from(["cat $D/*.log", "sh ${D}/tool", 'rm -f "$D"/a.log', "rm -rf $D"])),
    st.builds("for each in {}; do echo $each; done".format, THINGS),
)
ASKED = st.one_of(
    LINES.map(Asked),
    st.tuples(LINES, st.sampled_from(["build", "way", "build/deep"])).map(lambda two: Asked(two[0], workdir=two[1])),
    st.tuples(st.sampled_from(["cat", "prog", "sh"]), NAMES, NAMES).map(lambda words: Asked(argv=words)),
)

# ——— changes

TARGETS = [
    *FILES,
    *SCRIPTS,
    *LINKS,
    "build",
    "build/deep",
    "new.log",
    "build/new.log",
    "copy",
    "out",
    "../bin/prog",
    ".",
]


class Change(NamedTuple):
    deed: str
    target: str

    @property
    def counts(self) -> bool:
        return not self.target.startswith("elsewhere")


def edit(path: Path, beside: Path) -> None:
    """In place, to as many characters, and with the old time."""
    before = path.stat()
    if path.is_file():
        path.write_text(path.read_text().replace("one", "two"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_it(path: Path, beside: Path) -> None:
    if path.is_file():
        fresh = path.with_name("fresh")
        fresh.write_text(path.read_text().replace("one", "two"))
        fresh.chmod(0o755)
        fresh.replace(path)


def remove(path: Path, beside: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def move(path: Path, beside: Path) -> None:
    path.rename(path.parent / f"{path.name}-old")


def move_and_back(path: Path, beside: Path) -> None:
    away = path.parent / f"{path.name}-old"
    path.rename(away)
    away.rename(path)


def link_out(path: Path, beside: Path) -> None:
    """What the agent would like a person to have said yes to."""
    if os.path.lexists(path):
        path.rename(path.parent / f".{path.name}-old")
    path.symlink_to(beside)


def link_on(path: Path, beside: Path) -> None:
    """It leads to the same as before, in another place."""
    away = path.parent / f".{path.name}-old"
    path.rename(away)
    path.symlink_to(away)


def make(path: Path, beside: Path) -> None:
    if not os.path.lexists(path):
        path.write_text("new two\n")


def make_anew(path: Path, beside: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
        path.mkdir()
    else:
        text = path.read_text()
        path.unlink()
        path.write_text(text)


def come_and_go(path: Path, beside: Path) -> None:
    if not os.path.lexists(path):
        path.write_text("new two\n")
        path.unlink()


def set_mode(path: Path, beside: Path) -> None:
    path.chmod(0o700)


CHANGES: dict[str, Callable[[Path, Path], None]] = {
    each.__name__: each
    for each in (
        edit,
        replace_it,
        remove,
        move,
        move_and_back,
        link_out,
        link_on,
        make,
        make_anew,
        come_and_go,
        set_mode,
    )
}


def changes_for(asked: Asked) -> st.SearchStrategy[tuple[Asked, list[Change]]]:
    """More often of what the command is about than of something else."""
    text = f"{' '.join(asked.started)} {asked.workdir}"
    named = [each for each in TARGETS if Path(each).name in text or ("*" in text and each.endswith(".log"))]
    targets = st.one_of(st.sampled_from([*named, "."]), st.sampled_from([*named, "new.log"]), st.sampled_from(TARGETS))
    change = st.tuples(st.sampled_from(sorted(CHANGES)), targets).map(lambda two: Change(*two))
    return st.tuples(st.just(asked), st.lists(change, min_size=1, max_size=3))


PLANS = ASKED.flatmap(changes_for)


def apply(change: Change, world: World) -> bool:
    """Whether something was changed. An earlier change may have taken away what this one is about."""
    path = world.workspace / change.target
    beside = world.root / "outside" / change.target.removeprefix("../bin/")
    if change.target == ".":
        path = world.workspace
    before = world.tree(), last_change(path)
    with contextlib.suppress(OSError):
        CHANGES[change.deed](path, beside)
    return before != (world.tree(), last_change(path)) or change.deed == "come_and_go"


def last_change(path: Path) -> tuple[int, int]:
    """Of a link its own, and that of what it leads to."""
    return path.lstat().st_ctime_ns if os.path.lexists(path) else 0, path.stat().st_ctime_ns if path.exists() else 0


def let_time_pass(world: World) -> None:
    """Until the coarse clock of the file system has ticked: no person answers within that."""
    newest = max(os.lstat(each).st_ctime_ns for each in walk(world.root))
    probe = world.root / "outside" / "notes.md"
    for _ in range(100_000):
        probe.write_text(f"{SECRET}\n")
        if probe.stat().st_ctime_ns > newest:
            return
    raise AssertionError("the clock of the file system stands still")


# ——— the property


class Twin(NamedTuple):
    output: str
    effects: Effects


def run_in_twin(asked: Asked, root: Path) -> Twin:
    """What the command does if nothing is changed."""
    world = World(root)
    before = world.tree()
    place = world.workspace / asked.workdir
    env = {"PATH": world.path, "HOME": str(world.workspace), "LANG": "C.UTF-8"}
    ran = subprocess.run(
        asked.started,
        cwd=place,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )
    return Twin(ran.stdout, differences(before, world.tree()))


async def ask_change_and_start(asked: Asked, changes: list[Change], root: Path) -> None:
    twin = run_in_twin(asked, root / "twin")
    world = World(root / "world")
    bench = Bench(world.workspace, ExecSettings(ask="on-miss"))
    exec_, _ = exec_tools(replace(bench.desk, path=world.path))
    assert exec_.prepare is not None
    try:
        prepared = await exec_.prepare(a_run(), asked.arguments)
    except BadRequest:
        event("there is no such program there")
        return
    assert isinstance(prepared, PreparedCall)
    assert prepared.ask
    let_time_pass(world)
    made = [change for change in changes if apply(change, world)]
    before = world.tree()
    told, refusal = "", ""
    try:
        told = str((await asyncio.wait_for(prepared.run(), 60)).content)
    except PalinurusError as error:
        refusal = str(error)
    finally:
        prepared.release()
        await bench.processes.close()
        Bench.made.remove(bench)
    effects = differences(before, world.tree())
    note(f"{asked} · {made} · {refusal or told}")
    if refusal:
        event("refused")
        assert not bench.started
        assert not effects
        assert any(change.counts for change in made)
        assert names_one(refusal, made)
    else:
        event("done after changes" if made else "done")
        assert SECRET not in told
        assert not any(name.startswith("outside") for name in effects)
        assert plain(told.rpartition("[exit")[0].replace("(no output)\n", "")) == plain(twin.output)
        assert apart_from_folder(effects, asked) == apart_from_folder(twin.effects, asked)


def apart_from_folder(effects: Effects, asked: Asked) -> Effects:
    """Without what was in a folder that was removed as a whole: that may change, which folder it is may not."""
    folders = ("workspace/build/",) if "rm -rf" in asked.command else ()
    return {name: change for name, change in effects.items() if not name.startswith(folders)}


def plain(output: str) -> str:
    """Programs call themselves by the path that they were started by."""
    return re.sub(r"^\S*/bin/", "", output, flags=re.MULTILINE)


def names_one(refusal: str, made: list[Change]) -> bool:
    """Whether it names one of these, or the folder that it lies in, or a link to it."""
    places = [Path("workspace", change.target) for change in made if change.counts]
    names = {name for place in places for name in (place.name, place.parent.name)} - {"", ".."}
    names |= {name for link in LINKS.items() if names & {*link} for name in link}
    return any(name in refusal for name in names)


def check(asked: Asked, changes: list[Change]) -> None:
    with tempfile.TemporaryDirectory(prefix="plan-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
        asyncio.run(ask_change_and_start(asked, changes, Path(os.path.realpath(folder))))


ANY = settings(deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)


@settings(ANY, max_examples=80, derandomize=True, phases=(Phase.explicit, Phase.generate))
@given(PLANS)
def test_after_any_change_what_was_shown_is_done_or_refused(plan: tuple[Asked, list[Change]]) -> None:
    check(*plan)


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(ANY, max_examples=600 if SOAK else 120)
@given(PLANS)
def test_after_any_change_of_many_what_was_shown_is_done_or_refused(plan: tuple[Asked, list[Change]]) -> None:
    check(*plan)
