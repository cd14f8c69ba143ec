"""What tests share and nobody is shipped: simulated homes, loopback servers that speak the wires, virtual time."""

import os
from pathlib import Path

TESTS = Path(__file__).parent.parent
"""Where a process is started that imports this package: `[sys.executable, "-m", "support.wire"], cwd=TESTS`."""

SOAK = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
"""Whether this is `make soak`, which tries more and larger things than `make test`."""


def examples(count: int) -> int:
    """How many examples of a property are tried: all in `make soak`, a quarter of them in `make test`."""
    return count if SOAK else count // 4
