// The TypeScript SDK as an agent would use it: `node mcp_client.mjs SDK stdio COMMAND ARGS…`, or `… SDK http URL [TOKEN]`.
// Without a token it logs in by OAuth: it prints the address for a person, and reads the answer's address from its input.
import { createInterface } from "node:readline/promises";
import { pathToFileURL } from "node:url";

const [sdk, kind, where, ...rest] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(`${sdk}/dist/esm/client/${name}.js`).href);
const { Client } = await load("index");

class Login {
  redirectUrl = "http://127.0.0.1:7777/callback";
  clientMetadata = { client_name: "TypeScript SDK", redirect_uris: [this.redirectUrl] };
  clientInformation() { return this.client; }
  saveClientInformation(client) { this.client = client; }
  tokens() { return this.known; }
  saveTokens(tokens) { this.known = tokens; }
  saveCodeVerifier(verifier) { this.verifier = verifier; }
  codeVerifier() { return this.verifier; }
  redirectToAuthorization(url) { console.log(JSON.stringify({ open: url.href })); }
}

async function makeTransport(authProvider) {
  if (kind === "stdio") {
    const { StdioClientTransport } = await load("stdio");
    return new StdioClientTransport({ command: where, args: rest, env: process.env });
  }
  const { StreamableHTTPClientTransport } = await load("streamableHttp");
  const headers = rest[0] ? { authorization: `Bearer ${rest[0]}` } : undefined;
  return new StreamableHTTPClientTransport(new URL(where), { authProvider, requestInit: { headers } });
}

const authProvider = kind === "http" && !rest[0] ? new Login() : undefined;
let client = new Client({ name: "real", version: "1" });
try {
  await client.connect(await makeTransport(authProvider));
} catch (error) {
  if (!authProvider?.verifier) throw error;
  const answer = await createInterface({ input: process.stdin }).question("");
  await (await makeTransport(authProvider)).finishAuth(new URL(answer).searchParams.get("code"));
  client = new Client({ name: "real", version: "1" });
  await client.connect(await makeTransport(authProvider));
}
const { tools } = await client.listTools();
const sent = await client.callTool({ name: "message_send", arguments: { message: "remember that my kayak is yellow" } });
const { resources } = await client.listResources();
const read = await client.readResource({ uri: resources.find((each) => each.name.endsWith("AGENTS.md")).uri });
const { prompts } = await client.listPrompts();
console.log(JSON.stringify({
  tools: tools.map((each) => each.name),
  reply: sent.structuredContent.reply,
  agents: read.contents[0].text,
  prompts: prompts.length,
}));
await client.close();
process.exit(0);
