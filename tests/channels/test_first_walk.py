"""From a fresh home to a reply in the chat, by the commands of docs/channels.md alone and in processes of their own."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from support.telegram_server import TelegramServer

PAL = Path(sys.executable).with_name("pal")
PATIENCE = 60.0
T = TypeVar("T")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def until(condition: Callable[[], T], what: str) -> T:
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, f"never came: {what}"
        threading.Event().wait(0.05)
    return found


class FreshHome:
    """A home that nobody has used, and `pal` in processes of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(root),
            "PALINURUS_EMBEDDED": "0",
            "LANG": "C.UTF-8",
        }

    def pal(self, *words: str, stdin: str = "", code: int = 0) -> str:
        done = subprocess.run(
            [PAL, *words], env=self.env, cwd=self.root, input=stdin, capture_output=True, text=True, timeout=PATIENCE,
            check=False,
        )  # fmt: skip
        assert done.returncode == code, done
        return done.stdout + done.stderr

    @contextmanager
    def served(self) -> Iterator[None]:
        """A gateway runs; it ends by itself when it is asked to."""
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = str(found.getsockname()[1])
        with (self.root / "gateway.log").open("ab") as log:
            gateway = subprocess.Popen(
                [PAL, "gateway", "run", "--port", port], env=self.env, cwd=self.root, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log,
            )  # fmt: skip
        try:
            yield
            gateway.send_signal(signal.SIGTERM)
            assert gateway.wait(PATIENCE) == 0
        finally:
            gateway.kill()
            gateway.wait(PATIENCE)


@pytest.fixture
def fresh(tmp_path: Path) -> FreshHome:
    return FreshHome(tmp_path)


@pytest.fixture
def telegram() -> Iterator[TelegramServer]:
    with TelegramServer() as server:
        yield server


def test_a_newcomer_connects_telegram_and_is_answered(fresh: FreshHome, telegram: TelegramServer) -> None:
    fresh.pal("config", "set", "channels.telegram.apiRoot", telegram.url)
    added = fresh.pal("channels", "add", "telegram", "--stdin", stdin=f"botToken={telegram.token}\n")
    assert "the bot is @pal_bot" in added
    assert telegram.token not in added
    with fresh.served():
        until(lambda: "connected" in fresh.pal("channels", "list"), "the connection")
        telegram.write("hello")
        [told] = until(telegram.sent, "the code")
        code = re.search(r"\b[A-Z2-9]{8}\b", told.text)
        assert code is not None, told.text
        assert "1 wait for pairing" in fresh.pal("channels", "list")
        approved = fresh.pal("pairing", "approve", code[0])
        assert "Ada" in approved
        assert "owner" in approved
        telegram.write("remember that the boat is called Alma")
        reply = until(
            lambda: [each for each in telegram.sent() if each.id != told.id and "Alma" in each.text], "a reply"
        )
        assert reply[0].chat == "42"
        assert "ok " in fresh.pal("channels", "test", "telegram")
        refused = fresh.pal("channels", "login", "telegram", "--stdin", stdin="botToken=1:wrong\n", code=1)
        assert "Nothing was saved" in refused
        assert "is set up" in fresh.pal(
            "channels", "login", "telegram", "--stdin", stdin=f"botToken={telegram.token}\n"
        )
        assert "pal channels add" in fresh.pal("channels", "login", "telegram", "--account", "no", code=1)
        assert "is connected as @pal_bot" in fresh.pal("channels", "logs", "telegram")
        assert "Removed" in fresh.pal("channels", "remove", "telegram")
        assert "No channel is set up" in fresh.pal("channels", "list")
    said = "".join(path.read_text(errors="replace") for path in fresh.root.rglob("*.jsonl"))
    assert telegram.token not in said + (fresh.root / "gateway.log").read_text()


def test_without_a_terminal_it_says_what_to_do_and_saves_nothing(fresh: FreshHome, telegram: TelegramServer) -> None:
    assert "--stdin" in fresh.pal("channels", "add", "telegram", code=2)
    fresh.pal("config", "set", "channels.telegram.apiRoot", telegram.url)
    telegram.network.refuse_token()
    before = fresh.pal("config", "get", "channels")
    failed = fresh.pal("channels", "add", "telegram", "--stdin", stdin=f"botToken={telegram.token}", code=1)
    assert "401 Unauthorized" in failed
    assert "Nothing was saved" in failed
    assert fresh.pal("config", "get", "channels") == before
    assert "channels.telegram.botToken of the account default is not set" in fresh.pal("doctor", "--no-model", code=1)


def test_doctor_says_what_failed_in_the_running_gateway(fresh: FreshHome, telegram: TelegramServer) -> None:
    fresh.pal("config", "set", "channels.telegram.apiRoot", telegram.url)
    with fresh.served():
        telegram.network.refuse_token()
        assert "is set up" in fresh.pal(
            "channels", "add", "telegram", "--stdin", "--force", stdin=f"botToken={telegram.token}"
        )
        until(lambda: re.search("telegram +failed", fresh.pal("channels", "list")), "the failure")
        assert "failed in the running gateway" in fresh.pal("doctor", "--no-model", code=1)
        telegram.network.refuse_token(False)
        fresh.pal("channels", "remove", "telegram")
        fresh.pal("config", "set", "channels.telegram.apiRoot", telegram.url)
        fresh.pal("channels", "add", "telegram", "--stdin", stdin=f"botToken={telegram.token}")
        until(lambda: re.search("telegram +connected", fresh.pal("channels", "list")), "the connection")
        assert "connected, direct chats: pairing" in fresh.pal("doctor", "--no-model")
