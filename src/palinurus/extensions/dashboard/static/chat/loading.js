// Loading a session from the gateway: its row, its last messages or those around one of them, its runs.

import { wire } from "../wire.js";

const FIRST = 200; // messages; older ones are loaded on scrolling up
const PAGE = 200;
const MOST = 1_000; // in one answer

/** The part of the transcript that is loaded, most often its end. */
export class Stretch {
  key = "";
  messages = [];
  older = false; // older messages exist
  newer = false; // newer messages exist
  ended = false; // from an earlier session with this key
  #asking = false;

  /** The end, with at least so many messages; or the messages around an entry. @returns {Promise<Stretch>} */
  static async read(key, around = "", least = 0) {
    const limit = around ? FIRST : Math.min(MOST, Math.max(FIRST, least));
    const found = await wire.call("chat.history", { sessionKey: key, limit, marks: true, ...(around && { around }) });
    const { sessionKey, messages, hasMore: older = false, hasNewer: newer = false, ended = false } = found;
    return Object.assign(new Stretch(), { key: sessionKey, messages, older, newer, ended });
  }

  /** Whether new messages belong elsewhere. */
  get apart() {
    return this.newer || this.ended;
  }

  /** Load another page before or after it. Returns whether there was one. */
  async extend(behind) {
    if (this.#asking || !(behind ? this.newer : this.older)) return false;
    this.#asking = true;
    try {
      const from = behind ? { after: this.messages.at(-1).id } : { before: this.messages[0].id };
      const found = await wire.call("chat.history", { sessionKey: this.key, limit: PAGE, marks: true, ...from });
      if (behind) this.messages = [...this.messages, ...found.messages];
      else this.messages = [...found.messages, ...this.messages];
      behind ? (this.newer = found.hasNewer ?? false) : (this.older = found.hasMore ?? false);
      return true;
    } finally {
      this.#asking = false;
    }
  }

  /** Whether an entry is loaded. */
  has(entry) {
    return this.messages.some((message) => message.id === entry);
  }
}

/** The session and its running runs. */
export async function describe(key) {
  const { session: row, resolved } = await wire.call("sessions.describe", { key });
  return { row, resolved, active: row?.activeRunIds ?? [] };
}

/** Follow a run that is under way: its log is replayed from the beginning and followed to its end. */
export async function follow(thread, runId) {
  const hear = thread.follow(runId);
  try {
    await wire.call("agent.events", { run_id: runId }, { onItem: hear, reads: true });
  } catch (error) {
    if (error.code !== "LOST") thread.onCaughtUp(); // the run is over: the transcript has it
  }
}
