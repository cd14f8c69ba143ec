"""Maps statuses, error bodies and broken connections to typed errors.

The table `RULES` decides: the first row that matches status and text wins. Failover reads the kind. The message names
the model, and the hint says what to do next. No message holds the key.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from palinurus.domain.errors import Failure, ProviderError

if TYPE_CHECKING:
    import httpx2

EXCERPT_CHARS = 300
LONGEST_RETRY_SECONDS = 7 * 24 * 3600.0


class Call(Struct, frozen=True):
    """The failed call: what its error may name, and the secret that it must not."""

    who: str  # provider/model
    where: str = ""  # scheme and host
    secret: str = ""
    now_ms: int = 0


class FailureRule(Struct, frozen=True):
    kind: Failure
    statuses: Container[int]
    text: re.Pattern[str] | None = None

    def matches(self, status: int, body: str) -> bool:
        return status in self.statuses and (self.text is None or self.text.search(body) is not None)


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


OVERFLOW_TEXT = _any(
    r"context[_ ]length",  # OpenAI, vLLM, Mistral, DeepSeek, LM Studio
    r"context[_ ]window",
    r"context[_ ](size|limit)",  # llama.cpp: "exceeds the available context size"
    r"exceed_context",
    r"(prompt|input) is too long",
    r"maximum prompt length",  # xAI
    r"input token count.{0,40}exceeds",  # Gemini
    r"too many (input )?tokens",
    r"(exceed\w{0,20}|over)( the| your)?( model)?( maximum)?( token limit| number of tokens)",  # Kimi and others
    r"reduce (the|your) (length|prompt|input|messages)",
    r"tokens? \+ `?max_new_tokens`? must be",  # Together
    r"request[_ ]too[_ ]large",
    r"prompt too long",  # Ollama
)
TOO_LARGE_FOR_RATE_TEXT = _any(r"request too large", r"tokens must be reduced")
BILLING_TEXT = _any(
    r"insufficient[_ ](quota|balance|credit|fund)",
    r"exceeded your current quota(?![\s\S]{0,2000}resource_exhausted)",  # Gemini says it of a free tier's minute
    r"credit balance is too low",
    r"(out of|no|more|purchase) credits",
    r"credits are depleted",
    r"enable billing",  # Gemini, where there is no free tier
    r"billing_(hard_limit|not_active|error)",
    r"payment required",
    r"account.{0,30}(not active|suspended).{0,40}billing",
)
FILTER_TEXT = _any(
    r"content[_ ](filter|management policy|policy)",
    r"responsible ?ai ?policy",
    r"requires moderation",
    r"(input|prompt|request|content) (was |were |has been )?(flagged|blocked)",
    r"safety (system|filter|policy)",
)
MODEL_TEXT = _any(
    r"model_not_found",
    r"not_found_error[^.]{0,40}model: ",  # Anthropic
    r"model([^.]|\.\d){0,120}(not found|does ?n.t exist|not exist|not available|not supported|not loaded)",
    r"(unknown|invalid|no such|unsupported) model",
    r"not a valid model",
    r"no endpoints found",
)
KEY_TEXT = _any(
    r"(invalid|incorrect|missing|expired|wrong)[ _](api|authentication)[ _-]?(key|token)",
    r"api[ _-]key (not valid|is invalid|expired|not found)",
    r"invalid_api_key|authentication_error",
    r"organization has been disabled",  # Anthropic
)
RULES: tuple[FailureRule, ...] = (
    FailureRule(Failure.BILLING, {402}),
    FailureRule(Failure.BILLING, {400, 403, 429}, BILLING_TEXT),
    FailureRule(Failure.CONTEXT_OVERFLOW, {413}),
    FailureRule(Failure.CONTEXT_OVERFLOW, {400, 422, 500}, OVERFLOW_TEXT),
    FailureRule(Failure.CONTEXT_OVERFLOW, {429}, TOO_LARGE_FOR_RATE_TEXT),  # a retry will not make it smaller
    FailureRule(Failure.REFUSAL, {400, 403, 422, 451}, FILTER_TEXT),
    FailureRule(Failure.AUTH, {401}),
    FailureRule(Failure.AUTH, {400}, KEY_TEXT),
    FailureRule(Failure.MODEL_NOT_FOUND, {400, 403, 404, 410, 422}, MODEL_TEXT),
    FailureRule(Failure.AUTH, {403}),
    FailureRule(Failure.TIMEOUT, {408}),
    FailureRule(Failure.RATE_LIMIT, {429}),
    FailureRule(Failure.OVERLOAD, range(500, 600)),
    FailureRule(Failure.BAD_REQUEST, range(1000)),
)
WORDS: dict[Failure, tuple[str, str]] = {
    Failure.AUTH: ("refused the key", "check the key and that it may use this model"),
    Failure.RATE_LIMIT: ("reached its rate limit", "wait, or name another model in agents.defaults.model.fallbacks"),
    Failure.OVERLOAD: ("is overloaded or not working", "try again in a while, or name another model"),
    Failure.CONTEXT_OVERFLOW: ("says that the conversation is too long", "start a new session with /new"),
    Failure.BILLING: ("needs payment", "check balance and plan at the provider"),
    Failure.BAD_REQUEST: ("refused the request", "look at the model's settings in the config"),
    Failure.NETWORK: ("could not be reached", "check the connection and the base URL"),
    Failure.TIMEOUT: ("took too long", "try again, or raise the provider's timeoutSeconds"),
    Failure.REFUSAL: ("declined to answer", "the provider's content filter stopped it; use other words"),
    Failure.MODEL_NOT_FOUND: ("is not a model that the provider offers", "check agents.defaults.model"),
    Failure.MALFORMED: ("answered with something that is not its wire format", "check the base URL"),
}


def failure(call: Call, kind: Failure, detail: str = "", *, status: int | None = None, hint: str = "") -> ProviderError:
    """An error of one kind for one model, in one line."""
    words, usual_hint = WORDS[kind]
    code = f" (HTTP {status})" if status else ""
    said = f": {excerpt}" if (excerpt := _clean(detail, call.secret)) else ""
    return ProviderError(f"{call.who} {words}{code}{said}", kind=kind, hint=hint or usual_hint, status=status)


def failure_of(status: int, body: str, headers: Mapping[str, str], call: Call) -> ProviderError:
    """The error for an HTTP answer other than 200."""
    kind = _kind(status, body)
    hint = "nothing answers at that address; check the base URL" if (kind, status) == (Failure.BAD_REQUEST, 404) else ""
    wait = retry_after(headers, body, call.now_ms)
    if wait and kind in (Failure.RATE_LIMIT, Failure.OVERLOAD):
        hint = f"retry in {wait:g} s, or name another model in agents.defaults.model.fallbacks"
    error = failure(call, kind, _own_words(body), status=status, hint=hint)
    error.retry_after = wait
    return error


def failure_in_stream(error: Any, call: Call) -> ProviderError:
    """The error for an error object inside a stream that began with 200."""
    body = msgspec.json.encode({"error": error}).decode()
    codes = [error.get(field) for field in ("code", "status", "status_code")] if isinstance(error, dict) else []
    status = next((code for code in codes if isinstance(code, int) and 400 <= code < 600), None)
    if status is not None:
        return failure_of(status, body, {}, call)
    # An unknown error in the middle of an answer is the server's fault, so a retry may work.
    likely = next((code for pattern, code in STATUS_WORDS if pattern.search(body)), 500)
    found = failure(call, _kind(likely, body), _own_words(body))
    found.retry_after = retry_after({}, body, call.now_ms)
    return found


def _kind(status: int, body: str) -> Failure:
    return next(rule.kind for rule in RULES if rule.matches(status, body))


STATUS_WORDS: tuple[tuple[re.Pattern[str], int], ...] = (
    (_any(r"insufficient_quota|billing_error"), 402),
    (_any(r"rate[_ ]limit|too many requests"), 429),
    (_any(r"overloaded|server_error|internal[_ ]error|unavailable|upstream|timed? ?out"), 503),
    (KEY_TEXT, 401),
    (_any(r"permission_error"), 403),
    (_any(r"invalid_request|bad ?request"), 400),
    (OVERFLOW_TEXT, 400),
    (FILTER_TEXT, 400),
    (MODEL_TEXT, 404),
)


def failure_of_exception(error: httpx2.HTTPError | httpx2.InvalidURL, call: Call, *, began: bool) -> ProviderError:
    """The error for a broken connection. `began`: whether the answer had started to arrive."""
    import httpx2

    detail = f"{type(error).__name__} {error}".strip()
    if isinstance(error, httpx2.ConnectTimeout):
        return failure(call, Failure.TIMEOUT, f"no connection to {call.where} in time", hint="is the server running?")
    if isinstance(error, httpx2.TimeoutException):
        return failure(call, Failure.TIMEOUT, f"nothing came from {call.where} in time")
    if isinstance(error, httpx2.ConnectError):
        return failure(call, Failure.NETWORK, f"no connection to {call.where}", hint="is the server running there?")
    if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol | httpx2.LocalProtocolError):
        return failure(call, Failure.BAD_REQUEST, detail, hint="check the base URL and the headers in the config")
    if isinstance(error, httpx2.DecodingError):
        return failure(call, Failure.MALFORMED, detail)
    broke = "the connection broke in the middle of the answer" if began else "the connection broke before an answer"
    return failure(call, Failure.NETWORK, broke, hint="try again")


_DELAY_TEXT = re.compile(r'(?:try again in |"retryDelay": ?")(\d+(?:\.\d+)?) ?(ms|s|m)\b', re.IGNORECASE)
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0}


def retry_after(headers: Mapping[str, str], body: str, now_ms: int) -> float | None:
    """Seconds to wait: from `retry-after-ms`, `retry-after` as seconds or date, or the provider's message."""
    named = {name.lower(): value for name, value in headers.items()}
    seconds = _number(named.get("retry-after-ms"), 0.001)
    if seconds is None:
        seconds = _number(named.get("retry-after"), 1.0)
    if seconds is None and (date := named.get("retry-after")):
        seconds = _until(date, now_ms)
    if seconds is None and (delay := _DELAY_TEXT.search(body)):
        seconds = float(delay[1]) * _UNIT_SECONDS[delay[2].lower()]
    return None if seconds is None else min(max(seconds, 0.0), LONGEST_RETRY_SECONDS)


def _number(text: str | None, unit: float) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value * unit if math.isfinite(value) else None


def _until(date: str, now_ms: int) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return moment.timestamp() - now_ms / 1000


def _own_words(body: str) -> str:
    """The provider's message out of the structures that providers wrap it in."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return "" if body.lstrip().startswith("<") else body  # a proxy's HTML page is no help
    if isinstance(found, list) and len(found) == 1:  # Google, for a streaming request
        found = found[0]
    for field in ("error", "message", "detail"):
        while isinstance(found, dict) and found.get(field):
            found = found[field]
    return found if isinstance(found, str) else msgspec.json.encode(found).decode() if found else ""


_SECRET_SHAPE = re.compile(r"\b(?:(?:sk|gsk|xai|key|pk)-[\w*.-]{6,}|AIza[\w-]{20,})")


def _clean(text: str, secret: str) -> str:
    if secret:
        text = text.replace(secret, "[key]")
    line = " ".join(_SECRET_SHAPE.sub("[key]", text).split())
    return line if len(line) <= EXCERPT_CHARS else line[: EXCERPT_CHARS - 1] + "…"
