"""How much of each prompt the provider has read before: the share of tokens that repeat the previous request's prefix.

The workload: 100 turns of one private session on a window of 32,000 tokens. In each turn the model calls two tools,
whose results are some hundred to some thousand tokens long, and then answers; every twelfth turn comes after a pause
of ten minutes, when a provider's cache has expired. Nobody else is compared: it is a property of what we send.
Everything that is sent counts, requests for summaries and for notes included.

    python -m benchmarks.prefix
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.windowed import WindowedProvider

from benchmarks.figures import Figure
from palinurus.context.epoch import EPOCH, PRUNED
from palinurus.domain.tool import ToolOutput, ToolRun, tool
from palinurus.providers.provider import ModelRequest
from palinurus.sessions.transcript import CompactionEntry, CustomEntry
from palinurus.testing.fakes import Reply, call, calls
from palinurus.testing.harness import Harness

TURNS = 100
WINDOW = 32_000
PAUSE_EVERY = 12
LEAST_SHARE = 0.9
_WORDS = [
    "harbour",
    "light",
    "tide",
    "pier",
    "sail",
    "rope",
    "anchor",
    "chart",
    "wind",
    "stern",
    "mast",
    "keel",
    "wave",
    "berth",
    "crew",
    "night",
]


@dataclass(frozen=True)
class Prompts:
    requests: int
    tokens: int
    repeated: int
    compactions: int
    prunings: int
    epochs: int

    @property
    def share(self) -> float:
        return self.repeated / self.tokens

    def __str__(self) -> str:
        return (
            f"{self.requests} requests of {self.tokens:,} tokens, {self.share:.1%} of them read before; "
            f"{self.compactions} compactions, {self.prunings} prunings, {self.epochs} epochs"
        )


class Listening(WindowedProvider):
    """Keeps every request in its order, whatever it asks for."""

    def __init__(self) -> None:
        super().__init__(window=WINDOW)
        self.sent: list[ModelRequest] = []

    def tokens(self, request: ModelRequest) -> int:
        self.sent.append(request)
        return super().tokens(request)


async def talk(workspace: Path) -> Prompts:
    dice = random.Random(1)

    def text(words: int) -> str:
        return " ".join(dice.choices(_WORDS, k=words))

    @tool("look", "Look at something.")
    async def look(run: ToolRun, at: str) -> ToolOutput:
        return ToolOutput(f"{at}: {text(dice.choice((120, 300, 700, 1_600)))}")

    (workspace / "AGENTS.md").write_text("# Rules\nBe brief.\n", encoding="utf-8")
    model = Listening()
    async with Harness(workspace, model=model, tools=[look]) as pal:
        for turn in range(TURNS):
            if turn and turn % PAUSE_EVERY == 0:
                pal.clock.advance(minutes=10)
            model.says(
                *(calls(call("look", f"c{turn}-{number}", at=f"pier {turn}")) for number in range(2)), Reply(text(60))
            )
            reply = await pal.hears(f"Booking BK-{turn:04d} is for berth {turn}: {text(40)}")
            if reply.status != "ok":
                raise SystemExit(f"turn {turn} was not answered: {reply.error}")
            await pal.idle()
            pal.clock.advance(seconds=30)
        entries = await pal.transcript()
    custom = [entry.custom_type for entry in entries if isinstance(entry, CustomEntry)]
    cuts = sum(isinstance(entry, CompactionEntry) for entry in entries)
    return _counted(model, cuts, custom.count(PRUNED), custom.count(EPOCH))


def _counted(model: Listening, compactions: int, prunings: int, epochs: int) -> Prompts:
    sent, model.sent = model.sent, []
    whole = repeated = 0
    for number, request in enumerate(sent):
        tokens = model.tokens(request)
        whole += tokens
        # A request for a summary stands apart; what follows it continues the conversation that was there before.
        before = next((each for each in reversed(sent[:number]) if each.head == request.head), None)
        repeated += _common(model, before, request) if before else 0
    return Prompts(len(sent), whole, repeated, compactions, prunings, epochs)


def _common(model: Listening, before: ModelRequest, request: ModelRequest) -> int:
    pairs = zip(before.messages, request.messages, strict=False)
    same = next((index for index, (one, other) in enumerate(pairs) if one != other), None)
    count = min(len(before.messages), len(request.messages)) if same is None else same
    return model.tokens(ModelRequest(request.model, request.head, request.messages[:count]))


def measure() -> Prompts:
    with tempfile.TemporaryDirectory(prefix="pal-bench-") as folder:
        return asyncio.run(talk(Path(folder)))


def figures(prompts: Prompts) -> list[Figure]:
    return [
        Figure(
            "prompt tokens that repeat the previous request's prefix",
            round(prompts.share * 100, 1),
            {},
            LEAST_SHARE * 100,
            unit="%",
            more_is_better=True,
        )
    ]


def main() -> int:
    prompts = measure()
    print(prompts)
    good = prompts.share >= LEAST_SHARE and prompts.compactions >= 3 and prompts.prunings >= 3
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
