// Reading a conversation from the gateway: its row, its last messages, what runs in it.

import { wire } from "../wire.js";

const FIRST = 200; // messages; older ones when somebody scrolls up
const PAGE = 200;

/**
 * First what runs, then the transcript: a run that ends in between is told by both, and shown once.
 *
 * @returns {Promise<{key: string, row: any, resolved: any, active: string[], messages: any[], hasMore: boolean}>}
 */
export async function load(key) {
  const { session: row, resolved } = await wire.call("sessions.describe", { key });
  const history = await wire.call("chat.history", { sessionKey: key, limit: FIRST, marks: true });
  return {
    key: history.sessionKey,
    row,
    resolved,
    active: row?.activeRunIds ?? [],
    messages: history.messages,
    hasMore: history.hasMore ?? false,
  };
}

export async function older(key, before) {
  const history = await wire.call("chat.history", { sessionKey: key, limit: PAGE, before, marks: true });
  return { messages: history.messages, hasMore: history.hasMore ?? false };
}

/** Take up a run in its middle: its log is told from the beginning, and then on to its end. */
export async function follow(thread, runId) {
  const hear = thread.follow(runId);
  try {
    await wire.call("agent.events", { run_id: runId }, { onItem: hear, reads: true });
  } catch (error) {
    if (error.code !== "LOST") thread.onCaughtUp(); // it is over and forgotten: the transcript knows
  }
}
