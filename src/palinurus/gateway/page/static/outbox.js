// What was asked for with effects and not answered yet: kept in sessionStorage, so that a reload loses nothing either.

const PLACE = "palinurus.outbox";
const MOST = 2_000_000; // characters: browsers keep about five million; a picture may be larger and is kept in memory

// Methods that only look. A mistake here is harmless in one direction only, so what is not listed has effects.
const READING = new Set(
  (
    "list get show search status describe preview history explain tail schema totals cost series wait waitDecision events " +
    "log diff read resolve subscribe look check stats graph verify lookup catalog effective"
  ).split(" "),
);
const WITH_EFFECTS = new Set(["exec.approval.resolve"]);

/** Whether a method only reads: then it may be asked again without a key, and is given up after a while. */
export function isReading(method) {
  return !WITH_EFFECTS.has(method) && READING.has(method.slice(method.lastIndexOf(".") + 1));
}

/** A key nobody else will think of. */
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
    // full, or not allowed: what waits is in memory all the same
  }
}
