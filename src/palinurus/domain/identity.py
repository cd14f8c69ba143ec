"""The identity that an agent shows people: name, emoji, creature, theme, avatar."""

from __future__ import annotations

from msgspec import Struct

MAX_VALUE = 80  # characters of one value when several are shown on one line


class AgentIdentity(Struct, frozen=True, rename="camel", omit_defaults=True):
    """An empty string means not chosen."""

    name: str = ""
    emoji: str = ""
    creature: str = ""
    vibe: str = ""
    theme: str = ""
    avatar: str = ""  # a path in the workspace, an http(s) address or a data URL

    @property
    def manner(self) -> str:
        """The theme in effect: the theme, or else the creature, or else the vibe."""
        return self.theme or self.creature or self.vibe

    @property
    def title(self) -> str:
        """Name and emoji."""
        return " ".join(each for each in (_shown(self.name), _shown(self.emoji)) if each)

    @property
    def traits(self) -> str:
        """The other fields on one line, such as `creature: owl; vibe: calm`, without an avatar that is a data URL."""
        avatar = "" if self.avatar.startswith("data:") else self.avatar
        said = {"creature": self.creature, "vibe": self.vibe, "theme": self.theme, "avatar": avatar}
        return "; ".join(f"{label}: {_shown(value)}" for label, value in said.items() if value.strip())

    def or_else(self, other: AgentIdentity) -> AgentIdentity:
        """This identity, with empty fields filled from the other."""
        both = {field: getattr(self, field) or getattr(other, field) for field in self.__struct_fields__}
        return AgentIdentity(**both)


def _shown(value: str) -> str:
    plain = " ".join(value[: 4 * MAX_VALUE].split())
    return plain if len(plain) <= MAX_VALUE else f"{plain[: MAX_VALUE - 1]}…"
