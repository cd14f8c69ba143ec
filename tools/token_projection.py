"""Fit the projection of token states, which makes them small enough for an index (docs/decisions/0032).

    python tools/token_projection.py            writes src/palinurus/memory/embedders/token-projection.bin
    python tools/token_projection.py --check    says how much a new fit differs from that file

A PCA of the embedded model's states, then a rotation, so that each sign tells about as much as any other. The text is
ours: the sentences below, with words of the model's vocabulary in the gaps. Nothing of an evaluation is in it.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from palinurus.memory.embedders.embedded import MOST_TOKENS, PROJECTION, find_parts
from palinurus.memory.embedders.worker import EmbeddingModel
from palinurus.memory.late import DIMENSIONS

COUNT = 6_000  # sentences
STEP = 7_919  # a prime, so that neighbours in the vocabulary do not meet
SEED = 2  # of the rotation; of three, the one that found most on the development half
_NAMES = "Anna Ben Clara David Emma Felix Grace Hugo Ines Jonas Karin Leo Maria Nils Olga Paul"
NAMES = _NAMES.split()
SENTENCES = """
{n}: I went to the {a} with my {b} last weekend, and it was so much fun!
{n}: Have you thought about the {a} since we last talked about {b}?
{n}: Thanks! My {a} really helped me with the {b}, I could not have done it alone.
{n}: That sounds great. What kind of {a} do you like best, {b} or something else?
{n}: We have had our {a} for three years now, and they love the {b}.
{n}: I am thinking of giving up {a}, because {b} takes all of my time.
{n}: Yesterday I finally finished the {a} that I told you about, the one with the {b}.
{n}: She moved from {a} to {b} in May, when her brother was born.
{n}: My favourite memory is of the {a} at my grandmother's house, and the smell of {b}.
{n}: The doctor said I should {a} less and {b} more, so I started last Monday.
{n}: It was hard at first, but {a} taught me to {b} every day.
{n}: Wow, you must be proud! How did the {a} go, and who was at the {b}?
Decided to use {a} instead of {b}, because it is cheaper and easier to keep.
The {a} is due on Friday; {b} will send the report to the whole team.
Waiting for {a} before the {b} can be ordered, see the note of last week.
Call the {a} about the {b}, the number is on the fridge.
Paid 240 for the {a} and 36 for the {b}, both from the household account.
Meeting with {n} about {a}: we agreed on {b} and on the first of June.
Budget for the {a} project: 12,000 for {b}, the rest stays in reserve.
The password of the {a} is kept in the safe, next to the papers of the {b}.
Allergic to {a}; takes {b} twice a day, in the morning and at night.
Prefers {a} over {b}, likes short answers and no small talk.
Flight to {a} on 14 March at 9:40, seat by the window, the hotel is near the {b}.
To do: buy {a}, repair the {b}, water the plants, write to {n}.
| {a} | {b} | done | {n} |
The server {a} runs {b} on port 8080 and is restarted every night.
If the {a} fails, check the {b} first, then look at the log of the day.
def {a}({b}): returns the number of items that are left in the queue.
What did {n} say about the {a} and the {b}?
When did {n} buy the {a}, and where is the {b} now?
Which {a} does {n} use for the {b}?
Why did we choose {a} and not {b}?
How many {a} were there at the {b} last summer?
Who asked {n} for the {a} before the {b} was sold?
Does {n} still have the {a} that came with the {b}?
Where do the children of {n} play {a} after {b}?
""".strip().splitlines()


def sentences(vocabulary: Path) -> Iterator[str]:
    ids = json.loads(vocabulary.read_text(encoding="utf-8"))["model"]["vocab"]
    words = [word for word in sorted(ids, key=ids.__getitem__) if re.fullmatch("[a-z]{3,}", word)]
    for number in range(COUNT):
        one, other = (words[at * STEP % len(words)] for at in (2 * number, 2 * number + 1))
        yield SENTENCES[number % len(SENTENCES)].format(n=NAMES[number * 7 % len(NAMES)], a=one, b=other)


def fitted() -> np.ndarray:
    """The mean and below it the directions, one row for each number of a state."""
    files = find_parts()
    model = EmbeddingModel(str(files.weights), str(files.vocabulary), MOST_TOKENS)
    made: list[np.ndarray] = []
    together: list[str] = []
    for text in sentences(files.vocabulary):
        together.append(text)
        if len(together) == 8:
            made += [states for _, states in model.states(together)[1]]
            together = []
    states = np.concatenate(made).astype(np.float64)
    states /= np.linalg.norm(states, axis=1, keepdims=True)
    mean = states.mean(axis=0)
    directions = np.linalg.eigh(np.cov((states - mean).T))[1][:, : -DIMENSIONS - 1 : -1]
    directions *= np.sign(directions[np.abs(directions).argmax(axis=0), range(DIMENSIONS)])
    turned = np.linalg.qr(np.random.default_rng(SEED).normal(size=(DIMENSIONS, DIMENSIONS)))[0]
    return np.vstack([mean, (directions @ turned).T]).astype("<f2")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    made = fitted()
    if parser.parse_args().check:
        known = np.frombuffer(PROJECTION.read_bytes(), "<f2").reshape(made.shape)
        print(f"largest difference: {np.abs(known.astype(float) - made.astype(float)).max():.4f}")
    else:
        PROJECTION.write_bytes(made.tobytes())


if __name__ == "__main__":
    main()
