"""Each plugin's tests import it from its folder, as the host does."""

import sys
from pathlib import Path

sys.path[:0] = [str(each.parent) for each in Path(__file__).parent.glob("*/pyproject.toml")]
