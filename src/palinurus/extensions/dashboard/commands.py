"""`pal dashboard`: a login link for a browser, printed, opened, or as a QR code for a phone."""

from __future__ import annotations

import io
import os
import sys
import webbrowser
from collections.abc import Mapping
from html import escape

import click

from palinurus.cli.command import with_home
from palinurus.cli.shell import Shell, with_shell
from palinurus.config.atomic import write_atomic
from palinurus.domain.errors import HolderLost, NotFound, PalinurusError, UnknownOperation
from palinurus.operations.gateway import make_page_link
from palinurus.operations.services import DashboardLink
from palinurus.runtime.home_access import HomeAccess

FILE = "login.html"


@click.command()
@click.option("--no-open", is_flag=True, help="Only print the link.")
@click.option(
    "--qr", is_flag=True, help="Show a QR code for a phone on the same network; needs `pal gateway run --lan`."
)
@with_shell
def dashboard(shell: Shell, no_open: bool, qr: bool) -> None:
    """Open the dashboard in a browser.

    Prints a link that works once, within five minutes, and opens it if there is a browser. The browser stays logged
    in for 30 days; `pal devices list` shows it, `pal devices revoke` logs it out.

    \b
    Examples:
      pal dashboard
      pal dashboard --no-open
      pal dashboard --qr
    """
    found = with_home(shell, lambda home: link_of(home, lan=qr))
    shell.show(found, lambda: qr_text(found) if qr else found.url)
    if not (no_open or qr or shell.as_json):
        open_link(shell, found)


async def link_of(home: HomeAccess, *, lan: bool = False) -> DashboardLink:
    """Returns a new link from the gateway that holds the home. Raises NotFound if there is none; never starts one."""
    while (holder := await home.reach()) is not None:
        try:
            return await holder.call(make_page_link, make_page_link.params(lan))
        except UnknownOperation:
            break  # of another release
        except HolderLost:
            pass  # it ended meanwhile; perhaps there is another one
        finally:
            await holder.close()
    hint = "`pal up` starts one for this terminal, `pal gateway run` one that keeps running"
    raise NotFound("no gateway is running", hint=hint)


def open_link(shell: Shell, link: DashboardLink) -> bool:
    """Opens the link in a graphical browser, if there is one. Returns whether it was tried."""
    if not has_browser(os.environ):
        return False
    page = shell.home.root / FILE
    try:
        # Through a file that only we can read: every user of the machine can see a program's arguments.
        write_atomic(page, _forwarding(link.url))
        return webbrowser.open(page.as_uri())
    except (webbrowser.Error, PalinurusError, OSError):
        return False  # the link is on the screen


def has_browser(env: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Returns whether a graphical browser can be opened here: not over ssh, and not a text browser."""
    if env.get("SSH_CONNECTION") or env.get("SSH_TTY"):
        return False
    if platform not in ("darwin", "win32") and not any(env.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")):
        return False
    try:
        # This exact class is for browsers that run in the terminal: lynx, w3m and the like.
        return type(webbrowser.get()) is not webbrowser.GenericBrowser or bool(env.get("BROWSER"))
    except webbrowser.Error:
        return False


def _forwarding(url: str) -> str:
    to = escape(url)
    head = f'<meta charset="utf-8"><title>Palinurus</title><meta http-equiv="refresh" content="0;url={to}">'
    return f'<!doctype html>{head}<a href="{to}">Open the dashboard</a>\n'


def qr_text(link: DashboardLink) -> str:
    """Returns the link as a QR code of half blocks, and what the phone will show about the certificate."""
    import segno

    drawn = io.StringIO()
    segno.make(link.url, error="l", micro=False).terminal(drawn, border=2, compact=True)
    lines = [drawn.getvalue().rstrip("\n"), link.url]
    if link.fingerprint:
        lines.append("Your phone does not know this gateway's certificate and will ask. It is the right one if its")
        lines.append(f"SHA-256 fingerprint is {link.fingerprint}")
    return "\n".join(lines)
