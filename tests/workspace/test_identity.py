"""IDENTITY.md in the forms that people and programs write it."""

from __future__ import annotations

import pytest

from palinurus.domain.identity import AgentIdentity
from palinurus.workspace.files import parse_identity
from palinurus.workspace.seed import template


@pytest.mark.parametrize(
    "text",
    [
        "- Name: Ada\n- Emoji: 🦉\n",
        "# IDENTITY\n\n- **Name:** Ada\n- **Emoji:** 🦉\n",
        "---\nname: \"Ada\"\nemoji: '🦉'\n---\n",
        "* nothing *\nNAME : _Ada_\n**emoji**: `🦉`\r\n",
        "- Name: Bob\n- Emoji: 🦉\n- Name: Ada\n- Name: (pick one)\n- Name:\n",
    ],
)
def test_name_and_emoji_are_found_in_every_form(text: str) -> None:
    assert parse_identity(text) == AgentIdentity(name="Ada", emoji="🦉")


def test_a_value_keeps_its_colons() -> None:
    assert parse_identity("- Avatar: https://host/a.png").avatar == "https://host/a.png"


def test_the_manner_is_the_theme_else_the_creature_else_the_vibe() -> None:
    assert parse_identity("vibe: calm").manner == "calm"
    assert parse_identity("vibe: calm\ncreature: owl").manner == "owl"
    assert parse_identity("vibe: calm\ntheme: night\ncreature: owl").manner == "night"


def test_our_template_says_nothing_yet() -> None:
    assert parse_identity(template("IDENTITY.md")) == AgentIdentity()
