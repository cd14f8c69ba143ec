"""`pal dashboard`: the link, where it is opened, and what it says when there is no gateway."""

from __future__ import annotations

import io
import stat
import webbrowser
from pathlib import Path

import pytest
from called import Pal

from palinurus.cli.shell import Shell
from palinurus.config.home import Home
from palinurus.extensions.dashboard.commands import FILE, has_browser, open_link, qr_text
from palinurus.operations.services import DashboardLink

LINK = DashboardLink("http://127.0.0.1:18790/login#code=abc-_123", 1)


@pytest.mark.parametrize("words", [(), ("--qr",), ("--no-open",), ("--json",)])
def test_without_a_gateway_it_starts_nothing_and_says_how(pal_command: Pal, home: Home, words: tuple[str, ...]) -> None:
    ended = pal_command("dashboard", *words)
    assert ended.code == 1
    assert ended.err.splitlines() == [
        "pal: no gateway is running (`pal up` starts one for this terminal, `pal gateway run` one that keeps running)"
    ]
    assert not (home.root / "home.sqlite").exists()


@pytest.mark.parametrize(
    ("env", "platform", "kind", "there"),
    [
        ({"DISPLAY": ":0"}, "linux", webbrowser.BackgroundBrowser("xdg-open"), True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", webbrowser.Chrome("chromium"), True),
        ({}, "linux", webbrowser.Chrome("chromium"), False),
        ({}, "darwin", webbrowser.BackgroundBrowser("open"), True),
        ({"SSH_CONNECTION": "x"}, "darwin", webbrowser.BackgroundBrowser("open"), False),
        ({"SSH_TTY": "x", "DISPLAY": ":10"}, "linux", webbrowser.Chrome("chromium"), False),
        ({"DISPLAY": ":0"}, "linux", webbrowser.GenericBrowser("w3m"), False),  # it would take this terminal
        ({"DISPLAY": ":0", "BROWSER": "my-own %s"}, "linux", webbrowser.GenericBrowser("my-own"), True),
    ],
)
def test_a_browser_is_opened_where_there_is_a_window_for_it(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], platform: str, kind: webbrowser.BaseBrowser, there: bool
) -> None:
    monkeypatch.setattr(webbrowser, "get", lambda: kind)
    assert has_browser(env, platform) is there


def test_no_browser_at_all_is_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> webbrowser.BaseBrowser:
        raise webbrowser.Error("could not locate runnable browser")

    monkeypatch.setattr(webbrowser, "get", none)
    assert has_browser({"DISPLAY": ":0"}, "linux") is False


def test_the_code_is_not_among_the_arguments_of_the_browser(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody on the machine can read those; so the browser is sent to a file that forwards it."""
    opened: list[str] = []
    monkeypatch.setenv("DISPLAY", ":0")
    for name in ("SSH_CONNECTION", "SSH_TTY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(webbrowser, "get", lambda: webbrowser.BackgroundBrowser("xdg-open"))
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    assert open_link(Shell(home), LINK)
    file = home.root / FILE
    assert opened == [file.as_uri()]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert f'content="0;url={LINK.url}"' in file.read_text()


def test_the_qr_code_is_the_link_and_the_fingerprint_stands_below() -> None:
    url = "https://192.168.1.5:18791/login#code=xJ3_q2-Zt0vQ5m8LhK4RWw"
    text = qr_text(DashboardLink(url, 1, "AB:CD"))
    code, _, rest = text.partition("\nhttps://")
    assert rest.splitlines()[0] == url.removeprefix("https://")
    assert rest.endswith("AB:CD")
    assert len(code.splitlines()) <= 22  # it fits a terminal of 24 lines
    assert _modules(code) == _drawn(url)


def _drawn(url: str) -> list[list[int]]:
    segno = pytest.importorskip("segno")
    return [[int(bool(cell)) for cell in row] for row in segno.make(url, error="l", micro=False).matrix_iter(border=2)]


def _modules(text: str) -> list[list[int]]:
    """Half blocks back to modules: light ones are drawn, dark ones are left."""
    rows: list[list[int]] = []
    for line in io.StringIO(text).read().splitlines():
        rows.append([int(mark not in "█▀") for mark in line])
        rows.append([int(mark not in "█▄") for mark in line])
    return rows[: len(_drawn("https://192.168.1.5:18791/login#code=xJ3_q2-Zt0vQ5m8LhK4RWw"))]


def test_the_page_opens_from_a_home_with_a_strange_name(tmp_path: Path) -> None:
    assert (tmp_path / "a b#c" / FILE).as_uri().endswith("/a%20b%23c/login.html")
