"""Facts: how long deriving them takes after the derived store was deleted, and how long a question takes.

    python -m benchmarks.knowledge [--facts 10000 100000]

A home of its own, with a thousand notes, one a day, about 400 people, places and things.
Questions go through the operation, in the process that has the home; figures are medians in milliseconds, with the load
of the machine beside them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path
from statistics import median
from typing import Any

from palinurus.config.home import find_home
from palinurus.extensions.knowledge.knowledge import Knowledge
from palinurus.extensions.knowledge.recall import RecallQuestion
from palinurus.runtime.runtime import Runtime

SYLLABLES = (
    "ka",
    "lo",
    "mi",
    "ter",
    "van",
    "so",
    "ril",
    "den",
    "pau",
    "gre",
    "hol",
    "bin",
    "zet",
    "fay",
    "nor",
    "wick",
)
PLACES = ("Lisbon", "Vienna", "Graz", "Linz", "Oslo", "Porto", "Bergen", "Zurich", "Ghent", "Turin", "Leeds", "Malmö")
THINGS = (
    "the boat",
    "the studio",
    "the garden",
    "the server",
    "the bicycle",
    "the kitchen",
    "the archive",
    "the piano",
)
SAID = (
    "- W @{a}: Moved to {place}.",
    "- W @{a}: Works at {b} now.",
    "- W: {thing} costs {number} euros a month.",
    "- O(c=0.8) @{a}: Prefers {place} to {other}.",
    "- B: Talked with @{a} and @{b} about {thing} in {place}.",
    "- S @{a}: Repaired {thing} with @{b}, part {number}.",
)
NOTES, NAMES, ASKED = 1_000, 400, 60


def people(chance: random.Random) -> list[str]:
    made: dict[str, None] = {}
    while len(made) < NAMES:
        first, last = ("".join(chance.sample(SYLLABLES, 2)).title() for _ in range(2))
        made[f"{first}-{last}"] = None
    return list(made)


def write_notes(folder: Path, facts: int, names: list[str], chance: random.Random) -> None:
    folder.mkdir(parents=True)
    per_note = max(facts // NOTES, 10)
    for number in range(facts // per_note):
        day = date(1996, 1, 1) + timedelta(number)
        lines = [f"# {day}", "", "## Retain"]
        for _ in range(per_note):
            a, b = chance.sample(names, 2)
            place, other = chance.sample(PLACES, 2)
            thing = f"{chance.choice(THINGS)} {chance.choice(SYLLABLES)}{chance.choice(SYLLABLES)}"
            values = {"a": a, "b": b, "place": place, "other": other, "thing": thing, "number": chance.randrange(9999)}
            lines.append(chance.choice(SAID).format(**values))
        (folder / f"{day}.md").write_text("\n".join(lines) + "\n")


async def measure(facts: int) -> dict[str, Any]:
    chance = random.Random(facts)
    names = people(chance)
    with tempfile.TemporaryDirectory(prefix="pal-facts-") as folder:
        root = Path(folder)
        env = {"PALINURUS_HOME": str(root / "home"), "HOME": str(root), "PATH": os.environ["PATH"]}
        home, workspace = find_home(env), root / "workspace"
        home.root.mkdir()
        config = {"agents": {"defaults": {"workspace": str(workspace)}}, "memory": {"search": {"provider": "none"}}}
        home.config_path.write_text(json.dumps(config))
        write_notes(workspace / "memory", facts, names, chance)
        runtime = Runtime(home, env, process="bench")
        try:
            await runtime.services.memory("main").sync()
            return await figures(runtime.services.keep(Knowledge), names, chance)
        finally:
            await runtime.close()


async def figures(knowledge: Knowledge, names: list[str], chance: random.Random) -> dict[str, Any]:
    await knowledge.of("")
    await knowledge.remove_stores()
    began, cpu = time.perf_counter(), time.process_time()
    own = await knowledge.of("")
    anew, anew_cpu = time.perf_counter() - began, time.process_time() - cpu
    taken: list[float] = []
    used: list[float] = []
    for _ in range(ASKED):
        name = chance.choice(names).replace("-", " ")
        text = chance.choice(
            (f"Where does {name} live?", f"What did {name} repair?", f"Where did {name} work in May 2001?",
             f"Tell me about {name}", f"How much does {chance.choice(THINGS)} cost?")
        )  # fmt: skip
        began, cpu = time.perf_counter(), time.process_time()
        await knowledge.recall(RecallQuestion(text))
        taken.append((time.perf_counter() - began) * 1000)
        used.append((time.process_time() - cpu) * 1000)
    return {
        "facts": await own.store.count(),
        "derived anew, s": round(anew, 2),
        "of the processor, s": round(anew_cpu, 2),
        "recall p50, ms": round(median(taken), 1),
        "of the processor, ms": round(median(used), 1),
        "recall p95, ms": round(sorted(taken)[int(len(taken) * 0.95)], 1),
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--facts", type=int, nargs="+", default=[10_000, 100_000])
    for facts in parser.parse_args().facts:
        print(json.dumps(asyncio.run(measure(facts))), flush=True)


if __name__ == "__main__":
    main()
