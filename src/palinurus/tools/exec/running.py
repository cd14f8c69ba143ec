"""Runs pipelines and lists of programs without a shell: `a | b && c` with nothing expanded and nothing looked up.

Used in two ways. The tool writes the steps as argv with `helper_argv`; a small child process reads them and starts the
programs, with real pipes of the kernel between them. That child is the leader of them all, so ending it, its terminal
and its limits is the sandbox's work as for any other command. Being started as a file it needs nothing of ours, and it
imports little, because its start is waited for. Where grants let the steps run, it asks by a descriptor before each
step but the first whether that one is still allowed: a step may have changed what the next one means (steps.py).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

Program = tuple[str, tuple[str, ...]]
"""The file that is started, and its argv, name included."""

Step = tuple[str, tuple[Program, ...]]
"""When it runs (always, and, or: as `;`, `&&` and `||` have it), and the programs of its pipeline."""

NOT_FOUND, NOT_STARTED = 127, 126  # as a shell tells it
CHECK = "check"  # before the steps: the descriptor by which to ask

IGNORED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT)
"""Python ignores the first two, and main the others: ^C is for the programs. None of them may inherit that, else
`yes | head -n 1` would never end."""


def helper_argv(steps: Iterable[Step], check: int | None = None) -> tuple[str, ...]:
    """What to start in order to run these steps: each list of words has its length before it."""
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
    """The exit code of the last step that ran. The first step that is refused ends them all."""
    code = 0
    for place, (when, programs) in enumerate(steps):
        if when == "always" or (when == "and") == (code == 0):
            if place and (why := refuses(place)):
                os.write(2, f"not run from here on: {why}\n".encode())
                return NOT_STARTED
            code = _run_pipeline(programs)
    return code


def ask_by(descriptor: int, place: int) -> str:
    """Why the step in this place may not start; empty when it may. Who does not answer allows nothing."""
    try:
        os.write(descriptor, f"{place}\n".encode())
        answer = b""
        while not answer.endswith(b"\n"):
            piece = os.read(descriptor, 4096)
            if not piece:
                return "nobody is there to say whether it is still allowed"
            answer += piece
    except OSError as error:
        return f"nobody could be asked whether it is still allowed ({os.strerror(error.errno or 0)})"
    return answer.decode(errors="replace").strip()


def _read_program(todo: Iterator[str]) -> Program:
    path, count = next(todo), int(next(todo))
    return path, tuple([next(todo) for _ in range(count)])


def _run_pipeline(programs: Sequence[Program]) -> int:
    """Start all, then wait for all. The exit code is the last one's."""
    children: list[int] = []
    code, source = 0, os.dup(0)
    for place, (path, argv) in enumerate(programs, start=1):
        further, sink = os.pipe() if place < len(programs) else (-1, os.dup(1))
        code = _start(children, path, argv, (source, sink))
        os.close(source)  # ours must not keep a pipe open whose reader or writer has gone
        os.close(sink)
        source = further
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return code or _as_a_shell(codes[-1])


def _start(children: list[int], path: str, argv: Sequence[str], ends: tuple[int, int]) -> int:
    """Note the child and return nought, or say why there is none and return a shell's code for that."""
    actions = [(os.POSIX_SPAWN_DUP2, end, number) for number, end in enumerate(ends)]
    try:
        children.append(os.posix_spawn(path, list(argv), os.environ, file_actions=actions, setsigdef=IGNORED))
    except OSError as error:
        os.write(2, f"{argv[0]}: {os.strerror(error.errno or 0)}\n".encode())
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_STARTED
    return 0


def _as_a_shell(code: int) -> int:
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    words = sys.argv[1:]
    if words[0] == CHECK:
        door = int(words[1])
        os.set_inheritable(door, False)  # the programs have no voice in this
        sys.exit(run_steps(read_steps(words[2:]), lambda place: ask_by(door, place)))
    sys.exit(run_steps(read_steps(words)))
