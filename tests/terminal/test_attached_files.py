"""What a typed message carries: pictures are attached, files of the workspace are named, others are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from palinurus.cli.terminal.input import MAX_PICTURES, FileLookup, attach
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.messages import Image

PNG = b"\x89PNG\r\n\x1a\n rest"


def fit(data: bytes) -> Image:
    if not data.startswith(b"\x89PNG"):
        raise BadRequest("this is no picture", hint="PNG can be sent")
    return Image(data.hex(), "image/png")


@pytest.fixture
def places(tmp_path: Path) -> FileLookup:
    workspace, here, home = (tmp_path / name for name in ("ws", "here", "home"))
    for folder in (workspace / "notes", here, home):
        folder.mkdir(parents=True)
    (workspace / "notes" / "boat.md").write_text("Aster")
    (workspace / "chart.png").write_bytes(PNG)
    (here / "shot 1.png").write_bytes(PNG)
    (here / "secret.txt").write_text("x")
    (home / "pic.png").write_bytes(PNG)
    return FileLookup(workspace, here, home)


def test_a_file_of_the_workspace_is_named_and_nothing_is_put_in(places: FileLookup) -> None:
    message = attach("read @notes/boat.md, please", places, fit)
    assert (message.text, message.images) == ("read notes/boat.md, please", ())


def test_a_full_path_into_the_workspace_becomes_the_name_that_the_agent_knows(places: FileLookup) -> None:
    assert attach(f"@{places.workspace}/notes/boat.md", places, fit).text == "notes/boat.md"


@pytest.mark.parametrize(
    "said",
    [
        "look: @chart.png",
        "look: @{ws}/chart.png.",
        'look: @"shot 1.png"',
        "look: {here}/shot\\ 1.png",
        "look: '{here}/shot 1.png'",
        'look: "{here}/shot 1.png"',
        "look: file://{here}/shot%201.png",
        "look: ~/pic.png",
        "look: @~/pic.png",
    ],
)
def test_a_picture_is_attached_however_it_is_named(places: FileLookup, said: str) -> None:
    message = attach(said.format(ws=places.workspace, here=places.here), places, fit)
    assert [image.data for image in message.images] == [PNG.hex()]
    assert message.names[0] in message.text
    assert str(places.here) not in message.text


def test_pictures_keep_the_order_in_which_they_were_named(places: FileLookup) -> None:
    message = attach(f"@chart.png then '{places.here}/shot 1.png' then @chart.png", places, fit)
    assert message.names == ("chart.png", "shot 1.png")


@pytest.mark.parametrize(
    ("said", "error", "why"),
    [
        ("@{here}/secret.txt", BadRequest, "outside the workspace"),
        ("@secret.txt", BadRequest, "outside the workspace"),
        ("@nothing.png", NotFound, "there is no picture nothing.png"),
    ],
)
def test_what_cannot_be_sent_is_refused_in_one_line(
    places: FileLookup, said: str, error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why) as refused:
        attach(said.format(here=places.here), places, fit)
    assert "nothing was sent" in str(refused.value)


def test_a_picture_that_is_none_is_refused_by_its_name(places: FileLookup) -> None:
    (places.workspace / "fake.png").write_text("hello")
    with pytest.raises(BadRequest, match=r"fake\.png: this is no picture"):
        attach("@fake.png", places, fit)


def test_there_is_a_limit_on_pictures(places: FileLookup) -> None:
    for number in range(MAX_PICTURES + 1):
        (places.workspace / f"{number}.png").write_bytes(PNG)
    with pytest.raises(BadRequest, match="is the limit"):
        attach(" ".join(f"@{number}.png" for number in range(MAX_PICTURES + 1)), places, fit)


@pytest.mark.parametrize(
    "said",
    [
        "hello @alice",
        "mail me@x.org",
        "/help",
        "/etc/passwd",
        "what is /tmp for?",
        "a @ b",
        "@",
        "'/no/such.png'",
        "@\x00",
    ],
)
def test_other_words_are_sent_as_they_are(places: FileLookup, said: str) -> None:
    assert attach(said, places, fit).text == said


def test_a_link_that_leads_out_of_the_workspace_counts_as_outside(places: FileLookup) -> None:
    (places.workspace / "link.txt").symlink_to(places.here / "secret.txt")
    with pytest.raises(BadRequest, match="outside the workspace"):
        attach("@link.txt", places, fit)
