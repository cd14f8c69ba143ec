// Plugins: which there are and how each does, and the pages that they bring. A page is in a frame of an origin of its
// own, which reaches nothing; by messages it calls the operations of its plugin, with the rights of this browser.

import { el } from "../dom.js";
import { wire } from "../wire.js";
import { empty, open, place, resync } from "./kit.js";
import { chip } from "./parts.js";

export const title = "Plugins";

const TONES = { on: "ok", running: "ok", failed: "bad", refused: "bad", disabled: "bad" };
const MOST_CALLS = 8; // of a page at a time

/** @param {HTMLElement} root @param {any} params @returns {() => void} */
export function mount(root, params) {
  const view = open(root, params, title, "Programs of others that extend Palinurus, and the pages that they bring.");
  const area = place(view);
  const [plugin, page] = [view.asked("plugin"), view.asked("page")];
  view.body.append(area.node);
  if (plugin && page) {
    area.load(() => wire.call("plugins.panel", { plugin, page }, { reads: true }), (panel) => framed(view, panel));
    return view.close;
  }
  const load = () => area.load(() => wire.call("plugins.list", {}), draw);
  load();
  resync(view, load);
  return view.close;
}

function draw({ plugins }) {
  if (!plugins.length) return empty("No plugins yet.", null, el("code", {}, "pal plugins install FOLDER"));
  return el("ul", { class: "run-list" }, plugins.map((each) => el("li", {}, row(each))));
}

function row(each) {
  const why = each.reasons?.join("; ") || each.trouble || each.description || "";
  const pages = Object.entries(each.panels ?? {}).map(([page, name]) => [
    el("a", { href: `/plugins?${new URLSearchParams({ plugin: each.id, page })}` }, name),
    " ",
  ]);
  return el(
    "div",
    { class: "run-row", "data-plugin": each.id },
    el("span", {}, each.name, " ", chip(each.state, TONES[each.state] ?? "")),
    el("span", {}, each.version),
    el("small", {}, why),
    el("span", {}, each.state === "on" || each.state === "running" ? pages : null),
  );
}

function framed(view, panel) {
  const frame = el("iframe", {
    class: "plugin-frame",
    title: panel.title,
    sandbox: "allow-scripts",
    src: "/page/frame.html",
  });
  let calls = 0;
  const answer = (said) => frame.contentWindow?.postMessage(said, "*"); // its origin has no name; the policy says who it is
  async function hear({ source, origin, data }) {
    if (source !== frame.contentWindow || origin !== "null") return;
    if (data?.ready) return answer({ html: panel.html });
    const { id, operation, params } = data ?? {};
    if (!panel.operations.includes(operation)) return answer({ id, error: `${operation} is no operation of this plugin` });
    if (calls >= MOST_CALLS) return answer({ id, error: "too many calls at a time" });
    calls++;
    try {
      answer({ id, result: await wire.call(operation, JSON.parse(JSON.stringify(params ?? {}))) });
    } catch (error) {
      answer({ id, error: error.message });
    } finally {
      calls--;
    }
  }
  addEventListener("message", hear);
  view.onClose(() => removeEventListener("message", hear));
  return el("div", {}, el("p", {}, el("a", { href: "/plugins" }, "Plugins"), ` / ${panel.title}`), frame);
}
