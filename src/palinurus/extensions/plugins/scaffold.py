"""A new plugin: a folder with a manifest, a module, a test and a page to read, which work as they are."""

from __future__ import annotations

import json
import re
from pathlib import Path

from palinurus.domain.errors import BadRequest

_CODE = '''"""{title}: a tool and a slash command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from palinurus.plugin import ToolOutput, ToolRun, tool

if TYPE_CHECKING:
    from palinurus.plugin import PluginApp


def greet(greeting: str, name: str) -> str:
    return f"{{greeting}}, {{name}}!"


def register(app: PluginApp) -> None:
    @tool("{name}_greet", "Greet somebody.")
    async def greet_somebody(run: ToolRun, name: Annotated[str, "Whom to greet."]) -> ToolOutput:
        return ToolOutput(greet(app.config["greeting"], name))

    async def answer(services: Any, key: Any, words: str, inbound: Any) -> str:
        return greet(app.config["greeting"], words or "you")

    app.tool(greet_somebody)
    app.slash_command("{name}", answer)
'''
_TEST = '''"""Run with: pytest"""

from __future__ import annotations

from pathlib import Path

from palinurus.testing.plugins import PluginHarness

HERE = Path(__file__).parent


async def test_its_tool_greets_with_the_configured_word(tmp_path: Path) -> None:
    async with PluginHarness(HERE, tmp_path, config={{"greeting": "Ahoy"}}) as plugin:
        assert await plugin.call("{name}_greet", name="Ada") == "Ahoy, Ada!"


async def test_its_slash_command_answers(tmp_path: Path) -> None:
    async with PluginHarness(HERE, tmp_path) as plugin:
        assert await plugin.says("/{name} Ada") == "Hello, Ada!"
'''
_PAGE = """# {title}

Try it without installing it:

    pal config set plugins.load.paths '["{folder}"]'
    pal agent -m "/{name} Ada"

Test it: `pip install pytest pytest-asyncio`, then `pytest`. Install it: `pal plugins install {folder}`.
"""
_PYTEST = """[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
addopts = -p palinurus.testing.pytest_plugin
"""


def write_scaffold(folder: Path, name: str) -> list[str]:
    """The files that were written. Raises BadRequest for a name that cannot be one, and for a folder that is there."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{1,40}", name):
        raise BadRequest(f"{name[:60]!r} cannot be the name of a plugin", hint="lower-case letters, digits and _")
    if folder.exists():
        raise BadRequest(f"{folder} is there already", hint="choose another name or --folder")
    title = name.replace("_", " ").capitalize()
    manifest = {
        "id": name,
        "api": 1,
        "name": title,
        "version": "0.1.0",
        "description": f"{title} greets people.",
        "module": f"{name}_plugin",
        "configSchema": {
            "type": "object",
            "properties": {"greeting": {"type": "string", "default": "Hello", "description": "The first word."}},
            "additionalProperties": False,
        },
        "capabilities": {
            "tools": [f"{name}_greet"],
            "slashCommands": {name: {"usage": f"/{name} NAME", "about": "greet somebody"}},
        },
        "isolation": "process",
    }
    files = {
        "palinurus.plugin.json": json.dumps(manifest, indent=2) + "\n",
        f"{name}_plugin.py": _CODE.format(name=name, title=title),
        f"test_{name}.py": _TEST.format(name=name),
        "pytest.ini": _PYTEST,
        "README.md": _PAGE.format(name=name, title=title, folder=folder),
    }
    folder.mkdir(parents=True)
    for path, text in files.items():
        (folder / path).write_text(text, encoding="utf-8")
    return list(files)
