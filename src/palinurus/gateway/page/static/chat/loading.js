// Reading a conversation from the gateway: its row, its last messages or those around one of them, what runs in it.

import { wire } from "../wire.js";

const FIRST = 200; // messages; older ones when somebody scrolls up
const PAGE = 200;
const MOST = 1_000; // in one answer

/** What of the transcript is here: a stretch of it, most often its end. */
export class Stretch {
  key = "";
  messages = [];
  older = false; // there is more before it
  newer = false; // there is more behind it
  ended = false; // of an earlier conversation of this key
  #asking = false;

  /** The end, with so many messages at least; or what stands around an entry. @returns {Promise<Stretch>} */
  static async read(key, around = "", least = 0) {
    const limit = around ? FIRST : Math.min(MOST, Math.max(FIRST, least));
    const found = await wire.call("chat.history", { sessionKey: key, limit, marks: true, ...(around && { around }) });
    const { sessionKey, messages, hasMore: older = false, hasNewer: newer = false, ended = false } = found;
    return Object.assign(new Stretch(), { key: sessionKey, messages, older, newer, ended });
  }

  /** Whether what happens now stands elsewhere. */
  get apart() {
    return this.newer || this.ended;
  }

  /** Another page before or behind it. Returns whether there was one. */
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

  /** Whether an entry is in it. */
  has(entry) {
    return this.messages.some((message) => message.id === entry);
  }
}

/** What is known of a session, and the runs that go on in it. */
export async function describe(key) {
  const { session: row, resolved } = await wire.call("sessions.describe", { key });
  return { row, resolved, active: row?.activeRunIds ?? [] };
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
