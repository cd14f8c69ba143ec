// Memory: search as the agent does, see why each passage was found, open it at the cited lines, and compare the index
// with the disk. In the drawer: what the current session has recalled.

import { el } from "../dom.js";
import { wire } from "../wire.js";
import { fileView } from "./editor.js";
import { empty, open, place, resync, settled } from "./kit.js";
import { health } from "./memory_health.js";
import { recalled } from "./memory_recalled.js";
import { proposals } from "./memory_proposals.js";
import { results } from "./memory_results.js";
import { button, input, select, tick } from "./parts.js";

export const title = "Memory";

const EXAMPLES = ["what did we decide about the boat", "who is Ann", "what happened last week"];
const SOURCES = [
  ["", "everywhere"],
  ["memory", "notes"],
  ["sessions", "sessions"],
];
const IN_DRAWER = 5; // results

/** @param {HTMLElement} root @param {any} params @returns {() => void} */
export function mount(root, params) {
  const lead = "Search the agent's notes and sessions, and see why each result was found.";
  const view = open(root, params, title, lead);
  const asked = { source: view.asked("source"), keyword: view.asked("words") === "1" };
  const later = settled(view, search, 220);
  const box = input({
    type: "search",
    placeholder: "Search memory in your own words",
    "aria-label": "Search memory",
    enterkeyhint: "search",
    value: view.asked("q"),
    on: { input: () => later() },
  });
  const submit = (event) => {
    event.preventDefault();
    search();
  };
  const form = el("form", { class: "search", role: "search", on: { submit } }, box, button("Search", search, ""));
  const shown = place(view, view.compact ? "results" : "results explained");
  const opened = el("div", { class: "opened" });
  const state = health(view, { compact: view.compact });
  const waiting = view.compact ? null : proposals(view, () => state.reload());

  function search() {
    const query = box.value.trim();
    view.remember({ q: query, source: asked.source, words: asked.keyword ? 1 : "" });
    if (!query) return shown.show(view.compact ? recalled(view) : teach());
    const sources = asked.source ? [asked.source] : [];
    const question = { query, agent: view.agent, explain: true, keyword: asked.keyword, sources };
    if (view.compact) question.maxResults = IN_DRAWER;
    const ask = () => wire.call("memory.search", question);
    return shown.load(ask, (answer) => results(answer, query, view.agent, follow));
  }

  function teach() {
    const attempt = (words) => {
      box.value = words;
      search();
    };
    const tries = EXAMPLES.map((words) =>
      el(
        "li",
        {},
        button(words, () => attempt(words)),
      ),
    );
    const said = el("q", {}, "remember that the boat is called Alma");
    const list = el("ul", { class: "tries" }, tries);
    const first = el("p", { class: "quiet" }, "Nothing there yet? Tell your agent: ", said, ".");
    return empty("Ask as you would ask a person.", null, list, first);
  }

  /** Beside the results where there is room; with a key held, or in the drawer, the link does what links do. */
  function follow(event, result) {
    if (view.compact || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    openFile(result.path, result.startLine, result.endLine);
  }

  function openFile(path, line, to) {
    view.remember({ path, line, to: to === line ? "" : to });
    const onSaved = () => {
      state.reload();
      if (box.value.trim()) search();
    };
    const file = fileView(view, { agent: view.agent, path, line, to, close: () => button("Close", close), onSaved });
    opened.replaceChildren(el("section", { class: "card", "aria-label": `File ${path}` }, file.node));
    opened.scrollIntoView({ block: "nearest" });
  }

  function close() {
    view.remember({ path: "", line: "", to: "" });
    opened.replaceChildren();
    box.focus();
  }

  function options() {
    const from = (value) => {
      asked.source = value;
      search();
    };
    const byWords = (on) => {
      asked.keyword = on;
      search();
    };
    return el(
      "div",
      { class: "flow" },
      select(SOURCES, asked.source, from, { "aria-label": "Where to search" }),
      tick("keywords only", asked.keyword, byWords),
      tick("show scores", true, (on) => shown.node.classList.toggle("explained", on)),
    );
  }

  const main = el("div", { class: "split-main" }, form, view.compact ? null : options(), shown.node);
  const side = el("aside", { class: "split-side", "aria-label": "File and index" }, opened, waiting, state.node);
  view.body.append(el("div", { class: "split" }, main, side));
  const line = Number(view.asked("line")) || 0;
  if (view.asked("path")) openFile(view.asked("path"), line, Number(view.asked("to")) || line);
  search();
  if (!view.compact) box.focus();
  resync(view, () => {
    if (box.value.trim()) search();
    state.reload();
  });
  return view.close;
}
