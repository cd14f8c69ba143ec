"""The test process itself: it reaches nothing beyond loopback and knows nothing of whoever runs it."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import pytest

from palinurus.testing.pytest_plugin import OURS, NetworkRefused, is_loopback


@pytest.mark.parametrize("host", ["192.0.2.1", "8.8.8.8"])
def test_a_connection_beyond_loopback_is_refused_before_it_is_tried(host: str) -> None:
    with socket.socket() as opened, pytest.raises(NetworkRefused, match="no network beyond loopback"):
        opened.connect((host, 80))


def test_a_datagram_to_the_outside_is_refused() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as opened, pytest.raises(NetworkRefused):
        opened.sendto(b"hello", ("192.0.2.1", 53))


def test_looking_up_a_name_of_the_outside_is_refused() -> None:
    with pytest.raises(NetworkRefused, match=r"example\.org"):
        socket.getaddrinfo("example.org", 443)


@pytest.mark.parametrize("host", ["", "0.0.0.0"])
def test_listening_for_the_outside_is_refused(host: str) -> None:
    with socket.socket() as opened, pytest.raises(NetworkRefused):
        opened.bind((host, 0))


def test_loopback_and_unix_sockets_are_open(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=60).close()
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(tmp_path / "s"))


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        *((host, True) for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost", b"127.0.0.1", None)),
        *((host, False) for host in ("10.0.0.1", "::", "localhost.example.org", "", "fe80::1%eth0")),
    ],
)
def test_loopback_is_told_from_everything_else(host: object, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_no_setting_of_whoever_runs_the_suite_is_left() -> None:
    assert [name for name in os.environ if OURS.match(name)] == ["PALINURUS_EMBEDDED"]  # our own: as if not installed
    assert Path(os.environ["HOME"]).is_relative_to(tempfile.gettempdir())


@pytest.mark.parametrize("name", ["PALINURUS_HOME", "OPENAI_API_KEY", "OLLAMA_HOST", "OPENAI_BASE_URL", "https_proxy"])
def test_settings_of_the_product_and_of_providers_are_known(name: str) -> None:
    assert OURS.match(name)


def test_ordinary_variables_stay() -> None:
    assert not OURS.match("PATH")
    assert not OURS.match("PYTHONPATH")
