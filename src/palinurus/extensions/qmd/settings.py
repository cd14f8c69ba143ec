"""The options of qmd itself. Limits, scope, collections, intervals and retention are those of every memory
(memory/settings.py), which reads them from `memory.qmd` too.
"""

from typing import Annotated, ClassVar, Literal

from palinurus.config.section import DURATION, OptionForm, Section, option

_SECONDS = OptionForm(int, lambda said: said / 1000, lambda value: round(value * 1000))


class QmdSettings(Section, frozen=True):
    """qmd as the memory backend."""

    foreign: ClassVar = {
        "": "searchTool mcporter",
        "sessions": "exportDir",
        "update": "startup startupDelayMs waitForBootSync",
    }

    command: Annotated[str, option("The program, perhaps with arguments; ~ is your home.", longest=4096)] = "qmd"
    search_mode: Annotated[
        Literal["search", "vsearch", "query", "hybrid"],
        option("How it searches. search: words; vsearch: vectors; query: its own mixture; hybrid: both, 0.3 and 0.7."),
    ] = "search"
    rerank: Annotated[bool, option("Whether query reranks with a model.")] = True
    default_memory: Annotated[
        bool, option("Whether MEMORY.md, memory/ and USER.md are searched.", "includeDefaultMemory")
    ] = True
    on_boot: Annotated[bool, option("Whether it indexes when the home is opened.", "update.onBoot")] = True
    embed_seconds: Annotated[
        float, option("Time between embeddings; 0: never.", "update.embedInterval", form=DURATION)
    ] = 3_600.0
    command_seconds: Annotated[
        float, option("Milliseconds for short commands.", "update.commandTimeoutMs", form=_SECONDS)
    ] = 30.0
    update_seconds: Annotated[float, option("Milliseconds for an update.", "update.updateTimeoutMs", form=_SECONDS)] = (
        120.0
    )
    embed_limit: Annotated[float, option("Milliseconds for embedding.", "update.embedTimeoutMs", form=_SECONDS)] = 120.0
