"""A tool as everyone sees it: a name, a schema for the model, something that runs, and what may narrow it.

A tool is an async function: its first parameter is the ToolRun, the others are its arguments. What the model is told
comes from the signature, and so does the check of what the model sends:

    @tool("read", "Read a text file.")
    async def read(run: ToolRun, path: Annotated[str, "relative to the workspace"], offset: int = 1) -> ToolOutput: ...

Many arguments may be one record instead: a single further parameter whose type is a Struct that forbids unknown fields.
A mistake of the model comes back to it as a result that says what to mend.

Whether a call stays within the hosts and files of a restriction is told by the names of its arguments, which are the
same in all built-in tools: `url` is an address, `path` a file.
"""

from __future__ import annotations

import inspect
import posixpath
import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping
from operator import methodcaller
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from palinurus.domain.events import Plan, RunEvent
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import NO_TRUST, Image, Message, Origin, OutsideText, Text, Trust

MALFORMED = "_malformed"
"""The only key of a call's arguments when the provider sent invalid JSON; its value is the raw text."""

UNLISTED = Meta(extra_json_schema={"unlisted": True})
"""Beside the type of an argument that is accepted and not in the schema, which is sent with every request."""

MAX_CHARACTERS = 16_000  # of a result, for a model with a small window


class ToolSpec(Struct, frozen=True):
    """The description of a tool that a model receives."""

    name: str
    description: str
    parameters: dict[str, Any]  # JSON Schema


class Restriction(Struct, frozen=True):
    """Narrows the tools of a run: from a rule or a skill's declared needs. It never adds permissions.

    Names may be patterns with `*` and groups (`group:fs`), as in the config.
    """

    source: str  # who set it, such as "skill:pdf"
    reason: str
    only: tuple[str, ...] | None = None  # only these tools
    deny: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()  # each call of these needs approval
    sandboxed: bool = False  # exec stays inside the sandbox
    hosts: tuple[str, ...] | None = None  # only these hosts; `*.example.org` is a host and its subdomains
    paths: tuple[str, ...] | None = None  # file tools use only these paths and what is below them: see restrictions.py


def nobody(_: RunEvent) -> None:
    """Ignores the event."""


class ToolRun(Struct, frozen=True):
    """The context in which a tool runs."""

    key: SessionKey
    run_id: str
    private: bool  # whether private memory may be read: promise 17
    owner: bool = True  # whether the owner started the run
    channel: str = "cli"
    sender: str = "owner"
    provider: str = ""
    model: str = ""
    origin: Origin = Origin.OWNER  # the least trusted text that the model reads
    outside: tuple[OutsideText, ...] = ()  # the known outside texts that it reads
    trust: Trust = NO_TRUST
    head: str = ""  # the system prompt: ours and the owner's files
    request: tuple[Message, ...] = ()  # the messages of the request, oldest first
    conversation: str = ""  # changes after a reset
    restrictions: tuple[Restriction, ...] = ()
    skills: tuple[str, ...] = ()  # names of skills that this turn has loaded
    attended: bool = True  # whether a person may be present to answer
    elevated: str = ""  # value of `/elevated` in this session: off, on, ask, full; empty: as in the config
    max_characters: int = MAX_CHARACTERS
    emit: Callable[[RunEvent], None] = nobody
    """Receives events while the tool runs. Neither blocks nor raises."""

    @property
    def untrusted(self) -> bool:
        """Whether the model reads outside text that is not declared trusted."""
        return self.origin == Origin.OUTSIDE and (not self.outside or bool(self.suspects))

    @property
    def suspects(self) -> tuple[OutsideText, ...]:
        return tuple(text for text in self.outside if not self.trust.covers(text))

    def having_read(self, texts: tuple[OutsideText, ...]) -> ToolRun:
        """The run after its model has read these. Within a turn, trust only decreases (promise 18)."""
        if not texts:
            return self
        return replace(self, origin=Origin.OUTSIDE, outside=tuple(dict.fromkeys((*self.outside, *texts))))


class ToolOutput(Struct, frozen=True):
    """The result of a tool for the model. An error is a result that says what to fix."""

    content: str | tuple[Text | Image, ...]
    is_error: bool = False
    origin: Origin = Origin.OWNER
    details: dict[str, Any] | None = None
    sources: tuple[str, ...] = ()  # sources of outside text: see OutsideText
    ends_turn: bool = False  # the model is not asked again: what it waits for comes as a message


class PreparedCall(Struct, frozen=True):
    """A call that was prepared and not yet run: `run` does exactly what `plan` says.

    The gate requests approval if `ask` gives a reason, or, in a turn that has read outside text, if `when_untrusted`
    does. A forbidden call has a `refusal` and gets no approval request.
    """

    plan: Plan
    run: Callable[[], Awaitable[ToolOutput]]
    refusal: str = ""
    ask: str = ""
    when_untrusted: str = ""
    unanswered: bool = False  # whether it runs even if the approval is not answered
    granted: tuple[str, ...] = ()  # ids of the grants that cover it
    lasting: bool = False  # whether approval of this exact plan holds for the rest of the session
    release: Callable[[], None] = lambda: None
    """Frees what it holds until it was run or discarded. The caller that prepared it must call this."""


class Tool(Struct, frozen=True):
    """A tool that can be run.

    `run` gets the arguments as the model sent them. It returns a ToolOutput for every error the model can fix and
    raises a PalinurusError for others; it must stop promptly when cancelled.
    """

    spec: ToolSpec
    run: Callable[[ToolRun, Mapping[str, Any]], Awaitable[ToolOutput]]
    prepare: Callable[[ToolRun, Mapping[str, Any]], Awaitable[PreparedCall | ToolOutput]] | None = None
    """For tools whose calls are judged one by one. Has no side effects; returns and raises as `run` does."""
    outside: bool = False  # its results come from outside: the gate marks them
    owner_only: bool = False
    when_untrusted: str = ""  # why its calls need approval in a turn that has read outside text
    fits: Callable[[SessionKey], bool] | None = None
    """In which sessions it can be used; None: in all. It is not offered in others, and a call there says why not.
    Must neither block nor raise, and must answer the same while the config is the same."""
    instead_of: str = ""  # another tool, not offered where this one is; its calls are run all the same


ToolFunction = Callable[..., Awaitable[ToolOutput]]
PreparingFunction = Callable[..., Awaitable[PreparedCall | ToolOutput]]
T = TypeVar("T")


def tool(name: str, description: str) -> Callable[[ToolFunction], Tool]:
    """Decorator: makes a tool of a function. Works for closures; the types in the signature must be global names."""

    def make(function: ToolFunction) -> Tool:
        spec, run = _checked(name, description, function)
        return Tool(spec, run)

    return make


def prepared_tool(name: str, description: str) -> Callable[[PreparingFunction], Tool]:
    """The same for a function that prepares a call.

    Without a gate, the tool runs only calls that need no approval.
    """

    def make(function: PreparingFunction) -> Tool:
        spec, prepare = _checked(name, description, function)

        async def run(run: ToolRun, sent: Mapping[str, Any]) -> ToolOutput:
            prepared = await prepare(run, sent)
            if isinstance(prepared, ToolOutput):
                return prepared
            try:
                if reason := prepared.refusal or prepared.ask or (run.untrusted and prepared.when_untrusted):
                    return failed(reason)
                return await prepared.run()
            finally:
                prepared.release()

        return Tool(spec, run, prepare)

    return make


def _checked(
    name: str, description: str, function: Callable[..., Awaitable[T]]
) -> tuple[ToolSpec, Callable[[ToolRun, Mapping[str, Any]], Awaitable[T | ToolOutput]]]:
    """The ToolSpec of a function, and the function wrapped in a check of its arguments."""
    arguments, whole, schema = _read_signature(name, function)
    spec = ToolSpec(name, description, schema)

    async def call(run: ToolRun, sent: Mapping[str, Any]) -> T | ToolOutput:
        checked = _check(spec, arguments, sent)
        if isinstance(checked, ToolOutput):
            return checked
        if whole:
            return await function(run, checked)
        return await function(run, **{field: getattr(checked, field) for field in arguments.__struct_fields__})

    return spec, call


_known: dict[tuple[Any, ...], tuple[type[Struct], bool, bytes]] = {}  # every agent makes the same tools again


def _read_signature(name: str, function: Callable[..., Any]) -> tuple[type[Struct], bool, dict[str, Any]]:
    """The record of the arguments, whether the function takes it whole, and the schema: the caller's own copy."""
    plain = inspect.unwrap(function)
    given = (plain.__defaults__, tuple((plain.__kwdefaults__ or {}).items()), tuple(plain.__annotations__.items()))
    key = (name, plain.__code__, *given)
    if key not in _known:
        hints = typing.get_type_hints(function, include_extras=True)
        parameters = list(inspect.signature(function).parameters.values())[1:]
        only = hints[parameters[0].name] if len(parameters) == 1 else None
        record = only if isinstance(only, type) and issubclass(only, Struct) else None
        arguments = record or _arguments_type(name, parameters, hints)
        _known[key] = arguments, record is not None, _schema(arguments)
    arguments, whole, schema = _known[key]
    return arguments, whole, msgspec.json.decode(schema)


def failed(text: str) -> ToolOutput:
    return ToolOutput(text, is_error=True)


def _arguments_type(name: str, parameters: Iterable[inspect.Parameter], hints: Mapping[str, Any]) -> type[Struct]:
    fields = [
        (each.name, _described(hints[each.name]), msgspec.NODEFAULT if each.default is each.empty else each.default)
        for each in parameters
    ]
    rename = methodcaller("rstrip", "_")  # `from_` is sent as `from`
    return msgspec.defstruct(name, fields, rename=rename, kw_only=True, frozen=True, forbid_unknown_fields=True)


def _described(hint: Any) -> Any:
    """The type with a plain string annotation turned into its description."""
    if typing.get_origin(hint) is not Annotated:
        return hint
    kind, *notes = typing.get_args(hint)
    for note in notes:
        kind = Annotated[kind, Meta(description=note) if isinstance(note, str) else note]
    return kind


def _schema(arguments: type[Struct]) -> bytes:
    """The JSON Schema in one piece, without what no model needs, because it is sent with every request.

    Limits, defaults, and that other arguments are refused, are left out too: a model that breaks a rule is told.
    """
    (schema,), definitions = msgspec.json.schema_components([arguments], ref_template="{name}")
    flat = _inline(schema, definitions)
    flat = {key: value for key, value in flat.items() if key != "description" and not (key == "required" and not value)}
    return msgspec.json.encode(flat)  # so that it equals a schema read from a stored epoch: tuples become lists


def _inline(node: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inline(each, definitions) for each in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inline(definitions[node["$ref"]], definitions)
    # `title` is dropped where it names a type; under `properties` it may be an argument.
    return {
        key: {name: _inline(each, definitions) for name, each in value.items() if "unlisted" not in each}
        if key == "properties"
        else _inline(value, definitions)
        for key, value in node.items()
        if key != "title"
        and key not in ("default", "minimum", "maximum")
        and not (key == "additionalProperties" and not value)
    }


def _check(spec: ToolSpec, arguments: type[Struct], sent: Mapping[str, Any]) -> Struct | ToolOutput:
    if MALFORMED in sent:
        raw = str(sent[MALFORMED])
        return failed(f"the arguments of {spec.name} were not JSON: {raw[:200]!r}. {_usage(spec)}")
    known, required = arguments.__struct_encode_fields__, spec.parameters.get("required", ())
    # Models send null for omitted arguments.
    given = {name: value for name, value in sent.items() if value is not None or name in required}
    if unknown := [name for name in given if name not in known]:
        return failed(f"{spec.name} has no argument {unknown[0][:80]!r}. {_usage(spec)}")
    if lacking := [name for name in required if name not in given]:
        return failed(f"{spec.name} needs the argument {lacking[0]!r}. {_usage(spec)}")
    try:
        return msgspec.convert(given, arguments, strict=False)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        return failed(
            f"{spec.name}: the argument {where.rstrip('`')!r} is wrong: {what[:1].lower()}{what[1:]}. {_usage(spec)}"
        )


def _usage(spec: ToolSpec) -> str:
    required = spec.parameters.get("required", ())
    parts = [
        f"{name} ({about.get('type', 'see schema')}{', required' if name in required else ''})"
        for name, about in spec.parameters["properties"].items()
    ]
    return f"Send one JSON object with: {', '.join(parts)}." if parts else "It takes no arguments: send {}."


FILE_TOOLS = frozenset({"read", "write", "edit", "delete", "ls", "grep", "find", "memory_get"})
UNSEEN_PATHS = frozenset({"apply_patch"})  # these tools name files inside a text that only they can parse


def beyond(restrictions: Iterable[Restriction], tool: str, arguments: Mapping[str, Any]) -> str:
    """Why a restriction forbids this call, starting with who set it; empty if the call is allowed."""
    for each in restrictions:
        about = f"{each.source}: {each.reason}"
        if each.hosts is not None and "url" in arguments and not is_host(each.hosts, str(arguments["url"])):
            return f"{about} (of hosts only {', '.join(each.hosts) or 'none'})"
        if each.paths is None:
            continue
        if tool in UNSEEN_PATHS:
            return f"{about} (only certain paths, to which {tool} cannot be held)"
        path = str(arguments.get("path") or ".").partition("#")[0]
        if tool in FILE_TOOLS and not _is_below(each.paths, path):
            return f"{about} (of paths only {', '.join(each.paths) or 'none'})"
    return ""


def is_host(hosts: Iterable[str], url: str) -> bool:
    """Whether an address is of one of these hosts: `example.org`, `*.example.org`, `example.org:8080`."""
    try:
        parts = urlsplit(url)
        name = (parts.hostname or "").rstrip(".")
        port = str(parts.port or (443 if parts.scheme == "https" else 80))
    except ValueError:
        return False
    for host in hosts:
        wanted, _, wanted_port = host.partition(":")
        fits = name == wanted or (wanted.startswith("*.") and (name == wanted[2:] or name.endswith(wanted[1:])))
        if name and fits and wanted_port in ("", port):
            return True
    return False


def _is_below(places: Iterable[str], path: str) -> bool:
    place = posixpath.normpath(path)
    return any(
        place == each or each == "." or place.startswith(f"{each.rstrip('/')}/")
        for each in places
        if each != "." or (not place.startswith("/") and place.partition("/")[0] != "..")
    )
