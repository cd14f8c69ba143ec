// Runs: what each did and when, as a waterfall. A trace contains no messages; those are in the session.

import { el } from "../dom.js";
import { wire } from "../wire.js";
import { count, duration, when } from "./format.js";
import { calmly, empty, open, place, resync } from "./kit.js";
import { chip, select } from "./parts.js";
import { TONES, drawRun, prices } from "./run_trace.js";

export const title = "Runs";

const STATES = [
  ["", "all"],
  ["running", "running"],
  ["waiting", "waiting"],
  ["ok", "succeeded"],
  ["error", "failed"],
  ["aborted", "stopped"],
];

/** @param {HTMLElement} root @param {any} params @returns {() => void} */
export function mount(root, params) {
  const lead = "Every run with its model calls, tool calls, approvals and timings.";
  const view = open(root, params, title, lead);
  let status = view.asked("status");
  let chosen = view.asked("id");
  let byHand = Boolean(chosen);
  const list = place(view, "runs");
  const shown = place(view, "run");
  const split = el(
    "div",
    { class: "split split-left" },
    el("div", { class: "split-side" }, list.node),
    el("div", { class: "split-main" }, shown.node),
  );
  const { session } = view;
  const loadList = () => {
    const asked = { sessionKey: session, ...(status && { status }), limit: view.compact ? 5 : 50 };
    return list.load(() => wire.call("runs.list", asked), drawList);
  };
  const loadOne = () => {
    const ask = () => Promise.all([wire.call("runs.show", { runId: chosen }), prices()]);
    return chosen ? shown.load(ask, ([trace, known]) => drawRun(trace, known)) : undefined;
  };

  function drawList({ runs }) {
    const where = session ? "in this session" : "to your agent";
    if (!runs.length) return empty("No runs yet.", `Send a message ${where}, and its run appears here.`);
    // Until a run is chosen, the running one is shown, or else the newest. On a phone the list comes first.
    const newest = runs.find((row) => row.status === "running" && !row.joined) ?? runs[0];
    const roomy = view.compact || matchMedia("(min-width: 900px)").matches;
    if (!byHand && roomy && newest.runId !== chosen) show(newest.runId);
    const rows = runs.map((row) => el("li", {}, line(row)));
    return el("ol", { class: "run-list", "aria-label": "Runs, newest first" }, rows);
  }

  function line(row) {
    const steps = `${count(row.modelCalls, "call")}${row.toolCalls ? `, ${count(row.toolCalls, "tool")}` : ""}`;
    const where = session ? row.model : [row.sessionKey, row.model.split("/").at(-1)].filter(Boolean).join(" · ");
    const plain = row.status === "ok" && !row.joined;
    const state = plain ? null : chip(row.joined ? "joined another run" : row.status, TONES[row.status]);
    const current = row.runId === chosen ? "true" : null;
    const on = { click: () => choose(row.runId) };
    return el(
      "button",
      { type: "button", class: "run-row", "data-run": row.runId, "aria-current": current, on },
      el("span", {}, when(row.acceptedAt), " ", state),
      el("span", { class: "numeric" }, duration(row.ms)),
      el("small", {}, where),
      el("small", {}, steps),
    );
  }

  function choose(id) {
    byHand = true;
    view.remember({ id });
    show(id);
  }

  function show(id) {
    chosen = id;
    split.classList.add("has-open");
    for (const row of list.node.querySelectorAll(".run-row")) {
      if (row.dataset.run === id) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    }
    loadOne();
  }

  const filtered = (value) => {
    status = value;
    view.remember({ status });
    loadList();
  };
  if (!view.compact) view.tools.append(select(STATES, status, filtered, { "aria-label": "State" }));
  view.body.append(split);
  loadOne();
  loadList();
  const both = () => {
    loadList();
    loadOne();
  };
  const again = calmly(view, both, 700);
  view.onClose(
    wire.on("agent", (event) => {
      if (event.stream !== "assistant" && event.stream !== "thinking") again();
    }),
  );
  resync(view, again);
  return view.close;
}
