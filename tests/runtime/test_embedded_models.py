"""The models inside the program: which one is asked goes by name, by config, and by what is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from palinurus.domain.errors import ConfigError, Failure
from palinurus.domain.messages import UserMessage
from palinurus.providers.provider import Head, ModelRef, ModelRequest, ReplyDone, ReplyFailed, ReplyNotice
from palinurus.providers.scout.scout import Scout
from palinurus.providers.smollm.smollm import SmolLM
from palinurus.runtime import models as models_module
from palinurus.runtime.models import EmbeddedModels
from palinurus.testing.fakes import FakeClock

HI = ModelRequest("m", Head(""), (UserMessage("hi"),))


@pytest.fixture
def models() -> EmbeddedModels:
    return EmbeddedModels(FakeClock(), small_talk=True)


def test_each_is_opened_by_its_name_and_kept(models: EmbeddedModels) -> None:
    scout, small = models.open(ModelRef("embedded", "scout")), models.open(ModelRef("embedded", "smollm2"))
    assert isinstance(scout, Scout)
    assert isinstance(small, SmolLM)
    assert models.open(ModelRef("embedded", "smollm2")) is small
    with pytest.raises(ConfigError, match="there is no model embedded/other"):
        models.open(ModelRef("embedded", "other"))


async def test_asked_by_name_while_it_is_not_installed_it_says_how_to_install_it(models: EmbeddedModels) -> None:
    [failed] = [event async for event in models.open(ModelRef("embedded", "smollm2")).stream(HI)]
    assert isinstance(failed, ReplyFailed)
    assert failed.error.kind is Failure.MODEL_NOT_FOUND
    assert "pal models install embedded" in failed.error.hint


@pytest.mark.parametrize(("installed", "small_talk", "asked"), [(True, True, 1), (True, False, 0), (False, True, 0)])
async def test_scout_asks_it_only_where_it_is_installed_and_wanted(
    installed: bool, small_talk: bool, asked: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(models_module, "weights_file", lambda: tmp_path if installed else None)
    models = EmbeddedModels(FakeClock(), small_talk=small_talk)
    events = [event async for event in models.open(ModelRef("embedded", "scout")).stream(HI)]
    # It has no weights here, so that being asked shows as the notice that it could not answer.
    assert sum(isinstance(event, ReplyNotice) for event in events) == asked
    assert isinstance(events[-1], ReplyDone)
    assert events[-1].message.api == "scout"
    await models.close()


def test_the_engine_is_not_even_imported_before_the_first_small_talk() -> None:
    code = "import sys, palinurus.runtime.runtime; sys.exit('palinurus.providers.smollm.smollm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
