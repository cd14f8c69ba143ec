"""`pal setup` and `pal onboard`: make a home, and set up a model that answers."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec
from msgspec import Struct

from palinurus.cli.command import call_operation, make_on_first_run, services_of
from palinurus.cli.shell import Shell, run_async, with_shell
from palinurus.config.atomic import make_directory
from palinurus.domain.errors import BadRequest
from palinurus.operations import models as operations
from palinurus.operations.config import set_option
from palinurus.operations.config import setup as make
from palinurus.operations.credentials import credential_on_trial
from palinurus.operations.models import OnboardingOptions, ProbeReport
from palinurus.operations.services import Services
from palinurus.providers.provider import SCOUT

WITHOUT = "Scout stays: it needs no model, and notes, finds and quotes. Run `pal onboard` again at any time."


class OnboardingResult(Struct, frozen=True):
    """How it came out. `ok` is false when a model was chosen and did not answer; then nothing has changed."""

    ok: bool
    model: str
    test: ProbeReport | None = None
    reason: str = ""  # why that model goes on, when none was chosen
    key_given: bool = False


@click.command()
@click.option("--provider", default="", help="Whose model: openai, anthropic, google, ollama, …")
@click.option("--key-stdin", is_flag=True, help="Read the provider's key from standard input.")
@click.option("--model", default="", help="Which model: provider/model or a short name.")
@click.option("--yes", "-y", is_flag=True, help="Ask nothing: take the first model that can be used.")
@with_shell
def onboard(shell: Shell, provider: str, key_stdin: bool, model: str, yes: bool) -> int:
    """Set up a model: enter a key, or use a model server on this machine.

    The model is tested with one tiny request before it is set. Without a model, scout answers; it needs none.

    \b
    Examples:
      pal onboard
      pal configure                           the same
      pal onboard --yes
      pal onboard --provider openai --key-stdin < key.txt
      pal onboard --model ollama/qwen3
    """
    make_on_first_run(shell)
    services = services_of(shell)
    if yes or key_stdin or provider or model:
        done = _choose_by_options(shell, services, provider, model, key_stdin=key_stdin)
    elif sys.stdin.isatty():
        done = _choose_by_dialogue(shell, services)
    else:
        raise BadRequest("pal onboard needs a terminal", hint="use --yes, or name --provider or --model")
    shell.show(done, lambda: _text(done))
    return 0 if done.ok else 1


def _choose_by_options(
    shell: Shell, services: Services, provider: str, model: str, *, key_stdin: bool
) -> OnboardingResult:
    if key_stdin and not provider:
        hint = "pal onboard --provider openai --key-stdin < key.txt"
        raise BadRequest("name the provider with --provider", hint=hint)
    options = run_async(operations.find_model_options(services))
    if not model:
        model = operations.first_model_of(options, provider) if provider else operations.default_model(services).primary
    chosen = model or options.first_model
    if not chosen:
        return _keep_model(shell)
    return _try_model(shell, services, chosen, provider, sys.stdin.readline() if key_stdin else None)


def _choose_by_dialogue(shell: Shell, services: Services) -> OnboardingResult:
    """Until a model answers, or the person gives up."""
    while True:
        chosen, provider, secret = _choice(run_async(operations.find_model_options(services)))
        if not chosen:
            return _keep_model(shell)
        click.echo(shell.dim(f"asking {chosen} …"))
        done = _try_model(shell, services, chosen, provider, secret or None)
        if done.ok:
            return done
        click.echo(_text(done))
        if not click.confirm("try something else?", default=True):
            return _keep_model(shell)


def _choice(options: OnboardingOptions) -> tuple[str, str, str]:
    """The model that a person chooses, its provider, and a new key for it; all empty for none."""
    rows = [
        (server.provider, f"{server.name} on this machine: {', '.join(server.models[:3])}")
        for server in options.servers
    ]
    rows += [
        (known.provider, f"{known.provider:<11} {'a key is stored' if known.has_key else 'enter a key'}")
        for known in options.providers
    ]
    click.echo("Which model should answer?\n")
    for number, (_, told) in enumerate(rows, start=1):
        click.echo(f"  {number:>2}  {told}")
    click.echo("   0  none for now: scout needs no model\n")
    number = click.prompt("choice", type=click.IntRange(0, len(rows)), default=1)
    if number == 0:
        return "", "", ""
    provider = rows[number - 1][0]
    has_key = {known.provider: known.has_key for known in options.providers}
    secret = ""
    if provider in has_key:
        told = "key, not shown (Enter keeps the stored one)" if has_key[provider] else "key, not shown"
        secret = click.prompt(told, hide_input=True, default="" if has_key[provider] else None, show_default=False)
    model: str = click.prompt("model", default=operations.first_model_of(options, provider))
    return model if "/" in model else f"{provider}/{model}", provider, secret


def _try_model(shell: Shell, services: Services, model: str, provider: str, secret: str | None) -> OnboardingResult:
    """With a new key, if there is one, which is kept when it is good for something."""
    if secret is None:
        return _test_model(shell, model)
    with credential_on_trial(services, provider, secret) as keep:
        done = _test_model(shell, model, f"{provider.strip().lower()}:default")
        if done.ok:
            keep()
    return msgspec.structs.replace(done, key_given=True)


def _test_model(shell: Shell, model: str, credential: str = "") -> OnboardingResult:
    report = call_operation(shell, operations.probe_model, ref=model, credential=credential)
    if report.ok:
        chosen = call_operation(shell, operations.set_model, model=model)
        return OnboardingResult(True, chosen.model, report)
    return OnboardingResult(False, model, report)


def _keep_model(shell: Shell) -> OnboardingResult:
    found = call_operation(shell, operations.show_model_status)
    return OnboardingResult(True, found.model, reason=found.reason)


def _text(done: OnboardingResult) -> str:
    report = done.test
    if report is None and done.model == str(SCOUT):
        return WITHOUT
    if report is None:
        return f"{done.model} stays the model ({done.reason}). Nothing was changed."
    if done.ok:
        return f"{done.model} answers ({report.total_ms} ms). Default model is now {done.model}. Next: pal chat"
    hint = f" ({report.hint})" if report.hint else ""
    kept = "The key was not stored, and nothing was changed." if done.key_given else "Nothing was changed."
    return f"{report.asked} does not answer: {report.error_kind}: {report.error}{hint}. {kept}"


@click.command()
@click.option(
    "--workspace",
    "folder",
    metavar="DIR",
    help="Use this workspace from now on: it is written to agents.defaults.workspace.",
)
@with_shell
def setup(shell: Shell, folder: str | None) -> None:
    """Create the home, its config and the agent's workspace. Existing files are never overwritten.

    \b
    Examples:
      pal setup
      pal setup --workspace ~/my-agent        from now on
      pal --workspace ~/my-agent setup        only creates it
    """
    if folder is not None:
        if not folder.strip():
            raise BadRequest("the workspace has no name", hint="pal setup --workspace ~/my-agent")
        kept = folder if folder.startswith("~") else str(Path(folder).absolute())
        make_directory(Path(kept).expanduser())
        set_option(services_of(shell), "agents.defaults.workspace", kept)
    report = make(services_of(shell))
    lines = [f"home       {report.home}", f"config     {report.config}"]
    lines += [f"workspace  {folder} ({agent})" for agent, folder in report.workspaces.items()]
    lines += [f"{len(report.created)} files and folders created, {len(report.kept)} existed already. Next: pal chat"]
    shell.show(report, lambda: "\n".join(lines))
