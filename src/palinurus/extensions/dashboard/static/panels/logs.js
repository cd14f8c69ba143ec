// Logs: the last lines, and new ones while the view is open. Scrolling up stops following.

import { el } from "../dom.js";
import { wire } from "../wire.js";
import { clockTime, count } from "./format.js";
import { empty, failure, lines as skeleton, open, resync, settled } from "./kit.js";
import { button, input, select, tick } from "./parts.js";

export const title = "Logs";

const LEVELS = ["debug", "info", "warning", "error"];
const EVERY = 1000; // milliseconds between two requests
const KEPT = 5000; // lines
const SHOWN = 1000; // of the matching lines

/** @param {HTMLElement} root @param {any} params @returns {() => void} */
export function mount(root, params) {
  const view = open(
    root,
    params,
    title,
    "The gateway's log. It contains no messages and no secrets.",
  );
  const wanted = { level: view.asked("level") || "info", words: view.asked("q"), run: view.asked("run") };
  const kept = [];
  let cursor = null;
  let following = true;
  let timer = 0;
  const list = el("ol", {
    class: "log mono",
    tabindex: "0",
    role: "log",
    "aria-label": "Log lines",
    "aria-live": "off",
    on: { scroll: scrolled },
  });
  const state = el("p", { class: "quiet flow", role: "status" });
  const follow = tick("follow", true, (on) => {
    following = on;
    if (on) {
      bottom();
      look();
    }
  });
  const words = input({
    type: "search",
    placeholder: "Text, run id or module",
    "aria-label": "Filter the log",
    value: wanted.run || wanted.words,
    on: {
      input: settled(
        view,
        () => {
          wanted.words = words.value.trim();
          wanted.run = "";
          view.remember({ q: wanted.words, run: "" });
          draw();
        },
        150,
      ),
    },
  });
  const level = select(
    LEVELS.map((name) => [name, name === "debug" ? "everything" : name === "error" ? "errors" : `${name} and above`]),
    wanted.level,
    (value) => {
      wanted.level = value;
      view.remember({ level: value === "info" ? "" : value });
      draw();
    },
    { "aria-label": "Level" },
  );

  const takes = (line) =>
    LEVELS.indexOf(line.level) >= LEVELS.indexOf(wanted.level) &&
    (!wanted.run || line.run?.startsWith(wanted.run)) &&
    (!wanted.words || line.raw.toLowerCase().includes(wanted.words.toLowerCase()));

  async function look() {
    clearTimeout(timer);
    try {
      const tail = await wire.call("logs.tail", cursor === null ? { limit: 1000 } : { cursor, limit: 5000 });
      if (!view.alive()) return;
      if (tail.reset) kept.length = 0;
      cursor = tail.cursor;
      const fresh = tail.lines.map(parsed);
      kept.push(...fresh);
      kept.splice(0, kept.length - KEPT);
      if (fresh.length || !list.dataset.ready) add(fresh);
    } catch (error) {
      if (view.alive() && !list.dataset.ready) list.replaceChildren(el("li", {}, failure(error, look)));
    }
    if (view.alive() && following) timer = setTimeout(() => (document.hidden ? again() : look()), EVERY);
  }
  const again = () => {
    timer = setTimeout(() => (document.hidden ? again() : look()), EVERY);
  };

  function draw() {
    const found = kept.filter(takes).slice(-SHOWN);
    list.replaceChildren(...found.map(row));
    if (!found.length)
      list.append(
        el(
          "li",
          { class: "log-empty" },
          empty(
            kept.length ? "No lines match." : "The log is empty.",
            kept.length ? "Try fewer words or a lower level." : "",
          ),
        ),
      );
    tell(found.length);
    if (following) bottom();
  }

  /** Only new lines are drawn; lines beyond the limit are removed. */
  function add(fresh) {
    if (!list.dataset.ready || list.querySelector(".log-empty")) {
      list.dataset.ready = "1";
      return draw();
    }
    list.append(...fresh.filter(takes).map(row));
    while (list.childElementCount > SHOWN) list.firstElementChild.remove();
    tell(list.childElementCount);
    if (following) bottom();
    return undefined;
  }

  const tell = (n) =>
    state.replaceChildren(
      el("span", {}, `${count(n, "line")} of the last ${kept.length}`),
      el("span", {}, following ? "following" : "stopped"),
    );
  const bottom = () => {
    list.scrollTop = list.scrollHeight;
  };
  function scrolled() {
    const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 24;
    if (atEnd === following) return;
    following = atEnd;
    follow.querySelector("input").checked = atEnd;
    tell(list.childElementCount);
    if (atEnd) look();
  }

  view.onClose(() => clearTimeout(timer));
  const waitSign = setTimeout(() => {
    if (view.alive() && !list.dataset.ready) list.append(el("li", {}, skeleton(6)));
  }, 200);
  view.onClose(() => clearTimeout(waitSign));
  view.body.append(
    el(
      "div",
      { class: "search" },
      words,
      level,
      follow,
      button("Copy", () =>
        navigator.clipboard
          ?.writeText(
            kept
              .filter(takes)
              .map((line) => line.raw)
              .join("\n"),
          )
          .catch(() => {}),
      ),
    ),
    list,
    state,
  );
  look();
  resync(view, look);
  return view.close;
}

function parsed(raw) {
  try {
    return { level: "info", ...JSON.parse(raw), raw };
  } catch {
    return { level: "info", at: "", text: raw, raw };
  }
}

function row(line) {
  const where = [line.source?.replace(/^palinurus\./, ""), line.session].filter(Boolean).join(" · ");
  return el(
    "li",
    { class: `log-line log-${line.level}` },
    el("time", { class: "log-time", datetime: line.at || null, title: line.at }, line.at ? clockTime(line.at) : ""),
    el("span", { class: "log-level" }, line.level),
    el(
      "span",
      { class: "log-text" },
      line.text,
      where ? el("span", { class: "quiet" }, ` ${where}`) : null,
      line.run
        ? el("a", { class: "log-run", href: `/runs?id=${encodeURIComponent(line.run)}` }, line.run.slice(0, 8))
        : null,
    ),
  );
}
