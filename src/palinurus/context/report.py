"""The parts of a prompt and their cost, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from palinurus.context.assemble import RequestParts
from palinurus.context.budget import message_tokens, messages_tokens
from palinurus.context.prompt import ContextSettings, PromptPart
from palinurus.context.view import View, last_usage
from palinurus.domain.messages import AssistantMessage, Message, Origin, ToolResult, UserMessage
from palinurus.text.tokens import estimate_tokens


class SaidPart(Struct, frozen=True):
    """Messages of one kind: owner, agent, context notes, results of one tool."""

    name: str
    count: int
    tokens: int


class TokenPrice(Struct, frozen=True, rename="camel"):
    """US dollars per million tokens."""

    input: float
    output: float
    cache_read: float
    cache_write: float


class ContextReport(Struct, frozen=True, rename="camel"):
    session_key: str
    model: str
    window: int
    parts: tuple[PromptPart, ...]  # sections and files of the system prompt, then the tools
    messages: int
    message_tokens: int
    total_tokens: int  # the provider's count of the last call if there is one, else our estimate
    counted: bool  # whether the provider counted it
    epoch_reason: str = ""
    cacheable_tokens: int = 0  # the head and every message but the newest: the prefix of the next request
    said: tuple[SaidPart, ...] = ()  # the messages by kind
    price: TokenPrice | None = None  # of the model; None: not known
    workspace: str = ""  # the session's, and whose it is


def context_report(
    session_key: str, view: View, gathered: RequestParts, settings: ContextSettings, window: int
) -> ContextReport:
    text, parts = gathered.prompt(settings.prompt)
    costs = tuple(_costed(part, text) for part in parts)
    tools = tuple(_tool_part(spec.name, msgspec.json.encode(spec).decode()) for spec in gathered.tools)
    messages = [line.message for line in view.lines]
    said = messages_tokens(messages)
    counted, after = last_usage(view)
    head = sum(part.tokens for part in (*costs, *tools))
    total = counted + messages_tokens(messages[after:]) if counted else head + said
    return ContextReport(
        session_key=session_key,
        model=f"{gathered.route.provider}/{gathered.route.model}",
        window=window,
        parts=(*costs, *tools),
        messages=len(messages),
        message_tokens=said,
        total_tokens=total,
        counted=bool(counted),
        epoch_reason=view.epoch.reason if view.epoch else "",
        cacheable_tokens=max(0, total - messages_tokens(messages[-1:])),
        said=said_parts(messages),
    )


def said_parts(messages: Sequence[Message]) -> tuple[SaidPart, ...]:
    """The cost of the messages by author, the most expensive first."""
    sums: dict[str, tuple[int, int]] = {}
    for message in messages:
        for name, tokens in _shares(message):
            count, known = sums.get(name, (0, 0))
            sums[name] = (count + 1, known + tokens)
    parts = [SaidPart(name, count, tokens) for name, (count, tokens) in sums.items()]
    return tuple(sorted(parts, key=lambda part: (-part.tokens, part.name)))


def _shares(message: Message) -> Iterator[tuple[str, int]]:
    whole = message_tokens(message)
    match message:
        case UserMessage():
            notes = whole - message_tokens(msgspec.structs.replace(message, context=()))
            yield "you" if message.origin == Origin.OWNER else str(message.origin), whole - notes
            if notes:
                yield "notes", notes
        case ToolResult():
            yield f"results of {message.tool_name}", whole
        case AssistantMessage():
            yield "agent", whole


def render(report: ContextReport, *, detail: bool = False) -> str:
    """A plain text table, the same for `pal context` and `/context`. In detail also by author."""
    width = max((len(part.name) for part in report.parts), default=4)
    lines = [f"{'part':<{width}}  {'raw':>7}  {'sent':>7}  {'tokens':>7}"]
    for part in report.parts:
        cut = "  truncated" if part.truncated else ""
        lines.append(f"{part.name:<{width}}  {part.raw:>7,}  {part.injected:>7,}  {part.tokens:>7,}{cut}")
    lines.append(f"{f'{report.messages} messages':<{width}}  {'':>7}  {'':>7}  {report.message_tokens:>7,}")
    if detail:
        lines += [
            f"{f'  {part.count} {part.name}':<{width}}  {'':>7}  {'':>7}  {part.tokens:>7,}" for part in report.said
        ]
        lines += _detail(report)
    share = 100 * report.total_tokens / report.window if report.window else 0
    how = "counted by the provider, plus an estimate of what came after" if report.counted else "estimated"
    lines.append(f"{report.total_tokens:,} of {report.window:,} tokens ({share:.1f} %), {how}")
    lines.append(f"{report.session_key} · {report.model}")
    if report.workspace:
        lines.append(f"workspace {report.workspace}")
    return "\n".join(lines)


def _detail(report: ContextReport) -> Iterator[str]:
    yield f"{report.cacheable_tokens:,} tokens can come from the provider's cache at the next call"
    if report.epoch_reason:
        yield f"the prompt was last rebuilt because of: {report.epoch_reason}"
    if price := report.price:
        cached = f", ${price.cache_read:g} from the cache"
        yield f"${price.input:g} per million tokens in{cached}, ${price.output:g} out"


def _costed(part: PromptPart, text: str) -> PromptPart:
    # The part's own text is not stored with its sizes; its share of the prompt's tokens is close enough.
    tokens = round(estimate_tokens(text) * part.injected / len(text)) if text else 0
    return msgspec.structs.replace(part, tokens=tokens)


def _tool_part(name: str, schema: str) -> PromptPart:
    return PromptPart(f"tool {name}", len(schema), len(schema), tokens=estimate_tokens(schema))
