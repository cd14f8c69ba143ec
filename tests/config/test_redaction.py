"""Secrets do not get through, and nothing else is lost."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palinurus.config.secrets import MARKER, Redactor, mask

# Put together here, so that no scanner takes this file for a leak.
KEY = "PRIVATE " + "KEY-----"
SHAPES = {
    "openai": "sk-" + "proj-" + "a1B2" * 8,
    "anthropic": "sk-" + "ant-api03-" + "Zz9_" * 10,
    "github": "gh" + "p_" + "a1B2" * 9,
    "github fine-grained": "github" + "_pat_" + "11ABC_" * 8,
    "slack": "xox" + "b-123456789012-abcdefABCDEF",
    "aws": "AK" + "IA" + "ABCDEFGH12345678",
    "google": "AI" + "za" + "b1" * 17 + "c",
    "telegram": "123456789:" + "AA" + "x1Y2-" * 7,
    "jwt": "ey" + "JhbGciOiJIUzI1NiJ9." + "ey" + "JzdWIiOiIxMjM0In0." + "c2lnbmF0dXJlLWhlcmU",
    "pem": f"-----BEGIN RSA {KEY}\nProc-Type: 4\n{'MIIB' * 16}\n-----END RSA {KEY}",
    "cut pem": f"-----BEGIN {KEY}\n{'MIIB' * 16}\n{'abcd' * 16}",
}


@pytest.mark.parametrize("name", SHAPES)
def test_text_shaped_like_a_secret_is_taken_out(name: str) -> None:
    for text in (f"key: {SHAPES[name]} end", f'{{"k":"{SHAPES[name]}"}}', SHAPES[name]):
        assert Redactor().redact(text) == text.replace(SHAPES[name], MARKER)


def test_a_bearer_token_is_taken_out_and_the_word_stays() -> None:
    assert Redactor().redact("authorization: Bearer 0123456789abcdefghij.x") == f"authorization: Bearer {MARKER}"


@pytest.mark.parametrize(
    "text",
    [
        "ask-me-anything about risk-assessment and sk-learn-based-pipelines-for-text",
        "the bearer of bad news; Bearer tokens are long",
        "see https://example.org/eyJ and commit 0123456789abcdef0123456789abcdef01234567",
        "at 12:30:AA, AKIA is a prefix, AIza too, and xoxo to all",
        "a PEM block begins with -----BEGIN PRIVATE KEY----- and then comes base64",
    ],
)
def test_ordinary_words_stay_and_cost_nothing(text: str) -> None:
    assert Redactor(["hunter2-hunter2"]).redact(text) is text


def test_configured_values_are_taken_out_the_longest_first() -> None:
    redactor = Redactor(["password-one", "password-one-and-more", "short", ""])
    assert redactor.redact("a password-one-and-more b password-one c short") == f"a {MARKER} b {MARKER} c short"


def test_a_value_is_found_inside_json_text_too() -> None:
    assert Redactor(['with"quote\\es']).redact('{"k": "with\\"quote\\\\es"}') == f'{{"k": "{MARKER}"}}'


def test_data_is_redacted_string_by_string() -> None:
    data = {"command": ["echo", "hunter2-hunter2"], "n": 1, "hunter2-hunter2": None}
    assert Redactor(["hunter2-hunter2"]).redact_value(data) == {"command": ["echo", MARKER], "n": 1, MARKER: None}


def test_a_value_glued_to_another_secret_hides_neither() -> None:
    assert Redactor(["hunter2-hunter2"]).redact("hunter2-hunter2" + SHAPES["openai"]) == MARKER * 2


PIECES = st.sampled_from(
    [*SHAPES.values(), MARKER, "redacted", "ted][red", "[red", "acted]", "Bearer ", "-----END", " ", "a"]
)


@settings(deadline=None)
@given(st.lists(PIECES | st.text(max_size=4), max_size=8).map("".join), st.lists(PIECES, max_size=3))
def test_redacting_twice_gives_what_redacting_once_gave(text: str, secrets: list[str]) -> None:
    redactor = Redactor(secrets)
    once = redactor.redact(text)
    assert redactor.redact(once) == once
    assert not [value for value in secrets if len(value) >= 8 and any(value in part for part in once.split(MARKER))]


def test_hostile_text_of_a_megabyte_takes_no_long_time() -> None:
    for piece in ("eyJ", "sk-", "-----BEGIN PRIVATE KEY-----", "xox", "1234567:AA", "Bearer "):
        Redactor(["hunter2-hunter2"]).redact(piece * (1_000_000 // len(piece)))  # the suite's timeout is the limit


def test_masking_shows_the_shape_and_not_the_secret() -> None:
    data = {"apiKey": "abc", "tokenFile": "/f", "token": "${TOKEN}", "list": [{"password": "p"}], "maxTokens": 5}
    assert mask(data) == {
        "apiKey": "***",
        "tokenFile": "/f",
        "token": "${TOKEN}",
        "list": [{"password": "***"}],
        "maxTokens": 5,
    }


def test_the_light_modules_do_not_load_pydantic() -> None:
    modules = ("home", "atomic", "secrets", "source")
    code = (
        "import sys\n"
        + "".join(f"import palinurus.config.{name}\n" for name in modules)
        + "print('pydantic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
