"""Pictures are made to fit before they are stored: small, upright, clean, and never a bomb."""

from __future__ import annotations

import base64
import importlib.util
import struct
import zlib
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.domain.errors import BadRequest
from palinurus.domain.messages import Image
from palinurus.workspace import pictures
from palinurus.workspace.pictures import fit_image

Pillow = pytest.importorskip("PIL.Image", reason="pillow is not installed")

ORIENTATION, DEVICE, POSITION = 0x0112, 0x010F, 0x8825


def drawn(size: tuple[int, int], form: str = "PNG", mode: str = "RGB", color: Any = "teal", **options: Any) -> bytes:
    out = BytesIO()
    Pillow.new(mode, size, color).save(out, form, **options)
    return out.getvalue()


def noise(size: tuple[int, int], form: str, **options: Any) -> bytes:
    out = BytesIO()
    Pillow.effect_noise(size, 90).convert("RGB").save(out, form, **options)
    return out.getvalue()


def opened(image: Image) -> Any:
    return Pillow.open(BytesIO(base64.b64decode(image.data)))


@pytest.mark.parametrize(
    ("size", "fitted"),
    [
        ((2400, 1200), (1200, 600)),
        ((600, 4800), (150, 1200)),
        ((1200, 1200), (1200, 1200)),
        ((3, 5), (3, 5)),
        ((5000, 1), (1200, 1)),
    ],
)
@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_the_longest_side_is_at_most_1200_pixels_and_nothing_grows(
    size: tuple[int, int], fitted: tuple[int, int], form: str
) -> None:
    assert opened(fit_image(drawn(size, form))).size == fitted


def test_a_photograph_stays_a_jpeg_and_a_drawing_a_png() -> None:
    assert fit_image(drawn((10, 10), "JPEG")).mime_type == "image/jpeg"
    for form in ("PNG", "GIF", "BMP", "WEBP"):
        image = fit_image(drawn((10, 10), form))
        assert (image.mime_type, opened(image).format) == ("image/png", "PNG")


def test_a_photograph_saved_without_loss_becomes_a_jpeg() -> None:
    image = fit_image(noise((1200, 1000), "PNG"))
    assert (image.mime_type, opened(image).format) == ("image/jpeg", "JPEG")
    assert len(image.data) < pictures.MAX_PNG


def test_transparency_is_kept_where_there_is_any_and_dropped_where_there_is_none() -> None:
    glass = opened(fit_image(drawn((4, 4), mode="RGBA", color=(10, 20, 30, 128))))
    assert glass.getpixel((0, 0)) == (10, 20, 30, 128)
    assert opened(fit_image(drawn((4, 4), mode="RGBA", color=(10, 20, 30, 255)))).mode == "RGB"
    gif = BytesIO()
    palette = Pillow.new("P", (4, 4), 0)
    palette.putpixel((0, 0), 1)
    palette.save(gif, "GIF", transparency=1)
    assert opened(fit_image(gif.getvalue())).getpixel((0, 0))[3] == 0


@pytest.mark.parametrize(
    ("mode", "color"), [("1", 1), ("L", 128), ("P", 3), ("CMYK", (10, 20, 30, 0)), ("I;16", 40000)]
)
def test_every_kind_of_pixel_can_be_drawn(mode: str, color: Any) -> None:
    form = "JPEG" if mode == "CMYK" else "PNG"
    assert opened(fit_image(drawn((8, 8), form, mode, color))).mode in ("RGB", "L")


def test_sixteen_bits_of_grey_keep_their_brightness() -> None:
    assert opened(fit_image(drawn((8, 8), "PNG", "I;16", 0x8000))).getpixel((0, 0)) == 0x80


def test_what_the_camera_wrote_is_gone_and_the_picture_is_upright() -> None:
    exif = Pillow.Exif()
    exif[ORIENTATION] = 6  # the camera was held on its side
    exif[DEVICE] = "SecretCam"
    exif[POSITION] = {1: "N", 2: (52.0, 31.0, 12.0)}
    photo = noise((40, 20), "JPEG", exif=exif, comment=b"SecretComment", icc_profile=b"SecretProfile")
    image = fit_image(photo + b"SecretTrailer")
    stored = base64.b64decode(image.data)
    assert b"Secret" in photo
    assert b"Secret" not in stored
    assert b"Exif" not in stored
    assert opened(image).size == (20, 40)
    assert not opened(image).getexif()


def test_text_inside_a_png_is_gone() -> None:
    from PIL.PngImagePlugin import PngInfo

    info = PngInfo()
    info.add_text("Author", "SecretAuthor")
    image = fit_image(drawn((4, 4), pnginfo=info))
    assert b"SecretAuthor" not in base64.b64decode(image.data)


def test_of_an_animation_the_first_picture_is_kept() -> None:
    out = BytesIO()
    frames = [Pillow.new("RGB", (4, 4), color) for color in ("red", "blue")]
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:])
    image = opened(fit_image(out.getvalue()))
    assert getattr(image, "n_frames", 1) == 1
    assert image.convert("RGB").getpixel((0, 0)) == (255, 0, 0)


def png_that_says(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 99)) + chunk(b"IEND", b"")


@pytest.mark.parametrize(("width", "height"), [(7100, 7100), (10_000, 10_000), (60_000, 60_000), (2**31 - 1, 1)])
def test_a_picture_that_says_it_is_huge_is_refused_before_a_pixel_is_made(width: int, height: int) -> None:
    with pytest.raises(BadRequest, match="too many pixels"):
        fit_image(png_that_says(width, height))


def test_more_bytes_than_any_camera_makes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "MAX_BYTES", 1000)
    with pytest.raises(BadRequest, match="is the limit"):
        fit_image(noise((100, 100), "PNG"))


@pytest.mark.parametrize("data", [b"", b"hello", b"%PDF-1.7", b"\x89PNG\r\n\x1a\n", b"<svg xmlns='...'/>"])
def test_what_is_no_picture_is_refused_with_what_can_be_sent(data: bytes) -> None:
    with pytest.raises(BadRequest) as refused:
        fit_image(data)
    assert "PNG" in refused.value.hint


SAMPLES = [drawn((30, 20), form) for form in ("PNG", "JPEG", "GIF", "WEBP", "BMP")] + [
    noise((30, 20), "JPEG", exif=Pillow.Exif())
]


@given(st.sampled_from(SAMPLES), st.integers(0, 2000), st.binary(max_size=20), st.integers(0, 2000))
def test_damaged_bytes_are_refused_or_drawn_and_nothing_else(data: bytes, at: int, put: bytes, end: int) -> None:
    damaged = data[:at] + put + data[at + len(put) :]
    try:
        image = fit_image(damaged[: max(1, end)])
    except BadRequest:
        return
    assert image.mime_type in ("image/png", "image/jpeg")


class TestWithoutPillow:
    @pytest.fixture(autouse=True)
    def no_pillow(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real = importlib.util.find_spec
        monkeypatch.setattr(pictures, "find_spec", lambda name: None if name == "PIL" else real(name))

    @pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "WEBP"])
    def test_a_small_picture_passes_as_it_is(self, form: str) -> None:
        data = drawn((2000, 10), form)
        assert fit_image(data) == Image(base64.b64encode(data).decode(), f"image/{form.lower()}")

    def test_over_five_megabytes_is_refused_and_the_hint_names_the_extra(self) -> None:
        with pytest.raises(BadRequest) as refused:
            fit_image(drawn((4, 4)) + bytes(5 * 1024 * 1024))
        assert "images" in refused.value.hint

    def test_what_is_no_picture_for_a_model_is_refused(self) -> None:
        with pytest.raises(BadRequest):
            fit_image(drawn((4, 4), "BMP"))


@pytest.mark.parametrize("profile", [b"x\0\7zzzz", b"sRGB\0\0" + zlib.compress(b"x"), b"no end", b"\0" * 200])
def test_a_png_with_a_wrong_colour_profile_is_the_same_picture(profile: bytes) -> None:
    good = noise((40, 30), "PNG")
    chunk = b"iCCP" + profile
    for checksum in (zlib.crc32(chunk), 7):
        bad = good[:33] + struct.pack(">I", len(profile)) + chunk + struct.pack(">I", checksum) + good[33:]
        assert opened(fit_image(bad)).tobytes() == Pillow.open(BytesIO(good)).tobytes()
