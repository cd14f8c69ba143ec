"""What a prompt is made of and what each part costs: for people, not for models."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from palinurus.context.budget import estimate_tokens, messages_tokens
from palinurus.context.opening import ContextSettings, Gathered
from palinurus.context.prompt import PromptPart, system_prompt
from palinurus.context.view import View, last_usage


class ContextReport(Struct, frozen=True, rename="camel"):
    session_key: str
    model: str
    window: int
    parts: tuple[PromptPart, ...]  # sections and files of the system prompt, then the tools
    messages: int
    message_tokens: int
    total_tokens: int  # the provider's count of the last call where there is one, else our estimate
    counted: bool  # whether the provider has counted it
    epoch_reason: str = ""


def context_report(
    session_key: str, view: View, gathered: Gathered, settings: ContextSettings, window: int
) -> ContextReport:
    text, parts = system_prompt(settings.prompt, gathered.tools, gathered.files)
    costs = tuple(_costed(part, text) for part in parts)
    tools = tuple(_tool_part(spec.name, msgspec.json.encode(spec).decode()) for spec in gathered.tools)
    messages = [line.message for line in view.lines]
    said = messages_tokens(messages)
    counted, after = last_usage(view)
    head = sum(part.tokens for part in (*costs, *tools))
    return ContextReport(
        session_key=session_key,
        model=f"{gathered.route.provider}/{gathered.route.model}",
        window=window,
        parts=(*costs, *tools),
        messages=len(messages),
        message_tokens=said,
        total_tokens=counted + messages_tokens(messages[after:]) if counted else head + said,
        counted=bool(counted),
        epoch_reason=view.epoch.reason if view.epoch else "",
    )


def render(report: ContextReport) -> str:
    """A table in plain text, the same for `pal context` and `/context`."""
    width = max((len(part.name) for part in report.parts), default=4)
    lines = [f"{'part':<{width}}  {'raw':>7}  {'sent':>7}  {'tokens':>7}"]
    for part in report.parts:
        cut = "  truncated" if part.truncated else ""
        lines.append(f"{part.name:<{width}}  {part.raw:>7,}  {part.injected:>7,}  {part.tokens:>7,}{cut}")
    lines.append(f"{f'{report.messages} messages':<{width}}  {'':>7}  {'':>7}  {report.message_tokens:>7,}")
    share = 100 * report.total_tokens / report.window if report.window else 0
    how = "counted by the provider, plus an estimate of what came after" if report.counted else "estimated"
    lines.append(f"{report.total_tokens:,} of {report.window:,} tokens ({share:.1f} %), {how}")
    lines.append(f"{report.session_key} · {report.model}")
    return "\n".join(lines)


def _costed(part: PromptPart, text: str) -> PromptPart:
    # The part's own text is not kept beside its sizes; its share of the prompt's tokens is close enough.
    tokens = round(estimate_tokens(text) * part.injected / len(text)) if text else 0
    return msgspec.structs.replace(part, tokens=tokens)


def _tool_part(name: str, schema: str) -> PromptPart:
    return PromptPart(f"tool {name}", len(schema), len(schema), tokens=estimate_tokens(schema))
