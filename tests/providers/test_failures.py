"""Every way in which a model does not answer has a type, a sentence and no key in it."""

from __future__ import annotations

from typing import Any

import httpx2
import msgspec
import pytest

from palinurus.domain.errors import Failure
from palinurus.providers.wires.failures import RULES, WORDS, Call, failure_in_stream, failure_of, failure_of_exception

NOW = 1_794_700_800_000  # 2026-11-15 00:00:00 UTC
CALL = Call("openai/gpt-x", "https://api.example", secret="top-secret-key", now_ms=NOW)

ROWS = [
    (401, "Incorrect API key provided", Failure.AUTH),
    (403, "you may not", Failure.AUTH),
    (400, "Incorrect API key provided: xai-abc", Failure.AUTH),
    (400, "API key not valid. Please pass a valid API key.", Failure.AUTH),
    (402, "", Failure.BILLING),
    (429, "insufficient_quota", Failure.BILLING),
    (429, "You exceeded your current quota, please check your plan and billing details.", Failure.BILLING),
    (400, "Your credit balance is too low to access the API", Failure.BILLING),
    (403, "Insufficient balance", Failure.BILLING),
    (429, 'You exceeded your current quota.\n "status": "RESOURCE_EXHAUSTED"', Failure.RATE_LIMIT),
    (429, "Rate limit reached for gpt-x", Failure.RATE_LIMIT),
    (404, "The model `gpt-x` does not exist or you do not have access to it.", Failure.MODEL_NOT_FOUND),
    (404, 'model "llama" not found, try pulling it first', Failure.MODEL_NOT_FOUND),
    (400, "foo/bar is not a valid model ID", Failure.MODEL_NOT_FOUND),
    (403, "model_not_found", Failure.MODEL_NOT_FOUND),
    (404, "404 page not found", Failure.BAD_REQUEST),
    (408, "", Failure.TIMEOUT),
    (413, "", Failure.CONTEXT_OVERFLOW),
    (413, "Request too large for model: tokens per minute", Failure.CONTEXT_OVERFLOW),
    (400, "This model's maximum context length is 8192 tokens", Failure.CONTEXT_OVERFLOW),
    (400, "context_length_exceeded", Failure.CONTEXT_OVERFLOW),
    (400, "prompt is too long: 210000 tokens > 200000 maximum", Failure.CONTEXT_OVERFLOW),
    (400, "Input is too long for requested model", Failure.CONTEXT_OVERFLOW),
    (400, "This model's maximum prompt length is 131072 but the request contains 140000", Failure.CONTEXT_OVERFLOW),
    (400, "The input token count (1200000) exceeds the maximum number of tokens", Failure.CONTEXT_OVERFLOW),
    (400, "the request exceeds the available context size, try increasing it", Failure.CONTEXT_OVERFLOW),
    (400, "Please reduce the length of the messages or completion.", Failure.CONTEXT_OVERFLOW),
    (400, "Your request exceeded model token limit: 262144", Failure.CONTEXT_OVERFLOW),
    (422, "`inputs` tokens + `max_new_tokens` must be <= 4097", Failure.CONTEXT_OVERFLOW),
    (500, "the prompt exceeds the available context size", Failure.CONTEXT_OVERFLOW),
    (429, "Request too large for gpt-x on tokens per min: Limit 30000, Requested 40000", Failure.CONTEXT_OVERFLOW),
    (400, "The response was filtered: content_filter", Failure.REFUSAL),
    (403, "The input was flagged", Failure.REFUSAL),
    (451, "blocked by content policy", Failure.REFUSAL),
    (500, "", Failure.OVERLOAD),
    (502, "<html>bad gateway</html>", Failure.OVERLOAD),
    (503, "", Failure.OVERLOAD),
    (504, "", Failure.OVERLOAD),
    (524, "", Failure.OVERLOAD),
    (529, "overloaded_error", Failure.OVERLOAD),
    (400, "messages: roles must alternate", Failure.BAD_REQUEST),
    (409, "", Failure.BAD_REQUEST),
    (422, "tools.0.function.name: field required", Failure.BAD_REQUEST),
    (307, "", Failure.BAD_REQUEST),
]


ANTHROPIC_ROWS = [
    (529, "overloaded_error", "Overloaded", Failure.OVERLOAD),
    (500, "api_error", "Internal server error", Failure.OVERLOAD),
    (504, "timeout_error", "Request timed out", Failure.OVERLOAD),
    (429, "rate_limit_error", "This request would exceed the rate limit for your organization", Failure.RATE_LIMIT),
    (401, "authentication_error", "invalid x-api-key", Failure.AUTH),
    (403, "permission_error", "Your API key does not have permission to use this resource", Failure.AUTH),
    (400, "invalid_request_error", "This organization has been disabled.", Failure.AUTH),
    (402, "billing_error", "There is an issue with your billing", Failure.BILLING),
    (400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API.", Failure.BILLING),
    (400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum", Failure.CONTEXT_OVERFLOW),
    (
        *(400, "invalid_request_error"),
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
        Failure.CONTEXT_OVERFLOW,
    ),
    (413, "request_too_large", "Request exceeds the maximum size", Failure.CONTEXT_OVERFLOW),
    (404, "not_found_error", "model: claude-nobody-9", Failure.MODEL_NOT_FOUND),
    (400, "invalid_request_error", "Output blocked by content filtering policy", Failure.REFUSAL),
    (
        400,
        "invalid_request_error",
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        Failure.BAD_REQUEST,
    ),
]


@pytest.mark.parametrize(("status", "kind", "message", "failure"), ANTHROPIC_ROWS)
@pytest.mark.parametrize("in_stream", [False, True])
def test_anthropics_error_bodies_have_a_kind_before_and_inside_a_stream(
    status: int, kind: str, message: str, failure: Failure, in_stream: bool
) -> None:
    error = {"type": kind, "message": message}
    body = msgspec.json.encode({"type": "error", "error": error, "request_id": "req_1"}).decode()
    found = failure_in_stream(error, CALL) if in_stream else failure_of(status, body, {}, CALL)
    assert found.kind is failure
    assert found.message.endswith(message)


GOOGLE_ROWS = [
    (429, "RESOURCE_EXHAUSTED", "You exceeded your current quota, please check your plan.", Failure.RATE_LIMIT),
    (429, "RESOURCE_EXHAUSTED", "Your prepayment credits are depleted.", Failure.BILLING),
    (
        *(400, "INVALID_ARGUMENT"),
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        Failure.CONTEXT_OVERFLOW,
    ),
    (400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", Failure.AUTH),
    (400, "INVALID_ARGUMENT", 'Invalid JSON payload received. Unknown name "$schema"', Failure.BAD_REQUEST),
    (400, "INVALID_ARGUMENT", "Function call is missing a thought_signature", Failure.BAD_REQUEST),
    (400, "FAILED_PRECONDITION", "The free tier is not offered here. Please enable billing.", Failure.BILLING),
    (403, "PERMISSION_DENIED", "Permission denied on resource project.", Failure.AUTH),
    (404, "NOT_FOUND", "models/gemini-9.9-nobody is not found for API version v1beta", Failure.MODEL_NOT_FOUND),
    (500, "INTERNAL", "An internal error has occurred.", Failure.OVERLOAD),
    (503, "UNAVAILABLE", "The model is overloaded. Please try again later.", Failure.OVERLOAD),
    (504, "DEADLINE_EXCEEDED", "The request timed out.", Failure.OVERLOAD),
]


@pytest.mark.parametrize(("status", "name", "message", "failure"), GOOGLE_ROWS)
@pytest.mark.parametrize("shape", ["object", "array", "in stream"])
def test_googles_error_bodies_have_a_kind_in_every_shape(
    status: int, name: str, message: str, failure: Failure, shape: str
) -> None:
    error = {"code": status, "message": message, "status": name, "details": [{"retryDelay": "35s"}]}
    body: Any = [{"error": error}] if shape == "array" else {"error": error}
    text = msgspec.json.encode(body).decode()
    found = failure_in_stream(error, CALL) if shape == "in stream" else failure_of(status, text, {}, CALL)
    assert (found.kind, found.status, found.retry_after) == (failure, status, 35.0)
    assert found.message.endswith(message)


@pytest.mark.parametrize(("status", "text", "kind"), ROWS)
@pytest.mark.parametrize("wrapped", [True, False])
def test_a_status_and_its_text_have_a_kind(status: int, text: str, kind: Failure, wrapped: bool) -> None:
    body = msgspec.json.encode({"error": {"message": text}}).decode() if wrapped else text
    error = failure_of(status, body, {}, CALL)
    assert (error.kind, error.status) == (kind, status)
    assert error.message.startswith("openai/gpt-x ")
    assert error.hint
    assert "\n" not in str(error)


def test_every_row_of_the_table_is_reached_by_a_case() -> None:
    reached = {[rule.matches(status, text) for rule in RULES].index(True) for status, text, _ in ROWS}
    assert reached == set(range(len(RULES)))


def test_every_kind_has_words() -> None:
    assert set(WORDS) == set(Failure)


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"Retry-After": "7"}, "", 7.0),
        ({"retry-after": "1.5"}, "", 1.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, "", 0.25),
        ({"Retry-After": "Sun, 15 Nov 2026 00:01:00 GMT"}, "", 60.0),
        ({"Retry-After": "Sat, 14 Nov 2026 00:01:00 GMT"}, "", 0.0),
        ({"Retry-After": "-3"}, "", 0.0),
        ({"Retry-After": "inf"}, "", None),
        ({"Retry-After": "soon"}, "", None),
        ({}, "Please try again in 1.2s.", 1.2),
        ({}, "Please try again in 20ms.", 0.02),
        ({}, '{"retryDelay": "35s"}', 35.0),
        ({}, "", None),
    ],
)
def test_the_time_to_wait_is_read_in_every_form(headers: dict[str, str], body: str, seconds: float | None) -> None:
    assert failure_of(429, body, headers, CALL).retry_after == pytest.approx(seconds)


def test_no_message_holds_the_key_or_what_looks_like_one() -> None:
    error = failure_of(401, '{"error":{"message":"bad key top-secret-key or sk-proj-abcdefgh1234"}}', {}, CALL)
    assert error.message == "openai/gpt-x refused the key (HTTP 401): bad key [key] or [key]"


@pytest.mark.parametrize(
    ("body", "end"),
    [
        ('{"error":"plain words"}', ": plain words"),
        ('{"detail":"Not authenticated"}', ": Not authenticated"),
        ('{"message":"no"}', ": no"),
        ('{"error":{"message":"two\\n lines"}}', ": two lines"),
        ("<html>a page</html>", "(HTTP 500)"),
        ("", "(HTTP 500)"),
        ("x" * 1000, "…"),
    ],
)
def test_the_providers_own_words_are_found_and_kept_short(body: str, end: str) -> None:
    message = failure_of(500, body, {}, CALL).message
    assert message.endswith(end)
    assert len(message) < 400


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        ({"code": 429, "message": "slow down"}, Failure.RATE_LIMIT, 429),
        ({"code": 502, "message": "Provider returned error"}, Failure.OVERLOAD, 502),
        ({"code": "rate_limit_exceeded", "message": "slow"}, Failure.RATE_LIMIT, None),
        ({"type": "server_error", "message": "oops"}, Failure.OVERLOAD, None),
        ({"code": "context_length_exceeded", "message": "long"}, Failure.CONTEXT_OVERFLOW, None),
        ({"code": "insufficient_quota", "message": "pay"}, Failure.BILLING, None),
        ({"type": "invalid_request_error", "message": "tools"}, Failure.BAD_REQUEST, None),
        ({"code": "content_filter", "message": "no"}, Failure.REFUSAL, None),
        ("something odd", Failure.OVERLOAD, None),
    ],
)
def test_an_error_inside_a_stream_has_a_kind(error: Any, kind: Failure, status: int | None) -> None:
    found = failure_in_stream(error, CALL)
    assert (found.kind, found.status) == (kind, status)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (httpx2.ConnectTimeout(""), Failure.TIMEOUT),
        (httpx2.ReadTimeout(""), Failure.TIMEOUT),
        (httpx2.PoolTimeout(""), Failure.TIMEOUT),
        (httpx2.ConnectError("refused"), Failure.NETWORK),
        (httpx2.ReadError("reset"), Failure.NETWORK),
        (httpx2.RemoteProtocolError("closed"), Failure.NETWORK),
        (httpx2.LocalProtocolError("illegal header value b'Bearer top-secret-key'"), Failure.BAD_REQUEST),
        (httpx2.UnsupportedProtocol("no scheme"), Failure.BAD_REQUEST),
        (httpx2.InvalidURL("no"), Failure.BAD_REQUEST),
        (httpx2.DecodingError("gzip"), Failure.MALFORMED),
    ],
)
def test_a_broken_connection_has_a_kind_and_never_shows_the_key(error: httpx2.HTTPError, kind: Failure) -> None:
    found = failure_of_exception(error, CALL, began=False)
    assert found.kind is kind
    assert "top-secret-key" not in str(found)
