"""A one-shot `pal agent` that says afterwards which parts nobody needed were loaded all the same. There are none."""

from __future__ import annotations

import sys
from contextlib import suppress

from palinurus.__main__ import main

UNUSED = (
    "palinurus.providers.wires.anthropic",
    "palinurus.providers.wires.google",
    "palinurus.providers.smollm.smollm",
    "cryptography",
    "keyring",
    "PIL",
)

if __name__ == "__main__":
    with suppress(SystemExit):
        main()
    loaded = [name for name in UNUSED if name in sys.modules]
    print(f"unused and loaded: {', '.join(loaded) or 'nothing'}")
