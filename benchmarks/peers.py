"""The peers we measure ourselves beside: which release, how it is told of the model, how it is asked.

Each lives in a venv of its own under `.peers`. One that cannot be installed is left out, with the reason.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent.parent / ".peers"
INSTALL_SECONDS = 900


@dataclass(frozen=True)
class Peer:
    """A program like ours. `config` names its file under the user's home and says what stands in it."""

    name: str
    package: str
    version: str
    config_path: str
    config: str
    ask: tuple[str, ...]  # the one-shot, from the venv's bin directory
    warm: str  # the module that runs its turns in one process
    extra: str = ""  # of the package, for its server

    @property
    def bin(self) -> Path:
        return FOLDER / self.package / "bin"


_NANOBOT_CONFIG = json.dumps(
    {
        "agents": {"defaults": {"model": "test", "provider": "custom"}},
        "providers": {"custom": {"apiKey": "none", "apiBase": "BASE_URL"}},
    }
)
_HERMES_CONFIG = """model:
  default: test
  provider: custom
  base_url: BASE_URL
  api_key: none
"""
PEERS = (
    Peer(
        name="nanobot",
        package="nanobot-ai",
        version="0.3.5",
        config_path=".nanobot/config.json",
        config=_NANOBOT_CONFIG,
        ask=("nanobot", "agent", "--no-markdown", "-m", "hi"),
        warm="benchmarks.warm_nanobot",
        extra="[api]",
    ),
    Peer(
        name="hermes",
        package="hermes-agent",
        version="0.19.0",
        config_path=".hermes/config.yaml",
        config=_HERMES_CONFIG,
        ask=("hermes", "-z", "hi"),
        warm="benchmarks.warm_hermes",
    ),
)


class PeerMissing(Exception):
    """This peer cannot be measured, and why."""


def install(peer: Peer) -> None:
    """Make its venv, unless it stands there already in the release that we name. Raises PeerMissing."""
    mark = FOLDER / peer.package / ".installed"
    if mark.exists() and mark.read_text(encoding="utf-8") == f"{peer.version}{peer.extra}":
        return
    print(f"installing {peer.package} {peer.version}", file=sys.stderr)
    python = peer.bin / "python"
    _do([sys.executable, "-m", "venv", "--clear", str(FOLDER / peer.package)])
    # With its bytecode, as ours has: the first run of a peer should not pay for compiling it.
    wanted = f"{peer.package}{peer.extra}=={peer.version}"
    if importlib.util.find_spec("uv"):
        _do([sys.executable, "-m", "uv", "pip", "install", "-q", "--compile-bytecode", "--python", str(python), wanted])
    else:
        _do([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", wanted])
    mark.write_text(f"{peer.version}{peer.extra}", encoding="utf-8")


def furnish(peer: Peer, home: Path, base_url: str) -> None:
    """Write its config into a home of its own."""
    config = home / peer.config_path
    config.parent.mkdir(parents=True)
    config.write_text(peer.config.replace("BASE_URL", base_url), encoding="utf-8")


def _do(argv: list[str]) -> None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise PeerMissing(f"not installed within {INSTALL_SECONDS} s") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise PeerMissing(f"cannot be installed: {said[-1] if said else argv[0]}")
