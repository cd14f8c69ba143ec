// The WebSocket to the gateway: requests and responses, events, and automatic reconnection.
//
// Nothing is lost and nothing is done twice: a request with effects carries an idempotency key and stays in the outbox
// (sessionStorage) until it is answered. After a reconnect or a reload it is sent again with the same key, which the
// gateway recognises. Requests that only read are sent again as well. The gateway does not repeat events, so after a
// reconnect or a gap in `seq` every view that shows history gets `resync` and loads it again.

import { pageKey } from "./login.js";
import { outbox, isReading, newKey } from "./outbox.js";

const PROTOCOL = 4;
const FIRST_WAIT = 250;
const LONGEST_WAIT = 8_000;
const SILENCE = 40_000; // milliseconds; the gateway sends a tick every 15 seconds
const OFFLINE_AFTER = 12_000; // milliseconds of trying before the state is "offline"
const READ_TIMEOUT = 30_000;
const AGAIN_AFTER = 1_000; // a gateway that stops says UNAVAILABLE: ask the next one

/** An error of the gateway. `message` is one sentence, `hint` says what to do next. */
export class WireError extends Error {
  constructor(code, message, details = null) {
    super(message);
    this.name = "WireError";
    this.code = code;
    this.details = details ?? {};
    this.hint = this.details.hint ?? "";
  }
}

class Wire {
  /** `connecting | connected | reconnecting | offline | unauthorised`; a change emits the event `state`. */
  state = "connecting";
  /** The methods of this gateway and our scopes. Empty before the first hello. */
  methods = new Set();
  scopes = new Set();
  /** What the gateway reported about itself at connect. */
  hello = null;

  #socket = null;
  #pending = new Map(); // request id → the request
  #listeners = new Map();
  #asked = 0;
  #seq = 0;
  #tries = 0;
  #lostAt = 0;
  #retry = 0;
  #watchdog = 0;
  #started = false;

  /** Connect. Requests left in the outbox before a reload are sent again. */
  start() {
    if (this.#started) return;
    this.#started = true;
    for (const kept of outbox.all()) this.#keep(kept, quiet());
    addEventListener("online", () => this.#soon());
    addEventListener("offline", () => this.state !== "connected" || this.#socket?.close());
    document.addEventListener("visibilitychange", () => document.hidden || this.#soon());
    this.#open();
  }

  /**
   * Call a method.
   *
   * @param {string} method
   * @param {object} [params]
   * @param {{timeout?: number, onItem?: (item: any) => void, reads?: boolean, key?: string}} [how] `timeout` in
   *   milliseconds (30 seconds for a method that only reads; none for one with effects); `onItem` gets the items of a
   *   stream; `key`: the idempotency key, if the caller needs to know it.
   * @returns {Promise<any>} rejects with a WireError
   */
  call(method, params = {}, { timeout, onItem, reads = isReading(method), key } = {}) {
    const asked = { method, params, reads, onItem, timeout: timeout ?? (reads && !onItem ? READ_TIMEOUT : 0) };
    if (!reads) {
      asked.key = key ?? newKey();
      outbox.add(asked);
    }
    const answer = new Promise((resolve, reject) => this.#keep(asked, { resolve, reject }));
    if (asked.key) this.#emit("outbox", asked.key);
    return answer;
  }

  /** Requests with effects that are not answered yet, the oldest first. */
  get waiting() {
    return [...this.#pending.values()].filter((asked) => !asked.reads);
  }

  /** Remove a request from the outbox, if it was not sent yet. Returns whether it was removed. */
  withdraw(key) {
    for (const [id, asked] of this.#pending) {
      if (asked.key !== key || asked.sent) continue;
      this.#settle(id, (found) => found.reject(new WireError("WITHDRAWN", "withdrawn")));
      return true;
    }
    return false;
  }

  /**
   * Listen to events: those of the gateway by their name, and our own `state`, `resync`, `outbox`.
   *
   * @returns {() => void} stops listening
   */
  on(event, fn) {
    if (!this.#listeners.has(event)) this.#listeners.set(event, new Set());
    this.#listeners.get(event).add(fn);
    return () => this.#listeners.get(event)?.delete(fn);
  }

  #keep(asked, promise) {
    const id = String(++this.#asked);
    this.#pending.set(id, { ...asked, ...promise, id, sent: false });
    if (asked.timeout) {
      const late = () =>
        this.#settle(id, (found) =>
          found.reject(new WireError("TIMEOUT", `${asked.method} was not answered in time`, { hint: "try again" })),
        );
      this.#pending.get(id).timer = setTimeout(late, asked.timeout);
    }
    if (this.state === "connected") this.#send(id);
  }

  #send(id) {
    const asked = this.#pending.get(id);
    if (!asked || this.#socket?.readyState !== WebSocket.OPEN) return;
    asked.sent = true;
    this.#socket.send(JSON.stringify({ type: "req", id, method: asked.method, params: asked.params, idempotencyKey: asked.key }));
  }

  #settle(id, tell) {
    const asked = this.#pending.get(id);
    if (!asked) return;
    this.#pending.delete(id);
    clearTimeout(asked.timer);
    if (asked.key) {
      outbox.remove(asked.key);
      this.#emit("outbox", asked.key);
    }
    tell(asked);
  }

  #open() {
    clearTimeout(this.#retry);
    this.#retry = 0;
    const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`);
    this.#socket = socket;
    this.#seq = 0;
    socket.onmessage = (event) => socket === this.#socket && this.#hear(JSON.parse(event.data));
    socket.onclose = () => socket === this.#socket && this.#lost();
    this.#watch();
  }

  #hear(frame) {
    this.#watch();
    if (frame.type === "res") return this.#answered(frame);
    if (frame.type !== "event") return;
    if (frame.event === "connect.challenge") return this.#introduce();
    if (frame.seq !== undefined) {
      const gap = this.#seq !== 0 && frame.seq !== this.#seq + 1;
      this.#seq = frame.seq;
      if (gap) this.#emit("resync", "gap");
    }
    if (frame.event === "feed") this.#pending.get(frame.payload.id)?.onItem?.(frame.payload.item);
    else this.#emit(frame.event, frame.payload);
  }

  #introduce() {
    const client = { id: "palinurus-page", version: "1", platform: "web", mode: "webchat", displayName: "dashboard" };
    // The cookie authenticates. Only the dashboard can read the key, while cookies go to every port of the machine.
    const auth = { bootstrapToken: pageKey() };
    const params = { minProtocol: PROTOCOL, maxProtocol: PROTOCOL, client, role: "operator", auth };
    this.#socket.send(JSON.stringify({ type: "req", id: "connect", method: "connect", params }));
  }

  #answered(frame) {
    if (frame.id === "connect") return frame.ok ? this.#welcome(frame.payload) : this.#refused(frame.error);
    const asked = this.#pending.get(frame.id);
    if (!asked) return; // timed out, or a second answer
    if (frame.ok) return this.#settle(frame.id, (found) => found.resolve(frame.payload));
    const { code, message, details, retryable, retryAfterMs } = frame.error;
    if (code === "UNAUTHORIZED") return this.#refused(frame.error);
    if (retryable && (code === "UNAVAILABLE" || code === "BUSY")) {
      asked.sent = false; // it stays in the outbox and is sent again
      setTimeout(() => this.state === "connected" && this.#send(frame.id), retryAfterMs ?? AGAIN_AFTER);
      return;
    }
    this.#settle(frame.id, (found) => found.reject(new WireError(code, message, details)));
  }

  #welcome(hello) {
    const again = this.hello !== null;
    this.hello = hello;
    this.methods = new Set(hello.features.methods);
    this.scopes = new Set(hello.auth.scopes.map((scope) => scope.replace("operator.", "")));
    this.#tries = 0;
    this.#lostAt = 0;
    this.#set("connected");
    for (const id of [...this.#pending.keys()]) this.#send(id);
    if (again) this.#emit("resync", "reconnect");
  }

  #refused(error) {
    this.#set("unauthorised", error?.message);
    this.#socket?.close();
  }

  #lost() {
    clearTimeout(this.#watchdog);
    this.#socket = null;
    for (const [id, asked] of this.#pending) {
      asked.sent = false;
      // A broken stream cannot be resumed in the middle: whoever follows it starts again.
      if (asked.onItem) this.#settle(id, (found) => found.reject(new WireError("LOST", "the connection was lost")));
    }
    if (this.state === "unauthorised") return;
    this.#lostAt ||= Date.now();
    const long = Date.now() - this.#lostAt > OFFLINE_AFTER || !navigator.onLine;
    this.#set(long ? "offline" : this.hello ? "reconnecting" : "connecting");
    const wait = Math.min(FIRST_WAIT * 2 ** this.#tries++, LONGEST_WAIT);
    this.#retry = setTimeout(() => this.#open(), wait * (0.75 + Math.random() / 2));
  }

  #soon() {
    if (this.#retry && this.state !== "unauthorised") {
      this.#tries = 0;
      this.#open();
    }
  }

  #watch() {
    clearTimeout(this.#watchdog);
    // close() alone may wait for an answer that never comes
    const silent = () => {
      const socket = this.#socket;
      if (!socket) return;
      this.#lost();
      socket.close();
    };
    this.#watchdog = setTimeout(silent, this.state === "connected" ? SILENCE : 10_000);
  }

  #set(state, why = "") {
    if (this.state === state) return;
    this.state = state;
    this.#emit("state", state, why);
  }

  #emit(event, ...details) {
    for (const fn of [...(this.#listeners.get(event) ?? [])]) {
      try {
        fn(...details);
      } catch (error) {
        console.error(error); // one failing listener must not stop the others
      }
    }
  }
}

function quiet() {
  return { resolve: () => {}, reject: () => {} };
}

export const wire = new Wire();
