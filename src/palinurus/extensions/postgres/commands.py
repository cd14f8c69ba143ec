"""`pal storage`."""

from __future__ import annotations

import click

from palinurus.cli.command import add_operation
from palinurus.cli.shell import CommandGroup, Shell
from palinurus.extensions.postgres.engine import show_storage
from palinurus.storage.database import StorageStatus


@click.group(cls=CommandGroup)
def storage() -> None:
    """Show where the home is kept."""


def _status_text(_: Shell, status: StorageStatus) -> str:
    lines = [
        f"{status.engine}  {status.url}",
        f"form {status.form} of {status.newest_form}, {status.size / 1e6:,.1f} MB",
        f"{status.sessions:,} sessions with {status.entries:,} entries",
    ]
    if status.tenant:
        apart = sum(status.policies.values())
        plain = "bypasses policies" if status.superuser or status.bypasses_policies else "a plain role"
        lines.append(f"tenant {status.tenant}; role {status.role}, {plain}")
        lines.append(f"{apart} of {len(status.policies)} tables show a tenant only its own rows")
    return "\n".join(lines)


add_operation(storage, show_storage, _status_text)
