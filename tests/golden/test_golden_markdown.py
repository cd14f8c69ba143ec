"""One page of markdown in the dialect of each network, as reviewed text.

`UPDATE_GOLDEN=1 pytest tests/golden` rewrites the files in `markdown/`; the change is reviewed in the diff.
"""

from __future__ import annotations

from typing import get_args

import pytest
from test_golden_prompts import HERE, agrees

from palinurus.text.markdown import Dialect, TextLimits, render_parts


@pytest.mark.parametrize("dialect", get_args(Dialect))
def test_the_page_reads_as_reviewed(dialect: Dialect) -> None:
    page = (HERE / "markdown" / "page.md").read_text(encoding="utf-8")
    (part,) = render_parts(page, dialect, TextLimits(20_000))
    agrees(f"markdown/{dialect}.txt", part.text + "\n")
