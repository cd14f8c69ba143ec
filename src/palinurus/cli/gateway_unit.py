"""`pal gateway install`: have systemd run the gateway for this user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click

from palinurus.cli.shell import Shell, with_json
from palinurus.config.atomic import make_directory, write_atomic
from palinurus.config.home import Home
from palinurus.config.listening import gateway_settings
from palinurus.config.load import load_config
from palinurus.domain.errors import NotFound, PalinurusError

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


@click.command()
@_dry_run
@with_json
@click.pass_obj
def install(shell: Shell, dry_run: bool) -> None:
    """Have systemd run the gateway for this user, now and after every login.

    \b
    Examples:
      pal gateway install --dry-run
      pal gateway install
    """
    gateway_settings(load_config(shell.home, os.environ).config.gateway)  # what cannot start is told now
    path, text = unit_path(shell.home), unit_text(shell.home)
    name = path.name
    if not dry_run:
        systemctl = _systemctl()
        make_directory(path.parent)
        write_atomic(path, text, mode=0o644)
        for words in (("daemon-reload",), ("enable", "--now", name)):
            _do(systemctl, *words)
    done = {"unit": str(path), "text": text, "installed": not dry_run}
    shell.show(
        done, lambda: f"# {path}\n{text}" if dry_run else f"{name} runs. `journalctl --user -u {name}` shows it."
    )


@click.command()
@_dry_run
@with_json
@click.pass_obj
def uninstall(shell: Shell, dry_run: bool) -> None:
    """Take the unit away again; the gateway that it runs is ended.

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
    try:
        done = subprocess.run(
            [systemctl, "--user", *words], capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise PalinurusError(f"systemctl --user {words[0]} did not end in time") from None
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or ["it says no more"])[0]
        raise PalinurusError(f"systemctl --user {words[0]} failed: {why}", hint="is there a systemd for this user?")
