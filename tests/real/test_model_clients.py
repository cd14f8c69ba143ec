"""Programs from npm that use models by OpenAI's or Anthropic's format use an agent through our gateway."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.behaviours import Behaviour, Calls, Json, Says
from support.compatibility import PEERS, require
from support.wire import WireServer

sys.path.insert(0, str(Path(__file__).parent.parent / "faults"))
from homes import PalHome

PLACE = PEERS / "clients"
NODE = PLACE / "node" / "bin" / "node"
PI = PLACE / "node_modules" / "@earendil-works" / "pi-coding-agent" / "dist" / "bundle" / "cli.js"
SECONDS = 120.0  # a program takes five; the machine may be busy

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def _installed() -> None:
    require("clients")


class Gateway:
    """A home whose gateway listens, with a model that says what it is told to."""

    def __init__(self, root: Path, wire: WireServer) -> None:
        self.root = root
        self.wire = wire
        self.home = PalHome(root / "home")
        self.home.set_up(wire.base_url)
        self.url = ""

    @property
    def token(self) -> str:
        return (self.home.root / "gateway.token").read_text().strip()

    async def node(self, *words: str | Path, folder: Path, **env: str) -> str:
        """What a program of node printed. Fails if it did."""
        env = {"HOME": str(self.root), "PATH": f"{NODE.parent}:{os.environ['PATH']}", **env}
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            NODE, *words, cwd=folder, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(), SECONDS)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, err.decode() + out.decode()
        return out.decode()

    async def script(self, program: str) -> Any:
        """What a script printed as JSON. It finds the packages, `url` and `token`."""
        file = PLACE / f"try-{os.getpid()}.mjs"
        file.write_text(f"const url = {json.dumps(self.url)}, token = {json.dumps(self.token)};\n{program}")
        try:
            return json.loads(await self.node(file, folder=PLACE))
        finally:
            file.unlink()

    async def sessions(self) -> list[str]:
        """All, also those of single requests."""
        listed = (await self.home.pal("sessions", "list", "--archived", "--json")).json
        return [each["key"] for each in listed["sessions"]]


@asynccontextmanager
async def listening(root: Path, wire: WireServer) -> AsyncIterator[Gateway]:
    made = Gateway(root, wire)
    async with made.home.talking("gateway", "run", "--port", "0") as talk:
        made.url = (await talk.until(lambda said: said.startswith("pal gateway at "))).split()[3]
        yield made
    assert "Traceback" not in talk.complaints, talk.complaints


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with WireServer() as wire, listening(tmp_path, wire) as made:
        yield made


class Pi:
    """The coding agent in a project of its own."""

    def __init__(self, root: Path) -> None:
        self.folder, self.settings = root / "project", root / "pi"
        self.folder.mkdir()
        self.settings.mkdir()

    async def says(self, gateway: Gateway, *words: str) -> str:
        provider = {"baseUrl": f"{gateway.url}/v1", "api": "openai-completions", "apiKey": gateway.token}
        models = {"providers": {"pal": {**provider, "models": [{"id": "palinurus"}]}}}
        (self.settings / "models.json").write_text(json.dumps(models))
        pi = (PI, "--offline", "--model", "pal/palinurus", "--no-approve", "-p")
        return await gateway.node(*pi, *words, folder=self.folder, PI_CODING_AGENT_DIR=str(self.settings))


RUN = "python3 -B -c 'import calc; print(calc.add(2, 3))'"  # a file of the same size and second has the same bytecode
TASK: tuple[Behaviour, ...] = (
    Calls(("write", {"path": "calc.py", "content": "def add(a, b):\n    return a - b\n"}), text="I begin."),
    Calls(("bash", {"command": RUN})),
    Calls(("read", {"path": "calc.py"})),
    Calls(("edit", {"path": "calc.py", "edits": [{"oldText": "a - b", "newText": "a + b"}]})),
    Calls(("bash", {"command": RUN})),
    Says("Done: 2 + 3 is 5."),
)


@pytest.mark.shows("pi-coding-agent", "a coding task with its tools read, write, edit and bash; the next one goes on")
async def test_pi_solves_a_task_with_its_own_tools_and_goes_on(gateway: Gateway, tmp_path: Path) -> None:
    pi = Pi(tmp_path)
    gateway.wire.script = [*TASK, Says("You are welcome.")]
    assert "Done: 2 + 3 is 5." in await pi.says(gateway, "write add and try it")
    assert (pi.folder / "calc.py").read_text() == "def add(a, b):\n    return a + b\n"
    results = [each["content"] for each in gateway.wire.requests[-1]["messages"] if each["role"] == "tool"]
    assert len(results) == 5
    assert ["-1" in results[1], "a - b" in results[2], "5" in results[4]] == [True] * 3
    assert "You are welcome." in await pi.says(gateway, "--continue", "thank you")
    assert len(await gateway.sessions()) == 1
    before, after = (request["messages"] for request in gateway.wire.requests[-2:])
    assert after[: len(before)] == before


@pytest.mark.shows("pi-coding-agent", "a conversation with tool calls goes on at a gateway that does not know it")
async def test_pi_goes_on_where_its_conversation_is_not_known(gateway: Gateway, tmp_path: Path) -> None:
    pi = Pi(tmp_path)
    gateway.wire.script = [*TASK, Says("You are welcome."), Says("Gladly.")]
    await pi.says(gateway, "write add and try it")
    before = gateway.wire.requests[-1]["messages"]
    (tmp_path / "other").mkdir()
    async with listening(tmp_path / "other", gateway.wire) as other:
        assert "You are welcome." in await pi.says(other, "--continue", "thank you")
        after = gateway.wire.requests[-1]["messages"]
        assert [each["role"] for each in after] == [each["role"] for each in before] + ["assistant", "user"]
        assert [called(each) for each in after[: len(before)]] == [called(each) for each in before]
        assert "Gladly." in await pi.says(other, "--continue", "once more")
        assert gateway.wire.requests[-1]["messages"][: len(after)] == after
        assert len(await other.sessions()) == 1


def called(message: Json) -> list[tuple[str, Any]]:
    """The calls of a reply, without their ids."""
    calls = [each["function"] for each in message.get("tool_calls") or ()]
    return [(each["name"], json.loads(each["arguments"])) for each in calls]


@pytest.mark.shows("openai (Node)", "models; chat completions, whole and streamed with usage; responses")
async def test_openais_library_for_node(gateway: Gateway) -> None:
    gateway.wire.script = [Says("One."), Says("Two three.", chunks=3), Says("Four."), Says("Five six.", chunks=3)]
    told = await gateway.script("""
        import OpenAI from "openai";
        const client = new OpenAI({baseURL: `${url}/v1`, apiKey: token}), model = "palinurus";
        const models = (await client.models.list()).data.map(each => each.id);
        const messages = [{role: "user", content: "hi"}];
        const whole = await client.chat.completions.create({model, messages});
        let text = "", usage = null;
        const options = {model, messages, stream: true, stream_options: {include_usage: true}};
        for await (const chunk of await client.chat.completions.create(options)) {
          text += chunk.choices[0]?.delta.content ?? "";
          usage = chunk.usage ?? usage;
        }
        const first = await client.responses.create({model, input: "hi"});
        const stream = client.responses.stream({model, input: "on", previous_response_id: first.id});
        const last = await stream.finalResponse();
        const bad = await client.chat.completions.create({model: "gpt-9", messages}).catch(error => error);
        console.log(JSON.stringify([models, whole.choices[0].message.content, text, usage.total_tokens,
          first.output_text, last.output_text, bad.constructor.name]));
    """)
    assert told[0] == ["palinurus", "palinurus/main"]
    assert told[1:] == ["One.", "Two three.", 25, "Four.", "Five six.", "NotFoundError"]


@pytest.mark.shows("openai (Node)", "client tools by its runner")
async def test_openais_runner_of_tools_for_node(gateway: Gateway) -> None:
    gateway.wire.script = [Calls(("weather", {"place": "Ostia"})), Says("It is sunny in Ostia.")]
    told = await gateway.script("""
        import OpenAI from "openai";
        const client = new OpenAI({baseURL: `${url}/v1`, apiKey: token}), asked = [];
        const weather = {type: "function", function: {
          name: "weather", description: "Look.", parse: JSON.parse,
          parameters: {type: "object", properties: {place: {type: "string"}}, required: ["place"]},
          function: each => (asked.push(each.place), "sunny"),
        }};
        const messages = [{role: "user", content: "weather?"}];
        const runner = client.chat.completions.runTools({model: "palinurus", messages, tools: [weather]});
        console.log(JSON.stringify([await runner.finalContent(), asked]));
    """)
    assert told == ["It is sunny in Ostia.", ["Ostia"]]
    assert len(await gateway.sessions()) == 1


@pytest.mark.shows("openai (Node)", "a typed reply by json_schema")
async def test_a_typed_reply_by_openais_library_for_node(gateway: Gateway) -> None:
    gateway.wire.script = [Says('```json\n{"colour": "green"}\n```'), Says("I cannot say.")]
    told = await gateway.script("""
        import OpenAI from "openai";
        const client = new OpenAI({baseURL: `${url}/v1`, apiKey: token});
        const schema = {type: "object", properties: {colour: {type: "string"}}, required: ["colour"],
          additionalProperties: false};
        const options = {model: "palinurus", messages: [{role: "user", content: "which colour?"}],
          response_format: {type: "json_schema", json_schema: {name: "answer", schema, strict: true}}};
        const parsed = (await client.chat.completions.parse(options)).choices[0].message.parsed;
        const bad = await client.chat.completions.parse(options).catch(error => error);
        console.log(JSON.stringify([parsed, bad.status, bad.code]));
    """)
    assert told == [{"colour": "green"}, 502, "invalid_reply_format"]


def answer_weather(body: Json) -> Behaviour:
    return Says("Sunny.") if body["messages"][-1]["role"] == "tool" else Calls(("weather", {"place": "Ostia"}))


@pytest.mark.shows("Anthropic SDK (Node)", "messages, whole and streamed, with client tools")
async def test_anthropics_library_for_node(gateway: Gateway) -> None:
    gateway.wire.script = [Says("One.")]
    gateway.wire.otherwise = answer_weather
    told = await gateway.script("""
        import Anthropic from "@anthropic-ai/sdk";
        const client = new Anthropic({baseURL: url, apiKey: token}), model = "palinurus", max_tokens = 100;
        const whole = await client.messages.create({model, max_tokens, messages: [{role: "user", content: "hi"}]});
        const tools = [{name: "weather", description: "Look.",
          input_schema: {type: "object", properties: {place: {type: "string"}}}}];
        const messages = [{role: "user", content: "weather?"}];
        const asked = await client.messages.stream({model, max_tokens, messages, tools}).finalMessage();
        const call = asked.content.find(each => each.type === "tool_use");
        messages.push({role: "assistant", content: asked.content});
        messages.push({role: "user", content: [{type: "tool_result", tool_use_id: call.id, content: "sun"}]});
        const last = await client.messages.create({model, max_tokens, messages, tools});
        console.log(JSON.stringify([whole.content[0].text, asked.stop_reason, call.input, last.content[0].text]));
    """)
    assert told == ["One.", "tool_use", {"place": "Ostia"}, "Sunny."]
