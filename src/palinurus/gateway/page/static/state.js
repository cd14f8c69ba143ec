// Values that tell when they change. That is all the state management there is.

/**
 * @template T
 * @param {T} initial
 * @returns {{value: T, subscribe(fn: (value: T) => void): () => void}} `subscribe` tells the value at once and then
 *   whenever it is another one; it returns a function that ends it.
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

/** What several views know: who there is, which session is looked at, what this house can do. */
export const agents = signal(/** @type {{defaultId: string, agents: any[]}} */ ({ defaultId: "main", agents: [] }));
export const sessions = signal(/** @type {any[] | null} */ (null)); // null: not known yet
export const session = signal(""); // the key of the session at hand
export const spot = signal({ entry: "" }); // the message in it that was asked for, by each visit anew
export const waiting = signal(/** @type {any[]} */ ([])); // approvals that wait for a person, of all sessions

/** Small choices that outlive the page: kept in this browser only, and done without where it keeps nothing. */
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
      // a browser that keeps nothing is still a browser
    }
  },
};
