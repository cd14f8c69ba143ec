"""Who an agent is for people: name, sign, kind of creature, manner, picture."""

from __future__ import annotations

from msgspec import Struct

MAX_VALUE = 80  # characters of one value where it is shown in a line with others


class AgentIdentity(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Empty strings stand for what has not been chosen yet."""

    name: str = ""
    emoji: str = ""
    creature: str = ""
    vibe: str = ""
    theme: str = ""
    avatar: str = ""  # a path in the workspace, an http(s) address or a data URL

    @property
    def manner(self) -> str:
        """The theme in effect: the theme itself, else the creature, else the vibe."""
        return self.theme or self.creature or self.vibe

    @property
    def title(self) -> str:
        """Name and sign."""
        return " ".join(each for each in (_shown(self.name), _shown(self.emoji)) if each)

    @property
    def traits(self) -> str:
        """The rest in a few words, such as `creature: owl; vibe: calm`. A picture that is data is no words."""
        avatar = "" if self.avatar.startswith("data:") else self.avatar
        said = {"creature": self.creature, "vibe": self.vibe, "theme": self.theme, "avatar": avatar}
        return "; ".join(f"{label}: {_shown(value)}" for label, value in said.items() if value.strip())

    def or_else(self, other: AgentIdentity) -> AgentIdentity:
        """This one, and from the other what it leaves open."""
        both = {field: getattr(self, field) or getattr(other, field) for field in self.__struct_fields__}
        return AgentIdentity(**both)


def _shown(value: str) -> str:
    plain = " ".join(value[: 4 * MAX_VALUE].split())
    return plain if len(plain) <= MAX_VALUE else f"{plain[: MAX_VALUE - 1]}…"
