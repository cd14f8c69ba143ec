"""Loaded by our own pytest runs: no network but loopback, no settings of the person who runs them, no held loop.

An audit hook sees every address before the socket does, whichever library asks, so a test that would reach for the
network fails with a sentence instead of passing on one machine and hanging on another. Child processes are not seen by
it; they inherit an environment without keys and a home of their own.

A test in which a callback holds an event loop fails with the callback's name; `loop_time` says what counts.
"""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from palinurus.testing.loop_time import LIMIT_SECONDS, Hold, child_variables, stolen_seconds, watch_loops

OURS = re.compile(
    r"(PALINURUS|OPENCLAW|OLLAMA|LMSTUDIO|LM_STUDIO)_|.*(_API_KEY|_BASE_URL|_TOKEN)$|(https?|all)_proxy$",
    re.IGNORECASE,
)
"""Variables that would let a test depend on who runs it."""

_ADDRESSED = frozenset({"socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg"})
_LOOKED_UP = frozenset({"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"})


class NetworkRefused(RuntimeError):
    """A test reached beyond loopback. No OSError: what handles broken networks must not swallow it."""


def is_loopback(host: object) -> bool:
    """Whether a socket address's host is this machine as only this machine sees it."""
    if isinstance(host, bytes | bytearray):
        host = host.decode("ascii", "replace")
    if not isinstance(host, str) or host == "localhost":
        return host in ("localhost", None)  # None stands for loopback in a lookup
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _guard(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _ADDRESSED:
        address = arguments[1]
        if isinstance(address, tuple) and not is_loopback(address[0]):  # a unix socket's address is a path
            raise NetworkRefused(f"{event} to {address[0]!r}: tests reach no network beyond loopback")
    elif event in _LOOKED_UP and not is_loopback(arguments[0]):
        raise NetworkRefused(f"{event} of {arguments[0]!r}: tests reach no network beyond loopback")


_scratch: list[str] = []
_holds: list[Hold] = []


def pytest_configure(config: pytest.Config) -> None:
    if _scratch:  # a test may run pytest inside itself; a hook cannot be taken back, so it is set once
        return
    sys.addaudithook(_guard)
    for name in [name for name in os.environ if OURS.match(name)]:
        del os.environ[name]
    _scratch.append(tempfile.mkdtemp(prefix="palinurus-tests-"))
    os.environ["HOME"] = _scratch[0]
    os.environ["PALINURUS_EMBEDDED"] = "0"  # whether the small model is installed must not decide how tests end
    watch_loops(_holds.append)


def pytest_unconfigure(config: pytest.Config) -> None:
    while _scratch:
        shutil.rmtree(_scratch.pop(), ignore_errors=True)


def watched_child() -> dict[str, str]:
    """Variables for a Python process that a test starts: its event loops are then watched like the test's own.

    None outside of pytest.
    """
    return child_variables(_reports()) if _scratch else {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    with _fails_when_held():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with _fails_when_held():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    with _fails_when_held():
        yield


@contextmanager
def _fails_when_held() -> Iterator[None]:
    stolen = stolen_seconds()
    _holds.clear()
    yield
    if not _holds and not _reports().exists():
        return
    stolen = stolen_seconds() - stolen
    lines = [str(hold) for hold in _holds if hold.seconds - stolen > LIMIT_SECONDS]
    _holds.clear()
    with suppress(FileNotFoundError):
        lines += _reports().read_text(encoding="utf-8").splitlines()
        _reports().unlink()
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


def _reports() -> Path:
    return Path(_scratch[0]) / "loop-time"
