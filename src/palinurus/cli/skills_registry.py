"""`pal skills search|install|update|verify|publish`: skills of others, and one's own for others.

What the quick commands of `pal skills` have no use for is loaded by name, when one of these is called.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import click

from palinurus.cli.output import echo
from palinurus.cli.shell import Shell, with_json
from palinurus.cli.skills_registry_text import arrival_text, publish_text, search_text, update_text, verify_text
from palinurus.domain.errors import BadRequest

at_registry = click.option("--registry", default="", metavar="URL", help="Another registry than the usual one.")
of_agent = click.option("--agent", default="", metavar="ID", help="Whose workspace. Default: the default agent's.")
without_asking = click.option("--yes", is_flag=True, help="Do it without asking. Everything is shown all the same.")


@click.command("search")
@click.argument("words", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, 100), default=25, show_default=True)
@at_registry
@with_json
@click.pass_obj
def search(shell: Shell, words: tuple[str, ...], limit: int, registry: str) -> None:
    """Look for skills in a registry.

    The registry is skills.registry.url of the config, or what the variable CLAWHUB_REGISTRY says.

    \b
    Examples:
      pal skills search postgres backups
      pal skills search notes --registry https://skills.example.org --json
    """
    found = _registry().search(_ground(shell), " ".join(words), limit, registry)
    shell.show(found, lambda: search_text(found))


@click.command("install")
@click.argument("skill")
@click.option("--version", default="", metavar="X.Y.Z", help="This version instead of the latest.")
@click.option("--digest", default="", metavar="SHA256", help="Only if it is this one, which you have looked at before.")
@click.option("--in-workspace", is_flag=True, help="Only for one agent: into its workspace.")
@of_agent
@at_registry
@click.option("--force", is_flag=True, help="Replace what is there; take one that the registry has doubts about.")
@without_asking
@with_json
@click.pass_obj
def install(
    shell: Shell,
    /,
    skill: str,
    in_workspace: bool,
    agent: str,
    registry: str,
    force: bool,
    yes: bool,
    **exactly: str,
) -> int:
    """Install a skill from a registry, after showing what it is.

    It is fetched into quarantine and checked there. What it may use, its scripts, the addresses it names and what looks
    odd are shown; after a yes it is moved into place and pinned by its digest. Nothing of it is run. Hints are only
    hints: read SKILL.md before you say yes. What nobody said yes to stays in quarantine for a day.

    \b
    Examples:
      pal skills install bear-notes
      pal skills install @ada/bear-notes@1.2.0
      pal skills install bear-notes --in-workspace --agent home --yes
    """
    ground, operations = _ground(shell), _registry()
    root = operations.skills_root(ground, workspace=in_workspace or bool(agent), agent=agent)
    arrival = operations.fetch_skill(ground, skill, address=registry, root=root, force=force, now_ms=_now(), **exactly)
    taken = _taken(ground, agent, arrival, root)
    if not shell.as_json:
        echo(arrival_text(arrival, taken))
    if arrival.suspicious and yes and not force:
        operations.reject(arrival)
        raise BadRequest(f"the registry has doubts about {arrival.pin.slug}: {arrival.suspicious}", hint="--force")
    agreed = yes or _agreed(shell, f"Install {arrival.pin.slug} {arrival.pin.version}?")
    folder = str(operations.accept(ground, arrival, root, replace=force)) if agreed else ""
    if shell.as_json:
        shell.show(_told(arrival, folder), str)
    elif folder:
        echo(f"Installed in {folder}, pinned as {arrival.pin.digest}.")
    return 0 if agreed else 1


@click.command("update")
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All that were installed from a registry.")
@click.option("--force", is_flag=True, help="Also those that were changed here or are held by `clawhub pin`.")
@click.option("--dry-run", is_flag=True, help="Show what would change and change nothing.")
@without_asking
@with_json
@click.pass_obj
def update(shell: Shell, names: tuple[str, ...], everything: bool, force: bool, dry_run: bool, yes: bool) -> int:
    """Bring skills up to date, after showing what changes: files, what they may use, scripts, addresses.

    Each comes from the registry that it was installed from. Exit code 1 when one could not be updated or was declined.

    \b
    Examples:
      pal skills update --all --dry-run
      pal skills update bear-notes
    """
    if bool(names) == everything:
        raise BadRequest("name some skills, or say --all")
    ground, operations = _ground(shell), _registry()
    rows: list[dict[str, Any]] = []
    for each in operations.updates(ground, names, force=force, now_ms=_now()):
        if not shell.as_json:
            echo(update_text(each))
        done = False
        if each.arrival is not None:
            wanted = not dry_run and (yes or _agreed(shell, f"Update {each.pin.slug}?"))
            done = wanted and bool(operations.accept(ground, each.arrival, each.folder.parent))
        waits = each.arrival is not None and not done and not dry_run
        row = {"slug": each.pin.slug, "said": each.said, "updated": done, "failed": each.failed or waits}
        rows.append(row | ({"changes": each.changes} if each.changes else {}))
    if shell.as_json:
        shell.show({"skills": rows}, str)
    elif not rows:
        echo("No skill was installed from a registry.")
    return 1 if any(row["failed"] for row in rows) else 0


@click.command("verify")
@click.argument("names", nargs=-1)
@click.option("--online", is_flag=True, help="Ask the registries too: blocked meanwhile, or other files than before?")
@click.option("--forget", is_flag=True, help="Drop the pins of skills whose folders are gone.")
@with_json
@click.pass_obj
def verify(shell: Shell, names: tuple[str, ...], online: bool, forget: bool) -> int:
    """Check installed skills against their pins. Exit code 1 when one is not what was installed.

    A skill that has drifted is not used until it is installed again.

    \b
    Examples:
      pal skills verify
      pal skills verify bear-notes --online --json
    """
    module = importlib.import_module("palinurus.operations.skill_verifying")
    ground = _ground(shell)
    found = module.verify(ground, names, online=online)
    gone = [each for each in found if each.state == "gone"] if forget else []
    for each in gone:
        module.forget_gone(ground, Path(each.folder))
    shell.show(found, lambda: verify_text(found))
    return 0 if all(each.good or each in gone for each in found) else 1


@click.command("publish")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--slug", default="", help="Its name there. Default: the folder's.")
@click.option("--name", default="", help="Its title. Default: the name in SKILL.md.")
@click.option("--version", default="", metavar="X.Y.Z", help="Default: SKILL.md's version, or the next one there.")
@click.option("--changelog", default="", help="What is new.")
@click.option("--tag", "tags", multiple=True, help="Default: latest.")
@click.option("--owner", default="", help="For whom, where a token may publish for several.")
@at_registry
@click.option("--force", is_flag=True, help="Publish although something in it looks like a secret.")
@click.option("--dry-run", is_flag=True, help="Show what would be published.")
@without_asking
@with_json
@click.pass_obj
def publish(shell: Shell, /, folder: Path, registry: str, force: bool, dry_run: bool, yes: bool, **about: Any) -> int:
    """Publish a skill of your own. What would be sent is shown first.

    Your token stands in the variable CLAWHUB_TOKEN or in skills.registry.token of the config.

    \b
    Examples:
      pal skills publish ./bear-notes --dry-run
      pal skills publish ./bear-notes --version 1.2.0 --changelog "Reads tags"
    """
    module = importlib.import_module("palinurus.operations.skill_publishing")
    ground = _ground(shell)
    prepared = module.prepare_publication(ground, folder, address=registry, **about)
    if not shell.as_json:
        echo(publish_text(prepared))
    if prepared.report.secrets and not force:
        first = prepared.report.secrets[0]
        raise BadRequest(f"{first.path}:{first.line} looks like a secret", hint="take it out, or say --force")
    if dry_run:
        if shell.as_json:
            shell.show({"publication": prepared.publication, "files": prepared.bundle.records()}, str)
        return 0
    if not yes and not _agreed(shell, f"Publish at {prepared.registry}?"):
        return 1
    done = module.publish(ground, prepared)
    shell.show(done, lambda: f"Published {done.slug}@{done.version} at {done.registry}.")
    return 0


COMMANDS = (search, install, update, verify, publish)


def _agreed(shell: Shell, question: str) -> bool:
    if shell.as_json or not sys.stdin.isatty():
        shell.warn("nothing was done: nobody is there to say yes (--yes does what was shown)")
        return False
    return click.confirm(question, default=False)


def _taken(ground: Any, agent: str, arrival: Any, root: Path) -> str:
    """Where a skill of that name is already, which the new one would put in the shade or stand in the shade of."""
    listing = importlib.import_module("palinurus.operations.skills").skills_on(ground, agent).listing()
    same = importlib.import_module("palinurus.skills.catalog").same_name
    wanted, own = same(arrival.about.name), str(root / arrival.pin.slug)
    others = (each for each in listing.found.skills if each.folder != own)
    return next((each.location for each in others if same(each.name) == wanted), "")


def _told(arrival: Any, folder: str) -> dict[str, Any]:
    return {
        "installed": bool(folder),
        "folder": folder,
        "pin": arrival.pin,
        "about": arrival.about,
        "mayUse": arrival.may_use,
        "report": arrival.report,
        "suspicious": arrival.suspicious,
    }


def _registry() -> Any:
    return importlib.import_module("palinurus.operations.skill_registry")


def _ground(shell: Shell) -> Any:
    return importlib.import_module("palinurus.operations.config").Ground(shell.home, os.environ)


def _now() -> int:
    return time.time_ns() // 1_000_000
