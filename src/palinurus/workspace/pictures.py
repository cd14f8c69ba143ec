"""Makes images small enough for models and removes their metadata.

Every entry point (terminal, channel, tool) converts an image before the message is accepted, so that what is stored is
what is sent. With Pillow, the extra `images`, every image is redrawn from its pixels: the longest side has at most 1200
pixels, the camera's orientation is applied, and position, device, comments and hidden data are removed. Without Pillow
an image is sent unchanged, or refused if it is over 5 MB.

Call it as `await asyncio.to_thread(fit_image, data)`.
"""

from __future__ import annotations

import base64
import struct
import warnings
import zlib
from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING

from palinurus.domain.errors import BadRequest, PalinurusError
from palinurus.domain.messages import Image
from palinurus.workspace.boundary import Boundary

if TYPE_CHECKING:
    from PIL.Image import Image as Drawing

LONGEST_SIDE = 1200
MAX_BYTES = 50 * 1024 * 1024
MAX_BYTES_UNCHANGED = 5 * 1024 * 1024
MAX_PIXELS = 50_000_000  # limits decompression bombs: a small file can claim a huge size
MAX_PNG = 1024 * 1024  # larger ones are photographs saved losslessly
QUALITY = 85

_SIGNS = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))
_READ = ("PNG", "JPEG", "GIF", "WEBP", "BMP")  # few on purpose: each format is a parser of untrusted bytes
_DAMAGE = (OSError, ValueError, SyntaxError, EOFError, IndexError, TypeError, struct.error, zlib.error)
"""What Pillow raises for invalid or truncated images."""

_HINT = "PNG, JPEG, GIF, WebP and BMP can be sent"


def fit_image(data: bytes) -> Image:
    """The image in a form that every model accepts. Raises BadRequest if it is not an image or too large.

    Takes up to a second for a large photograph, so call it in a thread. Of an animation the first frame is used.
    """
    if find_spec("PIL") is None:
        return _unchanged(data)
    if len(data) > MAX_BYTES:
        raise BadRequest(f"the picture has {_mb(len(data))}, and {_mb(MAX_BYTES)} is the limit", hint="send it smaller")
    try:
        drawing = _drawn(data)
    except BadRequest:
        if (bare := without_profile(data)) == data:
            raise
        drawing = _drawn(bare)
    transparent = drawing.mode in ("RGBA", "LA")
    if transparent or not data.startswith(b"\xff\xd8"):
        png = _encoded(drawing, "PNG", optimize=True)
        if transparent or len(png) <= MAX_PNG:
            return _image(png, "image/png")
    return _image(_encoded(drawing, "JPEG", quality=QUALITY, optimize=True), "image/jpeg")


def kind_of(data: bytes) -> str:
    """The media type by the first bytes, empty if it is not an image type that models accept."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for sign, kind in _SIGNS if data.startswith(sign)), "")


def without_profile(data: bytes) -> bytes:
    """A PNG without its colour profile, which programs often write wrong. Anything else, and a broken PNG, as it is."""
    at, kept = 8, [data[:8]]
    while data.startswith(_SIGNS[0][0]) and at < len(data):
        size = int.from_bytes(data[at : at + 4], "big") + 12
        if data[at + 4 : at + 8] == b"IDAT":  # no profile comes after the first of these
            return b"".join((*kept, data[at:]))
        if data[at + 4 : at + 8] != b"iCCP":
            kept.append(data[at : at + size])
        at += size
    return data


def avatar_url(avatar: str, boundary: Boundary) -> str:
    """The image as a data URL, from a file in the workspace or unchanged. Empty for a remote address, which is not
    fetched, and for anything else. Blocks.
    """
    if avatar.startswith("data:image/"):
        return avatar
    if not avatar or ":" in avatar:
        return ""
    try:
        data = boundary.read_bytes(avatar)
    except PalinurusError:
        return ""
    kind = kind_of(data)
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}" if kind else ""


def _unchanged(data: bytes) -> Image:
    kind = kind_of(data)
    if not kind:
        raise BadRequest("this is not a PNG, JPEG, GIF or WebP", hint=_PILLOW)
    if len(data) > MAX_BYTES_UNCHANGED:
        raise BadRequest(f"the picture has {_mb(len(data))}, which models refuse", hint=_PILLOW)
    return _image(data, kind)


_PILLOW = "with the package pillow (the extra `images`) pictures are read and made smaller"


def _drawn(data: bytes) -> Drawing:
    """The pixels, upright and small enough, without metadata."""
    from PIL import Image as Pillow
    from PIL import ImageOps, UnidentifiedImageError

    # Pillow only warns about slightly too large images. The filter stays: it makes this process stricter.
    warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")  # about dropped metadata
    warnings.simplefilter("error", Pillow.DecompressionBombWarning)
    try:
        with Pillow.open(BytesIO(data), formats=_READ) as opened:
            if opened.width * opened.height > MAX_PIXELS:
                raise _bomb(f" ({opened.width:,} x {opened.height:,})")
            drawing = _plain(opened)
            drawing.thumbnail((LONGEST_SIDE, LONGEST_SIDE), reducing_gap=3.0)
            drawing = ImageOps.exif_transpose(drawing)
    except (Pillow.DecompressionBombError, Pillow.DecompressionBombWarning) as error:
        raise _bomb() from error
    except UnidentifiedImageError as error:
        raise BadRequest("this is not a picture that can be read", hint=_HINT) from error
    except _DAMAGE as error:
        raise BadRequest(f"the picture is damaged: {error}", hint=_HINT) from error
    drawing.info.clear()  # encoders write comments and colour profiles from here
    return drawing


def _plain(opened: Drawing) -> Drawing:
    """Grey, colours, or colours with transparency. A photograph is not decoded yet, so that it is decoded small."""
    if opened.has_transparency_data:
        drawing = opened.convert("RGBA")
        return drawing.convert("RGB") if drawing.getchannel("A").getextrema() == (255, 255) else drawing
    if opened.mode in ("RGB", "L"):
        return opened
    if opened.mode.startswith("I"):  # 16 bits per pixel, which conversion would clip at 255
        return opened.convert("I").point(lambda value: value * (1 / 256)).convert("L")
    return opened.convert("RGB")


def _bomb(size: str = "") -> BadRequest:
    limit = f"{MAX_PIXELS // 1_000_000} million is the limit"
    return BadRequest(f"the picture has too many pixels{size}: {limit}", hint="send it smaller")


def _encoded(drawing: Drawing, form: str, **options: int) -> bytes:
    out = BytesIO()
    drawing.save(out, form, **options)
    return out.getvalue()


def _image(data: bytes, kind: str) -> Image:
    return Image(base64.b64encode(data).decode("ascii"), kind)


def _mb(size: int) -> str:
    return f"{size / 1024 / 1024:.1f} MB"
