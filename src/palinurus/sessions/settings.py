"""Which sessions are archived because they are no longer used."""

from typing import Annotated, ClassVar, Literal

from palinurus.config.section import DAY_SECONDS, DAYS, Section, option


class MaintenanceSettings(Section, frozen=True):
    """Conversations that nobody uses any more. They are archived, never removed."""

    foreign: ClassVar = {
        "": "archiveDashboardAfter highWaterBytes maxDiskBytes pruneDays resetArchiveRetention rotateBytes"
    }

    mode: Annotated[Literal["warn", "enforce"], option("Archive them, or only warn in `pal doctor`.")] = "warn"
    after_seconds: Annotated[
        float | None,
        option("Archive after this time unused; a bare number is days.", "pruneAfter", form=DAYS),
    ] = 30 * DAY_SECONDS
    most: Annotated[
        int | None, option("How many conversations stay open; the oldest go first.", "maxEntries", ge=1)
    ] = 5_000
