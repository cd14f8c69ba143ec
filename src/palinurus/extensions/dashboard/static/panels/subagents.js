// Subagents: who started whom, what each does at this moment, and what it cost. Each can be opened, steered, stopped.

import { el } from "../dom.js";
import { sessionPath } from "../router.js";
import { wire } from "../wire.js";
import { duration, money, when } from "./format.js";
import { calmly, empty, open, place, resync } from "./kit.js";
import { chip, sure, worker } from "./parts.js";

export const title = "Subagents";

const TONES = { running: "accent", waiting: "", success: "ok", error: "bad", timeout: "warn", stopped: "warn" };

/** @param {HTMLElement} root @param {any} params @returns {() => void} */
export function mount(root, params) {
  const view = open(root, params, title, "Helpers that your agents have started, each below the session that did.");
  const tree = place(view, "subagents");
  const load = () => tree.load(() => wire.call("subagents.list", {}), draw);

  function draw({ subagents }) {
    if (!subagents.length) {
      return empty("No subagents yet.", "Ask for one: “send somebody to read the three offers and compare them”.");
    }
    const known = new Set(subagents.map((each) => each.key));
    const roots = [...new Set(subagents.map((each) => each.parent).filter((key) => !known.has(key)))];
    return el("div", {}, roots.map((key) => el("section", {}, el("h2", {}, link(key, key)), below(key, subagents))));
  }

  function below(parent, all) {
    const own = all.filter((each) => each.parent === parent);
    return own.length ? el("ul", { class: "run-list" }, own.map((each) => el("li", {}, line(each), below(each.key, all)))) : null;
  }

  function line(each) {
    const active = each.state === "running" || each.state === "waiting";
    const cost = each.cost == null ? "" : `, ${money(each.cost)}`;
    const facts = `${duration(each.elapsedMs)}, ${each.tokens.toLocaleString("en")} tokens${cost}`;
    return el(
      "div",
      { class: "run-row", "data-subagent": each.key },
      el("span", {}, link(each.key, each.label), " ", chip(each.state, TONES[each.state] ?? ""), each.step && active ? ` ${each.step}` : ""),
      el("span", { class: "numeric" }, facts),
      el("small", {}, each.text || each.task),
      active ? el("span", {}, steer(each), " ", stop(each)) : el("small", {}, when(each.startedAt)),
    );
  }

  const link = (key, words) => el("a", { href: sessionPath(key) }, words);
  const stop = (each) =>
    sure("Stop", `Stop ${each.label}?`, "Stop", async () => {
      await wire.call("subagents.stop", { subagent: each.key });
      load();
    });

  function steer(each) {
    const field = el("input", { class: "field", placeholder: "Message", "aria-label": `Message to ${each.label}` });
    const send = worker("Send", async () => {
      if (!field.value.trim()) return;
      await wire.call("subagents.steer", { subagent: each.key, message: field.value });
      field.value = "";
      load();
    });
    return el("span", {}, field, send);
  }

  view.body.append(tree.node);
  load();
  const typing = () => tree.node.contains(document.activeElement) && document.activeElement.value;
  const again = calmly(view, () => typing() || load(), 1000);
  view.onClose(
    wire.on("agent", (event) => {
      if (event.stream !== "assistant" && event.stream !== "thinking") again();
    }),
  );
  resync(view, again);
  return view.close;
}
