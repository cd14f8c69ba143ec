"""Each plugin is imported from its folder, as the host does; homes and clocks are those of the other tests."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE.parent / "tests"
sys.path[:0] = [*(str(each.parent) for each in HERE.glob("*/pyproject.toml")), str(TESTS / "plugins")]
_spec = spec_from_file_location("fixtures_of_tests", TESTS / "conftest.py")
assert _spec is not None
assert _spec.loader is not None
_shared = module_from_spec(_spec)
_spec.loader.exec_module(_shared)
workspace, clock, new_id, home = _shared.workspace, _shared.clock, _shared.new_id, _shared.home
