"""What IDENTITY.md says about the agent: any `label: value` line, plain, bulleted, bold or YAML."""

from __future__ import annotations

from msgspec import Struct

_LABELS = frozenset({"name", "emoji", "creature", "vibe", "theme", "avatar"})
_MARKUP = " \t\r*_`"


class Identity(Struct, frozen=True):
    """Empty strings stand for what has not been chosen yet."""

    name: str = ""
    emoji: str = ""
    creature: str = ""
    vibe: str = ""
    theme: str = ""
    avatar: str = ""

    @property
    def manner(self) -> str:
        """The theme in effect: the theme itself, else the creature, else the vibe."""
        return self.theme or self.creature or self.vibe


def parse_identity(text: str) -> Identity:
    """Read the known labels; the last value of each wins, and placeholders in parentheses count as nothing."""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        label, colon, value = line.strip().removeprefix("- ").partition(":")
        label = label.strip(_MARKUP).lower()
        if colon and label in _LABELS and (value := _value(value)):
            found[label] = value
    return Identity(**found)


def _value(text: str) -> str:
    value = text.strip(_MARKUP)
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1].strip(_MARKUP)
    return "" if value.startswith("(") and value.endswith(")") else value
