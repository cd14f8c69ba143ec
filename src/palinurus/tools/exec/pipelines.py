"""Runs pipelines and lists of programs without a shell: `a | b && c` with nothing expanded and nothing looked up.

The tool encodes the steps as argv with `helper_argv`; a small child process decodes them and starts the programs,
connected by kernel pipes. That child is the leader of all of them, so the sandbox ends it and handles its terminal and
limits like any other command. It is started as a file, needs nothing else of the package, and imports little, because
its start time delays the command. Where grants permit the steps, it asks over a descriptor before each step except the
first whether the step is still allowed: a step may have changed what the next one means (exec.py).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

Program = tuple[str, tuple[str, ...]]
"""The file to start, and its argv including the name."""

Step = tuple[str, tuple[Program, ...]]
"""When the step runs (always, and, or: as in `;`, `&&` and `||`), and the programs of its pipeline."""

NOT_FOUND, NOT_STARTED = 127, 126  # exit codes as a shell reports them
CHECK = "check"  # precedes the steps: the descriptor to ask over

IGNORED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT)
"""Python ignores the first two, and main ignores the others, because ^C is for the programs. No program may inherit
that; otherwise `yes | head -n 1` would never end."""


def helper_argv(steps: Iterable[Step], check: int | None = None) -> tuple[str, ...]:
    """Returns the argv that runs these steps: each list of words is preceded by its length."""
    words = [sys.executable, "-I", "-S", __file__, *(() if check is None else (CHECK, str(check)))]
    for when, programs in steps:
        words += [when, str(len(programs))]
        for path, argv in programs:
            words += [path, str(len(argv)), *argv]
    return tuple(words)


def read_steps(words: Sequence[str]) -> Iterator[Step]:
    todo = iter(words)
    for when in todo:
        count = int(next(todo))
        yield when, tuple([_read_program(todo) for _ in range(count)])


def run_steps(steps: Iterable[Step], refuses: Callable[[int], str] = lambda place: "") -> int:
    """Returns the exit code of the last step that ran. The first refused step ends the run."""
    code = 0
    for place, (when, programs) in enumerate(steps):
        if when == "always" or (when == "and") == (code == 0):
            if place and (why := refuses(place)):
                os.write(2, f"not run from here on: {why}\n".encode())
                return NOT_STARTED
            code = _run_pipeline(programs)
    return code


def ask_by(descriptor: int, place: int) -> str:
    """Returns why the step may not start; empty if it may. No answer means it may not."""
    try:
        os.write(descriptor, f"{place}\n".encode())
        answer = b""
        while not answer.endswith(b"\n"):
            piece = os.read(descriptor, 4096)
            if not piece:
                return "pal has ended and cannot check whether it is still allowed"
            answer += piece
    except OSError as error:
        return f"could not check whether it is still allowed ({os.strerror(error.errno or 0)})"
    return answer.decode(errors="replace").strip()


def _read_program(todo: Iterator[str]) -> Program:
    path, count = next(todo), int(next(todo))
    return path, tuple([next(todo) for _ in range(count)])


def _run_pipeline(programs: Sequence[Program]) -> int:
    """Starts all programs, waits for all, and returns the exit code of the last one."""
    children: list[int] = []
    code, source = 0, os.dup(0)
    for place, (path, argv) in enumerate(programs, start=1):
        further, sink = os.pipe() if place < len(programs) else (-1, os.dup(1))
        code = _start(children, path, argv, (source, sink))
        os.close(source)  # our copies must not keep a pipe open after its reader or writer has ended
        os.close(sink)
        source = further
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return code or (codes[-1] if codes[-1] >= 0 else 128 - codes[-1])  # by a signal: the code that a shell reports


def _start(children: list[int], path: str, argv: Sequence[str], ends: tuple[int, int]) -> int:
    """Starts a child, records it and returns 0; prints an error and returns a shell's exit code if it fails."""
    actions = [(os.POSIX_SPAWN_DUP2, end, number) for number, end in enumerate(ends)]
    try:
        children.append(os.posix_spawn(path, list(argv), os.environ, file_actions=actions, setsigdef=IGNORED))
    except OSError as error:
        os.write(2, f"{argv[0]}: {os.strerror(error.errno or 0)}\n".encode())
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_STARTED
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    words = sys.argv[1:]
    if words[0] == CHECK:
        check = int(words[1])
        os.set_inheritable(check, False)  # the programs must not inherit the descriptor
        sys.exit(run_steps(read_steps(words[2:]), lambda place: ask_by(check, place)))
    sys.exit(run_steps(read_steps(words)))
