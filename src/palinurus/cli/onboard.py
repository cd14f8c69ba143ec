"""`pal onboard`: from nothing to a model that answers."""

from __future__ import annotations

import sys

import click
import msgspec
from msgspec import Struct

from palinurus.cli.derived import ask
from palinurus.cli.entrance import ground_of, make_on_first_run
from palinurus.cli.shell import Shell, run_async, with_json
from palinurus.domain.errors import BadRequest
from palinurus.operations.catalog import models_choice, models_set
from palinurus.operations.config import Ground
from palinurus.operations.credentials import credential_on_trial
from palinurus.operations.models import ProbeReport, probe_model, show_model_status
from palinurus.operations.onboarding import Surroundings, begin_with, look_around
from palinurus.providers.scout.scout import SCOUT

WITHOUT = "scout goes on: it notes, finds and quotes, and needs no model. `pal onboard` can be run again."


class Onboarded(Struct, frozen=True):
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
@click.option("--yes", "-y", is_flag=True, help="Ask nothing: take what is there.")
@with_json
@click.pass_obj
def onboard(shell: Shell, provider: str, key_stdin: bool, model: str, yes: bool) -> int:
    """Set up a model: paste a key, or use a model server on this machine.

    The model is tested with one tiny request before it is set. Without any model scout goes on, which needs none.

    \b
    Examples:
      pal onboard
      pal configure                           the same
      pal onboard --yes
      pal onboard --provider openai --key-stdin < key.txt
      pal onboard --model ollama/qwen3
    """
    make_on_first_run(shell)
    ground = ground_of(shell)
    if yes or key_stdin or provider or model:
        done = _as_told(shell, ground, provider, model, key_stdin=key_stdin)
    elif sys.stdin.isatty():
        done = _asked(shell, ground)
    else:
        raise BadRequest("nobody is there to be asked", hint="pal onboard --yes, or name --provider or --model")
    shell.show(done, lambda: _text(done))
    return 0 if done.ok else 1


def _as_told(shell: Shell, ground: Ground, provider: str, model: str, *, key_stdin: bool) -> Onboarded:
    if key_stdin and not provider:
        raise BadRequest("whose key is it?", hint="pal onboard --provider openai --key-stdin < key.txt")
    around = run_async(look_around(ground))
    chosen = model or (begin_with(around, provider) if provider else models_choice(ground).primary)
    chosen = chosen or around.first_model()
    if not chosen:
        return _as_it_is(shell)
    return (
        _tried_with(shell, ground, chosen, provider, sys.stdin.readline())
        if key_stdin
        else _tried(shell, ground, chosen)
    )


def _asked(shell: Shell, ground: Ground) -> Onboarded:
    """Until a model answers, or somebody has enough."""
    while True:
        chosen, provider, secret = _choice(run_async(look_around(ground)))
        if not chosen:
            return _as_it_is(shell)
        click.echo(shell.dim(f"asking {chosen} …"))
        done = _tried_with(shell, ground, chosen, provider, secret) if secret else _tried(shell, ground, chosen)
        if done.ok:
            return done
        click.echo(_text(done))
        if not click.confirm("try something else?", default=True):
            return _as_it_is(shell)


def _choice(around: Surroundings) -> tuple[str, str, str]:
    """The model that a person chooses, its provider, and a new key for it; all empty for none."""
    rows = [
        (server.provider, f"{server.name} on this machine: {', '.join(server.models[:3])}") for server in around.servers
    ]
    rows += [
        (known.provider, f"{known.provider:<11} {'a key is there' if known.has_key else 'paste a key'}")
        for known in around.providers
    ]
    click.echo("Which model shall answer?\n")
    for number, (_, told) in enumerate(rows, start=1):
        click.echo(f"  {number:>2}  {told}")
    click.echo("   0  none for now: scout needs no model\n")
    number = click.prompt("choice", type=click.IntRange(0, len(rows)), default=1)
    if number == 0:
        return "", "", ""
    provider = rows[number - 1][0]
    has_key = {known.provider: known.has_key for known in around.providers}
    secret = ""
    if provider in has_key:
        told = "key, not shown (Enter keeps the one that is there)" if has_key[provider] else "key, not shown"
        secret = click.prompt(told, hide_input=True, default="" if has_key[provider] else None, show_default=False)
    model: str = click.prompt("model", default=begin_with(around, provider))
    return model if "/" in model else f"{provider}/{model}", provider, secret


def _tried_with(shell: Shell, ground: Ground, model: str, provider: str, secret: str) -> Onboarded:
    """With a new key, which is kept when it is good for something."""
    with credential_on_trial(ground, provider, secret) as keep:
        done = _tried(shell, ground, model, f"{provider.strip().lower()}:default")
        if done.ok:
            keep()
    return msgspec.structs.replace(done, key_given=True)


def _tried(shell: Shell, ground: Ground, model: str, credential: str = "") -> Onboarded:
    report = ask(shell, probe_model, probe_model.params(ref=model, credential=credential))
    if report.ok:
        return Onboarded(True, models_set(ground, model), report)
    return Onboarded(False, model, report)


def _as_it_is(shell: Shell) -> Onboarded:
    found = ask(shell, show_model_status, show_model_status.params())
    return Onboarded(True, found.model, reason=found.reason)


def _text(done: Onboarded) -> str:
    report = done.test
    if report is None:
        return WITHOUT if done.model == str(SCOUT) else f"{done.model} goes on ({done.reason}). Nothing was changed."
    if done.ok:
        return f"{done.model} answers ({report.total_ms} ms) and is asked first from now on. Next: pal chat"
    hint = f" ({report.hint})" if report.hint else ""
    kept = "The key was not kept, and nothing was changed." if done.key_given else "Nothing was changed."
    return f"{report.asked} does not answer: {report.error_kind}: {report.error}{hint}. {kept}"
