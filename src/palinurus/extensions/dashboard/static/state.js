// Values that notify when they change. That is all the state management there is.

/**
 * @template T
 * @param {T} initial
 * @returns {{value: T, subscribe(fn: (value: T) => void): () => void}} `subscribe` calls `fn` with the value at once and
 *   whenever it changes; it returns a function that stops this.
 */
export function signal(initial) {
  let current = initial;
  const listeners = new Set();
  return {
    get value() {
      return current;
    },
    set value(next) {
      if (Object.is(next, current)) return;
      current = next;
      for (const listener of [...listeners]) listener(current);
    },
    subscribe(fn) {
      listeners.add(fn);
      fn(current);
      return () => listeners.delete(fn);
    },
  };
}

/** What several views share: the agents, the current session, what this gateway can do. */
export const agents = signal(/** @type {{defaultId: string, agents: any[]}} */ ({ defaultId: "main", agents: [] }));
export const sessions = signal(/** @type {any[] | null} */ (null)); // null: not known yet
export const session = signal(""); // the key of the current session
export const spot = signal({ entry: "" }); // the message that the address names, set anew by each navigation
export const waiting = signal(/** @type {any[]} */ ([])); // waiting approvals of all sessions

/** Small preferences, stored in this browser only; they are skipped where the browser stores nothing. */
export const kept = {
  get(name, otherwise = "") {
    try {
      return localStorage.getItem(`palinurus.${name}`) ?? otherwise;
    } catch {
      return otherwise;
    }
  },
  set(name, value) {
    try {
      localStorage.setItem(`palinurus.${name}`, value);
    } catch {
      // works without storage too
    }
  },
};
