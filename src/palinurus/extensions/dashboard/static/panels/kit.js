// What every panel is made of: a heading, areas filled by a call, and the states in between.
//
// An area keeps its content while the next answer is loading, shows a skeleton only after 200 ms without one, and says
// what to do when the call fails. An answer to an outdated request is dropped.

import { clear, el } from "../dom.js";
import { wire } from "../wire.js";

const PATIENCE = 200; // milliseconds before a skeleton is shown

let styled = false;

/** The style sheet of the panels, loaded with the first of them: the chat does not need it. */
function style() {
  if (styled) return;
  styled = true;
  if (document.querySelector('link[href="/page/panels.css"]')) return;
  document.head.append(el("link", { rel: "stylesheet", href: "/page/panels.css" }));
}

/**
 * @typedef {object} View
 * @property {HTMLElement} body where the panel puts its content
 * @property {HTMLElement} tools beside the heading
 * @property {boolean} compact whether it is in the drawer
 * @property {string} agent the current agent; empty: the default one
 * @property {string} session the session of the address, or in the drawer the current one; empty: all
 * @property {string} atHand the current session
 * @property {() => boolean} alive
 * @property {(off: () => void) => void} onClose
 * @property {(name: string) => string} asked a query parameter of the address
 * @property {(changes: Record<string, string | number | null | undefined>) => void} remember set query parameters in the address
 * @property {() => void} close what `mount` returns
 */

/**
 * Start a panel.
 * @param {HTMLElement} root @param {any} params @param {string} title @param {string} lead one line on what it is
 * @returns {View}
 */
export function open(root, params, title, lead) {
  style();
  const given = params ?? {};
  const compact = Boolean(given.compact);
  const offs = [];
  let living = true;
  const tools = el("div", { class: "panel-tools" });
  const body = el("div", { class: "panel-body" });
  const heading = compact ? null : el("header", { class: "panel-head" }, el("p", { class: "quiet" }, lead), tools); // the shell shows the title
  const panel = el(
    "section",
    { class: compact ? "panel panel-compact" : "panel", "aria-label": title },
    heading,
    compact ? tools : null,
    body,
  );
  clear(root);
  root.append(panel);
  const own = compact ? new URLSearchParams() : new URLSearchParams(location.search);
  return {
    body,
    tools,
    compact,
    agent: given.agent || own.get("agent") || "",
    session: own.get("session") || (compact ? given.session || "" : ""),
    atHand: given.session || "",
    alive: () => living,
    onClose: (off) => void offs.push(off),
    asked: (name) => own.get(name) ?? "",
    remember(changes) {
      for (const [name, value] of Object.entries(changes)) {
        if (value === null || value === undefined || value === "") own.delete(name);
        else own.set(name, String(value));
      }
      if (compact || !living) return;
      const words = own.toString();
      history.replaceState(history.state, "", location.pathname + (words ? `?${words}` : ""));
    },
    close() {
      living = false;
      for (const off of offs.splice(0)) off();
      clear(root);
    },
  };
}

/**
 * An area that is filled by calls.
 * @param {View} view @param {string} [className] @param {() => Node} [skeleton]
 */
export function place(view, className = "", skeleton = lines) {
  const node = el("div", { class: `filled ${className}`.trim() });
  let newest = 0;
  /**
   * @template T
   * @param {() => Promise<T>} ask @param {(answer: T) => Node | Node[] | null} draw
   * @returns {Promise<T | undefined>} the answer, or undefined when it failed or is outdated
   */
  async function load(ask, draw) {
    const turn = ++newest;
    const current = () => turn === newest && view.alive();
    node.setAttribute("aria-busy", "true");
    const wait = setTimeout(() => {
      if (!current()) return;
      if (node.childElementCount === 0) node.append(skeleton());
      else node.classList.add("filled-waiting");
    }, PATIENCE);
    try {
      const answer = await ask();
      if (!current()) return undefined;
      put(draw(answer));
      return answer;
    } catch (error) {
      if (current()) put(failure(error, () => load(ask, draw)));
      return undefined;
    } finally {
      clearTimeout(wait);
      if (current()) {
        node.removeAttribute("aria-busy");
        node.classList.remove("filled-waiting");
      }
    }
  }
  function put(content) {
    clear(node, content);
  }
  /** Show something else; an answer that is still loading is dropped. */
  function show(content) {
    newest++;
    node.removeAttribute("aria-busy");
    node.classList.remove("filled-waiting");
    put(content);
  }
  return { node, load, show };
}

/** Load again after every reconnect. @param {View} view @param {() => void} again */
export function resync(view, again) {
  view.onClose(wire.on("resync", again));
}

/** Call at most once in so many milliseconds, and once more at the end. @returns {() => void} */
export function calmly(view, work, ms = 400) {
  let timer = 0;
  view.onClose(() => clearTimeout(timer));
  return () => {
    if (!timer)
      timer = setTimeout(() => {
        timer = 0;
        if (view.alive()) work();
      }, ms);
  };
}

/** Call when nothing has happened for so long: for typing. */
export function settled(view, work, ms = 250) {
  let timer = 0;
  view.onClose(() => clearTimeout(timer));
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (view.alive()) work(...given);
    }, ms);
  };
}

/** Grey lines where text will appear. */
export function lines(count = 4) {
  const widths = [92, 76, 84, 60];
  return el(
    "div",
    { class: "skeletons", "aria-hidden": "true" },
    Array.from({ length: count }, (_, at) => {
      const line = el("div", { class: "skeleton" });
      line.style.width = `${widths[at % widths.length]}%`;
      return line;
    }),
  );
}

/** What went wrong, and what to do next. @param {any} error @param {() => void} [again] */
export function failure(error, again) {
  const hint = error?.hint || error?.details?.hint || "";
  return el(
    "div",
    { class: "notice notice-bad", role: "alert" },
    el("p", {}, el("strong", {}, sentence(error?.message || String(error)))),
    hint ? el("p", {}, sentence(hint)) : null,
    again
      ? el("button", { class: "button button-quiet", type: "button", on: { click: () => again() } }, "Try again")
      : null,
  );
}

/** One quiet line that is announced: saved, refused, done. @param {"ok" | "bad" | ""} tone */
export function notice(text, tone = "") {
  return el(
    "p",
    { class: `notice ${tone ? `notice-${tone}` : ""}`.trim(), role: tone === "bad" ? "alert" : "status" },
    text,
  );
}

/** An empty state that teaches by example. @param {...(Node | string | null)} examples */
export function empty(title, text, ...examples) {
  return el(
    "div",
    { class: "empty" },
    el("p", { class: "empty-title" }, title),
    text ? el("p", {}, text) : null,
    examples,
  );
}

/** @param {string} text @returns {string} with a capital at its beginning and a full stop at its end */
export function sentence(text) {
  const clean = String(text).trim();
  if (!clean) return "";
  const capital = /^(?!pal )[a-z]+[ ,']/.test(clean) ? clean[0].toUpperCase() + clean.slice(1) : clean;
  return /[.!?…:`)]$|^pal /.test(capital) ? capital : `${capital}.`;
}
