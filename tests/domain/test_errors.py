"""Errors: one sentence and a hint, and the same error on the other side of a socket."""

from __future__ import annotations

import json

import pytest

from palinurus.domain import errors
from palinurus.domain.errors import Failure, PalinurusError, ProviderError, error_from_fields

PLAIN = sorted(
    (
        found
        for found in vars(errors).values()
        if isinstance(found, type) and issubclass(found, PalinurusError) and found is not ProviderError
    ),
    key=lambda found: found.__name__,
)


@pytest.mark.parametrize("kind", PLAIN)
def test_an_error_is_the_same_error_after_a_journey_as_json(kind: type[PalinurusError]) -> None:
    sent = kind("the boat leaks", hint="bail it out")
    arrived = error_from_fields(type(sent).__name__, json.loads(json.dumps(sent.fields())))
    assert type(arrived) is kind
    assert str(arrived) == "the boat leaks (bail it out)"
    assert arrived.exit_code == sent.exit_code


@pytest.mark.parametrize("kind", list(Failure))
def test_a_model_s_failure_keeps_its_kind_and_its_retry_time(kind: Failure) -> None:
    sent = ProviderError("busy", kind=kind, hint="later", status=429, retry_after=2.5)
    arrived = error_from_fields("ProviderError", json.loads(json.dumps(sent.fields())))
    assert isinstance(arrived, ProviderError)
    assert (arrived.kind, arrived.status, arrived.retry_after, arrived.hint) == (kind, 429, 2.5, "later")


def test_an_error_of_another_release_arrives_as_the_root_of_the_tree() -> None:
    arrived = error_from_fields("NotYetInvented", {"message": "new trouble", "extra": 1})
    assert type(arrived) is PalinurusError
    assert str(arrived) == "new trouble"


def test_the_docstring_draws_every_error_that_there_is() -> None:
    assert errors.__doc__ is not None
    assert [kind.__name__ for kind in [*PLAIN, ProviderError] if kind.__name__ not in errors.__doc__] == []
