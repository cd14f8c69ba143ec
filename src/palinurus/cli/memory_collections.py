"""`pal memory collections`: folders of the owner's that memory searches too."""

from __future__ import annotations

from pathlib import Path

import click

from palinurus.cli.entrance import ground_of, make_on_first_run
from palinurus.cli.shell import Shell, with_json
from palinurus.operations.memory_collections import (
    ListedCollection,
    collection_add,
    collection_remove,
    collections_list,
)

of_agent = click.option("--agent", default="", metavar="ID", help="For this agent alone.")


@click.group()
def collections() -> None:
    """Folders with markdown that memory searches besides the workspace."""


@collections.command("list")
@of_agent
@with_json
@click.pass_obj
def listing(shell: Shell, agent: str) -> None:
    """List the collections: name, mask and folder.

    \b
    Example:
      pal memory collections list
    """
    listed = collections_list(ground_of(shell), agent)
    shell.show(listed, lambda: _text(listed))


@collections.command("add")
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--name", default="", help="What it is called in citations. Default: the folder's name.")
@click.option("--mask", default="", metavar="GLOB", help="Which files. Default **/*.md.")
@of_agent
@with_json
@click.pass_obj
def adding(shell: Shell, path: Path, name: str, mask: str, agent: str) -> None:
    """Search a folder, or one markdown file, from now on.

    It is written into the config. Nothing in the folder is changed; links in it are not followed.

    \b
    Examples:
      pal memory collections add .
      pal memory collections add ~/notes --name notes --mask "2026/**/*.md"
    """
    make_on_first_run(shell)
    added = collection_add(ground_of(shell), str(path.absolute()), name=name, mask=mask, agent=agent)
    found = added.collection
    shell.show(added, lambda: f"{found.name} is searched from now on: {found.path} ({found.mask}), in {added.where}.")


@collections.command("remove")
@click.argument("name")
@of_agent
@with_json
@click.pass_obj
def removing(shell: Shell, name: str, agent: str) -> None:
    """Search a collection no longer. Its files stay as they are.

    \b
    Example:
      pal memory collections remove notes
    """
    removed = collection_remove(ground_of(shell), name, agent=agent)
    shell.show(removed, lambda: f"{removed.name} is searched no longer.")


def _text(listed: tuple[ListedCollection, ...]) -> str:
    if not listed:
        return "There are no collections. `pal memory collections add FOLDER` makes one."
    names = max(len(each.name) for each in listed)
    masks = max(len(each.mask) for each in listed)
    return "\n".join(
        f"{each.name:<{names}}  {each.mask:<{masks}}  {each.path}{'' if each.there else '  (not there)'}"
        for each in listed
    )
