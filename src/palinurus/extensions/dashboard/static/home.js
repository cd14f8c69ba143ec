// What all views need to know: agents, sessions, waiting approvals. Loaded at connect, and again when the gateway
// reports a change.

import { shortened } from "./format.js";
import { agents, sessions, waiting } from "./state.js";
import { wire } from "./wire.js";

const LISTED = 200;
let timer = 0;
const running = new Map(); // session key → ids of runs that have started

/** Load the sessions again soon; several calls in a row load them once. */
function refreshSoon(after = 250) {
  clearTimeout(timer);
  timer = setTimeout(() => home.refreshSessions().catch(() => {}), after);
}

/** A run has started or ended: the rail shows it at once, without a request. */
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

export const home = {
  start() {
    wire.on("state", (state) => state === "connected" && home.arrive());
    wire.on("resync", () => refreshSoon(0));
    wire.on("sessions.changed", () => refreshSoon());
    wire.on("agent", note);
    wire.on("approval", () => refreshWaiting().catch(() => {}));
  },

  async arrive() {
    try {
      await wire.call("sessions.subscribe", { sessionKey: "*" });
      await Promise.all([home.refreshAgents(), home.refreshSessions(), refreshWaiting()]);
    } catch (error) {
      console.warn("agents and sessions could not be loaded:", error.message);
    }
  },

  async refreshAgents() {
    const known = await wire.call("agents.list");
    agents.value = known;
    const pictured = known.agents.filter((each) => each.identity?.avatar);
    if (!pictured.length) return;
    // The picture comes through the gateway: the browser requests nothing from another host.
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

/** Search the messages of all sessions. @returns {Promise<{key: string, entry: string, title: string, text: string}[]>} */
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

/** The title of a session: its label, the beginning of its first message, or its key in plain words. */
export function sessionTitle(row, key = row?.key ?? "") {
  if (row?.label) return row.label;
  if (row?.derivedTitle) return row.derivedTitle;
  const parts = key.split(":").slice(2);
  return parts.length === 1 && parts[0] === "main"
    ? "Main session"
    : parts[0] === "dashboard"
      ? "New session"
      : parts.join(" ") || "Session";
}
