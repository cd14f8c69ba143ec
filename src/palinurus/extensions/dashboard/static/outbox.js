// Requests with effects that are not answered yet, stored in sessionStorage so that a reload does not lose them.

const PLACE = "palinurus.outbox";
const MOST = 2_000_000; // characters: browsers store about five million; a larger picture is kept in memory only

// Methods that only read. A method that is not listed counts as one with effects, which is always safe.
const READING = new Set(
  (
    "list get show search status describe preview history explain tail schema totals cost series wait waitDecision events " +
    "log diff read resolve subscribe look check stats graph verify lookup catalog effective"
  ).split(" "),
);
const WITH_EFFECTS = new Set(["exec.approval.resolve"]);

/** Whether a method only reads: then it may be repeated without a key, and times out. */
export function isReading(method) {
  return !WITH_EFFECTS.has(method) && READING.has(method.slice(method.lastIndexOf(".") + 1));
}

/** A key that is unique. */
export function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export const outbox = {
  /** @returns {{key: string, method: string, params: object, at: number}[]} */
  all() {
    try {
      const kept = JSON.parse(sessionStorage.getItem(PLACE) ?? "[]");
      return Array.isArray(kept) ? kept : [];
    } catch {
      return [];
    }
  },

  add({ key, method, params }) {
    const rest = outbox.all().filter((each) => each.key !== key);
    write([...rest, { key, method, params, reads: false, at: Date.now() }]);
  },

  remove(key) {
    const kept = outbox.all();
    if (kept.some((each) => each.key === key)) write(kept.filter((each) => each.key !== key));
  },
};

function write(entries) {
  try {
    const text = JSON.stringify(entries);
    if (text.length <= MOST) sessionStorage.setItem(PLACE, text);
  } catch {
    // full or blocked: the requests are still in memory
  }
}
