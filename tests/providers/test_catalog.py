"""What is known about models, what the config says over it, and what calls cost."""

from __future__ import annotations

from typing import Any

import pytest

from palinurus.config.load import Config
from palinurus.domain.errors import ConfigError
from palinurus.domain.messages import Usage
from palinurus.providers.catalog import ALIASES, OFFERS, Catalog, Price, catalog_of, cost_of
from palinurus.providers.choose import KNOWN
from palinurus.providers.provider import ModelRef

A_MILLION = Usage(input=1_000_000, output=1_000_000, cache_read=1_000_000, cache_write=1_000_000)


def config(**sections: Any) -> Config:
    return Config(sections)


def one_model(**fields: Any) -> Config:
    return config(models={"providers": {"openai": {"models": [{"id": "gpt-5", **fields}]}}})


def test_every_known_providers_default_model_is_in_the_table() -> None:
    listed = {ModelRef(model.provider, model.id) for model in OFFERS}
    assert [known.id for known in KNOWN if known.model and ModelRef(known.id, known.model) not in listed] == []


def test_no_model_stands_in_the_table_twice_and_no_price_is_negative() -> None:
    refs = [(model.provider, model.id) for model in OFFERS]
    assert len(set(refs)) == len(refs)
    prices = [model.price for model in OFFERS if model.price]
    assert all(min(price.input, price.output, price.cache_read or 0, price.cache_write or 0) >= 0 for price in prices)


def test_every_built_in_short_name_leads_to_a_model_of_the_table() -> None:
    catalog = Catalog()
    assert all(catalog.find(catalog.resolve(alias)) for alias in ALIASES)


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("openai/gpt-5", ModelRef("openai", "gpt-5")),
        ("openrouter/anthropic/claude-x", ModelRef("openrouter", "anthropic/claude-x")),
        (" OpenAI/gpt-5 ", ModelRef("openai", "gpt-5")),
        ("Scout", ModelRef("embedded", "scout")),
        ("fast", ModelRef("groq", "openai/gpt-oss-120b")),
        ("gpt", ModelRef("ollama", "mine")),
    ],
)
def test_a_model_is_found_by_its_name_split_at_the_first_slash_or_by_a_short_name(text: str, ref: ModelRef) -> None:
    own = {"groq/openai/gpt-oss-120b": {"alias": "Fast"}, "ollama/mine": {"alias": "gpt"}}
    assert catalog_of(config(agents={"defaults": {"models": own}})).resolve(text) == ref


@pytest.mark.parametrize("text", ["", "nobody", "/gpt-5", "openai/"])
def test_what_is_neither_a_short_name_nor_provider_and_model_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a model"):
        Catalog().resolve(text)


def test_the_config_wins_over_the_table_field_by_field() -> None:
    known = Catalog().find(ModelRef("openai", "gpt-5"))
    merged = catalog_of(one_model(contextWindow=1000)).find(ModelRef("openai", "gpt-5"))
    assert known
    assert merged
    assert (merged.context_window, merged.price, merged.inputs) == (1000, known.price, known.inputs)


def test_a_model_that_only_the_config_knows_has_what_the_config_says() -> None:
    own = {"id": "m", "contextWindow": 8000, "cost": {"input": 1, "output": 2}, "input": ["text", "image"]}
    found = catalog_of(
        config(
            models={
                "providers": {"Mine": {"baseUrl": "http://127.0.0.1:1", "api": "anthropic-messages", "models": [own]}}
            }
        )
    ).find(ModelRef("mine", "m"))
    assert found
    assert (found.context_window, found.price, found.wire) == (8000, Price(1, 2), "anthropic-messages")
    assert found.inputs == ("text", "image")


def test_in_replace_mode_only_the_configs_models_and_the_embedded_ones_are_known() -> None:
    catalog = catalog_of(config(models={"mode": "replace", "providers": {"openai": {"models": [{"id": "gpt-5"}]}}}))
    known = [f"{model.provider}/{model.id}" for model in catalog]
    assert known == ["embedded/scout", "embedded/smollm2", "openai/gpt-5"]


@pytest.mark.parametrize(
    ("price", "cost"),
    [
        (Price(3, 15, 0.3, 3.75), 22.05),
        (Price(3, 15), 24.0),  # a cache price that nobody told counts as input
        (Price(0, 0, 0, 0), 0.0),
        (None, None),
    ],
)
def test_a_call_costs_what_its_four_kinds_of_tokens_cost(price: Price | None, cost: float | None) -> None:
    assert cost_of(A_MILLION, price) == (cost if cost is None else pytest.approx(cost))


@pytest.mark.parametrize("cost", [{}, {"input": 3}, {"output": 15}, {"cacheRead": 1}])
def test_half_a_price_in_the_config_is_no_price_and_leaves_the_call_unpriced(cost: dict[str, float]) -> None:
    catalog = catalog_of(config(models={"providers": {"mine": {"models": [{"id": "m", "cost": cost}]}}}))
    assert catalog.cost(ModelRef("mine", "m"), A_MILLION) is None


def test_what_runs_on_this_machine_is_free_and_a_stranger_is_unpriced() -> None:
    catalog = Catalog()
    assert catalog.cost(ModelRef("ollama", "anything"), A_MILLION) == 0.0
    assert catalog.cost(ModelRef("openai", "gpt-unheard-of"), A_MILLION) is None
