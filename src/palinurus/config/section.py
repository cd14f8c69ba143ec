"""One object of the config, as all parts of the schema are made."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


class Section(BaseModel):
    """One object of the config. `foreign` are the keys that OpenClaw knows and we keep without using them."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="allow", alias_generator=to_camel, defer_build=True, protected_namespaces=()
    )
    foreign: ClassVar[frozenset[str]] = frozenset()


class SecretRef(Section):
    source: Literal["env", "file", "exec", "store"] = Field(description="Where the secret is kept.")
    id: str = Field(description="The variable's name, the file's path, or the place inside the provider's file.")
    provider: str | None = Field(None, description="A provider named under secrets.providers.")


Secret = str | SecretRef
