"""What IDENTITY.md says about the agent: any `label: value` line, plain, bulleted, bold or YAML."""

from __future__ import annotations

from palinurus.domain.identity import AgentIdentity
from palinurus.workspace.files import IDENTITY, FileText, WorkspaceFiles

_LABELS = frozenset(AgentIdentity.__struct_fields__)
_MARKUP = " \t\r*_`"


def parse_identity(text: str) -> AgentIdentity:
    """Read the known labels; the last value of each wins, and placeholders in parentheses count as nothing."""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        label, value = labelled(line)
        if label in _LABELS and value:
            found[label] = value
    return AgentIdentity(**found)


def labelled(line: str) -> tuple[str, str]:
    """Label and value of one line; the value is empty where nothing or a placeholder stands, both where no label is."""
    label, colon, value = line.strip().removeprefix("- ").partition(":")
    return (label.strip(_MARKUP).lower(), _value(value)) if colon else ("", "")


def _value(text: str) -> str:
    value = text.strip(_MARKUP)
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1].strip(_MARKUP)
    return "" if value.startswith("(") and value.endswith(")") else value


def read_identity(files: WorkspaceFiles) -> AgentIdentity:
    """What the workspace's own file says; nothing, when there is none that can be read."""
    found = files.read(IDENTITY)
    return parse_identity(found.text) if isinstance(found, FileText) else AgentIdentity()
