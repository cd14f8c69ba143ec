"""What looks like a secret in a transcript is told by its line, whatever shape of ours it has."""

from __future__ import annotations

from pathlib import Path

import pytest
from foreign_trees import count_secrets

# Put together here, so that nobody who looks for secrets finds one in this file.
SHAPES = {
    "openai": "sk" + "-proj-" + "a1b2c3d4" * 4,
    "github": "gh" + "p_" + "A1b2" * 9,
    "github pat": "github" + "_pat_" + "A1b2" * 9,
    "slack": "xox" + "b-1234567890-abcdefghij",
    "slack app": "xapp" + "-1-A0123456789-abcdef",
    "gateway": "pal" + "_" + "a" * 43,
    "aws": "AK" + "IA" + "ABCDEFGHIJKLMNOP",
    "aws for a while": "AS" + "IA" + "ABCDEFGHIJKLMNOP",
    "google": "AI" + "za" + "B" * 35,
    "telegram": "123456789" + ":AA" + "b" * 33,
    "web token": "ey" + "JhbGciOiJI" + ".ey" + "JzdWIiOiIx" + ".c2lnbmF0dXJl",
    "bearer": "Bear" + "er abcdefghij0123456789abcdef",
    "private key": "-----BEGIN RSA PRIV" + "ATE KEY-----\n" + "QUJD" * 12 + "\n-----END RSA PRIV" + "ATE KEY-----",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_each_shape_is_noticed_among_plain_lines(tmp_path: Path, shape: str) -> None:
    assert count_secrets(tmp_path, ["plain words", f"it is {SHAPES[shape]} I think", "more of them"]) == [3]


def test_plain_words_are_not(tmp_path: Path) -> None:
    words = ["a task-list", "pal_", "see :AA", "eyJ", "xox", "the bearer of news", "sk-", "github_pat_", "AKIA"]
    assert count_secrets(tmp_path, words) == []
