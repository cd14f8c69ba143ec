// The owner's consent to a program that asks for access. The request is in the query of this page's address; the gateway
// checks it, and tells what is in it only to the owner: by the cookie and the key of the dashboard, or by its token.

const MEANINGS = {
  read: "read sessions, notes and files of the agents",
  write: "send messages to the agents as you, and stop them",
  approvals: "answer approvals for you",
};
const part = (id) => document.getElementById(id);
let token = "";

function pageKey() {
  try {
    return localStorage.getItem("pal.key") ?? "";
  } catch {
    return ""; // this browser stores nothing
  }
}

async function send(more) {
  const headers = { "content-type": "application/json", ...(token && { authorization: `Bearer ${token}` }) };
  const body = JSON.stringify({ query: location.search.slice(1), key: pageKey(), ...more });
  const answer = await fetch("/mcp/consent", { method: "POST", headers, body });
  return { status: answer.status, told: await answer.json() };
}

function say(text) {
  part("said").textContent = text;
  part("ask").hidden = part("enter").hidden = true;
}

async function look() {
  const { status, told } = await send({});
  if (status === 401 || status === 429) {
    say(token ? told.title : "");
    part("enter").hidden = false;
  } else if (status !== 200) say(told.title);
  else if (told.redirect) leave(told.redirect);
  else show(told);
}

function show(told) {
  say("");
  part("name").textContent = told.name;
  part("to").textContent = told.redirectUri;
  for (const scope of told.scopes) {
    const box = Object.assign(document.createElement("input"), { type: "checkbox", name: scope, checked: true });
    const label = document.createElement("label");
    label.append(box, ` ${MEANINGS[scope] ?? scope}`);
    part("scopes").append(label);
  }
  part("ask").hidden = false;
}

async function decide(scopes) {
  say("…");
  const { status, told } = await send({ allow: scopes.length > 0, scopes });
  if (status === 200) leave(told.redirect);
  else say(told.title);
}

function leave(address) {
  say("Done. You can close this page.");
  location.assign(address);
}

part("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  decide([...part("scopes").querySelectorAll("input:checked")].map((box) => box.name));
});
part("deny").addEventListener("click", () => decide([]));
part("enter").addEventListener("submit", (event) => {
  event.preventDefault();
  token = part("token").value.trim();
  look();
});
look().catch(() => say("The gateway does not answer. Is it still running?"));
