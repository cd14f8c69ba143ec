"""What rules take for a statement of the user, measured on sentences that were labelled by hand before the rules.

`statement_labels.txt` has a line for each message: its id, and for each of its sentences 1 (a preference, decision,
fact, date or commitment of the user), 0 (none) or ? (doubtful, not counted). The texts are those of EVAL_DATA and
FIXTURES, found by id. A third of the messages was held out while the rules were written.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from palinurus.context.notes import Weight, weigh
from palinurus.text.sentences import split_sentences

LABELS = Path(__file__).with_name("statement_labels.txt")
_STAMP = re.compile(r"^\[[^\]]*\d{4}-\d\d-\d\d[^\]]*\] ")


def texts() -> Iterator[tuple[str, str]]:
    """Messages of users by id."""
    for name in ("FIXTURES", "EVAL_DATA"):
        if not os.environ.get(name):
            pytest.skip(f"{name} does not name the data")
    for path in Path(os.environ["EVAL_DATA"]).glob("locomo/*.json"):
        for name, turns in json.loads(path.read_text()).items():
            if re.fullmatch(r"session_\d+", name):
                yield from ((f"L{path.stem}:{turn['dia_id']}", turn["text"]) for turn in turns)
    for path in Path(os.environ["FIXTURES"]).glob("*/home/**/*.jsonl*"):
        for line in path.read_text(errors="replace").splitlines():
            row = json.loads(line) if line.startswith("{") else {}
            message = row.get("message", row)
            if isinstance(message, dict) and message.get("role") == "user":
                text = _STAMP.sub("", _text(message.get("content")))
                yield f"F{hashlib.sha256(text.encode()).hexdigest()[:10]}", text


def _text(content: object) -> str:
    if isinstance(content, list):
        return " ".join(block.get("text", "") for block in content)
    return str(content.get("text", "")) if isinstance(content, dict) else str(content or "")


@pytest.mark.parametrize("is_held_out", [False, True])
def test_nine_of_ten_kept_sentences_are_statements_and_of_these_most_are_kept(is_held_out: bool) -> None:
    known, seen = dict(texts()), set[str]()
    right = wrong = missed = 0
    for line in LABELS.read_text().splitlines():
        id_, labels = line.split()
        if (int(hashlib.sha256(id_.encode()).hexdigest(), 16) % 3 == 0) is not is_held_out:
            continue
        follows = False
        for sentence, label in zip(split_sentences(known[id_]), labels, strict=True):
            follows = weigh(sentence, follows=follows) >= Weight.FACT
            if label == "?" or sentence.lower() in seen:
                continue
            seen.add(sentence.lower())
            right += follows and label == "1"
            wrong += follows and label == "0"
            missed += not follows and label == "1"
    assert right / (right + wrong) >= 0.9
    assert right / (right + missed) >= 0.6
