"""Loaded by our own pytest runs: no network except loopback, no settings of the user, no blocked event loop.

An audit hook sees every address before the socket does, for every library, so a test that would use the network fails
with a message instead of passing on one machine and hanging on another. It does not see child processes; they inherit
an environment without keys and a separate home.

A test in which a callback blocks an event loop fails with the callback's name; see `loop_time`. Such a test is run
twice more first: what the code does takes long again, what a noisy machine did does not.
"""

from __future__ import annotations

import gc
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
from _pytest.outcomes import Failed
from _pytest.runner import runtestprotocol

from palinurus.testing.loop_time import LIMIT_SECONDS, Hold, child_variables, stolen_seconds, watch_loops

OURS = re.compile(
    r"(PALINURUS|OPENCLAW|OLLAMA|LMSTUDIO|LM_STUDIO)_|.*(_API_KEY|_BASE_URL|_TOKEN)$|(https?|all)_proxy$",
    re.IGNORECASE,
)
"""Variables that would make a test depend on the user."""

_ADDRESSED = frozenset({"socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg"})
_LOOKED_UP = frozenset({"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"})


class NetworkRefused(RuntimeError):
    """A test tried to reach beyond loopback. Not an OSError, so that code for broken networks does not swallow it."""


def is_loopback(host: object) -> bool:
    """Returns whether a socket address's host is loopback."""
    if isinstance(host, bytes | bytearray):
        host = host.decode("ascii", "replace")
    if not isinstance(host, str) or host == "localhost":
        return host in ("localhost", None)  # None means loopback in a lookup
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


class LoopHeld(Failed):
    """A callback of the test blocked an event loop."""


_scratch: list[str] = []
_holds: list[Hold] = []


def pytest_configure(config: pytest.Config) -> None:
    if _scratch:  # a test may run pytest inside itself; a hook cannot be removed, so it is set once
        return
    sys.addaudithook(_guard)
    for name in [name for name in os.environ if OURS.match(name)]:
        del os.environ[name]
    _scratch.append(tempfile.mkdtemp(prefix="palinurus-tests-"))
    os.environ["HOME"] = _scratch[0]
    os.environ["PALINURUS_EMBEDDED"] = "0"  # test results must not depend on whether the small model is installed
    watch_loops(_holds.append)


def pytest_unconfigure(config: pytest.Config) -> None:
    while _scratch:
        shutil.rmtree(_scratch.pop(), ignore_errors=True)


def watched_child() -> dict[str, str]:
    """Returns variables for a Python process that a test starts, so that its event loops are watched too. None outside
    of pytest."""
    return child_variables(_reports()) if _scratch else {}


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Ten thousand collected tests stay until the end, so no garbage collection looks at them, now or in a test."""
    gc.disable()
    yield
    gc.enable()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    for _ in range(2):
        if not any(report.failed and LoopHeld.__name__ in str(report.longrepr) for report in reports):
            break
        item._initrequest()  # type: ignore[attr-defined]  # noqa: SLF001  # fresh fixtures, as pytest-rerunfailures does
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


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
        raise LoopHeld(f"{LoopHeld.__name__}: " + "\n".join(lines), pytrace=False)


def _reports() -> Path:
    return Path(_scratch[0]) / "loop-time"
