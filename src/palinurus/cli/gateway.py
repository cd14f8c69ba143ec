"""`pal gateway` and `pal devices`: run the gateway, show it, stop it, install it; tokens and devices."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import click

from palinurus.cli.command import add_operation, call_operation, with_home
from palinurus.cli.shell import CommandGroup, LazyGroup, Shell, columns, moment, with_shell
from palinurus.config.atomic import make_directory, write_atomic
from palinurus.config.home import Home
from palinurus.config.load import load_config
from palinurus.domain.errors import BadRequest, HolderLost, NotFound, PalinurusError, UnknownOperation, WaitTimeout
from palinurus.gateway.settings import gateway_settings
from palinurus.operations import gateway as operations
from palinurus.operations.access import PairedDevice
from palinurus.operations.gateway import DeviceList, TokenInfo, TokenList
from palinurus.operations.scopes import SCOPES, Scope
from palinurus.operations.services import GatewayState
from palinurus.runtime.home_access import HomeAccess


@click.group(cls=LazyGroup)
def gateway() -> None:
    """Serve the home over HTTP and WebSocket, and manage access tokens.

    It listens on this machine only, unless the config or --bind say otherwise. The token in `<home>/gateway.token`
    allows everything; `pal gateway token create` makes tokens that allow less.
    """


async def standing_of(home: HomeAccess) -> GatewayState:
    """How the gateway of this home stands, whoever holds it. Never comes in itself."""
    while (holder := await home.reach()) is not None:
        try:
            return await holder.call(operations.show_gateway, operations.show_gateway.params())
        except UnknownOperation:
            return GatewayState(running=False, pid=holder.holder.pid)
        except HolderLost:
            pass  # it went away while we asked; perhaps there is another one
        finally:
            await holder.close()
    return GatewayState(running=False)


@gateway.command()
@with_shell
def status(shell: Shell) -> int:
    """Show whether a gateway runs, where, and how busy it is. Exit code 1 when none does.

    \b
    Examples:
      pal gateway status
      pal gateway status --json
    """
    found = with_home(shell, standing_of)
    shell.show(found, lambda: _status_text(found))
    return 0 if found.running else 1


def _status_text(found: GatewayState) -> str:
    if not found.running:
        return "No gateway is running. `pal gateway run` starts one."
    rows = [
        ("address", f"{found.url} ({found.bind}, {'no authentication' if found.auth == 'none' else found.auth})"),
        *([("network", f"{found.secure_url} (TLS, SHA-256 {found.fingerprint})")] if found.fingerprint else []),
        ("token", found.token_from),
        ("process", f"{found.pid}, {'ready' if found.ready else 'leaving'}, up {_time(found.uptime_ms)}"),
        ("clients", str(found.clients)),
        ("running", str(found.busy)),
        ("version", found.version),
    ]
    return "\n".join(f"{name:<8} {value}" for name, value in rows)


def _time(milliseconds: int) -> str:
    minutes, seconds = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    named = [f"{number} {unit}" for number, unit in ((days, "d"), (hours, "h"), (minutes, "min")) if number]
    return " ".join(named[:2]) or f"{seconds} s"


@gateway.command()
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="Seconds to wait until it has stopped.",
)
@with_shell
def stop(shell: Shell, timeout: float) -> None:
    """Stop the gateway when its runs have finished.

    \b
    Examples:
      pal gateway stop
      pal gateway stop --timeout 300
    """
    was = with_home(shell, lambda home: _stop(shell, home, timeout))
    told = "The gateway has stopped." if was.running else "No gateway is running."
    shell.show({"stopped": was.running, "pid": was.pid}, lambda: told)


async def _stop(shell: Shell, home: HomeAccess, timeout: float) -> GatewayState:
    was = await standing_of(home)
    holder = await home.reach() if was.running else None
    if holder is None:
        return was
    try:
        ending = await holder.call(operations.stop_gateway, operations.stop_gateway.params())
    except HolderLost:
        return was  # it was leaving already
    finally:
        await holder.close()
    if ending.busy and not shell.as_json:
        shell.warn(f"waiting for {ending.busy} run(s) to finish")
    until = time.monotonic() + timeout
    while (now := await standing_of(home)).running:
        if time.monotonic() > until:
            why = f"the gateway still runs after {timeout:g} s ({now.busy} run(s))"
            raise WaitTimeout(why, hint="it stops when they are done")
        await asyncio.sleep(0.05)
    return was


SECONDS = 30.0
UNIT = """[Unit]
Description=Palinurus gateway{title}
After=network.target

[Service]
ExecStart={command}
{environment}Restart=on-failure
RestartSec=2
# It finishes what runs; what is cut off here is taken up again at the next start.
TimeoutStopSec=120
KillMode=mixed
UMask=0077
# It may make control groups: the kernel then holds the memory of each command in all.
Delegate=memory

[Install]
WantedBy=default.target
"""

_dry_run = click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")


@gateway.command()
@_dry_run
@with_shell
def install(shell: Shell, dry_run: bool) -> None:
    """Have systemd run the gateway for this user, now and after every login.

    \b
    Examples:
      pal gateway install --dry-run
      pal gateway install
    """
    gateway_settings(load_config(shell.home, os.environ).config)  # what cannot start is told now
    path, text = unit_path(shell.home), unit_text(shell.home)
    name = path.name
    if not dry_run:
        systemctl = _systemctl()
        make_directory(path.parent)
        write_atomic(path, text, mode=0o644)
        _do(systemctl, "daemon-reload")
        _do(systemctl, "enable", "--now", name)
    told = f"# {path}\n{text}" if dry_run else f"{name} runs. `journalctl --user -u {name}` shows it."
    shell.show({"unit": str(path), "text": text, "installed": not dry_run}, lambda: told)


@gateway.command()
@_dry_run
@with_shell
def uninstall(shell: Shell, dry_run: bool) -> None:
    """Remove the systemd unit and stop the gateway that it runs.

    \b
    Example:
      pal gateway uninstall
    """
    path = unit_path(shell.home)
    if not path.exists():
        raise NotFound(f"there is no unit {path}", hint="`pal gateway install` makes it")
    if not dry_run:
        systemctl = _systemctl()
        _do(systemctl, "disable", "--now", path.name)
        path.unlink()
        _do(systemctl, "daemon-reload")
    told = f"would remove {path}" if dry_run else f"{path.name} is gone."
    shell.show({"unit": str(path), "removed": not dry_run}, lambda: told)


def unit_path(home: Home) -> Path:
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or home.user_home / ".config")
    suffix = f"-{home.profile}" if home.profile else ""
    return folder / "systemd" / "user" / f"palinurus-gateway{suffix}.service"


def unit_text(home: Home) -> str:
    """No secret stands here: those come from the config or the home."""
    words = [sys.executable, "-m", "palinurus", "gateway", "run"]
    variables = {"PALINURUS_HOME": str(home.root)}
    if not home.ours:
        variables["PALINURUS_CONFIG_PATH"] = str(home.config_path)
    environment = "".join(f"Environment={_quoted(f'{name}={value}')}\n" for name, value in variables.items())
    title = f" ({home.profile})" if home.profile else ""
    return UNIT.format(title=title, command=" ".join(map(_quoted, words)), environment=environment)


def _quoted(word: str) -> str:
    """As systemd reads it: % and $ mean something there."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{plain}"' if plain != word or " " in word else word


def _systemctl() -> str:
    found = shutil.which("systemctl")
    if found is None:
        raise NotFound("there is no systemctl on this machine", hint="--dry-run shows the unit; run it another way")
    return found


def _do(systemctl: str, *words: str) -> None:
    command = [systemctl, "--user", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise PalinurusError(f"systemctl --user {words[0]} did not end in time") from None
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or ["it says no more"])[0]
        raise PalinurusError(f"systemctl --user {words[0]} failed: {why}", hint="is there a systemd for this user?")


@gateway.group()
def token() -> None:
    """Create and revoke tokens with limited scopes."""


def parse_scopes(text: str) -> tuple[Scope, ...]:
    """`read,write` as scopes. Raises BadRequest."""
    named = [name.strip().removeprefix("operator.") for name in text.split(",") if name.strip()]
    if unknown := [name for name in named if name not in SCOPES]:
        raise BadRequest(f"there is no scope {unknown[0]!r}", hint=f"there are {', '.join(SCOPES)}")
    return tuple(scope for scope in SCOPES if scope in named)


@token.command()
@click.option("--name", required=True, help="What it is for.")
@click.option("--scope", "scopes", default="read,write", show_default=True, help="Scopes, separated by commas.")
@click.option("--days", type=float, help="Days until it expires. Default: valid until revoked.")
@with_shell
def create(shell: Shell, name: str, scopes: str, days: float | None) -> None:
    """Create a token. It is shown only once; only its hash is stored.

    Scopes: read shows things, write also sends messages, approvals answers approvals, admin allows everything.

    \b
    Examples:
      pal gateway token create --name phone
      pal gateway token create --name dashboard --scope read --days 90
    """
    made = call_operation(shell, operations.create_token, name=name, scopes=parse_scopes(scopes), days=days)
    shell.show(made, lambda: _secret_text(shell, made))


def _secret_text(_: Shell, made: TokenInfo) -> str:
    until = f", until {moment(made.expires_at)}" if made.expires_at else ""
    return f"{made.secret}\n{made.name} ({', '.join(made.scopes)}{until}). It is not shown again."


def _list_text(_: Shell, listed: TokenList) -> str:
    if not listed.tokens:
        return "There are no tokens besides the owner's."
    return "\n".join(columns([(each.name, ", ".join(each.scopes), _state(each)) for each in listed.tokens]))


def _state(each: TokenInfo) -> str:
    if each.revoked_at:
        return f"revoked {moment(each.revoked_at)}"
    used = f"used {moment(each.last_used_at)}" if each.last_used_at else "never used"
    return f"{used}, until {moment(each.expires_at)}" if each.expires_at else used


add_operation(token, operations.list_tokens, _list_text)

add_operation(token, operations.rotate_token, _secret_text)

add_operation(token, operations.revoke_token, lambda _, gone: f"The token {gone.name} is revoked.")


@click.group(cls=CommandGroup)
def devices() -> None:
    """Approve and revoke devices that connect to the gateway.

    A device identifies itself by its own key. A device on this machine that has a valid token is paired at once;
    others wait until you approve them.
    """


@devices.command()
@click.argument("device", metavar="ID")
@click.option("--scope", "scopes", default="", help="Scopes, separated by commas. Default: those it asked for.")
@with_shell
def approve(shell: Shell, device: str, scopes: str) -> None:
    """Approve a device. ID is its code, or the beginning of its id.

    \b
    Examples:
      pal devices approve 3f9c21aa
      pal devices approve 3f9c21aa --scope read
    """
    paired = call_operation(shell, operations.approve_device, device=device, scopes=parse_scopes(scopes))
    shell.show(paired, lambda: f"{_name(paired)} is paired ({', '.join(paired.scopes)}).")


def _device_list_text(_: Shell, listed: DeviceList) -> str:
    if not listed.devices:
        return "There are no devices."
    lines = []
    for each in listed.devices:
        since = moment((each.paired_at if each.status == "paired" else each.asked_at) or 0)
        about = f"{_name(each)} · {', '.join(each.scopes)} · {since}"
        lines.append(f"{each.code or each.id[:8]}  {each.status:<7}  {about}")
    return "\n".join(lines)


def _name(device: PairedDevice) -> str:
    name = device.name or device.id[:16]
    return f"{name} ({device.platform})" if device.platform else name


add_operation(devices, operations.list_devices, _device_list_text)

add_operation(devices, operations.revoke_device, lambda _, gone: f"{_name(gone)} is revoked.")
