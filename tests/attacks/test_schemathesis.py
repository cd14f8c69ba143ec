"""What our OpenAPI description promises, tried with what fits it and with what does not: a bounded, seeded sample."""

from __future__ import annotations

import asyncio
import json
import urllib.request

import pytest
import schemathesis
from besieged import Besieged, siege
from doors import OPEN, PAGE, routes
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

# The event loop of the siege draws random numbers while a thread draws examples, which hypothesis takes for ours.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Do not use the .random. module inside strategies")]

EXAMPLES = 6  # of each kind, for each route: making them takes longer than answering them
CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]
BOUNDED = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),  # a smaller example is not worth the minutes that it takes to find it
    suppress_health_check=list(HealthCheck),
)


def described(here: Besieged) -> schemathesis.BaseSchema:
    with urllib.request.urlopen(f"{here.url}/openapi.json", timeout=60) as answer:
        return schemathesis.openapi.from_dict(json.load(answer))


@pytest.mark.parametrize("known", [True, False], ids=["with a token", "without"])
async def test_no_route_stumbles_over_what_fits_its_description_or_does_not(playground: Besieged, known: bool) -> None:
    schema = await asyncio.to_thread(described, playground)
    async with siege(playground, memory=60 * 1024 * 1024, changes=known):
        for found in schema.get_all_operations():
            await asyncio.to_thread(_try, found.ok(), playground, known=known)


def _try(operation: schemathesis.APIOperation, here: Besieged, *, known: bool) -> None:
    headers = {"Authorization": f"Bearer {here.token}"} if known else {}
    open_to_all = operation.path in {path.replace(":path", "") for _, _, path in routes(OPEN, PAGE)}
    not_served = operation.path == "/v1/embeddings"  # and says so, with a 501

    modes = [GenerationMode.POSITIVE]
    named = list(operation.path_parameters) and not open_to_all  # of the page any name is one
    if known and (list(operation.body) or named):  # else there is nothing to get wrong
        modes.append(GenerationMode.NEGATIVE)
    for mode in modes:
        cases = operation.as_strategy(generation_mode=mode)

        @BOUNDED
        @given(case=cases)
        def attempt(case: schemathesis.Case) -> None:
            if known:
                excluded = [not_a_server_error] if not_served else []
                checks = [check for check in CHECKS if check not in excluded]
                case.call_and_validate(base_url=here.url, headers=headers, timeout=60, checks=checks)
            else:
                told = case.call(base_url=here.url, timeout=60)
                assert told.status_code < 500
                assert open_to_all or told.status_code in (400, 401, 404, 405, 413, 429)

        attempt()
