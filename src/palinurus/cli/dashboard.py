"""`pal dashboard`: a link by which a browser comes in, shown, opened, or as a QR code for a phone."""

from __future__ import annotations

import io
import os
import sys
import webbrowser
from collections.abc import Mapping
from html import escape

import click

from palinurus.cli.entrance import open_door
from palinurus.cli.shell import Shell, run_async, with_json
from palinurus.config.atomic import write_atomic
from palinurus.domain.errors import HolderLost, NotFound, PalinurusError, UnknownOperation
from palinurus.operations.gateway import make_page_link
from palinurus.operations.holder import PageLink
from palinurus.wiring.door import Door

FILE = "login.html"


@click.command()
@click.option("--no-open", is_flag=True, help="Only print the link.")
@click.option("--qr", is_flag=True, help="A QR code for a phone in the same network; needs `pal gateway run --lan`.")
@with_json
@click.pass_obj
def dashboard(shell: Shell, no_open: bool, qr: bool) -> None:
    """Open the page of the gateway in a browser.

    Prints a link that is good once, for five minutes, and opens it where there is a browser. The browser stays logged
    in for 30 days; `pal devices list` shows it, `pal devices revoke` puts it out.

    \b
    Examples:
      pal dashboard
      pal dashboard --no-open
      pal dashboard --qr
    """

    async def ask() -> PageLink:
        async with open_door(shell) as door:
            return await link_of(door, lan=qr)

    found = run_async(ask())
    shell.show(found, lambda: qr_text(found) if qr else found.url)
    if not (no_open or qr or shell.as_json):
        open_link(shell, found)


async def link_of(door: Door, *, lan: bool = False) -> PageLink:
    """A new link, of the gateway that holds the home. Raises NotFound when none does; never starts one."""
    while (holder := await door.reach()) is not None:
        try:
            return await holder.call(make_page_link, make_page_link.params(lan))
        except UnknownOperation:
            break  # of another release
        except HolderLost:
            pass  # it went away while we asked; perhaps there is another one
        finally:
            await holder.close()
    raise NotFound("no gateway is running", hint="`pal up` starts one here, `pal gateway run` one that stays")


def open_link(shell: Shell, link: PageLink) -> bool:
    """Open it in a browser with windows, if there is one. Whether it was tried."""
    if not has_browser(os.environ):
        return False
    page = shell.home.root / FILE
    try:
        # By way of a file that only we can read: the arguments of a program are seen by everybody on the machine.
        write_atomic(page, _forwarding(link.url))
        return webbrowser.open(page.as_uri())
    except (webbrowser.Error, PalinurusError, OSError):
        return False  # the link is on the screen


def has_browser(env: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Whether a browser with a window can be opened here: not by ssh, and not one that would take this terminal."""
    if env.get("SSH_CONNECTION") or env.get("SSH_TTY"):
        return False
    if platform not in ("darwin", "win32") and not any(env.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")):
        return False
    try:
        # Exactly this class is for those that run in the terminal: lynx, w3m and their like.
        return type(webbrowser.get()) is not webbrowser.GenericBrowser or bool(env.get("BROWSER"))
    except webbrowser.Error:
        return False


def _forwarding(url: str) -> str:
    to = escape(url)
    head = f'<meta charset="utf-8"><title>Palinurus</title><meta http-equiv="refresh" content="0;url={to}">'
    return f'<!doctype html>{head}<a href="{to}">To the page</a>\n'


def qr_text(link: PageLink) -> str:
    """The link as a QR code of half blocks, and what the phone will show about the certificate."""
    import segno

    drawn = io.StringIO()
    segno.make(link.url, error="l", micro=False).terminal(drawn, border=2, compact=True)
    lines = [drawn.getvalue().rstrip("\n"), link.url]
    if link.fingerprint:
        lines.append("Your phone does not know this gateway's certificate and will ask. It is the right one if its")
        lines.append(f"SHA-256 fingerprint is {link.fingerprint}")
    return "\n".join(lines)
