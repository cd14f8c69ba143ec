"""Turns a request of either endpoint into one message to an agent, and starts the run that answers it.

The name of a model is that of an agent. A request without `user` and without a session brings its history: it goes on
in the session that ends with it (`conversations`), or gets one of its own that nothing else uses.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import Request

from palinurus.dispatch.agents import Agents
from palinurus.dispatch.runs import Run
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.keys import ONE_OFF, SessionKey
from palinurus.domain.messages import ContextNote, ReplyFormat, ToolResult
from palinurus.domain.tool import ToolSpec
from palinurus.extensions.openai_api import messages
from palinurus.extensions.openai_api.client_tools import check_tools, entries_of, find_answers
from palinurus.extensions.openai_api.errors import ApiError
from palinurus.extensions.openai_api.messages import ClientMessage
from palinurus.extensions.openai_api.pictures import read_pictures
from palinurus.extensions.openai_api.reply_format import describe_format
from palinurus.gateway.websocket.methods import GatewayContext
from palinurus.operations.services import Services
from palinurus.providers.provider import ANY_TOOL

MOST = 4_096  # conversations; the one that was used least recently goes first


class ClientConversations:
    def __init__(self, _: Services) -> None:
        self._sessions: OrderedDict[str, SessionKey] = OrderedDict()

    def take(self, agent: str, messages: Sequence[ClientMessage]) -> SessionKey | None:
        """The session that ends with the last reply in these messages. Only the first request that goes on gets it."""
        digest = _digest_of_past(agent, messages)
        return self._sessions.pop(digest, None) if digest else None

    def put_back(self, key: SessionKey, messages: Sequence[ClientMessage]) -> None:
        """The session that was taken still ends as before."""
        self._sessions[_digest_of_past(key.agent, messages)] = key

    def put(self, key: SessionKey, messages: Sequence[ClientMessage], reply: str) -> None:
        """The session ends with these messages and this reply, as the client has them."""
        whole = [*messages, ClientMessage("assistant", reply)]
        self._sessions[conversation_digest(key.agent, whole)] = key
        if len(self._sessions) > MOST:
            self._sessions.popitem(last=False)


def _digest_of_past(agent: str, messages: Sequence[ClientMessage]) -> str:
    """Of the messages to the last reply; empty when there is none."""
    replies = [at for at, message in enumerate(messages) if message.role == "assistant"]
    return conversation_digest(agent, messages[: replies[-1] + 1]) if replies else ""


def conversation_digest(agent: str, messages: Sequence[ClientMessage]) -> str:
    """The same for all formats: some put text and calls of a reply into one message, others into several."""
    parts = [agent, *(part for message in messages for part in _parts(message))]
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def _parts(message: ClientMessage) -> Iterator[tuple[str, str]]:
    if text := message.text.strip():  # clients trim it
        yield f"{message.role}:{message.call_id}", text.encode("utf-8", "replace").decode()
    yield from (("call", call.text.encode("utf-8", "replace").decode()) for call in message.calls)
    yield from (
        ("picture", hashlib.sha256(picture.encode("utf-8", "replace")).hexdigest()) for picture in message.pictures
    )


CHANNEL = "openai"
LONGEST_KEY = 256
INSTRUCTIONS = "instructions of the client"
PRODUCTS = ("palinurus", "openclaw")
RESERVED = ("subagent", "cron", "acp")  # sessions that belong to runs of their own
_NAMED = re.compile(r"(?:(?:palinurus|openclaw)[/:]|agent:)(.+)")
_BACKEND = re.compile(r"[A-Za-z0-9][\w.+-]{0,63}/[\w.:+@/-]{1,200}")
ToolChoice = str | dict[str, Any] | None


class SessionTarget(Struct, frozen=True):
    """The session in which a request is answered."""

    key: SessionKey
    lasting: bool  # whether later requests may use it


def header(headers: Mapping[str, str], name: str) -> str:
    """A header of ours under either product's name."""
    return (headers.get(f"x-palinurus-{name}") or headers.get(f"x-openclaw-{name}") or "").strip()


def model_names(agents: Collection[str]) -> list[str]:
    """The names under which agents are listed. Other spellings are accepted too."""
    return ["palinurus", *(f"palinurus/{agent}" for agent in sorted(agents))]


def agent_named(model: str, agents: Agents) -> str:
    """The agent with this model name. Raises ApiError."""
    name = model.strip().lower()
    found = _NAMED.fullmatch(name)
    agent = found[1] if found else ""
    if agent in agents.ids:
        return agent
    if not name or name in PRODUCTS or agent == "default":
        return agents.default
    message = f"the model {model[:80]!r} does not exist (there are {', '.join(model_names(agents.ids))})"
    raise ApiError(404, message, code="model_not_found", param="model")


def choose_target(model: str, user: str, headers: Mapping[str, str], agents: Agents, fresh: str) -> SessionTarget:
    """`fresh` names the session of a request without one. Raises NotFound, BadRequest and ApiError."""
    named = header(headers, "agent-id").lower()
    if named:
        _check_agent(named, agents)
    agent = named or agent_named(model, agents)
    if wanted := header(headers, "session-key"):
        key = _named_session(wanted, agent)
        _check_agent(key.agent, agents)
        if named and key.agent != named:
            raise BadRequest(f"the session {str(key)[:80]!r} does not belong to {named!r}", hint="send one of the two")
        return SessionTarget(key, lasting=True)
    if user:
        digest = hashlib.sha256(user.encode("utf-8", "replace")).hexdigest()[:32]
        return SessionTarget(SessionKey.parse(f"agent:{agent}:openai-user:{digest}"), lasting=True)
    return SessionTarget(SessionKey.parse(f"agent:{agent}:{ONE_OFF}:{fresh}"), lasting=False)


def target_of_session(key: SessionKey) -> SessionTarget:
    """The target of an earlier request, by its session."""
    return SessionTarget(key, lasting=not key.is_one_off)


def _check_agent(agent: str, agents: Agents) -> None:
    if agent not in agents.ids:
        raise NotFound(f"there is no agent {agent[:80]!r}", hint=f"configured: {', '.join(sorted(agents.ids))}")


def _named_session(wanted: str, agent: str) -> SessionKey:
    name = wanted if ":" in wanted or wanted.lower() == "main" else f"explicit:{wanted}"
    key = SessionKey.parse(name if name.lower().startswith("agent:") else f"agent:{agent}:{name}")
    if key.kind in RESERVED:
        raise BadRequest(f"sessions of the kind {key.kind} accept no messages here", hint="name another session key")
    return key


def requested_model(headers: Mapping[str, str]) -> str:
    """The model that a header requests, as provider/model; empty: that of the session. Raises BadRequest."""
    model = header(headers, "model")
    if model and not _BACKEND.fullmatch(model):
        raise BadRequest(f"not a model: {model[:80]!r}", hint="for example x-openclaw-model: anthropic/claude-opus-5")
    return model


class RunRequest(Struct, frozen=True):
    """A request of either endpoint."""

    model: str
    history: messages.ClientHistory
    tools: Iterable[ToolSpec] = ()
    user: str = ""
    choice: ToolChoice = None
    continues: SessionKey | None = None  # the session of a previous response
    form: ReplyFormat | None = None


def forget_reply(_: str) -> None:
    """Ignores the reply: its session has a name."""


class StartedRun(Struct, frozen=True):
    """A run, and whether it is stopped when its client disconnects, because nobody else can read its answer."""

    run: Run
    stops_with_client: bool
    on_reply: Callable[[str], None] = forget_reply
    """Is given the reply of a good run, as the client gets it. Neither blocks nor raises."""
    form: ReplyFormat | None = None  # what the reply is checked for


async def start_run(gateway: GatewayContext, request: Request, wanted: RunRequest) -> StartedRun:
    """When this returns, the message is stored. Raises PalinurusErrors."""
    conversations = gateway.services.keep(ClientConversations)
    said = wanted.history.messages
    target = _target(gateway, request, wanted)
    answers = await find_answers(gateway.services, said)
    if answers and (target.lasting or wanted.continues) and answers.run.key != target.key:
        answers = None  # it names another session, where no call is open
    known = None if answers or target.lasting or wanted.continues else conversations.take(target.key.agent, said)
    try:
        if answers:
            target = target_of_session(answers.run.key)
            texts = [each for each in wanted.history.new if each.role == "user"]  # sent along with the results
            message = await _message(gateway.services, texts, answers.results)
        elif known and await gateway.services.sessions.find(known):
            target = target_of_session(known)
            message = await _message(gateway.services, wanted.history.new)
        else:
            known = None  # or archived since
            new = await _unknown_messages(gateway, target, wanted)
            message = await _message(gateway.services, new)
        run = await _submit(gateway, request, wanted, target, message)
    except BaseException:
        if known:  # nothing was added to it
            conversations.put_back(known, said)
        raise
    keyed = bool(_idempotency_key(request))
    if target.lasting or wanted.continues:
        return StartedRun(run, stops_with_client=not target.lasting and not keyed, form=wanted.form)
    return StartedRun(run, not keyed, partial(conversations.put, run.key, said), wanted.form)


async def _submit(
    gateway: GatewayContext, request: Request, wanted: RunRequest, target: SessionTarget, message: Inbound
) -> Run:
    choice, tools = _allowed(wanted.choice, check_tools(wanted.tools))
    whole = msgspec.structs.replace(
        message,
        idempotency_key=f"{CHANNEL}:{_idempotency_key(request) or gateway.new_id()}",
        session_key=str(target.key),
        attended=target.lasting,
        notes=(*_instructions(_requests(wanted, choice)), *message.notes),
        model=requested_model(request.headers),
        client_tools=tools,
        tool_choice=_forced_tool(choice, tools),
        reply_format=wanted.form,
    )
    return await gateway.services.dispatcher.submit(whole)


def _target(gateway: GatewayContext, request: Request, wanted: RunRequest) -> SessionTarget:
    if wanted.continues:
        return target_of_session(wanted.continues)
    return choose_target(wanted.model, wanted.user, request.headers, gateway.services.agents, gateway.new_id())


async def _unknown_messages(
    gateway: GatewayContext, target: SessionTarget, wanted: RunRequest
) -> tuple[messages.ClientMessage, ...]:
    """The messages that the session does not have: all, when it is new or the client sends only new ones."""
    if not target.lasting or wanted.continues or await gateway.services.sessions.find(target.key) is None:
        return wanted.history.messages
    return wanted.history.new


async def _message(services: Services, new: Sequence[ClientMessage], results: tuple[ToolResult, ...] = ()) -> Inbound:
    """The last of the messages, after those before it. Of results there may be nothing else."""
    before, text, own = messages.split_history(new) if new or not results else ((), "", ())
    addresses = [*chain.from_iterable(each.pictures for each in before), *own]
    pictures = iter(await read_pictures(services, addresses) if addresses else ())
    earlier, notes = entries_of(before, pictures, services.clock.now_ms())
    return Inbound(
        text, "", tuple(pictures), channel=CHANNEL, notes=notes, plain=True, earlier=earlier, results=results
    )


def _instructions(text: str) -> tuple[ContextNote, ...]:
    """Clients send them with every request; the model gets them, outside the head, only when they have changed."""
    if not text:
        return ()
    if len(text) > messages.MOST_CHARACTERS:
        raise BadRequest(f"the instructions have {len(text):,} characters; the limit is {messages.MOST_CHARACTERS:,}")
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
    return (ContextNote("notice", text, INSTRUCTIONS, digest),)


def _idempotency_key(request: Request) -> str:
    key: str = request.headers.get("idempotency-key", "").strip()
    if len(key) > LONGEST_KEY:
        raise BadRequest(f"the Idempotency-Key has {len(key)} characters; the limit is {LONGEST_KEY}")
    return key


def _allowed(choice: ToolChoice, tools: tuple[ToolSpec, ...]) -> tuple[ToolChoice, tuple[ToolSpec, ...]]:
    """A choice of `allowed_tools` as one among these tools alone."""
    if not isinstance(choice, dict) or choice.get("type") != "allowed_tools":
        return choice, tools
    asked = choice.get("allowed_tools", choice)  # /v1/responses has its fields one level higher
    named = asked.get("tools") if isinstance(asked, dict) else None
    if not isinstance(named, list) or not all(isinstance(each, dict) for each in named):
        raise BadRequest("tool_choice.allowed_tools has no list of tools", hint="name each as in tools")
    names = set(map(_named_tool, named))
    return asked.get("mode"), tuple(spec for spec in tools if spec.name in names)


def _requests(wanted: RunRequest, choice: ToolChoice) -> str:
    """The instructions of a client, with those that follow from its parameters."""
    parts = (wanted.history.instructions, _tool_choice_text(choice), describe_format(wanted.form))
    return "\n\n".join(part for part in parts if part)


def _tool_choice_text(choice: ToolChoice) -> str:
    """For models that cannot be forced."""
    if choice == "required":
        return "Call at least one tool before you answer."
    name = _named_tool(choice)
    return f"Call the tool {name[:64]} before you answer." if name else ""


def _named_tool(choice: ToolChoice) -> str:
    if not isinstance(choice, dict):
        return ""
    function = choice.get("function")
    return str(choice.get("name") or (function.get("name") if isinstance(function, dict) else "") or "")


def _forced_tool(choice: ToolChoice, tools: Collection[ToolSpec]) -> str:
    """For Inbound. Raises BadRequest for the name of a tool that is not in the request."""
    name = _named_tool(choice)
    if name and name not in {spec.name for spec in tools}:
        raise BadRequest(f"tool_choice names {name[:64]!r}, which is not one of the tools", hint="send it in tools")
    return name or (ANY_TOOL if choice == "required" and tools else "")
