"""`pal plugins`: a list, a page for each, installing one after it was shown what it asks for."""

from __future__ import annotations

import click

from palinurus.cli.command import add_operation
from palinurus.cli.shell import Shell
from palinurus.domain.events import visible
from palinurus.extensions.plugins.operations import (
    PluginInfo,
    PluginList,
    disable_plugin,
    enable_plugin,
    info_plugin,
    list_plugins,
)

NONE = "No plugins. Write one: pal plugins new weather"


@click.group()
def plugins() -> None:
    """List, install and write plugins."""


def list_text(shell: Shell, found: PluginList) -> str:
    width = max((len(each.id) for each in found.plugins), default=0)
    return "\n".join(_line(shell, each, width) for each in found.plugins) or NONE


def _line(shell: Shell, info: PluginInfo, width: int) -> str:
    said = "; ".join(info.reasons) or "; ".join(f"no slot {slot}: {why}" for slot, why in info.lost.items())
    about = said or info.trouble or info.description
    return (
        f"{info.state:<8}  {visible(info.id):<{width}}  {info.tier:<9}  {info.version:<8}  {shell.dim(visible(about))}"
    )


def info_text(_: Shell, info: PluginInfo) -> str:
    rows = {
        "what": info.description,
        "version": info.version,
        "state": f"{info.state}{f': {why}' if (why := '; '.join(info.reasons)) else ''}",
        "where": f"{info.folder} ({info.tier}, {info.format})",
        "isolation": info.isolation,
        "slots": ", ".join(info.slots),
        "no slot": "; ".join(f"{slot}: {why}" for slot, why in info.lost.items()),
        "not used": ", ".join(info.unsupported),
        "hooks": " → ".join(info.hooks),
        "failed": f"{info.failures} times in a row: {info.trouble}" if info.failures else "",
        "loaded in": f"{info.seconds:g} s" if info.seconds else "",
        "digest": f"sha256:{info.digest}" if info.digest else "",
        "data": info.data,
    }
    lines = [visible(info.name), *(f"  {key:<9} {visible(value)}" for key, value in rows.items() if value)]
    return "\n".join(
        [*lines, "", "It asks for:", *(f"  {visible(each)}" for each in info.asks)] if info.asks else lines
    )


def changed_text(_: Shell, info: PluginInfo) -> str:
    why = "; ".join(info.reasons)
    return f"{info.id} is {info.state}{f': {why}' if why else ''}."


add_operation(plugins, list_plugins, list_text)
add_operation(plugins, info_plugin, info_text)
add_operation(plugins, enable_plugin, changed_text)
add_operation(plugins, disable_plugin, changed_text)
