"""Which plugins are used, what each is told, and which one has a slot."""

from typing import Annotated, Any, ClassVar, Literal

from palinurus.config.section import Section, option

Isolation = Literal["none", "process"]


class PluginEntry(Section, frozen=True):
    """One plugin, by its id."""

    foreign: ClassVar = {"": "hooks subagent llm env apiKey"}

    enabled: Annotated[bool | None, option("Whether it is used. Unset: as it was installed.")] = None
    config: Annotated[dict[str, Any], option("Its own settings, checked by the configSchema of its manifest.")] = {}
    isolation: Annotated[
        Isolation | None,
        option("`process` runs it in a sandbox of its own, whatever its manifest says; `none` trusts it."),
    ] = None


class SlotChoices(Section, frozen=True):
    """Which plugin has a slot, by its id. Unset: the first that claims it. `builtin`: none."""

    memory: Annotated[str, option("What indexes and searches memory.")] = ""
    context_engine: Annotated[str, option("What decides what a model reads.")] = ""
    sandbox: Annotated[str, option("Where commands run.")] = ""
    browser: Annotated[str, option("What shows web pages to the agent.")] = ""


class PluginSettings(Section, frozen=True):
    """Plugins: programs of others that extend Palinurus. `pal plugins` installs them."""

    foreign: ClassVar = {"": "installs bundledDiscovery"}

    enabled: Annotated[bool, option("Whether any plugin is used.")] = True
    allow: Annotated[tuple[str, ...] | None, option("Only these plugins may be used, by id.")] = None
    deny: Annotated[tuple[str, ...], option("These plugins are never used, whatever else is said.")] = ()
    paths: Annotated[
        tuple[str, ...], option("Folders with a plugin in each, used as they are: for development.", "load.paths")
    ] = ()
    reload: Annotated[bool, option("Whether a plugin of load.paths is loaded again when a file of it changes.")] = False
    start_seconds: Annotated[
        float, option("Seconds that loading one may take.", "limits.startSeconds", gt=0, le=300)
    ] = 20.0
    call_seconds: Annotated[
        float, option("Seconds that a tool or a slash command of one may take.", "limits.callSeconds", gt=0, le=3600)
    ] = 300.0
    blocked_seconds: Annotated[
        float,
        option(
            "Seconds for which one may hold the event loop; then it is disabled, and the process ends.",
            "limits.blockedSeconds",
            gt=0,
        ),
    ] = 30.0
    memory_mb: Annotated[
        int,
        option(
            "Megabytes of the process from which on a plugin that grows is disabled, and the process ends.",
            "limits.memoryMb",
            ge=64,
        ),
    ] = 2048
    slots: Annotated[SlotChoices, option("Which plugin has a slot.")] = SlotChoices()
    entries: Annotated[dict[str, PluginEntry], option("Single plugins, by id.")] = {}


class PluginChannelSettings(Section, frozen=True):
    """A channel that a plugin brings: its keys are the plugin's own."""

    free: ClassVar = True
