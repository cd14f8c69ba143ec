// What the current session has recalled: its own searches of memory, and automatic recall.

import { el } from "../dom.js";
import { wire } from "../wire.js";
import { count, when } from "./format.js";
import { calmly, empty, place, resync } from "./kit.js";
import { fileLink, linesOf } from "./memory_results.js";
import { meter } from "./parts.js";

const LOOKED_AT = 80; // messages
const SHOWN = 6; // recalls
const PASSAGES = 5; // of each

/** @param {import("./kit.js").View} view @returns {HTMLElement} */
export function recalled(view) {
  const host = place(view, "recalled");
  const ask = () => wire.call("chat.history", { sessionKey: view.session, limit: LOOKED_AT });
  const load = () => host.load(ask, (history) => draw(recalls(history.messages), view.agent));
  load();
  const ended = calmly(view, load, 800);
  view.onClose(
    wire.on("chat", (event) => {
      if (event.sessionKey === view.session && event.state !== "delta") ended();
    }),
  );
  resync(view, load);
  return host.node;
}

/** The newest first. @returns {{ at: number, query: string, results: any[], text: string }[]} */
function recalls(messages) {
  const queries = new Map();
  const found = [];
  for (const message of messages) {
    for (const block of Array.isArray(message.content) ? message.content : [])
      if (block.type === "toolCall" && block.name === "memory_search") queries.set(block.id, block.arguments.query);
    if (message.role === "toolResult" && message.toolName === "memory_search")
      found.push({
        at: message.timestamp,
        query: queries.get(message.toolCallId) ?? "",
        results: parsed(message),
        text: "",
      });
    for (const note of message.context ?? [])
      if (note.kind === "recall") found.push({ at: message.timestamp, query: "", results: [], text: note.text });
  }
  return found.reverse().slice(0, SHOWN);
}

function parsed({ content }) {
  const text = typeof content === "string" ? content : content.map((block) => block.text ?? "").join("");
  try {
    return JSON.parse(text).results ?? [];
  } catch {
    return []; // cut off, or not JSON
  }
}

function draw(list, agent) {
  if (!list.length)
    return empty(
      "Nothing recalled in this session yet.",
      "What the agent finds in its memory appears here with its source.",
    );
  return el(
    "ol",
    { class: "found" },
    list.map((recall) => card(recall, agent)),
  );
}

function card({ at, query, results, text }, agent) {
  const asked = query
    ? el("a", { href: `/memory?q=${encodeURIComponent(query)}`, title: "Search again and show the scores" }, query)
    : el("span", {}, "recalled automatically");
  const rows = results
    .slice(0, PASSAGES)
    .map((result) =>
      el(
        "li",
        { class: "recall" },
        el("a", { class: "mono", href: fileLink(result, agent) }, result.path),
        el("span", { class: "quiet" }, ` ${linesOf(result)}`),
        meter(result.score ?? 0, 1, `score ${(result.score ?? 0).toFixed(2)}`),
      ),
    );
  const more = results.length - rows.length;
  return el(
    "li",
    { class: "card found-card" },
    el("div", { class: "found-head" }, asked, el("small", { class: "found-score" }, when(at))),
    text ? el("p", { class: "found-text" }, text) : null,
    rows.length ? el("ol", { class: "recalls" }, rows) : null,
    more > 0 ? el("p", { class: "quiet" }, `and ${count(more, "more passage")}`) : null,
    !rows.length && !text ? el("p", { class: "quiet" }, "No results.") : null,
  );
}
