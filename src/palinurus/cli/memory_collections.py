"""`pal memory collections`: folders that memory searches besides the workspace."""

from __future__ import annotations

import click

from palinurus.cli.command import command_of
from palinurus.cli.shell import Shell
from palinurus.operations.memory_collections import (
    CollectionAdded,
    ListedCollection,
    add_collection,
    list_collections,
    remove_collection,
)


@click.group()
def collections() -> None:
    """Folders with markdown that memory searches in addition to the workspace."""


def _list_text(_: Shell, listed: tuple[ListedCollection, ...]) -> str:
    if not listed:
        return "There are no collections. `pal memory collections add FOLDER` adds one."
    names = max(len(each.name) for each in listed)
    masks = max(len(each.mask) for each in listed)
    return "\n".join(
        f"{each.name:<{names}}  {each.mask:<{masks}}  {each.path}{'' if each.there else '  (does not exist)'}"
        for each in listed
    )


def _added_text(_: Shell, added: CollectionAdded) -> str:
    found = added.collection
    return f"{found.name} is searched from now on: {found.path} ({found.mask}), in {added.where}."


collections.add_command(command_of(list_collections, _list_text))
collections.add_command(command_of(add_collection, _added_text, makes_home=True))
collections.add_command(command_of(remove_collection, lambda _, gone: f"{gone.name} is no longer searched."))
