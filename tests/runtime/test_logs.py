"""What a process says about itself: JSON lines without secrets in the home, one line to the person."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from palinurus.config.home import Home
from palinurus.operations.logs import LogFilter, follow_logs, log_files, read_logs
from palinurus.runtime import logs as wiring_logs
from palinurus.runtime.logs import Logs

SECRET = "correct-horse-battery"
log = logging.getLogger("palinurus.test")


@pytest.fixture
def told(home: Home) -> Iterator[list[str]]:
    """What the person is told while the log of the home is being written."""
    config = json.loads(home.config_path.read_text())
    config["models"] = {"providers": {"mine": {"apiKey": SECRET, "baseUrl": "http://127.0.0.1:9/v1"}}}
    home.config_path.write_text(json.dumps(config))
    lines: list[str] = []
    written = Logs(home, {}, lines.append)
    written.start()
    yield lines
    written.stop()


class Enough(Exception):
    """Ends the following."""


def followed(root: Path, *steps: Callable[[], None]) -> list[str]:
    """What is seen by one who follows the log, when a step is taken each time there is nothing new."""
    left = list(steps)
    seen: list[str] = []

    def wait() -> None:
        if not left:
            raise Enough
        left.pop(0)()

    with suppress(Enough):
        for line in follow_logs(root, LogFilter(), wait):
            seen.append(line.text)  # noqa: PERF401  # the end comes by an exception
    return seen


def break_down() -> None:
    raise RuntimeError(f"with {SECRET}")


def texts(home: Home, **wanted: str) -> list[str]:
    return [line.text for line in read_logs(home.root, LogFilter(**wanted), 100)]  # type: ignore[arg-type]


def test_every_level_is_written_and_only_trouble_is_told(home: Home, told: list[str]) -> None:
    log.info("all is %s", "well")
    log.warning("the wind\nis rising")
    log.debug("nobody cares")
    assert texts(home) == ["all is well", "the wind\nis rising"]
    assert told == ["the wind is rising"]
    (path,) = log_files(home.root)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_traceback_goes_to_the_file_and_not_to_the_person(home: Home, told: list[str]) -> None:
    try:
        break_down()
    except RuntimeError:
        log.exception("a turn broke")
    (line,) = read_logs(home.root, LogFilter("error"), 10)
    assert "RuntimeError" in line.trace
    assert told == ["a turn broke"]


def test_no_secret_reaches_the_file_or_the_person(home: Home, told: list[str]) -> None:
    try:
        break_down()
    except RuntimeError:
        log.exception("using %s and sk-ABCDEF0123456789abcdef", SECRET, extra={"session": SECRET})
    written = b"".join(path.read_bytes() for path in log_files(home.root))
    assert SECRET.encode() not in written
    assert b"sk-ABCDEF" not in written
    assert told == ["using [redacted] and [redacted]"]


def test_what_belongs_to_a_run_is_found_by_it_and_told_by_its_events(home: Home, told: list[str]) -> None:
    log.error("run error", extra={"run": "3f9abc", "session": "agent:main:main"})
    log.error("another")
    assert texts(home, run="3f9a") == ["run error"]
    assert told == ["another"]


def test_a_full_log_is_rotated_and_nothing_is_lost_before_the_oldest_goes(
    home: Home, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring_logs, "MAX_BYTES", 400)
    for number in range(20):
        log.info("line %d", number)
    files = log_files(home.root)
    assert [path.name for path in files] == ["pal.3.jsonl", "pal.2.jsonl", "pal.1.jsonl", "pal.jsonl"]
    assert all(path.stat().st_size <= 400 and path.stat().st_mode & 0o777 == 0o600 for path in files)
    assert texts(home) == [f"line {number}" for number in range(20)][-len(texts(home)) :]
    assert 12 < len(texts(home)) < 20


def test_two_processes_that_find_it_full_rotate_it_once(
    home: Home, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring_logs, "MAX_BYTES", 2000)
    other = Logs(home, {}, told.append)  # a second handler, as another process would have
    other.start()
    try:
        workers = [threading.Thread(target=lambda: [log.info("x" * 50) for _ in range(20)]) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
    finally:
        other.stop()
    for path in log_files(home.root):
        assert all(json.loads(line)["text"] == "x" * 50 for line in path.read_text().splitlines())


def test_a_log_that_cannot_be_written_disturbs_nobody(home: Home, told: list[str]) -> None:
    (home.root / "logs").write_text("a file in its place")
    log.warning("still told")
    assert told == ["still told"]


def test_following_shows_what_is_written_from_now_on_across_a_rotation(
    home: Home, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring_logs, "MAX_BYTES", 150)
    log.info("before")
    steps = [lambda text=text: log.info(text) for text in ("first", "second", "third")]  # type: ignore[misc]
    assert followed(home.root, *steps) == ["first", "second", "third"]


def test_following_waits_for_a_log_that_is_not_there_yet(tmp_path: Path) -> None:
    def appear() -> None:
        (tmp_path / "logs").mkdir()
        line = '{"at":"2026-11-15T12:00:00.000Z","level":"info","text":"hello"}'
        (tmp_path / "logs" / "pal.jsonl").write_text(f"{line}\nbroken\n{line}")

    assert followed(tmp_path, lambda: None, appear) == ["hello"]  # the last line is still being written
