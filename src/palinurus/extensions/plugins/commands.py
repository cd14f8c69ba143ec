"""`pal plugins`: a list, a page for each, installing one after it was shown what it asks for."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from palinurus.cli.command import add_operation, call_operation
from palinurus.cli.shell import CommandGroup, Shell, echo, with_shell
from palinurus.domain.errors import NotConfirmed, NotFound
from palinurus.domain.events import visible
from palinurus.extensions.plugins.operations import (
    CreatedPlugin,
    PluginChecks,
    PluginInfo,
    PluginList,
    PluginLock,
    PluginPreview,
    RemovedPlugin,
    check_all_plugins,
    disable_plugin,
    enable_plugin,
    info_plugin,
    install_plugin,
    list_plugins,
    lock_plugins,
    new_plugin,
    prepare_plugin,
    uninstall_plugin,
)

NONE = "No plugins. Write one: pal plugins new weather"


@click.group(cls=CommandGroup)
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


def preview_text(preview: PluginPreview) -> str:
    info = preview.plugin
    known = f", replaces {preview.replaces}" if preview.replaces else ""
    lines = [f"{visible(info.name)} {visible(info.version)}{known}  {visible(info.description)}".rstrip()]
    lines += [f"  sha256:{preview.digest}", "", "It asks for:", *(f"  {visible(each)}" for each in info.asks)]
    if preview.more:
        lines += ["", "New since the version that is installed:", *(f"  {visible(each)}" for each in preview.more)]
    if info.unsupported:
        lines += ["", f"Not used here: {visible(', '.join(info.unsupported))}"]
    return "\n".join(lines)


def _install(shell: Shell, source: str, yes: bool) -> None:
    place = Path(source)
    named = str(place.absolute()) if place.exists() or source.endswith(".whl") else source
    preview = call_operation(shell, prepare_plugin, source=named)
    if not yes:
        told = f"{preview.plugin.id} was not installed: it is somebody else's code"
        if shell.as_json:
            raise NotConfirmed(f"{told}. {preview_text(preview)}", hint="use --yes")
        echo(preview_text(preview))
        if not sys.stdin.isatty():
            raise NotConfirmed(told, hint="use --yes")
        click.confirm("\nInstall and use it?", abort=True)
    info = call_operation(shell, install_plugin, source=named, digest=preview.digest)
    shell.show(info, lambda: changed_text(shell, info))


@plugins.command("install")
@click.argument("source")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_shell
def install(shell: Shell, source: str, yes: bool) -> None:
    """Install a plugin: a folder, a wheel, or the name of a distribution. Shows what it asks for first.

    \b
    Examples:
      pal plugins install ./weather
      pal plugins install palinurus-weather --yes
    """
    _install(shell, source, yes)


@plugins.command("update")
@click.argument("plugin")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_shell
def update(shell: Shell, plugin: str, yes: bool) -> None:
    """Install a plugin again from where it came. Shows what is new.

    \b
    Example:
      pal plugins update weather
    """
    known = {each.id: each for each in call_operation(shell, lock_plugins).plugins}
    if plugin not in known:
        raise NotFound(f"the plugin {plugin[:80]!r} was not installed by pal", hint="`pal plugins lock` lists them")
    _install(shell, known[plugin].source, yes)


def removed_text(_: Shell, removed: RemovedPlugin) -> str:
    kept = [f"What it stored is kept: {removed.data}"] if removed.data else []
    kept += [f"The config still has {removed.config}: pal config unset {removed.config}"] if removed.config else []
    return "\n".join([f"{removed.id} is uninstalled.", *kept])


def lock_text(_: Shell, lock: PluginLock) -> str:
    rows = [
        f"{each.id} {each.version}  sha256:{each.sha256}  {each.source}{'' if each.holds else '  CHANGED'}"
        for each in lock.plugins
    ]
    return "\n".join(map(visible, rows)) or NONE


def new_text(_: Shell, made: CreatedPlugin) -> str:
    return "\n".join([f"{made.folder}:", *(f"  {each}" for each in made.files), "Next: README.md in it."])


def checks_text(_: Shell, found: PluginChecks) -> str:
    marks = {"ok": "✓", "warning": "!", "bad": "×"}
    return (
        "\n".join(
            visible(f"{marks.get(each.state, '×')} {each.what}{f'  → {each.todo}' if each.todo else ''}")
            for each in found.checks
        )
        or NONE
    )


add_operation(plugins, list_plugins, list_text)
add_operation(plugins, uninstall_plugin, removed_text)
add_operation(plugins, lock_plugins, lock_text)
add_operation(plugins, new_plugin, new_text)
add_operation(
    plugins, check_all_plugins, checks_text, exit_code=lambda found: int(any(c.state == "bad" for c in found.checks))
)
add_operation(plugins, info_plugin, info_text)
add_operation(plugins, enable_plugin, changed_text)
add_operation(plugins, disable_plugin, changed_text)
