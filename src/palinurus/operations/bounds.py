"""Numbers that may stand in the parameters of an operation: what is larger is refused where it comes in."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Count = Annotated[int, Meta(ge=0, le=100_000)]
Position = Annotated[int, Meta(ge=0, le=2**53)]
Days = Annotated[float, Meta(gt=0, le=36_500)]
WholeDays = Annotated[int, Meta(ge=0, le=36_500)]
Seconds = Annotated[float, Meta(ge=0, le=1_000_000)]
