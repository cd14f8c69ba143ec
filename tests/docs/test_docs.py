"""The docs fail when they lie: generated pages equal what the program says now."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from palinurus.config.schema import json_schema

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("docs_tool", ROOT / "tools" / "docs.py")
assert _spec
assert _spec.loader
docs_tool = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(docs_tool)


@pytest.mark.parametrize("name", docs_tool.PAGES)
def test_a_generated_page_equals_what_the_program_says(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == docs_tool.PAGES[name](), "run `make docs`"


def test_every_config_key_of_the_schema_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "config.md").read_text(encoding="utf-8")
    for name in json_schema()["$defs"]["Agent"]["properties"]:
        assert f"`agents.defaults.{name}" in page


def test_every_relative_link_in_the_docs_leads_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
