// What the whole page knows of the house: its agents, its sessions, what waits for a person. Asked for when we come in,
// and again when something is said to have changed.

import { shortened } from "./format.js";
import { agents, sessions, waiting } from "./state.js";
import { wire } from "./wire.js";

const LISTED = 200;
let timer = 0;
const running = new Map(); // session key → ids of runs that we have heard begin

/** Sessions are listed again soon, and once, however often this is asked for. */
function refreshSoon(after = 250) {
  clearTimeout(timer);
  timer = setTimeout(() => house.refreshSessions().catch(() => {}), after);
}

/** A run has begun or ended: the rail shows it at once, without asking. */
function note({ sessionKey, runId, stream, data }) {
  if (stream !== "lifecycle") return;
  const runs = running.get(sessionKey) ?? new Set();
  const known = sessions.value?.find((each) => each.key === sessionKey);
  data.phase === "start" ? runs.add(runId) : runs.delete(runId);
  running.set(sessionKey, runs);
  if (!known) return refreshSoon();
  const changed = { ...known, hasActiveRun: runs.size > 0, updatedAt: Date.now() };
  sessions.value = [changed, ...sessions.value.filter((each) => each.key !== sessionKey)];
}

async function refreshWaiting() {
  if (!wire.scopes.has("approvals") && !wire.scopes.has("admin")) return;
  waiting.value = await wire.call("exec.approval.list");
}

export const house = {
  start() {
    wire.on("state", (state) => state === "connected" && house.arrive());
    wire.on("resync", () => refreshSoon(0));
    wire.on("sessions.changed", () => refreshSoon());
    wire.on("agent", note);
    wire.on("approval", () => refreshWaiting().catch(() => {}));
  },

  async arrive() {
    try {
      await wire.call("sessions.subscribe", { sessionKey: "*" });
      await Promise.all([house.refreshAgents(), house.refreshSessions(), refreshWaiting()]);
    } catch (error) {
      console.warn("the house could not be asked:", error.message);
    }
  },

  async refreshAgents() {
    const known = await wire.call("agents.list");
    agents.value = known;
    const pictured = known.agents.filter((each) => each.identity?.avatar);
    if (!pictured.length) return;
    // The picture itself comes through the gateway: an address elsewhere is never asked from here.
    const ask = (each) => wire.call("agent.identity.get", { agentId: each.id }).catch(() => ({ agentId: each.id }));
    const said = await Promise.all(pictured.map(ask));
    const pictures = new Map(said.map((each) => [each.agentId, each.avatarUrl]));
    agents.value = { ...known, agents: known.agents.map((each) => ({ ...each, picture: pictures.get(each.id) })) };
  },

  async refreshSessions() {
    const found = await wire.call("sessions.list", { limit: LISTED, includeDerivedTitles: true });
    running.clear();
    for (const each of found.sessions) running.set(each.key, new Set(each.activeRunIds));
    sessions.value = found.sessions;
  },
};

/** What was said somewhere, and where. @returns {Promise<{key: string, entry: string, title: string, text: string}[]>} */
export async function searchSaid(query, limit) {
  const { hits } = await wire.call("sessions.search", { query, limit });
  return hits.map(({ sessionKey: key, entryId: entry, snippet }) => ({
    key,
    entry,
    title: sessionTitle(
      sessions.value?.find((each) => each.key === key),
      key,
    ),
    text: shortened(snippet, 140),
  }));
}

/** What a session is called: its label, its first words, or its key in plain words. */
export function sessionTitle(row, key = row?.key ?? "") {
  if (row?.label) return row.label;
  if (row?.derivedTitle) return row.derivedTitle;
  const parts = key.split(":").slice(2);
  return parts.length === 1 && parts[0] === "main"
    ? "Main conversation"
    : parts[0] === "dashboard"
      ? "New conversation"
      : parts.join(" ") || "Conversation";
}
