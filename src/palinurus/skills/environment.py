"""Variables that the config has for a skill, given to commands while it is in use and to nobody else.

What the process has already wins. Inside a sandbox only those go that the skill declares and its entry in the config
grants. Names that make programs load other code are never set this way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from palinurus.config.offering import SkillsSettings
from palinurus.skills.requirements import NOTHING_SAID
from palinurus.skills.skill import Skill

Values = Callable[[Skill], Mapping[str, str]]
"""What the config has for a skill: secrets, looked up when they are needed. May raise ConfigError."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_LOADS_CODE = re.compile(
    r"PATH|HOME|SHELL|IFS|ENV|BASH_\w*|LD_\w*|DYLD_\w*|GLIBC_TUNABLES|GCONV_PATH|MALLOC_\w*|PYTHON\w*|NODE_\w*|NPM_\w*"
    r"|PERL\w*|RUBY\w*|GIT_\w*|SSH_\w*|JAVA_TOOL_OPTIONS|PALINURUS_\w*|OPENCLAW_\w*",
    re.IGNORECASE,
)


def nothing(_: Skill) -> Mapping[str, str]:
    return {}


def run_variables(
    used: Iterable[Skill], settings: SkillsSettings, env: Mapping[str, str], values: Values, *, sandboxed: bool
) -> dict[str, str]:
    """What a command gets besides its own. The first skill in use that has a value for a name gives it."""
    given: dict[str, str] = {}
    for skill in used:
        if skill.registry:  # what Python would leave in its folder would count as drift
            given.setdefault("PYTHONDONTWRITEBYTECODE", "1")
        word = settings.entries.get(skill.key) or settings.entries.get(skill.name) or NOTHING_SAID
        if not word.env and not word.has_key:
            continue
        declared = {*skill.about.requires.env, skill.about.primary_env}
        for name, value in values(skill).items():
            wanted = not sandboxed or (word.sandbox_env and name in declared)
            if wanted and may_be_set(name) and not env.get(name):
                given.setdefault(name, value)
    return given


def may_be_set(name: str) -> bool:
    return bool(_NAME.fullmatch(name)) and not _LOADS_CODE.fullmatch(name)
