"""The extension's declarations are true: everything that they name is there, and the core works without it."""

from __future__ import annotations

import subprocess
import sys

import palinurus.extensions.skill_registry as extension
from palinurus.runtime.extensions import EXTENSIONS, App, resolve


def test_everything_that_is_declared_is_there() -> None:
    app = App()
    extension.register(app)
    (declared,) = (each for each in EXTENSIONS if each.module == extension.__name__)
    assert set(app.commands) == set(declared.commands)
    assert set(app.operations) == set(declared.operations)
    for name, place in (app.commands | app.operations).items():
        assert isinstance(place, str)
        assert resolve(place).name == name.rpartition(" ")[2]


def test_the_core_of_skills_imports_nothing_of_it() -> None:
    code = (
        "import sys, palinurus.skills.skills, palinurus.skills.dependencies\n"
        "import palinurus.operations.skills, palinurus.cli.skills\n"
        "print([name for name in sys.modules if name.startswith('palinurus.extensions.skill_registry')])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.strip() == "[]"
