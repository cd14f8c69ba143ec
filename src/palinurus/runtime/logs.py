"""What a process says about itself: JSON lines into the home's log, and one line to the person for what went wrong.

Records come from Python's own `logging`; `extra={"run": …, "session": …}` ties one to a run, `stack` is kept beside
it, what is `quiet` is not told to the person, what is `clean` holds nobody's words. The file has mode 0600 and is
rotated by size, whichever process finds it full; secrets are taken out of every line. Tracebacks go to the file only.
What belongs to a run is not told to the person here: the events of the run tell it.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from palinurus.config.home import Home
from palinurus.operations.logs import FOLDER, LEVELS, NAME, OLD_FILES, Level, LogLine
from palinurus.sessions.transcript import timestamp

MAX_BYTES = 5 * 1024 * 1024
OURS = "palinurus"
Redact = Callable[[str], str]


class Logs:
    """The log of one process. `tell` shows one line to whoever sits before it; `verbose` tells everything."""

    def __init__(
        self, home: Home, env: Mapping[str, str], tell: Callable[[str], None], *, verbose: bool = False
    ) -> None:
        self.tell = tell
        self.redact: Redact = _Lazy(home, env)
        file = _FileHandler(home.root / FOLDER / NAME, self._clean)
        self._handlers: tuple[logging.Handler, ...] = (file, _PersonHandler(self._tell, verbose=verbose))

    def start(self) -> None:
        logging.getLogger(OURS).setLevel(logging.INFO)
        for handler in self._handlers:
            logging.getLogger().addHandler(handler)

    def stop(self) -> None:
        for handler in self._handlers:
            logging.getLogger().removeHandler(handler)
            handler.close()

    def _clean(self, text: str) -> str:
        return self.redact(text)  # whichever it is by now

    def _tell(self, text: str) -> None:
        self.tell(self.redact(text))


class _Lazy:
    """Most processes say nothing; they need not read the credentials for it."""

    def __init__(self, home: Home, env: Mapping[str, str]) -> None:
        self._home = home
        self._env = env
        self._redact: Redact | None = None

    def __call__(self, text: str) -> str:
        if self._redact is None:
            from palinurus.runtime.redaction import redactor_of

            self._redact = redactor_of(self._home, self._env).redact
        return self._redact(text)


class _PersonHandler(logging.Handler):
    def __init__(self, tell: Callable[[str], None], *, verbose: bool) -> None:
        super().__init__(logging.INFO if verbose else logging.WARNING)
        self._tell = tell
        self._verbose = verbose

    def emit(self, record: logging.LogRecord) -> None:
        if self._verbose or not (getattr(record, "run", "") or getattr(record, "quiet", False)):
            self._tell(" ".join(_said(record).split()))


class _FileHandler(logging.Handler):
    """Appends whole lines. A log that cannot be written is not worth a second trouble: it stays silent."""

    def __init__(self, path: Path, redact: Redact) -> None:
        super().__init__(logging.INFO)
        self._path = path
        self._redact = redact
        self._file: int | None = None

    def emit(self, record: logging.LogRecord) -> None:
        line = msgspec.json.encode(self._line(record)) + b"\n"
        with suppress(OSError):
            os.write(self._opened(len(line)), line)

    def close(self) -> None:
        self._let_go()
        super().close()

    def _line(self, record: logging.LogRecord) -> LogLine:
        trace = str(getattr(record, "stack", ""))
        if record.exc_info:
            trace = logging.Formatter().formatException(record.exc_info)
        return LogLine(
            at=timestamp(int(record.created * 1000)),
            level=_level(record.levelno),
            text=_said(record) if getattr(record, "clean", False) else self._redact(_said(record)),
            source=record.name.removeprefix(f"{OURS}."),
            pid=os.getpid(),
            run=str(getattr(record, "run", "")),
            session=self._redact(session) if (session := str(getattr(record, "session", ""))) else "",
            trace=self._redact(trace) if trace else "",
        )

    def _opened(self, more: int) -> int:
        """The file to write to, after rotating when the line would make it too large."""
        if self._file is not None and not self._is_current(self._file):
            self._let_go()
        if self._file is None:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            self._file = self._open()
        if os.fstat(self._file).st_size + more > MAX_BYTES and os.fstat(self._file).st_size:
            with _alone(self._path.parent):
                if self._is_current(self._file):
                    _rotate(self._path)
            self._let_go()
            self._file = self._open()
        return self._file

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _is_current(self, file: int) -> bool:
        try:
            return self._path.stat().st_ino == os.fstat(file).st_ino
        except FileNotFoundError:
            return False

    def _let_go(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two processes that find the log full must not both move it away."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _rotate(path: Path) -> None:
    older = [path.with_name(f"{path.stem}.{number}{path.suffix}") for number in range(1, OLD_FILES + 1)]
    for newer, target in reversed(list(zip((path, *older), older, strict=False))):
        with suppress(FileNotFoundError):
            newer.replace(target)


def _said(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError):  # a mistake in the call must not hide what it wanted to say
        return f"{record.msg} {record.args}"


def _level(number: int) -> Level:
    return next((level for level in reversed(LEVELS) if number >= getattr(logging, level.upper())), "debug")
